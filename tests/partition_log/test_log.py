"""The log of one replica: offsets, reads, truncation, recovery.

A leader epoch counts a partition's leaders. The high watermark is the offset below which all
in-sync replicas have the records, which are then committed. The log end is the offset of the next
record. A truncation removes the records from an offset on.

- `log()` returns an empty log.
- `log_of_epochs(0, 0, 3)` returns a log with a batch of one record in each of these leader epochs.
  The values are "0@0", "1@0" and "2@3", that is, offset and epoch.
- `read(offset, max_bytes, up_to=...)` returns batches below the offset `up_to`.
- `epochs` of a log has the leader epochs and the offset at which each begins.
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
    batch,
    entries,
    log,
    log_of_epochs,
    records,
    values,
)


def test_append_as_leader_assigns_contiguous_offsets() -> None:
    """An offset counts records, not batches, so the second batch begins at 3."""
    written = log()
    first = written.append_as_leader(records("a", "b", "c"), leader_epoch=0)
    second = written.append_batch_as_leader(batch("d", "e"), leader_epoch=0)
    assert (first.base_offset, second.base_offset, written.log_end_offset) == (0, 3, 5)
    assert values(written) == ["a", "b", "c", "d", "e"]
    check_log(written)


def test_append_as_leader_records_the_start_of_its_epoch() -> None:
    """Followers compare their own leader epochs with these offsets, to find differences."""
    written = log_of_epochs(0, 0, 3, 3, 5)
    assert written.epochs.entries() == entries((0, 0), (3, 2), (5, 4))
    assert written.latest_epoch == 5


def test_append_in_an_older_epoch_is_misuse_and_changes_nothing() -> None:
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
    # 2**20 bytes are more than the log has.
    fetched = source.read(0, 2**20, up_to=source.log_end_offset)
    assert copy.append_as_follower(fetched) is ErrorCode.NONE
    assert copy.read(0, 2**20, up_to=3) == fetched
    assert copy.epochs.entries() == source.epochs.entries()
    check_log(copy)


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (batch("b", base_offset=2), ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch("b", base_offset=0), ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch("b", base_offset=1, leader_epoch=-1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (replace(batch("b", base_offset=1), crc=0), ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["gap", "overlap", "older epoch", "corrupt"],
)
def test_append_as_follower_of_batches_that_do_not_fit_appends_none(
    second: RecordBatch, error: ErrorCode
) -> None:
    """The batches are appended together or not at all. Here only the second does not fit."""
    copy = log()
    assert copy.append_as_follower((batch("a"), second)) is error
    assert copy.log_end_offset == 0
    assert len(copy.storage) == 0


def test_read_returns_the_stored_batches_themselves() -> None:
    """A read does not copy batches, because replication within this process reads very often."""
    written = log()
    appended = written.append_as_leader(records("a"), leader_epoch=0)
    assert written.read(0, 1, up_to=1)[0] is appended


def test_read_from_the_middle_of_a_batch_begins_with_the_whole_batch() -> None:
    """Kafka's brokers do not split batches; a consumer skips the records before its offset."""
    written = log()
    written.append_as_leader(records("a", "b", "c"), leader_epoch=0)
    written.append_as_leader(records("d"), leader_epoch=0)
    # The first batch has the offsets 0 to 2, the second one 3.
    assert [batch.base_offset for batch in written.read(2, 2**20, up_to=4)] == [0, 3]


def test_read_stops_before_the_batch_that_passes_the_limit_offset() -> None:
    """A consumer must not see a record above the high watermark.

    Offsets 3 and 4 are one batch, so a read up to 4 does not return this batch either.
    """
    written = log_of_epochs(0, 0, 0)
    written.append_as_leader(records("d", "e"), leader_epoch=0)
    assert [batch.base_offset for batch in written.read(1, 2**20, up_to=3)] == [1, 2]
    assert [batch.base_offset for batch in written.read(1, 2**20, up_to=4)] == [1, 2]
    assert written.read(3, 2**20, up_to=3) == ()


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
def test_read_outside_the_log_is_misuse(offset: int) -> None:
    """The log has the offsets 0 to 2.

    The caller must check this, and answer OFFSET_OUT_OF_RANGE.
    """
    with pytest.raises(SimulationError):
        log_of_epochs(0, 0, 0).read(offset, 1, up_to=3)


def test_high_watermark_is_limited_to_the_log_end() -> None:
    """A follower is told its leader's high watermark, which may be above the follower's log end.

    `update_high_watermark` returns True if the high watermark has changed. The high watermark never
    falls below the log's beginning. Source: Kafka updateHighWatermark.
    """
    written = log_of_epochs(0, 0, 0)
    assert written.update_high_watermark(9)
    assert written.high_watermark == 3
    assert not written.update_high_watermark(3)
    assert written.update_high_watermark(-5)
    assert written.high_watermark == 0


def test_truncate_to_lowers_the_high_watermark_and_removes_epochs() -> None:
    """An unclean election (of a replica that was not in sync) may remove committed records.

    The log must still be consistent after it.
    """
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
    """`truncate_to` returns the new log end: 1, because the batch of offsets 1 and 2 is removed.

    Source: Kafka LogSegment.truncateTo.
    """
    written = log()
    written.append_as_leader(records("a"), leader_epoch=0)
    written.append_as_leader(records("b", "c"), leader_epoch=0)
    assert written.truncate_to(2) == 1
    check_log(written)


def test_truncate_to_the_end_removes_an_epoch_without_batches() -> None:
    """The follower was once elected in epoch 5, and wrote no batch in it.

    If the entry of epoch 5 stayed, the next Fetch would name epoch 5, which the leader does not
    know.
    """
    written = log_of_epochs(0, 0)
    written.assign_epoch_start(LeaderEpoch(5))
    assert written.truncate_to(2) == 2
    assert written.latest_epoch == 0


