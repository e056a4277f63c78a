"""The disk of one incarnation whose process is not its own: nothing writes to it after its end.

`kill -9` takes a process and all that it still wants to write. Here the process goes on, and with
it tasks of the dead node until each has met its cancellation: what they would write is refused.
"""

from pathlib import Path

from cluster.host.host import HostDead
from cluster.storage.file_storage import FileStorage
from cluster.storage.files import Files


class MortalFiles(Files):
    """The system calls of one incarnation. After `end` each raises HostDead."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._has_ended = False

    def end(self) -> None:
        """Refuse every call from now on."""
        self._has_ended = True

    def open(self, path: Path) -> int:
        """Open a file."""
        self._check()
        return super().open(path)

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write to a file."""
        self._check()
        return super().write(file, content, position)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut a file."""
        self._check()
        super().ftruncate(file, size)

    def fdatasync(self, file: int) -> None:
        """Wait until the disk has a file."""
        self._check()
        super().fdatasync(file)

    def replace(self, source: Path, destination: Path) -> None:
        """Give a file another's name."""
        self._check()
        super().replace(source, destination)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        self._check()
        super().unlink(path)

    def sync_directory(self, directory: Path) -> None:
        """Wait until the disk has a directory."""
        self._check()
        super().sync_directory(directory)

    def close(self, file: int) -> None:
        """Close a descriptor."""
        self._check()
        super().close(file)

    def _check(self) -> None:
        if self._has_ended:
            raise HostDead(f"{self._owner} is over: it writes nothing any more")


class LocalDisk:
    """The disk of one incarnation: `storage` is for its node, `close` for whoever ends it."""

    def __init__(self, directory: Path, owner: str) -> None:
        self._files = MortalFiles(owner)
        self.storage = FileStorage(directory, self._files)

    def close(self) -> None:
        """Close the files, whatever the node still wants. Twice does no harm."""
        self.storage.close()
        self._files.end()
