"""The in-memory storage: what a power loss takes, which only this form can do at will."""

from partition_log.memory_storage import MemoryStorage
from tests.partition_log.builders import PARTITION, batch


def test_power_loss_cuts_back_to_the_flush_mark() -> None:
    """Append means the page cache: only what was flushed is on the disk."""
    storage = MemoryStorage()
    log = storage.log(PARTITION)
    log.append(batch("flushed"))
    log.flush()
    log.append(batch("lost", base_offset=1))
    storage.power_loss()
    assert [log.batch(index) for index in range(len(log))] == [batch("flushed")]


def test_power_loss_after_a_truncation_does_not_bring_back_what_was_cut() -> None:
    """The flush mark follows a cut, or later appends would count as flushed."""
    storage = MemoryStorage()
    log = storage.log(PARTITION)
    for offset in range(3):
        log.append(batch(base_offset=offset))
    log.flush()
    log.truncate(1)
    log.append(batch("unflushed", base_offset=1))
    storage.power_loss()
    assert len(log) == 1
    assert log.flushed_length == 1


def test_power_loss_keeps_checkpoints() -> None:
    """Kafka syncs a checkpoint file when it replaces it."""
    storage = MemoryStorage()
    storage.write_checkpoint("c", b"1")
    storage.power_loss()
    assert storage.read_checkpoint("c") == b"1"


def test_copy_shares_nothing_that_is_written_later() -> None:
    """A dead incarnation that still runs must not write to its successor's disk."""
    storage = MemoryStorage()
    log = storage.log(PARTITION)
    log.append(batch("flushed"))
    log.flush()
    log.append(batch("unflushed", base_offset=1))
    storage.write_checkpoint("c", b"1")
    twin = storage.copy()
    log.truncate(0)
    storage.write_checkpoint("c", b"2")
    assert [twin.log(PARTITION).base_offset(index) for index in range(2)] == [0, 1]
    assert twin.read_checkpoint("c") == b"1"
    twin.power_loss()
    assert len(twin.log(PARTITION)) == 1
