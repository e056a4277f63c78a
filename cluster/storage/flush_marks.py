"""FlushMark: up to which byte of a log file a power loss takes nothing, kept in a file beside it.

The mark is written after what it stands for: data synced first, then the mark, so it never promises
too much. Before a log is cut below its mark, the mark falls first: what is appended to the shorter
log afterwards would count as flushed otherwise.
"""

import struct
from pathlib import Path

import google_crc32c

from cluster.storage.files import Files, write_all

_BODY = struct.Struct(">QQ")
"""Sequence number and position; a CRC-32C of the two follows."""
_SLOT_BYTES = _BODY.size + 4
_SLOT_DISTANCE = 512
"""Bytes from one slot to the other: each has a sector of its own, so no write can spoil both."""
_SLOTS = (0, 1)


class FlushMark:
    """The mark of one log, in two slots; the one with the higher sequence number counts.

    Invariant: the slot of the last mark that was synced is written to only once the other slot was
    synced: a power loss in the middle of a write leaves a mark that was true.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._file: int | None = None
        self._sequence, self.position, slot = _read(path)
        """`position`: bytes of the log that survive a power loss."""
        self._free_slot = 1 - slot
        self._is_synced = False

    def open(self) -> int:
        """Open the file, made if there was none, once; return its descriptor. Raises: OSError.

        What an earlier process left in it may never have been synced: it is now.
        """
        if self._file is None:
            file = self._files.open(self._path)
            if self._sequence:
                self._files.fdatasync(file)
            self._file = file
            self._is_synced = True
        return self._file

    def move(self, position: int, *, sync: bool) -> None:
        """Set the mark; if `sync`, return once the disk has it. Raises: OSError."""
        file = self.open()
        if position == self.position and (self._is_synced or not sync):
            return
        self._sequence += 1
        self._is_synced = False
        body = _BODY.pack(self._sequence, position)
        write_all(self._files, file, body + _crc(body), at=self._free_slot * _SLOT_DISTANCE)
        self.position = position
        if sync:
            self._files.fdatasync(file)
            self._is_synced = True
            self._free_slot = 1 - self._free_slot

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._files.close(self._file)
            self._file = None


def read_flush_mark(path: Path) -> int:
    """Return the mark that a process left in its file, 0 where there is none."""
    return _read(path)[1]


def _read(path: Path) -> tuple[int, int, int]:
    """Return sequence number, position and slot of the mark that counts."""
    content = path.read_bytes() if path.exists() else b""
    found = (0, 0, 1)
    for slot in _SLOTS:
        stored = content[slot * _SLOT_DISTANCE :][:_SLOT_BYTES]
        body = stored[: _BODY.size]
        # Zeros, which a file has between its slots, have another CRC than zero.
        if len(stored) == _SLOT_BYTES and stored[_BODY.size :] == _crc(body):
            sequence, position = _BODY.unpack(body)
            found = max(found, (sequence, position, slot))
    return found


def _crc(body: bytes) -> bytes:
    return int(google_crc32c.value(body)).to_bytes(4, "big")
