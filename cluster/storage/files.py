"""Files: all system calls that write to a node's disk.

Tests replace this class by a class that stops at a certain call. So they see what a `kill -9` or a
power loss at this moment leaves on the disk. System calls that read are not here, because they
change nothing.
"""

import os
from pathlib import Path

_datasync = getattr(os, "fdatasync", os.fsync)


class Files:
    """The operating system's own calls. Each raises OSError."""

    def open(self, path: Path) -> int:
        """Open a file for reading and writing, created if missing; return its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write `content` at `position`; return the number of bytes written."""
        return os.pwrite(file, content, position)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""
        os.ftruncate(file, size)

    def fdatasync(self, file: int) -> None:
        """Wait until the disk has the file's content and size.

        Systems without fdatasync use fsync, which also waits for the file's times.
        Source: fdatasync(2), which says that a size changed by ftruncate is written, too.
        """
        _datasync(file)

    def replace(self, source: Path, destination: Path) -> None:
        """Rename `source` to `destination` atomically."""
        source.replace(destination)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def sync_directory(self, directory: Path) -> None:
        """Wait until the disk has the directory: the set of files and their names."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, file: int) -> None:
        """Close a descriptor."""
        os.close(file)


def write_all(files: Files, file: int, content: bytes, *, at: int) -> None:
    """Write all of `content` at byte `at`.

    A single write may write only a part of its content. Then further writes follow.
    """
    written = 0
    while written < len(content):
        written += files.write(file, content[written:], at + written)
