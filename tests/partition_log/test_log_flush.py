"""Flushes of a log to the disk, as its settings demand, and the recovery point.

Written records are in the page cache of the operating system until they are written to the disk. A
power loss removes records that are only in the page cache. The log writes its records to the disk
by a flush. The operating system also does so by itself, at any time: this is the write-back.

The recovery point is the offset up to which the log itself has flushed. `storage.flushed_length` is
the number of batches on the disk, after a flush or a write-back.
"""

import pytest

from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from tests.support.builders.partition_logs import PARTITION, batch, log, records


def flushing_log(messages: int | None) -> PartitionLog:
    """Return a log with this value of Kafka's flush.messages.

    An append flushes the log when at least this number of records is not flushed.
    """
    return PartitionLog(PARTITION, MemoryLogStorage(), flush_interval_messages=messages)


def test_log_without_flush_messages_is_never_flushed_by_an_append() -> None:
    """In Kafka's default, flushing is left to the operating system."""
    written = flushing_log(None)
    for _ in range(50):
        written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert written.recovery_point == 0
    assert written.storage.flushed_length == 0


def test_append_that_reaches_flush_messages_flushes_the_log() -> None:
    """flush.messages counts records, not batches. The flush includes the whole append.

    The recovery point is an offset, 4; the flushed length of the storage counts batches, 2.
    """
    written = flushing_log(3)
    # Two records are not flushed: fewer than flush.messages.
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (0, 0)
    # Now four records are not flushed, so the log flushes all of them.
    written.append_batch_as_leader(batch("c", "d"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (4, 2)
    # One record is not flushed.
    written.append_as_leader(records("e"), leader_epoch=0)
    assert written.recovery_point == 4


def test_append_as_follower_flushes_before_the_next_fetch() -> None:
    """With its next Fetch a follower tells the leader that it has the records.

    So the records must be on the disk before this Fetch.
    """
    copy = flushing_log(1)
    fetched = [batch("a", base_offset=0), batch("b", base_offset=1)]
    copy.append_as_follower(fetched)
    assert (copy.recovery_point, copy.storage.flushed_length) == (2, 2)


def test_write_back_does_not_count_as_a_flush_of_the_log() -> None:
    """Kafka does not see a write-back, so flush.messages counts from the log's own last flush.

    The third record therefore demands a flush.
    """
    written = flushing_log(3)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    written.storage.write_back()
    written.append_as_leader(records("c"), leader_epoch=0)
    assert written.recovery_point == 3


@pytest.mark.parametrize(("offset", "recovery_point"), [(1, 1), (3, 2)])
def test_truncate_limits_the_recovery_point_to_the_log_end(
    offset: int, recovery_point: int
) -> None:
    """The recovery point is 2, because the log was flushed when it ended at 2.

    A truncation to 1 lowers the recovery point to 1. A truncation to 3 does not change it.
    Source: UnifiedLog.truncateTo.
    """
    written = log()
    for value in ("a", "b", "c", "d"):
        written.append_as_leader(records(value), leader_epoch=0)
        if value == "b":
            written.flush()
    written.truncate_to(offset)
    assert written.recovery_point == recovery_point
    check_log(written)


def test_reopened_log_is_recovered_from_its_flush_mark() -> None:
    """Records that were never flushed still count as unflushed after the log is opened again.

    The flush mark is the `flushed_length` of the storage. A log that is opened sets its recovery
    point to the offset of the first batch after the flush mark.
    """
    storage = MemoryLogStorage()
    written = PartitionLog(PARTITION, storage)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    written.flush()
    written.append_as_leader(records("c"), leader_epoch=0)
    again = PartitionLog(PARTITION, storage)
    assert (again.recovery_point, again.log_end_offset) == (2, 3)
