"""The promises of every Storage, in memory or in files.

A broker writes its logs and checkpoints to a Storage, and gets a new Storage at each start. In the
tests, `disk.boot()` kills the broker, and returns the storage with which the broker starts again.
`disk.lose_power()` kills the broker and removes all batches that were not flushed. The number of
flushed batches of a log is its flush mark. After a power loss, the next storage reports the batches
that each log has lost (`take_recoveries`).

The tests run with each kind of Disk. For a new implementation of Storage, add a Disk to DISKS.
"""

from pathlib import Path
from typing import Protocol

import pytest

from cluster.storage.file_storage import FileStorage, cut_to_flush_marks
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryStorage
from partition_log.storage import LogStorage, Storage
from protocol.causes import RecoveryCause
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import TopicPartition
from protocol.records.batch import RecordBatch
from tests.support.builders.partition_logs import PARTITION, batch

OTHER_PARTITION = TopicPartition("orders", 0)


class Disk(Protocol):
    """A broker's disk, which remains when the broker is killed and started again."""

    def boot(self) -> Storage:
        """Kill the broker if it runs, and return the storage with which it starts again."""

    def lose_power(self) -> None:
        """Kill the broker and remove all unflushed data."""


class MemoryDisk:
    """The disk of a broker in virtual time, in the memory of the test's process."""

    def __init__(self, directory: Path) -> None:
        del directory  # only the other kind of disk needs it
        self._storage = MemoryStorage()

    def boot(self) -> Storage:
        # A copy, because code from before the kill must not write to the disk of the next start.
        self._storage = self._storage.copy()
        return self._storage

    def lose_power(self) -> None:
        self._storage.power_loss()


class FileDisk:
    """A disk of real files. After a power loss the files are cut to their flush marks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "disk"

    def boot(self) -> Storage:
        # The earlier FileStorage is not closed: a killed process closes nothing.
        return FileStorage(self._directory)

    def lose_power(self) -> None:
        cut_to_flush_marks(self._directory)


DISKS: dict[str, type[MemoryDisk] | type[FileDisk]] = {"memory": MemoryDisk, "file": FileDisk}
"""The kinds of Disk. Each test runs once with each kind."""


@pytest.fixture(params=list(DISKS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Return a disk of each kind, in turn."""
    return DISKS[request.param](tmp_path)


@pytest.fixture
def storage(disk: Disk) -> Storage:
    """Return the storage with which a broker starts first."""
    return disk.boot()


def append(log: LogStorage, *, up_to: int, leader_epoch: int = 0) -> None:
    """Append batches of one record until the log ends at `up_to`.

    The value of a record is its offset and leader epoch, such as "2@0".
    """
    for offset in range(len(log), up_to):
        log.append(batch(f"{offset}@{leader_epoch}", base_offset=offset, leader_epoch=leader_epoch))


def batches(log: LogStorage) -> list[RecordBatch]:
    """Return the batches of a log."""
    return [log.batch(index) for index in range(len(log))]


def test_log_that_was_never_written_is_empty(storage: Storage) -> None:
    """A broker opens the log of each partition of which it has a replica, even a new partition."""
    assert len(storage.log(PARTITION)) == 0


def test_log_returns_batches_as_they_were_appended(storage: Storage) -> None:
    """`log.batch(1)` is the second batch of the log, whatever its offset."""
    log = storage.log(PARTITION)
    appended = [batch("a", "b", base_offset=0), batch("c", base_offset=2, leader_epoch=4)]
    for appended_batch in appended:
        log.append(appended_batch)
    assert batches(log) == appended
    assert [log.base_offset(index) for index in range(len(log))] == [0, 2]


def test_opening_a_log_twice_gives_one_log(storage: Storage) -> None:
    """The second caller gets the log with the appends of the first caller."""
    storage.log(PARTITION).append(batch())
    assert len(storage.log(PARTITION)) == 1
    assert len(storage.log(OTHER_PARTITION)) == 0  # another partition has another log


def test_log_can_be_appended_to_after_a_truncation(storage: Storage) -> None:
    """A follower truncates its log and then appends the batches of its new leader."""
    log = storage.log(PARTITION)
    for offset in range(4):
        log.append(batch(base_offset=offset))
    log.truncate(2)
    log.append(batch("new", base_offset=2, leader_epoch=1))
    assert [kept.partition_leader_epoch for kept in batches(log)] == [0, 0, 1]


@pytest.mark.parametrize("length", [-1, 2])
def test_truncate_to_an_impossible_length_raises_an_exception(
    storage: Storage, length: int
) -> None:
    """Without the exception -1 could remove batches by mistake, and 2 would do nothing."""
    log = storage.log(PARTITION)
    log.append(batch())
    with pytest.raises(SimulationError):
        log.truncate(length)
    assert len(log) == 1


def test_partitions_are_listed_in_order(storage: Storage) -> None:
    """The order must not depend on the order in which logs are opened.

    Otherwise runs would differ.
    """
    for partition in [("t", 10), ("t", 2), ("s", 5)]:
        storage.log(TopicPartition(*partition)).append(batch())
    assert storage.partitions() == (
        TopicPartition("s", 5),
        TopicPartition("t", 2),
        TopicPartition("t", 10),
    )


