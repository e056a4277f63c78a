"""The checks of segments and of cleanings find each kind of damage, and accept sound results.

A cleaning removes each record whose key has a newer record. `check(before, after)` checks whether a
cleaning may have turned the batches `before` into the batches `after`. For example, `before` has
a=1, a=2 and b=1. Then `after` must have a=2 and b=1, and `check` raises an error if a=2 is missing.
Each test begins with such a sound result, and then damages the result. Sound cleanings are also
tested in `test_compaction`.

Tombstones and the markers of transactions must stay for some time, here 10 ms. The first cleaning
writes the end of this time, the delete horizon, into the batch. All cleanings here are at 1,000 ms,
so the new horizon is 1,010 ms. `after_cleaning(batch, 1_010)` is a batch with this horizon.

`batches_of("a=1", "b=")` returns batches of one record each, from offset 0. `a=` is a tombstone,
and `a!1` is a record of producer 7's transaction. `commit` and `abort` are markers of this
producer.
"""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from partition_log.batches import cleaned_batch
from partition_log.invariants_of_cleaning import check_cleaning, check_segments
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.segments import Segments
from protocol.errors import InvariantViolation
from protocol.records.batch import Cleaned, Record, RecordBatch, records_of
from protocol.records.control import EndTransactionMarker, encode_marker
from tests.support.builders.partition_logs import PARTITION

PRODUCER = 7
NEW_HORIZON_MS = 1_010
"""The delete horizon that a cleaning at 1,000 ms writes."""


def log_of(*texts: str) -> PartitionLog:
    """Return a log with these records, such as "a=1", "a!2" or "commit".

    All records have the timestamp 1 ms.
    """
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for text in texts:
        is_marker = text in ("commit", "abort")
        if is_marker:
            marker = EndTransactionMarker(is_commit=text == "commit", coordinator_epoch=0)
            record = encode_marker(marker, timestamp_ms=1)
        else:
            key, _, value = text.replace("!", "=").partition("=")
            record = Record(key.encode() or None, value.encode() or None, 1)
        is_transactional = is_marker or "!" in text
        log.append_as_leader(
            (record,),
            leader_epoch=0,
            producer_id=PRODUCER if is_transactional else -1,
            producer_epoch=0 if is_transactional else -1,
            is_transactional=is_transactional,
            is_control=is_marker,
        )
    return log


def batches_of(*texts: str) -> list[RecordBatch]:
    """Return the batches of a log with these records."""
    log = log_of(*texts)
    return [log.storage.batch(index) for index in range(len(log.storage))]


def after_cleaning(
    batch: RecordBatch, horizon_ms: int = -1, *, is_empty: bool = False
) -> RecordBatch:
    """Return the batch after a cleaning, with all its records or none. -1 means no horizon."""
    records = [] if is_empty else [record for _, record in records_of(batch)]
    return cleaned_batch(batch, Cleaned(tuple(range(len(records))), horizon_ms), records)


def check(
    before: Sequence[RecordBatch], after: Sequence[RecordBatch], *, is_time_exact: bool = True
) -> None:
    """Check that a cleaning at 1,000 ms may turn the batches `before` into `after`."""
    check_cleaning(
        PARTITION,
        before,
        len(before),
        after,
        now_ms=1_000,
        delete_retention_ms=10,
        is_time_exact=is_time_exact,
    )


def test_last_record_of_a_key_must_stay() -> None:
    """The last record of a key must stay, and the older records of the key must go."""
    before = batches_of("a=1", "a=2", "b=1")
    old_a, last_a, last_b = before
    check(before, [last_a, last_b])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [last_b])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check(before, [old_a, last_a, last_b])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [old_a, last_b])


def test_records_must_keep_offset_order_and_header() -> None:
    """A cleaning removes records, and does not change the records that it keeps."""
    before = batches_of("a=1", "b=1")
    with pytest.raises(InvariantViolation, match="the order is"):
        check(before, before[::-1])
    # There was no batch at offset 5, so no header (None) is expected there.
    with pytest.raises(InvariantViolation, match="expected the header None"):
        check(before, [before[0], replace(before[1], base_offset=5)])
    with pytest.raises(InvariantViolation, match="expected the header"):
        check(before, [before[0], replace(before[1], partition_leader_epoch=3)])


def test_record_without_key_must_be_removed() -> None:
    """A compacted log has the last value of each key. Here the first record has no key."""
    before = batches_of("=1", "b=1")
    check(before, before[1:])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check(before, before)


def test_tombstone_must_get_a_horizon_and_be_removed_after_it() -> None:
    """The first cleaning keeps a tombstone and writes the horizon.

    A later cleaning keeps tombstone and horizon until the horizon has come. Then it removes the
    tombstone.
    """
    before = batches_of("a=")
    (tombstone,) = before
    check(before, [after_cleaning(tombstone, NEW_HORIZON_MS)])
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check(before, [])
    with pytest.raises(InvariantViolation, match=r"horizon -1, expected 1010"):
        check(before, before)

    # A horizon of 1,001 ms has not come yet at the cleaning, 1,000 ms.
    before_horizon = after_cleaning(tombstone, 1_001)
    check([before_horizon], [before_horizon])
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check([before_horizon], [])
    with pytest.raises(InvariantViolation, match=r"horizon 1010, expected 1001"):
        check([before_horizon], [after_cleaning(tombstone, NEW_HORIZON_MS)])

    at_horizon = after_cleaning(tombstone, 1_000)
    check([at_horizon], [])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check([at_horizon], [at_horizon])


