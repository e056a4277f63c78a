"""The digest of a trace: two runs with the same digest wrote the same rows in the same order.

Its trail, a few digits for each stretch of time, tells where two runs parted that did not.
"""

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec.structs import astuple, replace

from protocol.trace import MESSAGE_KINDS, TraceRow

_ROWS_PER_CHUNK = 512
"""Rows encoded and hashed at once: half the time of one by one."""
FIRST_STEP_US = 1_000_000
MAX_MARKS = 32
"""A trail with more is thinned: every second mark is left out."""
MARK_DIGITS = 4


class TraceDigest:
    """A row observer that keeps a digest and a count instead of the rows.

    The digest covers every column but `run`: a run's id is not part of what happened in it.
    Shape: rows come in the order of their time, as in virtual time they do.
    """

    def __init__(self) -> None:
        self._step_us = FIRST_STEP_US
        self._next_us = FIRST_STEP_US
        self._marks: list[str] = []
        self._hash = blake2b(digest_size=16)
        self._chunk: list[TraceRow] = []
        self._rows_hashed = 0

    @property
    def rows(self) -> int:
        """Rows seen so far."""
        return self._rows_hashed + len(self._chunk)

    def __call__(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        if row.time_us >= self._next_us:
            self._mark(row.time_us)
        chunk = self._chunk
        chunk.append(row)
        if len(chunk) == _ROWS_PER_CHUNK:
            self._hash_chunk()

    def hexdigest(self) -> str:
        """Return the digest of the rows seen so far. More may follow: asking changes nothing."""
        whole = self._hash.copy()
        whole.update(_encode(self._chunk))
        return whole.hexdigest()

    def trail(self) -> str:
        """Return a step and, for each step, digits of the digest of what was before its end.

        Shape: `2s 1f3a 77b0` says what came before 2 s and before 4 s; at most MAX_MARKS of them.
        """
        return " ".join((f"{self._step_us // FIRST_STEP_US}s", *self._marks))

    def _hash_chunk(self) -> None:
        self._hash.update(_encode(self._chunk))
        self._rows_hashed += len(self._chunk)
        self._chunk.clear()

    def _mark(self, time_us: int) -> None:
        # What was before the mark is encoded once, here: where chunks end is up to the rows alone.
        self._hash_chunk()
        mark = self.hexdigest()[:MARK_DIGITS]
        while self._next_us <= time_us:
            self._marks.append(mark)
            self._next_us += self._step_us
            if len(self._marks) > MAX_MARKS:
                self._marks = self._marks[1::2]
                self._step_us *= 2
                self._next_us = (len(self._marks) + 1) * self._step_us


class EventsOnly:
    """Passes rows on as they would be with the trace off: without messages, counted anew."""

    def __init__(self, observer: Callable[[TraceRow], None]) -> None:
        self._observer = observer
        self._rows: dict[tuple[str, int], int] = {}

    def __call__(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        if row.kind in MESSAGE_KINDS:
            return
        life = (row.node, row.incarnation)
        seq = self._rows.get(life, 0)
        self._rows[life] = seq + 1
        self._observer(replace(row, seq=seq))


def parted_between(one: str, other: str) -> tuple[int, int | None] | None:
    """Return between which times two trails part, None where they do not.

    Units: microseconds; the later is None where all the marks that both have are equal, and one has
    more.
    """
    (step, marks), (other_step, other_marks) = _read(one), _read(other)
    longest = max(step, other_step)
    pairs = list(
        zip(
            marks[longest // step - 1 :: longest // step],
            other_marks[longest // other_step - 1 :: longest // other_step],
            strict=False,
        )
    )
    for index, (mark, other_mark) in enumerate(pairs):
        if mark != other_mark:
            return index * longest, (index + 1) * longest
    return None if one == other else (len(pairs) * longest, None)


def _read(trail: str) -> tuple[int, list[str]]:
    step, *marks = trail.split()
    return int(step.removesuffix("s")) * FIRST_STEP_US, marks


_encoder = msgspec.msgpack.Encoder()


def _encode(rows: list[TraceRow]) -> bytes:
    return _encoder.encode([astuple(row)[1:] for row in rows])