def test_checkpoint_is_replaced_as_a_whole(storage: Storage) -> None:
    """Nothing is left of the longer content that was written before."""
    assert storage.read_checkpoint("replication-offset-checkpoint") is None
    storage.write_checkpoint("replication-offset-checkpoint", b"longer content")
    storage.write_checkpoint("replication-offset-checkpoint", b"short")
    assert storage.read_checkpoint("replication-offset-checkpoint") == b"short"


def test_flush_changes_no_readable_data(storage: Storage) -> None:
    """A flush changes only what remains after a power loss.

    The broker calls `flush`. `write_back` is a write that the operating system does by itself.
    """
    log = storage.log(PARTITION)
    log.append(batch())
    log.flush()
    log.write_back()
    assert log.batch(0) == batch()


# -- flush marks and power losses --


def test_appended_batches_are_unflushed_until_a_flush(storage: Storage) -> None:
    """An append writes only to the page cache, which is memory of the operating system."""
    log = storage.log(PARTITION)
    append(log, up_to=2)
    assert log.flushed_length == 0
    log.flush()
    assert log.flushed_length == 2
    append(log, up_to=3)
    assert log.flushed_length == 2
    log.write_back()
    assert log.flushed_length == 3


def test_kill_keeps_unflushed_batches(disk: Disk) -> None:
    """`kill -9` ends the process, but the page cache remains. The batches are still unflushed."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=1)
    log.flush()
    append(log, up_to=3)
    storage = disk.boot()
    reopened = storage.log(PARTITION)
    assert [reopened.base_offset(index) for index in range(len(reopened))] == [0, 1, 2]
    assert reopened.flushed_length == 1
    assert storage.take_recoveries() == ()


@pytest.mark.parametrize("is_write_back", [False, True])
def test_power_loss_truncates_to_the_flush_mark(disk: Disk, is_write_back: bool) -> None:
    """Data that the broker has flushed, or the operating system has written back, remain."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=2)
    if is_write_back:
        log.write_back()
    else:
        log.flush()
    append(log, up_to=5)
    disk.lose_power()
    reopened = disk.boot().log(PARTITION)
    assert batches(reopened) == [batch("0@0", base_offset=0), batch("1@0", base_offset=1)]
    assert reopened.flushed_length == 2


def test_power_loss_is_reported_once_with_the_lost_batches(disk: Disk) -> None:
    """Only the next start of the broker reports the loss in the trace."""
    storage = disk.boot()
    append(storage.log(OTHER_PARTITION), up_to=1)  # one batch, which is not flushed

    log = storage.log(PARTITION)
    append(log, up_to=2)
    log.flush()
    append(log, up_to=5)  # three more batches, which are not flushed
    disk.lose_power()
    storage = disk.boot()

    recoveries = storage.take_recoveries()
    # The reports are in the order of the partitions' names: __consumer_offsets-3, orders-0.
    assert [recovery.partition for recovery in recoveries] == [PARTITION, OTHER_PARTITION]
    assert [recovery.log_end_offset for recovery in recoveries] == [2, 0]
    assert [recovery.cut_batches for recovery in recoveries] == [3, 1]
    assert {recovery.cause for recovery in recoveries} == {RecoveryCause.POWER_LOSS}
    # The number of cut bytes differs between the kinds of Disk.
    assert all(recovery.cut_bytes > 0 for recovery in recoveries)
    assert storage.take_recoveries() == ()
    assert disk.boot().take_recoveries() == ()


def test_unread_report_of_a_power_loss_survives_the_next_one(disk: Disk) -> None:
    """A broker may lose power twice before it reads the report."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=1)
    disk.lose_power()
    append(disk.boot().log(PARTITION), up_to=2)
    disk.lose_power()
    # The first loss cut one batch. Then two batches were written, which the second loss cut.
    assert [recovery.cut_batches for recovery in disk.boot().take_recoveries()] == [1, 2]


def test_power_loss_without_unflushed_batches_loses_and_reports_nothing(disk: Disk) -> None:
    """A broker that flushes every batch loses nothing, so there is nothing to report."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=3)
    log.flush()
    disk.lose_power()
    storage = disk.boot()
    assert len(storage.log(PARTITION)) == 3
    assert storage.take_recoveries() == ()


def test_power_loss_of_an_unwritten_disk_loses_nothing(disk: Disk) -> None:
    """A broker may lose power before it has created a log."""
    disk.boot()
    disk.lose_power()
    assert disk.boot().partitions() == ()


def test_truncate_below_the_flush_mark_lowers_the_mark(disk: Disk) -> None:
    """If the mark stayed, batches that replace the truncated batches would count as flushed."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=4)
    log.flush()
    log.truncate(1)
    assert log.flushed_length == 1
    append(log, up_to=4, leader_epoch=1)
    assert log.flushed_length == 1
    disk.lose_power()
    assert batches(disk.boot().log(PARTITION)) == [batch("0@0", base_offset=0)]


def test_truncate_above_the_flush_mark_keeps_the_mark(disk: Disk) -> None:
    """The truncated batch was not flushed, so the number of flushed batches does not change."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=1)
    log.flush()
    append(log, up_to=4)
    log.truncate(3)
    assert log.flushed_length == 1
    log.flush()
    disk.lose_power()
    assert len(disk.boot().log(PARTITION)) == 3


