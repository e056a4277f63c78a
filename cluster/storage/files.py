"""Files: the system calls through which a broker's disk is written, in one place.

A test may stop them anywhere, as `kill -9` and a power loss do. Reading needs no such seam.
"""

import os
from pathlib import Path

_datasync = getattr(os, "fdatasync", os.fsync)


class Files:
    """The operating system's own calls. Each raises OSError."""

    def open(self, path: Path) -> int:
        """Open a file to read and write, made empty if there was none; return its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write `content` at `position`; return how many bytes of it were written."""
        return os.pwrite(file, content, position)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut the file, or fill it up with zeros, to `size` bytes."""
        os.ftruncate(file, size)

    def fdatasync(self, file: int) -> None:
        """Wait until the disk has the file's content and size.

        Source: fdatasync(2): a size that ftruncate changed is among what it writes. Where a system
        has no such call, fsync does more.
        """
        _datasync(file)

    def replace(self, source: Path, destination: Path) -> None:
        """Give `source` the name `destination`, in one step."""
        source.replace(destination)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def sync_directory(self, directory: Path) -> None:
        """Wait until the disk has the directory: which files there are, and their names."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, file: int) -> None:
        """Close a descriptor."""
        os.close(file)


def write_all(files: Files, file: int, content: bytes, *, at: int) -> None:
    """Write all of `content` at byte `at`, in several writes if the system takes less at once."""
    written = 0
    while written < len(content):
        written += files.write(file, content[written:], at + written)
