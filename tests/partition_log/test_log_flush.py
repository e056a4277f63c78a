"""Flushes of a log to the disk, as its settings demand, and the recovery point.

Appended records are at first only in memory of the operating system, and a power loss removes them
there. The records get to the disk by a flush of the log, or by a write-back: the operating system
may write them to the disk by itself at any time.

The recovery point is the offset up to which the log itself has flushed. `storage.flushed_length` is
the number of batches on the disk, by a flush or by a write-back. For example, after a flush of two
batches with two records each, the recovery point is 4 and the flushed length is 2.
"""

import pytest

from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from tests.support.builders.partition_logs import PARTITION, batch, log, records


def flushing_log(flush_messages: int | None) -> PartitionLog:
    """Return a log with this value of Kafka's flush.messages. None is Kafka's default.

    An append flushes the log if at least this number of records is not flushed yet.
    """
    return PartitionLog(PARTITION, MemoryLogStorage(), flush_interval_messages=flush_messages)


def test_log_without_flush_messages_is_never_flushed_by_an_append() -> None:
    """By default Kafka leaves it to the operating system to write records to the disk."""
    written = flushing_log(None)
    for _ in range(50):
        written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert written.recovery_point == 0
    assert written.storage.flushed_length == 0


def test_append_that_reaches_flush_messages_flushes_the_log() -> None:
    """flush.messages counts records, not batches. The flush includes the whole append."""
    written = flushing_log(3)
    # After the first append two records are not flushed.
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (0, 0)
    # With the second append four records are not flushed, so the log flushes them.
    written.append_batch_as_leader(batch("c", "d"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (4, 2)
    # After the third append one record is not flushed.
    written.append_as_leader(records("e"), leader_epoch=0)
    assert written.recovery_point == 4


def test_append_as_follower_flushes_before_the_next_fetch() -> None:
    """A follower's next Fetch says that it has the records. They must be on its disk by then."""
    copy = flushing_log(1)
    fetched = [batch("a", base_offset=0), batch("b", base_offset=1)]
    copy.append_as_follower(fetched)
    assert (copy.recovery_point, copy.storage.flushed_length) == (2, 2)


def test_write_back_does_not_count_as_a_flush_of_the_log() -> None:
    """Kafka does not notice a write-back, so flush.messages counts from the log's own last flush.

    Here three records have come since the last flush, although the first two records are on the
    disk already.
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
    """A truncation below the recovery point lowers the recovery point to the new log end.

    A truncation above the recovery point leaves the recovery point unchanged.

    Source: UnifiedLog.truncateTo.
    """
    written = log()
    written.append_as_leader(records("a"), leader_epoch=0)
    written.append_as_leader(records("b"), leader_epoch=0)
    written.flush()  # the recovery point is 2 now
    written.append_as_leader(records("c"), leader_epoch=0)
    written.append_as_leader(records("d"), leader_epoch=0)
    written.truncate_to(offset)
    assert written.recovery_point == recovery_point
    check_log(written)


def test_reopened_log_is_recovered_from_its_flush_mark() -> None:
    """Records that were not flushed still count as unflushed after the log is opened again.

    The opened log takes its recovery point from the `flushed_length` of its storage.
    """
    storage = MemoryLogStorage()
    written = PartitionLog(PARTITION, storage)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    written.flush()
    written.append_as_leader(records("c"), leader_epoch=0)
    reopened = PartitionLog(PARTITION, storage)
    assert (reopened.recovery_point, reopened.log_end_offset) == (2, 3)
