"""The in-memory storage, which stands for the disk of a broker: copies and the observer."""

from partition_log.memory_storage import MemoryStorage
from tests.support.builders.partition_logs import PARTITION, batch


def test_copy_is_unaffected_by_later_writes() -> None:
    """A broker that restarts gets a copy of its disk.

    Code from before the restart may still run, and must not write to the new disk.
    """
    storage = MemoryStorage()
    log = storage.log(PARTITION)
    log.append(batch("flushed"))
    log.flush()
    log.append(batch("unflushed", base_offset=1))
    storage.write_checkpoint("c", b"1")
    copied = storage.copy()
    log.truncate(0)
    storage.write_checkpoint("c", b"2")
    assert [copied.log(PARTITION).base_offset(index) for index in range(2)] == [0, 1]
    assert copied.read_checkpoint("c") == b"1"
    # The copy also knows that the second batch was not flushed: a power loss removes that batch.
    copied.power_loss()
    assert len(copied.log(PARTITION)) == 1


def test_observer_gets_the_batches_before_and_after_a_replacement() -> None:
    """A test can set an observer of a storage: `on_replace`.

    Each log that is opened later calls the observer when a cleaning replaces the first batches of
    the log. Here the first two batches are replaced by one batch, the second.
    """
    storage = MemoryStorage()
    batches = [batch("a"), batch("b", base_offset=1), batch("c", base_offset=2)]
    for appended in batches:
        storage.log(PARTITION).append(appended)
    calls: list[tuple[object, ...]] = []
    storage.on_replace = lambda *arguments: calls.append(arguments)
    storage.log(PARTITION).replace_prefix(2, batches[1:2])
    # The arguments: the partition, its batches before, the number of replaced batches, and the new
    # batches.
    assert calls == [(PARTITION, tuple(batches), 2, batches[1:2])]
