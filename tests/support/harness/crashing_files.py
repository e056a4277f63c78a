"""A machine whose process can be killed in any system call, and that can lose power.

Every call is carried out on real files. A model beside them keeps the contents that each file can
have after a power loss. Synced data is certainly on the disk, other data possibly.

1. `kill` leaves the files unchanged, with a prefix of the interrupted write.
2. `lose_power` replaces the files by a state that the disk may have: all synced data, and of the
   rest any mixture of old bytes, new bytes and zeros.
"""

import random
from pathlib import Path

from cluster.storage.files import Files

PAGES = (1, 16, 512, 4096)
"""Sizes of a disk's pages in bytes; the disk writes a page as a whole.

A power loss loses or keeps a whole page: large pages lose much data together, small pages leave a
finer mixture of old and new data.
"""


class Killed(BaseException):
    """The process was killed in a system call; no `except` of the code under test may catch it."""


class _File:
    """A file's content at its last sync, and its content after each call since (`versions`)."""

    def __init__(self) -> None:
        self.versions = [b""]

    @property
    def content(self) -> bytes:
        return self.versions[-1]

    def after_power_loss(self, rng: random.Random) -> bytes:
        """Return a random content that the disk can have after a power loss.

        Its size lies between those of the smallest and the largest version. Each page comes from a
        random version; where that version is shorter, the page has zeros.
        """
        sizes = [len(version) for version in self.versions]
        size = rng.choice([*sizes, rng.randint(min(sizes), max(sizes))])
        page = rng.choice(PAGES)
        pages = [
            rng.choice(self.versions)[at : at + page].ljust(page, b"\0")
            for at in range(0, size, page)
        ]
        return b"".join(pages)[:size]


class CrashingFiles(Files):
    """The system calls of a machine's processes, one after the other, on the files of a directory.

    The directory must be empty at first.

    The name of a file and its content become durable separately. `sync_directory` makes the names
    durable, and `fdatasync` the content of one file.
    """

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self._directory = directory
        self._rng = rng
        self._open: dict[int, _File] = {}  # by descriptor
        self._named: dict[Path, _File] = {}
        """The names that a process sees now."""
        self._on_disk: dict[Path, _File] = {}
        """The names at the last sync of the directory."""
        self._renames: list[dict[Path, _File]] = []
        """The names after each change since that sync."""
        self._calls_left: int | None = None  # None: the process is not killed
        self._write_fails = False
        self.torn_bytes = 0
        """Bytes that the last kill left of the write that it interrupted."""

    # -- acts on the machine --

    def kill_in(self, calls: int) -> None:
        """Let `calls` system calls succeed, and kill the process in the one after them.

        `kill_in(0)` kills it in the next call.
        """
        self._calls_left = calls
        self.torn_bytes = 0

    def fill_disk(self) -> None:
        """Let the next write fail for lack of space, after a part of it was written."""
        self._write_fails = True

    def kill(self) -> None:
        """End the process: the kernel closes its files and keeps their contents."""
        self._calls_left = None
        self._write_fails = False
        for file in list(self._open):
            super().close(file)  # not `self.close`, which is a system call of the process
        self._open.clear()

    def lose_power(self) -> None:
        """End the machine, and replace its files by a random state that the disk can have."""
        self.kill()
        # The directory is as at its last sync, or as after any change of a name since then.
        names = self._rng.choice([self._on_disk, *self._renames])
        self._named = {}
        for path in sorted(self._directory.glob("*")):
            path.unlink()
        for path, lost_file in names.items():
            file = self._named[path] = _File()
            file.versions = [lost_file.after_power_loss(self._rng)]
            path.write_bytes(file.content)
        self._on_disk = dict(self._named)
        self._renames.clear()

    # -- the system calls --

    def open(self, path: Path) -> int:
        """Open a file."""
        self._enter()
        descriptor = super().open(path)
        file = self._named.get(path)
        if file is None:
            file = self._named[path] = _File()
            self._renames.append(dict(self._named))
        self._open[descriptor] = file
        return descriptor

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write `content` or a first part of it; after `fill_disk`, write a part and fail."""
        fails, self._write_fails = self._write_fails, False
        try:
            self._enter()
        except Killed:
            written = self._rng.randint(0, len(content))
            self._write(file, content[:written], position)
            # A write that left all its bytes is not torn.
            self.torn_bytes = written if written < len(content) else 0
            raise
        if fails:
            self._write(file, content[: self._rng.randrange(len(content))], position)
            raise OSError("no space left on device")
        # A system call is allowed to write fewer bytes than it was given; the caller must go on.
        written_part = content if self._rng.random() < 0.9 else content[: len(content) // 2 + 1]
        self._write(file, written_part, position)
        return len(written_part)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        self._enter()
        super().ftruncate(file, size)
        opened = self._open[file]
        opened.versions.append(opened.content[:size])

    def fdatasync(self, file: int) -> None:
        """Make the file's content durable."""
        self._enter()
        opened = self._open[file]
        opened.versions = [opened.content]

    def replace(self, source: Path, destination: Path) -> None:
        """Rename `source` to `destination`, in place of a file of that name."""
        self._enter()
        super().replace(source, destination)
        self._named[destination] = self._named.pop(source)
        self._renames.append(dict(self._named))

    def unlink(self, path: Path) -> None:
        """Delete a name."""
        self._enter()
        super().unlink(path)
        del self._named[path]
        self._renames.append(dict(self._named))

    def sync_directory(self, directory: Path) -> None:
        """Make the names durable."""
        self._enter()
        self._on_disk = dict(self._named)
        self._renames.clear()

    def close(self, file: int) -> None:
        """Close a file."""
        self._enter()
        super().close(file)
        del self._open[file]

    def _enter(self) -> None:
        """Count a system call; raise Killed if the process is to die in it."""
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left < 0:
                raise Killed

    def _write(self, file: int, content: bytes, position: int) -> None:
        """Write to the real file and to the model."""
        super().write(file, content, position)
        opened = self._open[file]
        old = opened.content
        # If the write begins beyond the file's end, zeros fill the space between.
        opened.versions.append(
            old[:position].ljust(position, b"\0") + content + old[position + len(content) :]
        )
