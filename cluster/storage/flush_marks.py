"""FlushMark: the byte position in a log file below which a power loss takes nothing.

A power loss is simulated: after the kill of the process, each log is cut at its mark. The mark is
stored in a file beside the log. The real machine may lose power, too, at any moment. Therefore the
order of writes matters:

1. A flush syncs the data first (it waits until the disk has the data). Then it moves the mark up.
   So a flush never leaves a mark above bytes that the disk does not have.
2. A cut of the log below the mark moves the mark down first, and then cuts the log. Otherwise
   batches that are appended later would count as flushed, although no flush has synced them.

The file has two slots, each with room for one mark: a sequence number, the position and a CRC.
"""

import struct
from pathlib import Path

import google_crc32c

from cluster.storage.files import Files, write_all

_BODY = struct.Struct(">QQ")
"""Sequence number and position, followed by a CRC-32C of both."""
_CRC_BYTES = 4
_SLOT_BYTES = _BODY.size + _CRC_BYTES
_SLOT_DISTANCE = 512
"""Each slot is in a disk sector of its own, so a write that is cut off damages only one slot."""
_SLOTS = (0, 1)
_NO_MARK = (0, 0, 1)
"""Sequence number, position and slot of a log without a mark.

The slot is 1, so that the first mark goes into slot 0."""


class FlushMark:
    """The mark of one log. The slot with the higher sequence number counts.

    New marks are written into the free slot, while the other slot keeps the last synced mark. Once
    a new mark is synced, the two slots change roles. So a power loss in the middle of a write
    damages only the free slot, and the other slot still has a valid mark.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._file: int | None = None
        """Descriptor of the mark's file; None until the file is opened."""
        self._sequence, self.position, slot = _read_newest_mark(path)
        """`position`: size of the part of the log that survives a power loss."""
        self._free_slot = 1 - slot
        """The slot that the next mark overwrites."""
        self._is_synced = False
        """True if the disk is known to have the newest mark."""

    def open(self) -> int:
        """Return the file's descriptor; the first call opens the file, and creates it if missing.

        An earlier process may have died before it synced its mark. So an existing mark is synced
        here, before `move` overwrites the other slot.
        Raises: OSError.
        """
        if self._file is None:
            file = self._files.open(self._path)
            if self._sequence:  # 0 means that there is no mark
                self._files.fdatasync(file)
            self._file = file
            self._is_synced = True
        return self._file

    def move(self, position: int, *, sync: bool) -> None:
        """Set the mark; with `sync`, return once the disk has it. Raises: OSError."""
        file = self.open()
        # Nothing to do if the newest mark is at this position. With `sync`, the disk must have it.
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
            # The slots change roles only after a sync. Otherwise the next mark would overwrite the
            # last synced mark, while the mark written here may not be on the disk.
            self._free_slot = 1 - self._free_slot

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._files.close(self._file)
            self._file = None


def read_flush_mark(path: Path) -> int:
    """Return the position of the mark in a file, 0 if the file has no valid mark."""
    return _read_newest_mark(path)[1]


def _read_newest_mark(path: Path) -> tuple[int, int, int]:
    """Return sequence number, position and slot of the newest valid mark, else _NO_MARK."""
    content = path.read_bytes() if path.exists() else b""
    newest = _NO_MARK
    for slot in _SLOTS:
        # The slot's bytes; fewer if the file is shorter.
        stored = content[slot * _SLOT_DISTANCE :][:_SLOT_BYTES]
        body = stored[: _BODY.size]
        # A slot that was never written has zeros. Zeros do not pass the test below, because the
        # CRC of a body of zeros is not 0.
        if len(stored) == _SLOT_BYTES and stored[_BODY.size :] == _crc(body):
            sequence, position = _BODY.unpack(body)
            newest = max(newest, (sequence, position, slot))  # compares the sequence numbers first
    return newest


def _crc(body: bytes) -> bytes:
    return int(google_crc32c.value(body)).to_bytes(_CRC_BYTES, "big")
