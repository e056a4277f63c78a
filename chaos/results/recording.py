"""RunDisk: writes a run's files, even if the disk becomes full during the run.

A run injects faults into a cluster. If the disk becomes full during the run, the run undoes its
faults and stops, without a verdict about the cluster. But it must still complete its trace, its
results and its manifest, so that a user can read what happened. For this it needs space on the full
disk. So each run reserves some space when it begins: it creates a file of 4 MB. Later this may
happen:

1. A write fails.
2. The reserve is deleted, and the write is tried again.
3. The run ends at its next regular check, and writes its last files into the freed space.

There is only one reserve. If another write fails after this, the content of that write is lost.
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
"""Size of the reserve: enough for the end of the trace's Parquet file and the JSON files."""
_RESERVE = ".reserve"


class NotRecorded(Exception):
    """A run, or a search over many runs (an exploration), could not be written to the disk.

    The classes of the run's and of the search's directory raise this exception. The message has the
    path, the error, and the files that were kept.
    """


class RunDisk:
    """Writes the files of one run directory, and owns the reserve on its disk.

    - `trouble`: the message of the first failed write, even if the write succeeded when it was
      repeated; None if no write has failed.
    - `lost`: True if a call of `write` failed for good. Then a file is incomplete, and the run
      counts as not recorded.
    """

    def __init__(self, directory: Path) -> None:
        self._reserve = directory / _RESERVE
        self.trouble: str | None = None
        self.lost = False

    def reserve(self) -> None:
        """Allocate the reserve, a file of RESERVE_BYTES. Raises: OSError if there is no room."""
        file = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            # This takes the space on the disk. A file that is only made longer would take none.
            os.posix_fallocate(file, 0, RESERVE_BYTES)
        finally:
            os.close(file)

    def free_reserve(self) -> bool:
        """Free the reserve; return True if there was one."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    def write(self, path: Path, act: Callable[[], None]) -> None:
        """Call `act`, a function that writes the file `path`; note a failure instead of raising.

        As in `attempt`, the function is called a second time if the first call fails.
        """
        try:
            self.attempt(path, act)
        except OSError:
            self.lost = True

    def attempt(self, path: Path, act: Callable[[], None]) -> None:
        """Call `act`, a function that writes the file `path`.

        If the call fails, the reserve is freed, and `act` is called again.

        Raises: OSError if the second call fails, too, or if the reserve was freed before.
        """
        try:
            act()
        except OSError as error:
            if self.trouble is None:
                self.trouble = unwritten(path, error)
            if not self.free_reserve():  # it was freed before
                raise
            act()


class TraceSink(io.RawIOBase):
    """The file of a trace as a stream that pyarrow can write to, through the run's RunDisk."""

    def __init__(self, path: Path, disk: RunDisk) -> None:
        super().__init__()
        self._path = path
        self._disk = disk
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write all of `content`. Raises: OSError; ValueError once the file is closed."""
        if self.closed:
            # If a writer of pyarrow has failed, it still writes its footer later, when it is
            # garbage-collected. By then another file may have the number of this descriptor, and
            # would get the footer.
            raise ValueError("write to closed file")
        remaining = memoryview(content).cast("B")
        size = remaining.nbytes
        while remaining:
            written = 0

            # If the disk is nearly full, a write may write only a part of the bytes. So the loop
            # goes on until no bytes remain. The default argument gives the function the bytes that
            # remain at this moment. `attempt` may call the function twice with the same bytes.
            def write_some(rest: memoryview = remaining) -> None:
                nonlocal written
                written = write_bytes(self._file, rest)

            self._disk.attempt(self._path, write_some)
            remaining = remaining[written:]
        return size

    def close(self) -> None:
        """Close the file. May be called twice."""
        if not self.closed:
            os.close(self._file)
        super().close()


def write_bytes(file: int, content: memoryview) -> int:
    """Write to a file descriptor; return the number of bytes that were written. Raises: OSError.

    Tests replace this function by one that behaves as if the disk were full.
    """
    return os.write(file, content)
