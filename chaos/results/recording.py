"""How a run ends whose disk is full, or whose files cannot be written, and what is kept of it.

A run begins with a reserve on its disk. When a write finds no room, the reserve is given up, and
the write is tried again: so the trace, the results and the manifest of a run whose disk filled can
still be finished, and read. The run heals, stops and proves nothing.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.disk_errors import unwritten

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

RESERVE_BYTES = 4 * 1024 * 1024
"""Room for the last row group of a trace, its footer and the run's JSON files."""
_RESERVE = ".reserve"


class NotRecorded(Exception):
    """A run or an exploration could not be written; names the path, the error and what is kept."""


class RunDisk:
    """Writes the files of one run directory, and keeps the reserve of its disk.

    `trouble` is the first error of a write, in words; `lost` says that a file misses what it was
    to hold, so that the run is not recorded.
    """

    def __init__(self, directory: Path) -> None:
        self._reserve = directory / _RESERVE
        self.trouble: str | None = None
        self.lost = False

    def reserve(self) -> None:
        """Take the reserve. Raises: OSError if there is no room for it."""
        file = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(file, 0, RESERVE_BYTES)
        finally:
            os.close(file)

    def give_up_reserve(self) -> bool:
        """Free the reserve; return whether there was one."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    def write(self, path: Path, act: Callable[[], None]) -> None:
        """Write a file by `act`, twice if it takes the reserve; never raises OSError."""
        try:
            self.attempt(path, act)
        except OSError:
            self.lost = True

    def attempt(self, path: Path, act: Callable[[], None]) -> None:
        """Do `act`, which writes `path` and may be done twice. Raises: OSError."""
        try:
            act()
        except OSError as error:
            if self.trouble is None:
                self.trouble = unwritten(path, error)
            if not self.give_up_reserve():
                raise
            act()


class TraceSink(io.RawIOBase):
    """A file of a run that is only appended to, as pyarrow writes one."""

    def __init__(self, path: Path, disk: RunDisk) -> None:
        super().__init__()
        self._path = path
        self._disk = disk
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write all of `content`. Raises: OSError; ValueError once it is closed."""
        if self.closed:
            # A writer that broke off ends its file when it is collected; by then the number of
            # this descriptor may be another file's.
            raise ValueError("write to closed file")
        left = memoryview(content).cast("B")
        size = left.nbytes
        while left:
            done = 0

            def write_some(rest: memoryview = left) -> None:
                nonlocal done
                done = write_bytes(self._file, rest)

            self._disk.attempt(self._path, write_some)
            left = left[done:]
        return size

    def close(self) -> None:
        """Close the file; twice does no harm."""
        if not self.closed:
            os.close(self._file)
        super().close()


def write_bytes(file: int, content: memoryview) -> int:
    """Write to a file descriptor and return how much was taken. Raises: OSError."""
    return os.write(file, content)
