"""The disk of a node that shares its process with other nodes.

Such a node cannot be killed like a process. Its code may still run for a moment when the node has
ended and its successor has opened the same files. So its disk, a LocalDisk, must refuse all writes
from then on. MortalFiles are the system calls with which the disk writes.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.host.host import HostDead
from cluster.local.disks import LocalDisk, MortalFiles
from cluster.storage.file_storage import FileStorage
from protocol.ids import offsets_partition
from tests.support.builders.partition_logs import batch

PARTITION = offsets_partition(0)  # `__consumer_offsets-0`; any partition would do


def test_an_ended_incarnation_writes_no_more(tmp_path: Path) -> None:
    """A write of a node that has ended must raise, and must not reach the disk.

    "broker-0-0" is the first life (incarnation 0) of the node broker-0. A node's code gets a
    HostDead from every call to its host, of which the disk is a part, when its incarnation is over.
    """
    disk = LocalDisk(tmp_path, "broker-0-0")
    log = disk.storage.log(PARTITION)
    log.append(batch("a", base_offset=0))
    disk.close()
    disk.close()  # a second close must do nothing

    with pytest.raises(HostDead, match="broker-0-0 has ended"):
        log.append(batch("b", base_offset=1))
    with pytest.raises(HostDead):
        disk.storage.write_checkpoint("replication-offset-checkpoint", b"0")
    assert len(FileStorage(tmp_path).log(PARTITION)) == 1  # only the first batch is on the disk


@pytest.mark.parametrize(
    "call",
    [
        lambda files, path: files.open(path),
        lambda files, path: files.write(0, b"", 0),  # file, content, position in the file
        lambda files, path: files.ftruncate(0, 0),
        lambda files, path: files.fdatasync(0),
        lambda files, path: files.replace(path, path),
        lambda files, path: files.unlink(path),
        lambda files, path: files.sync_directory(path),
        lambda files, path: files.close(0),
    ],
    ids=["open", "write", "ftruncate", "fdatasync", "replace", "unlink", "sync", "close"],
)
def test_no_call_reaches_the_system_after_the_end(
    tmp_path: Path, call: Callable[[MortalFiles, Path], object]
) -> None:
    """Each call raises before it has an effect.

    This also matters for calls that have only the number of a file, here 0. The system may have
    given the number to another file by now.
    """
    files = MortalFiles("broker-0-0")
    files.end()
    with pytest.raises(HostDead):
        call(files, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
