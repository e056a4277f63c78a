"""Files of a process that can be killed in any system call, on a machine that can lose power.

The code under test makes its system calls through CrashingFiles, which carries them out on real
files. There are two kinds of accidents:

1. The process is killed. Then the files stay as they are. A process that was killed during a write
   has written only a first part of the data.
2. The machine loses power. Then only synced data is sure to be on the disk. In the place of other
   data there is any mixture of old bytes, new bytes and zeros. To draw such a mixture, a model
   beside the real files keeps all contents that each file has had since its last sync.
"""

import random
from pathlib import Path

from cluster.storage.files import Files

PAGES = (1, 16, 512, 4096)
"""Possible sizes of a disk's pages, in bytes.

A disk writes whole pages. So after a power loss, each page has either its old or its new content.
With small pages, the mixture of old and new data is finer.
"""


class Killed(BaseException):
    """The process was killed in a system call.

    This is a BaseException, so that the code under test does not catch it by `except Exception`.
    """


class _File:
    """All contents that a file has had since its last sync, in `versions`."""

    def __init__(self) -> None:
        # The first version is the content at the last sync. The last version is the present
        # content.
        self.versions = [b""]

    @property
    def content(self) -> bytes:
        return self.versions[-1]

    def after_power_loss(self, rng: random.Random) -> bytes:
        """Return a random content that the disk can have after a power loss.

        The size of this content is the size of some version, or any size between the smallest and
        the largest version. Each page is taken from a random version. Where this version has
        already ended, the page has zeros.
        """
        sizes = [len(version) for version in self.versions]
        size = rng.choice([*sizes, rng.randint(min(sizes), max(sizes))])
        page_size = rng.choice(PAGES)
        pages = [
            rng.choice(self.versions)[start : start + page_size].ljust(page_size, b"\0")
            for start in range(0, size, page_size)
        ]
        return b"".join(pages)[:size]


class CrashingFiles(Files):
    """System calls on the files of a directory, which must be empty at first.

    After an accident, the test goes on with the same CrashingFiles, as if a new process made the
    calls. The name of a file and its content become durable separately: `sync_directory` makes the
    names of all files durable, and `fdatasync` makes the content of one file durable.
    """

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self._directory = directory
        self._rng = rng
        # Descriptor -> the open file.
        self._open: dict[int, _File] = {}
        # The files in the directory, by name, as a process sees them now.
        self._named: dict[Path, _File] = {}
        # The files by name at the last sync of the directory.
        self._synced_names: dict[Path, _File] = {}
        # The files by name after each change of a name since the last sync of the directory.
        self._later_names: list[dict[Path, _File]] = []
        # The number of calls that succeed before the process is killed; None: it is not killed.
        self._calls_left: int | None = None
        # If True, the next write fails because the disk is full.
        self._write_fails = False
        # The number of bytes that an interrupted write has written; 0 if no write was interrupted
        # since the last call of `kill_in`.
        self.torn_bytes = 0

    # -- accidents --

    def kill_in(self, calls: int) -> None:
        """Let `calls` more system calls succeed, and kill the process in the following call.

        So `kill_in(0)` kills the process in its next call.
        """
        self._calls_left = calls
        self.torn_bytes = 0

    def fill_disk(self) -> None:
        """Let the next write fail because the disk is full, after a part of it was written."""
        self._write_fails = True

    def kill(self) -> None:
        """End the process. The system closes its files and keeps their contents."""
        self._calls_left = None
        self._write_fails = False
        for file in list(self._open):
            # `self.close` would count as a call of the process. But the system closes this file.
            super().close(file)
        self._open.clear()

    def lose_power(self) -> None:
        """End the process, and replace the files by a random state that the disk can have."""
        self.kill()
        # The disk has the names of the last sync of the directory, or of any change since then.
        names = self._rng.choice([self._synced_names, *self._later_names])
        self._named = {}
        for path in sorted(self._directory.glob("*")):
            path.unlink()
        for path, lost_file in names.items():
            file = self._named[path] = _File()
            file.versions = [lost_file.after_power_loss(self._rng)]
            path.write_bytes(file.content)
        self._synced_names = dict(self._named)
        self._later_names.clear()

    # -- the system calls --

    def open(self, path: Path) -> int:
        """Open a file, or create it."""
        self._enter()
        descriptor = super().open(path)
        file = self._named.get(path)
        if file is None:
            file = self._named[path] = _File()
            self._later_names.append(dict(self._named))
        self._open[descriptor] = file
        return descriptor

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write `content`, or only a first part of it; return how many bytes were written."""
        # Only one write fails after `fill_disk`.
        fails = self._write_fails
        self._write_fails = False
        try:
            self._enter()
        except Killed:
            written = self._rng.randint(0, len(content))
            self._write(file, content[:written], position)
            # The write is torn only if some of its bytes are missing.
            self.torn_bytes = written if written < len(content) else 0
            raise
        if fails:
            self._write(file, content[: self._rng.randrange(len(content))], position)
            raise OSError("no space left on device")
        # A system may write fewer bytes than it was given. Then the caller must write the rest.
        # Here this happens in one of ten writes.
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
        """Rename `source` to `destination`, and replace a file that has this name."""
        self._enter()
        super().replace(source, destination)
        self._named[destination] = self._named.pop(source)
        self._later_names.append(dict(self._named))

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        self._enter()
        super().unlink(path)
        del self._named[path]
        self._later_names.append(dict(self._named))

    def sync_directory(self, directory: Path) -> None:
        """Make the names of all files durable."""
        self._enter()
        self._synced_names = dict(self._named)
        self._later_names.clear()

    def close(self, file: int) -> None:
        """Close a file."""
        self._enter()
        super().close(file)
        del self._open[file]

    def _enter(self) -> None:
        """Count a system call. Raises: Killed if the process shall die in this call."""
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left < 0:
                raise Killed

    def _write(self, file: int, content: bytes, position: int) -> None:
        """Write to the real file and to the model."""
        super().write(file, content, position)
        opened = self._open[file]
        old = opened.content
        # If the write begins beyond the end of the file, zeros fill the gap.
        before = old[:position].ljust(position, b"\0")
        after = old[position + len(content) :]
        opened.versions.append(before + content + after)
