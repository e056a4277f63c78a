"""The digest of a trace: two runs with the same digest wrote the same rows in the same order."""

from hashlib import blake2b

import msgspec
from msgspec.structs import astuple

from protocol.trace import TraceRow

ROWS_PER_CHUNK = 512
"""Rows hashed at once: one call of the hash function for many rows."""


class TraceDigest:
    """A row observer that keeps a digest and a count instead of the rows.

    The digest covers every column but `run`: a run's id is not part of what happened in it.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        self._chunk: list[TraceRow] = []
        self.rows = 0
        """Rows seen so far."""

    def __call__(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        self.rows += 1
        self._chunk.append(row)
        if len(self._chunk) == ROWS_PER_CHUNK:
            self._flush()

    def hexdigest(self) -> str:
        """Return the digest of the rows seen so far; more may follow.

        Chunks end after a fixed number of rows and at each call of this method. The encoding of
        the rows is a plain concatenation, so where chunks end does not change the digest.
        """
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        encode = self._encoder.encode
        self._hash.update(b"".join([encode(astuple(row)[1:]) for row in self._chunk]))
        self._chunk.clear()
