"""What every form of Storage promises; a new form is one more factory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.file_storage import FileStorage
from partition_log.memory_storage import MemoryStorage
from partition_log.storage import Storage
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from tests.partition_log.builders import PARTITION, batch

FACTORIES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _: MemoryStorage(),
    "file": FileStorage,
}


@pytest.fixture(params=list(FACTORIES))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return FACTORIES[request.param](tmp_path)


def test_log_that_was_never_written_is_empty(storage: Storage) -> None:
    """A broker opens the logs of every partition it is assigned, also of new ones."""
    assert len(storage.log(PARTITION)) == 0


def test_log_returns_batches_as_they_were_appended(storage: Storage) -> None:
    """The log reads by position and searches by base offset."""
    log = storage.log(PARTITION)
    appended = [batch("a", "b", base_offset=0), batch("c", base_offset=2, leader_epoch=4)]
    for each in appended:
        log.append(each)
    assert [log.batch(index) for index in range(len(log))] == appended
    assert [log.base_offset(index) for index in range(len(log))] == [0, 2]


def test_log_of_one_partition_is_one_log(storage: Storage) -> None:
    """Whoever asks for a partition's log again sees what was appended."""
    storage.log(PARTITION).append(batch())
    assert len(storage.log(PARTITION)) == 1
    assert len(storage.log(TopicPartition("other", 0))) == 0


def test_truncate_keeps_a_prefix_that_can_be_appended_to(storage: Storage) -> None:
    """A follower truncates, then appends what its new leader has."""
    log = storage.log(PARTITION)
    for offset in range(4):
        log.append(batch(base_offset=offset))
    log.truncate(2)
    log.append(batch("new", base_offset=2, leader_epoch=1))
    assert [log.batch(index).partition_leader_epoch for index in range(len(log))] == [0, 0, 1]


@pytest.mark.parametrize("length", [-1, 2])
def test_truncate_to_more_than_there_is_is_misuse(storage: Storage, length: int) -> None:
    """A length that cannot be kept would be a silent loss or a silent no-op."""
    log = storage.log(PARTITION)
    log.append(batch())
    with pytest.raises(SimulationError):
        log.truncate(length)
    assert len(log) == 1


def test_partitions_are_listed_in_order(storage: Storage) -> None:
    """Iteration order must not depend on who was opened first, or runs would differ."""
    for partition in [("t", 10), ("t", 2), ("s", 5)]:
        storage.log(TopicPartition(*partition)).append(batch())
    assert storage.partitions() == (
        TopicPartition("s", 5),
        TopicPartition("t", 2),
        TopicPartition("t", 10),
    )


def test_checkpoint_is_replaced_as_a_whole(storage: Storage) -> None:
    """A checkpoint is small state without history."""
    assert storage.read_checkpoint("replication-offset-checkpoint") is None
    storage.write_checkpoint("replication-offset-checkpoint", b"longer content")
    storage.write_checkpoint("replication-offset-checkpoint", b"short")
    assert storage.read_checkpoint("replication-offset-checkpoint") == b"short"


def test_flush_changes_nothing_that_can_be_read(storage: Storage) -> None:
    """Flushing only matters to what a power loss leaves."""
    log = storage.log(PARTITION)
    log.append(batch())
    log.flush()
    assert log.batch(0) == batch()