def test_power_loss_after_a_truncation_does_not_restore_truncated_batches(disk: Disk) -> None:
    """The batch at offset 2 is truncated and written anew. The old batch must not come back."""
    log = disk.boot().log(PARTITION)
    append(log, up_to=3)
    log.flush()
    log.truncate(2)
    append(log, up_to=3, leader_epoch=1)
    log.flush()
    disk.lose_power()
    assert disk.boot().log(PARTITION).batch(2).partition_leader_epoch == 1


def test_log_after_a_power_loss_is_written_and_flushed_again(disk: Disk) -> None:
    """A follower fetches the lost batches again. If it flushes them, they survive the next loss."""
    append(disk.boot().log(PARTITION), up_to=3)
    disk.lose_power()
    log = disk.boot().log(PARTITION)
    append(log, up_to=2, leader_epoch=1)
    log.flush()
    append(log, up_to=3, leader_epoch=1)
    disk.lose_power()
    reopened = disk.boot().log(PARTITION)
    assert [kept.partition_leader_epoch for kept in batches(reopened)] == [1, 1]


def test_checkpoint_survives_kill_and_power_loss(disk: Disk) -> None:
    """Kafka flushes each checkpoint that it writes."""
    disk.boot().write_checkpoint("c", b"1")
    assert disk.boot().read_checkpoint("c") == b"1"
    disk.lose_power()
    assert disk.boot().read_checkpoint("c") == b"1"


def test_high_watermark_beyond_a_log_that_lost_power_is_limited_to_the_log_end(disk: Disk) -> None:
    """The checkpoint with the high watermark, here 3, survives the power loss.

    Of the three records only the flushed record survives, so the high watermark is lowered to 1.
    """
    log = PartitionLog(PARTITION, disk.boot().log(PARTITION))
    assert log.append_as_follower([batch("a", base_offset=0)]) is ErrorCode.NONE
    log.flush()
    assert log.append_as_follower([batch("b", base_offset=1)]) is ErrorCode.NONE
    assert log.append_as_follower([batch("c", base_offset=2)]) is ErrorCode.NONE
    disk.lose_power()
    reopened = PartitionLog(PARTITION, disk.boot().log(PARTITION), high_watermark=3)
    assert (reopened.log_end_offset, reopened.high_watermark) == (1, 1)
    assert reopened.recovery_point == 1


def test_deleted_log_is_gone_now_and_after_a_restart(disk: Disk) -> None:
    """The log of another partition remains."""
    storage = disk.boot()
    for name in (PARTITION, OTHER_PARTITION):
        append(storage.log(name), up_to=3)
        storage.log(name).flush()
    storage.delete(PARTITION)
    storage.delete(PARTITION)  # a second deletion does nothing
    assert storage.partitions() == (OTHER_PARTITION,)
    reopened = disk.boot()
    assert reopened.partitions() == (OTHER_PARTITION,)
    assert len(reopened.log(OTHER_PARTITION)) == 3
    assert len(reopened.log(PARTITION)) == 0


def test_replaced_prefix_precedes_the_batches_behind_it(disk: Disk) -> None:
    """A cleaning replaces the first four batches of a log by two batches that it keeps.

    A kill and a power loss do not undo this.
    """
    storage = disk.boot()
    log = storage.log(PARTITION)
    append(log, up_to=5)
    batches_before = batches(log)
    new_prefix = [batches_before[0], batches_before[2]]
    log.replace_prefix(4, new_prefix)
    assert batches(log) == [*new_prefix, batches_before[4]]
    assert log.flushed_length >= 2  # the new prefix is flushed

    next_batch = batch("5", base_offset=5)
    log.append(next_batch)

    reopened = disk.boot().log(PARTITION)
    assert batches(reopened) == [*new_prefix, batches_before[4], next_batch]

    disk.lose_power()
    assert batches(disk.boot().log(PARTITION))[:2] == new_prefix


def test_replaced_prefix_keeps_flushed_batches_flushed(disk: Disk) -> None:
    """The batches behind the replaced batches are still flushed, and survive a power loss."""
    storage = disk.boot()
    log = storage.log(PARTITION)
    append(log, up_to=5)
    log.flush()
    first, _second, _third, fourth, fifth = batches(log)
    log.replace_prefix(3, [first])
    assert log.flushed_length == 3  # the new first batch, and the two behind it
    disk.lose_power()
    assert batches(disk.boot().log(PARTITION)) == [first, fourth, fifth]


def test_replace_prefix_that_is_longer_than_the_log_is_refused(storage: Storage) -> None:
    """In a log of two batches, three cannot be replaced. Only a bug of the caller asks for this."""
    log = storage.log(PARTITION)
    append(log, up_to=2)
    with pytest.raises(SimulationError, match="cannot replace 3"):
        log.replace_prefix(3, [])
    assert len(log) == 2
