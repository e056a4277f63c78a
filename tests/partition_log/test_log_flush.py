"""When a log flushes itself, and from where it would be recovered."""

import pytest

from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from tests.support.builders.partition_logs import PARTITION, batch, log, records


def flushing_log(messages: int | None) -> PartitionLog:
    """Return a log with flush.messages."""
    return PartitionLog(PARTITION, MemoryLogStorage(), flush_interval_messages=messages)


def test_log_without_flush_messages_is_never_flushed_by_an_append() -> None:
    """Kafka's default: the operating system does."""
    written = flushing_log(None)
    for _ in range(50):
        written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert written.recovery_point == 0
    assert written.storage.flushed_length == 0


def test_log_is_flushed_by_the_append_with_which_enough_records_are_unflushed() -> None:
    """Kafka counts records, not batches, and flushes all of the append."""
    written = flushing_log(3)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (0, 0)
    written.append_batch_as_leader(batch("c", "d"), leader_epoch=0)
    assert (written.recovery_point, written.storage.flushed_length) == (4, 2)
    written.append_as_leader(records("e"), leader_epoch=0)
    assert written.recovery_point == 4


def test_log_of_a_follower_is_flushed_before_it_fetches_again() -> None:
    """Its next Fetch tells the leader that it has the records: they must be on its disk then."""
    copy = flushing_log(1)
    fetched = [batch("a", base_offset=0), batch("b", base_offset=1)]
    copy.append_as_follower(fetched)
    assert (copy.recovery_point, copy.storage.flushed_length) == (2, 2)


def test_write_back_does_not_count_as_a_flush_of_the_log() -> None:
    """Kafka cannot see it: flush.messages counts from the log's own flush."""
    written = flushing_log(3)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    written.storage.write_back()
    written.append_as_leader(records("c"), leader_epoch=0)
    assert written.recovery_point == 3


@pytest.mark.parametrize(("to", "recovery_point"), [(1, 1), (3, 2)])
def test_truncate_takes_the_recovery_point_down_with_it(to: int, recovery_point: int) -> None:
    """Source: Kafka UnifiedLog.truncateTo: the recovery point is never behind the log end."""
    written = log()
    for value in ("a", "b", "c", "d"):
        written.append_as_leader(records(value), leader_epoch=0)
        if value == "b":
            written.flush()
    written.truncate_to(to)
    assert written.recovery_point == recovery_point
    check_log(written)


def test_log_opened_again_is_recovered_from_its_flush_mark() -> None:
    """What was never flushed still counts as unflushed in the next life."""
    storage = MemoryLogStorage()
    written = PartitionLog(PARTITION, storage)
    written.append_as_leader(records("a", "b"), leader_epoch=0)
    written.flush()
    written.append_as_leader(records("c"), leader_epoch=0)
    again = PartitionLog(PARTITION, storage)
    assert (again.recovery_point, again.log_end_offset) == (2, 3)
