"""The log of one replica: offsets, reads, truncation, recovery.

`log()` is an empty log. `log_of_epochs(0, 0, 3)` is a log of three batches with one record each:
two of leader epoch 0, and one of epoch 3. Their values are "0@0", "1@0" and "2@3", the offset and
the epoch. `epochs.entries()` of a log lists the leader epochs, each with the offset at which the
epoch begins. For this log these are (0, 0) and (3, 2). `read(offset, max_bytes, up_to=...)` returns
the batches below the offset `up_to`.
"""

import pytest
from msgspec.structs import replace

from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from protocol.errors import ErrorCode, InvariantViolation, SimulationError
from protocol.ids import LeaderEpoch
from protocol.records.batch import RecordBatch
from tests.support.builders.partition_logs import (
    NO_LIMIT,
    batch,
    entries,
    log,
    log_of_epochs,
    records,
    values,
)


def test_append_as_leader_assigns_contiguous_offsets() -> None:
    """Offsets count records, not batches. After a batch of three records, the next begins at 3."""
    written = log()
    first_batch = written.append_as_leader(records("a", "b", "c"), leader_epoch=0)
    second_batch = written.append_batch_as_leader(batch("d", "e"), leader_epoch=0)
    assert (first_batch.base_offset, second_batch.base_offset) == (0, 3)
    assert written.log_end_offset == 5
    assert values(written) == ["a", "b", "c", "d", "e"]
    check_log(written)


def test_append_as_leader_notes_where_its_epoch_begins() -> None:
    """From these offsets followers find out where their logs differ from the leader's log."""
    written = log_of_epochs(0, 0, 3, 3, 5)
    assert written.epochs.entries() == entries((0, 0), (3, 2), (5, 4))
    assert written.latest_epoch == 5


def test_append_in_an_older_epoch_raises_an_exception_and_changes_nothing() -> None:
    """The log has epoch 4 already, so an append in epoch 3 is a bug of the caller."""
    written = log_of_epochs(4)
    with pytest.raises(SimulationError):
        written.append_as_leader(records("x"), leader_epoch=3)
    assert written.log_end_offset == 1
    assert len(written.storage) == 1


def test_append_as_follower_keeps_the_leaders_offsets_and_epochs() -> None:
    """A follower's log is a copy of its leader's log, batch by batch."""
    source = log_of_epochs(0, 1, 1)
    copy = log()
    fetched = source.read(0, NO_LIMIT, up_to=source.log_end_offset)
    assert copy.append_as_follower(fetched) is ErrorCode.NONE
    assert copy.read(0, NO_LIMIT, up_to=3) == fetched
    assert copy.epochs.entries() == source.epochs.entries()
    check_log(copy)