def test_truncate_before_the_log_start_is_misuse() -> None:
    """The log starts at 0, and nothing before this offset can be kept."""
    with pytest.raises(SimulationError):
        log_of_epochs(0).truncate_to(-1)


def test_opening_a_log_after_a_crash_restores_it() -> None:
    """A crash keeps what was written, in the page cache of the operating system."""
    storage = MemoryLogStorage()
    before = log(storage)
    for epoch in (0, 0, 2):
        before.append_as_leader(records("a", "b"), leader_epoch=epoch)
    # The high watermark comes from a checkpoint file on the disk.
    after = log(storage, high_watermark=4)
    assert (after.log_end_offset, after.high_watermark) == (6, 4)
    assert after.epochs.entries() == before.epochs.entries()
    assert values(after) == values(before)
    check_log(after)


def test_opening_a_log_limits_the_checkpointed_high_watermark_to_the_log_end() -> None:
    """The checkpointed value may count records that a power loss has removed."""
    storage = MemoryLogStorage()
    log(storage).append_as_leader(records("a"), leader_epoch=0)
    assert log(storage, high_watermark=9).high_watermark == 1


def test_opening_a_log_whose_batches_overlap_is_an_invariant_violation() -> None:
    """The storage promises batches in order; two records cannot have one offset."""
    storage = MemoryLogStorage()
    storage.append(batch("a", "b", base_offset=0))
    storage.append(batch(base_offset=1))
    with pytest.raises(InvariantViolation, match="batches in order"):
        log(storage)


# -- holes of a cleaned log --


def log_with_holes() -> PartitionLog:
    """Return a compacted log with batches at 0 and 1, 4 to 5, and 9; 2, 3 and 6 to 8 are holes."""
    storage = MemoryLogStorage()
    for kept_batch in (
        batch("a", base_offset=0),
        batch("b", base_offset=1),
        batch("e", "f", base_offset=4),
        batch("j", base_offset=9, leader_epoch=2),
    ):
        storage.append(kept_batch)
    compacted = log(storage, high_watermark=10)
    compacted.is_compacted = True
    check_log(compacted)
    return compacted


@pytest.mark.parametrize(
    ("offset", "first_base_offset"),
    [(0, 0), (1, 1), (2, 4), (3, 4), (4, 4), (5, 4), (6, 9), (8, 9), (9, 9)],
)
def test_read_in_a_hole_begins_with_the_next_batch(offset: int, first_base_offset: int) -> None:
    """The record at the offset was removed, so the read begins with the next batch."""
    compacted = log_with_holes()
    first = compacted.read(offset, 1, up_to=10)[0]
    assert first.base_offset == first_base_offset
    assert [batch.base_offset for batch in compacted.read(offset, 2**20, up_to=10)] == [
        base_offset for base_offset in (0, 1, 4, 9) if base_offset >= first_base_offset
    ]


def test_read_that_ends_in_a_hole_returns_no_batch_behind_it() -> None:
    """A consumer reads up to the high watermark, here 8, which may be in a hole."""
    compacted = log_with_holes()
    assert compacted.read(6, 2**20, up_to=8) == ()
    assert [b.base_offset for b in compacted.read(4, 2**20, up_to=8)] == [4]


@pytest.mark.parametrize(
    ("offset", "end", "batches"),
    [(9, 9, 3), (7, 7, 3), (6, 6, 3), (5, 4, 2), (4, 4, 2), (3, 3, 2), (2, 2, 2), (1, 1, 1)],
)
def test_truncate_in_a_hole_ends_the_log_there(offset: int, end: int, batches: int) -> None:
    """The batches before the hole stay whole. Offset 5 is inside of the batch that begins at 4.

    So a truncation to 5 removes this whole batch.
    """
    compacted = log_with_holes()
    assert compacted.truncate_to(offset) == end
    assert len(compacted.storage) == batches
    assert (compacted.log_end_offset, compacted.truncations) == (end, 1)
    check_log(compacted)
    compacted.append_as_leader(records("new"), leader_epoch=3)
    assert compacted.read(end, 1, up_to=end + 1)[0].base_offset == end


def test_follower_of_a_compacted_log_copies_its_holes() -> None:
    """The follower's log gets the same holes. Batches that overlap are still refused.

    The first read returns the batches below 5, which are those at 0 and 1: the batch at 4 ends
    behind 5. The second read, from 2 on, begins with the batch at 4.
    """
    source = log_with_holes()
    copy = log()
    copy.is_compacted = True
    assert copy.append_as_follower(source.read(0, 2**20, up_to=5)) is ErrorCode.NONE
    assert copy.append_as_follower(source.read(2, 2**20, up_to=10)) is ErrorCode.NONE
    assert copy.log_end_offset == 10
    assert copy.epochs.entries() == source.epochs.entries()
    check_log(copy)

    other_copy = log()
    other_copy.is_compacted = True
    overlapping = (batch("a", "b"), batch("b", base_offset=1))
    assert other_copy.append_as_follower(overlapping) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_prefix_is_replaced_by_the_result_of_a_cleaning() -> None:
    """The log end, the offsets and the epochs stay, and the new batches are flushed to the disk.

    The cleaning of the first four batches has kept those at 0 and 3.
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
    assert [b.base_offset for b in compacted.read(1, 2**20, up_to=5)] == [3, 4]

    # The new batches must begin where the log begins, at 0. So the batch at 3 alone is refused, and
    # so is an empty prefix.
    with pytest.raises(SimulationError, match="beginning"):
        compacted.replace_prefix(2, kept[1:])
    with pytest.raises(SimulationError, match="beginning"):
        compacted.replace_prefix(3, [])