def test_tombstone_may_stay_or_be_removed_if_the_time_is_not_exact() -> None:
    """A cleaning at an unknown time may have been before the horizon, or after the horizon."""
    (tombstone,) = batches_of("a=")
    at_horizon = after_cleaning(tombstone, 1_000)
    check([at_horizon], [at_horizon], is_time_exact=False)
    check([at_horizon], [], is_time_exact=False)


def test_aborted_records_must_be_removed_and_replace_no_other_record() -> None:
    """The aborted record a!2 is removed, and the older a=1 stays."""
    before = batches_of("a=1", "a!2", "abort", "b!1")
    valid_a, aborted_a, marker, open_b = before
    check(before, [valid_a, marker, open_b])
    with pytest.raises(InvariantViolation, match="the record at 1 is left"):
        check(before, before)
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check(before, [aborted_a, marker, open_b])


def test_records_of_a_committed_transaction_must_stay() -> None:
    """A committed record counts like a record without a transaction, so a!2 replaces a=1."""
    before = batches_of("a=1", "a!2", "commit")
    check(before, before[1:])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [before[0], before[2]])


def test_marker_must_stay_while_its_transaction_has_batches() -> None:
    """A marker gets a horizon only when the data of its transaction are gone.

    As long as the data are in the log, the marker must stay, even if its horizon has come.
    """
    before = batches_of("a!1", "commit")
    transactional_a, marker = before
    check(before, before)
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [transactional_a])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check([transactional_a, after_cleaning(marker, 1)], [transactional_a])


def test_marker_without_data_must_get_a_horizon_and_be_removed_after_it() -> None:
    """The data of the first marker are gone. The second transaction still has its data."""
    marker, *second_transaction = batches_of("commit", "a!1", "commit")
    before = [marker, *second_transaction]
    check(before, [after_cleaning(marker, NEW_HORIZON_MS), *second_transaction])
    with pytest.raises(InvariantViolation, match=r"horizon -1, expected 1010"):
        check(before, before)
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check(before, second_transaction)

    at_horizon = [after_cleaning(marker, 1_000), *second_transaction]
    check(at_horizon, second_transaction)
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check(at_horizon, at_horizon)


def test_last_batch_of_a_producer_must_stay_without_records() -> None:
    """A later leader learns a producer's newest sequence number from the producer's last batch."""
    before = batches_of("a!1", "commit", "a=2")
    older_a, marker, newer_a = before
    check(before, [after_cleaning(older_a, is_empty=True), marker, newer_a])
    with pytest.raises(InvariantViolation, match="the last batch of producer 7, at 0, is gone"):
        check(before, [marker, newer_a])


class MovedSegments(Segments):
    """Damaged segments: the second segment begins `moved_by` batches later than it should."""

    moved_by = 1

    @property
    def base_offsets(self) -> tuple[int, ...]:
        first_begin, second_begin, *later_begins = super().base_offsets
        return (first_begin, second_begin + self.moved_by, *later_begins)


def segments_of(log: PartitionLog, kind: type[Segments]) -> Segments:
    """Return segments of at most three batches and 100 ms each, sound or damaged by their class."""
    size = log.storage.batch(0).size_in_bytes
    return kind(log, first_dirty_offset=0, segment_bytes=3 * size, roll_ms=100)


def test_segments_must_end_when_they_are_full() -> None:
    """Three batches fill a segment. Here the first segment has four batches, and then two."""
    log = log_of(*["a=1"] * 8)
    check_segments(segments_of(log, Segments))
    for moved_by in (1, -1):
        damaged = segments_of(log, MovedSegments)
        damaged.moved_by = moved_by  # type: ignore[attr-defined]
        with pytest.raises(InvariantViolation, match="a segment ends at segment"):
            check_segments(damaged)


def test_segments_must_end_after_their_time() -> None:
    """The batches are 60 ms apart, so a segment of up to 100 ms has two batches."""
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for number in range(6):
        log.append_as_leader((Record(b"a", b"1", 1 + 60 * number),), leader_epoch=0)
    segments = segments_of(log, Segments)
    assert segments.base_offsets == (0, 2, 4)
    check_segments(segments)
    # The damaged first segment has a third batch, which is 120 ms later than its first batch.
    with pytest.raises(InvariantViolation, match="is in it"):
        check_segments(segments_of(log, MovedSegments))


def test_segments_of_a_truncated_log_are_not_checked() -> None:
    """After a truncation, segments are computed again before they are used.

    So they may be wrong.
    """
    log = log_of(*["a=1"] * 8)
    damaged = segments_of(log, MovedSegments)
    log.truncate_to(1)
    check_segments(damaged)