@pytest.mark.parametrize(
    ("unfitting_batch", "error"),
    [
        (batch("b", base_offset=2), ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch("b", base_offset=0), ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch("b", base_offset=1, leader_epoch=-1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (replace(batch("b", base_offset=1), crc=0), ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["gap", "overlap", "older epoch", "corrupt"],
)
def test_append_as_follower_of_batches_that_do_not_fit_appends_none(
    unfitting_batch: RecordBatch, error: ErrorCode
) -> None:
    """All batches of a Fetch are appended, or none. Here the second batch does not fit."""
    copy = log()
    assert copy.append_as_follower((batch("a"), unfitting_batch)) is error
    assert copy.log_end_offset == 0
    assert len(copy.storage) == 0


def test_read_returns_the_stored_batches_themselves() -> None:
    """A read copies no batches, because followers in the same process read very often."""
    written = log()
    appended = written.append_as_leader(records("a"), leader_epoch=0)
    # A read returns at least one batch, so the limit of one byte does not matter.
    assert written.read(0, 1, up_to=1)[0] is appended


def test_read_from_the_middle_of_a_batch_begins_with_the_whole_batch() -> None:
    """Kafka's brokers do not split batches. A consumer skips the records before its offset."""
    written = log()
    written.append_as_leader(records("a", "b", "c"), leader_epoch=0)
    written.append_as_leader(records("d"), leader_epoch=0)
    # The first batch has the offsets 0 to 2, and the second batch has the offset 3.
    assert [batch.base_offset for batch in written.read(2, NO_LIMIT, up_to=4)] == [0, 3]


def test_read_stops_before_the_batch_that_passes_the_limit_offset() -> None:
    """A consumer reads up to the high watermark, and must not see a record above it."""
    written = log_of_epochs(0, 0, 0)
    written.append_as_leader(records("d", "e"), leader_epoch=0)
    # "d" and "e" are one batch with the offsets 3 and 4. A read up to 4 does not return this batch,
    # because the limit 4 itself is excluded.
    assert [batch.base_offset for batch in written.read(1, NO_LIMIT, up_to=3)] == [1, 2]
    assert [batch.base_offset for batch in written.read(1, NO_LIMIT, up_to=4)] == [1, 2]
    assert written.read(3, NO_LIMIT, up_to=3) == ()


def test_read_limits_bytes_but_returns_at_least_one_batch() -> None:
    """If no batch were returned, a batch larger than the limit would stop the reader for ever.

    With `min_one_batch=False` the limit is kept.
    """
    written = log_of_epochs(0, 0, 0)
    size = batch("0@0").size_in_bytes
    assert len(written.read(0, 2 * size, up_to=3)) == 2
    assert len(written.read(0, 2 * size - 1, up_to=3)) == 1
    assert len(written.read(0, 1, up_to=3)) == 1
    assert written.read(0, size - 1, up_to=3, min_one_batch=False) == ()


@pytest.mark.parametrize("offset", [-1, 4])
def test_read_outside_the_log_raises_an_exception(offset: int) -> None:
    """The caller must check the offset, and answer OFFSET_OUT_OF_RANGE. The log ends at 3 here."""
    with pytest.raises(SimulationError):
        log_of_epochs(0, 0, 0).read(offset, 1, up_to=3)


def test_high_watermark_is_limited_to_the_log_end() -> None:
    """A follower takes over its leader's high watermark, which may be above its own log end.

    The high watermark also cannot fall below the beginning of the log. `update_high_watermark`
    returns True if the high watermark has changed. Source: Kafka updateHighWatermark.
    """
    written = log_of_epochs(0, 0, 0)
    assert written.update_high_watermark(9)
    assert written.high_watermark == 3
    assert not written.update_high_watermark(3)
    assert written.update_high_watermark(-5)
    assert written.high_watermark == 0


def test_truncate_to_lowers_the_high_watermark_and_removes_epochs() -> None:
    """After an unclean election a follower may have to remove committed records."""
    written = log_of_epochs(0, 1, 1, 2)
    written.update_high_watermark(4)
    assert written.truncate_to(2) == 2
    assert (written.log_end_offset, written.high_watermark) == (2, 2)
    assert written.epochs.entries() == entries((0, 0), (1, 1))
    assert values(written) == ["0@0", "1@1"]
    written.append_as_leader(records("new"), leader_epoch=7)
    assert values(written) == ["0@0", "1@1", "new"]
    check_log(written)


def test_truncate_into_a_batch_removes_the_whole_batch() -> None:
    """The new log end may then be below the offset of the truncation.

    Source: Kafka LogSegment.truncateTo.
    """
    written = log()
    written.append_as_leader(records("a"), leader_epoch=0)
    written.append_as_leader(records("b", "c"), leader_epoch=0)  # the offsets 1 and 2
    assert written.truncate_to(2) == 1
    check_log(written)


def test_truncate_to_the_end_removes_an_epoch_without_batches() -> None:
    """The replica was the leader in epoch 5 once, but wrote no batch.

    If the entry of epoch 5 stayed, the replica's next Fetch as a follower would name epoch 5. The
    new leader does not know this epoch.
    """
    written = log_of_epochs(0, 0)
    written.assign_epoch_start(LeaderEpoch(5))
    assert written.truncate_to(2) == 2
    assert written.latest_epoch == 0


def test_truncate_before_the_log_start_raises_an_exception() -> None:
    """A log cannot end before its beginning, here 0."""
    with pytest.raises(SimulationError):
        log_of_epochs(0).truncate_to(-1)


def test_opening_a_log_after_a_crash_restores_it() -> None:
    """The process has died, but the operating system has kept what the process had written."""
    storage = MemoryLogStorage()
    before_crash = log(storage)
    for epoch in (0, 0, 2):
        before_crash.append_as_leader(records("a", "b"), leader_epoch=epoch)
    # A broker reads the high watermark from a checkpoint file.
    opened = log(storage, high_watermark=4)
    assert (opened.log_end_offset, opened.high_watermark) == (6, 4)
    assert opened.epochs.entries() == before_crash.epochs.entries()
    assert values(opened) == values(before_crash)
    check_log(opened)


def test_opening_a_log_limits_the_checkpointed_high_watermark_to_the_log_end() -> None:
    """The checkpoint survives a power loss, but the records below its value may be lost."""
    storage = MemoryLogStorage()
    log(storage).append_as_leader(records("a"), leader_epoch=0)
    assert log(storage, high_watermark=9).high_watermark == 1


def test_opening_a_log_whose_batches_overlap_is_an_invariant_violation() -> None:
    """Two records cannot have the same offset. The storage has broken its promise."""
    storage = MemoryLogStorage()
    storage.append(batch("a", "b", base_offset=0))
    storage.append(batch(base_offset=1))
    with pytest.raises(InvariantViolation, match="batches in order"):
        log(storage)


# -- holes of a cleaned log --


def log_with_holes() -> PartitionLog:
    """Return a log from which a cleaning has removed records, so that offsets are missing.

    The log has four batches, with the offsets 0; 1; 4 and 5; and 9. The holes are 2 and 3, and 6 to
    8.
    """
    storage = MemoryLogStorage()
    for remaining in (
        batch("a", base_offset=0),
        batch("b", base_offset=1),
        batch("e", "f", base_offset=4),
        batch("j", base_offset=9, leader_epoch=2),
    ):
        storage.append(remaining)
    compacted = log(storage, high_watermark=10)
    compacted.is_compacted = True
    check_log(compacted)
    return compacted


@pytest.mark.parametrize(
    ("offset", "first_base_offset"),
    [(0, 0), (1, 1), (2, 4), (3, 4), (4, 4), (5, 4), (6, 9), (8, 9), (9, 9)],
)
def test_read_in_a_hole_begins_with_the_next_batch(offset: int, first_base_offset: int) -> None:
    """A reader that asks for a removed record gets the records behind the hole."""
    compacted = log_with_holes()
    first_batch = compacted.read(offset, 1, up_to=10)[0]
    assert first_batch.base_offset == first_base_offset

    all_base_offsets = (0, 1, 4, 9)
    expected = [base_offset for base_offset in all_base_offsets if base_offset >= first_base_offset]
    batches = compacted.read(offset, NO_LIMIT, up_to=10)
    assert [batch.base_offset for batch in batches] == expected


def test_read_that_ends_in_a_hole_returns_no_batch_behind_it() -> None:
    """A consumer reads up to the high watermark, here 8, which may be in a hole."""
    compacted = log_with_holes()
    assert compacted.read(6, NO_LIMIT, up_to=8) == ()
    assert [batch.base_offset for batch in compacted.read(4, NO_LIMIT, up_to=8)] == [4]


@pytest.mark.parametrize(
    ("offset", "log_end", "batch_count"),
    [
        (9, 9, 3),
        (7, 7, 3),
        (6, 6, 3),
        (5, 4, 2),  # 5 is the second record of the batch at 4, which is removed as a whole
        (4, 4, 2),
        (3, 3, 2),
        (2, 2, 2),
        (1, 1, 1),
    ],
)
def test_truncate_in_a_hole_ends_the_log_there(offset: int, log_end: int, batch_count: int) -> None:
    """After a truncation in a hole, the log does not end directly behind its last batch."""
    compacted = log_with_holes()
    assert compacted.truncate_to(offset) == log_end
    assert len(compacted.storage) == batch_count
    assert (compacted.log_end_offset, compacted.truncations) == (log_end, 1)
    check_log(compacted)
    compacted.append_as_leader(records("new"), leader_epoch=3)
    assert compacted.read(log_end, 1, up_to=log_end + 1)[0].base_offset == log_end


def test_follower_of_a_compacted_log_copies_its_holes() -> None:
    """The follower accepts gaps between batches, but still refuses batches that overlap."""
    source = log_with_holes()
    copy = log()
    copy.is_compacted = True
    # The first two batches have the offsets 0 and 1. The next batch is not below 5, because it has
    # the offsets 4 and 5.
    first_two_batches = source.read(0, NO_LIMIT, up_to=5)
    later_batches = source.read(2, NO_LIMIT, up_to=10)
    assert copy.append_as_follower(first_two_batches) is ErrorCode.NONE
    assert copy.append_as_follower(later_batches) is ErrorCode.NONE
    assert copy.log_end_offset == 10
    assert copy.epochs.entries() == source.epochs.entries()
    check_log(copy)

    other_copy = log()
    other_copy.is_compacted = True
    overlapping = (batch("a", "b"), batch("b", base_offset=1))
    assert other_copy.append_as_follower(overlapping) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_prefix_is_replaced_by_the_result_of_a_cleaning() -> None:
    """A cleaning of the first four batches has kept the batches at 0 and 3.

    The log end, the offsets and the epochs stay, and the new batches are flushed to the disk.
    """
    compacted = log_of_epochs(0, 0, 0, 1, 1)
    compacted.is_compacted = True
    compacted.flush()
    kept = [compacted.storage.batch(0), compacted.storage.batch(3)]
    compacted.replace_prefix(4, kept)

    assert [compacted.storage.batch(index).base_offset for index in range(3)] == [0, 3, 4]
    assert (compacted.log_start_offset, compacted.log_end_offset) == (0, 5)
    assert compacted.recovery_point == 5
    assert compacted.storage.flushed_length == 3
    check_log(compacted)
    assert [batch.base_offset for batch in compacted.read(1, NO_LIMIT, up_to=5)] == [3, 4]

    # The new batches must begin where the log begins, at 0. So the batch at 3 alone is refused, and
    # so are no batches at all.
    with pytest.raises(SimulationError, match="beginning"):
        compacted.replace_prefix(2, kept[1:])
    with pytest.raises(SimulationError, match="beginning"):
        compacted.replace_prefix(3, [])
