"""LocalDisk: a node's disk, which refuses every write after the node was killed or has stopped.

After a real `kill -9`, a process writes nothing any more. In the local runtime all nodes share one
process, so the tasks of a killed node still run until they are cancelled. Therefore the writes of
these tasks must fail.

A node that is started again gets a new LocalDisk in the same directory.
"""

from pathlib import Path

from cluster.host.host import HostDead
from cluster.storage.file_storage import FileStorage
from cluster.storage.files import Files


class MortalFiles(Files):
    """The system calls with which a node writes. After `end`, each of them raises HostDead."""

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
        """Flush a file's data to the disk."""
        self._check()
        super().fdatasync(file)

    def replace(self, source: Path, destination: Path) -> None:
        """Rename a file; it takes the place of a file at `destination`."""
        self._check()
        super().replace(source, destination)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        self._check()
        super().unlink(path)

    def sync_directory(self, directory: Path) -> None:
        """Flush a directory's entries to the disk."""
        self._check()
        super().sync_directory(directory)

    def close(self, file: int) -> None:
        """Close a descriptor."""
        self._check()
        super().close(file)

    def _check(self) -> None:
        """Refuse the call if the node has ended. Raises: HostDead."""
        if self._has_ended:
            raise HostDead(f"{self._owner} has ended and must not write")


class LocalDisk:
    """A node's disk, from one start of the node to its next end.

    The node uses `storage`. LocalLives calls `close` when the node has ended.
    """

    def __init__(self, directory: Path, owner: str) -> None:
        self._files = MortalFiles(owner)
        self.storage = FileStorage(directory, self._files)

    def close(self) -> None:
        """Close the files, and refuse later calls of the node. May be called twice."""
        # The files are closed first, because no file can be closed after `end`.
        self.storage.close()
        self._files.end()
