"""The checks of segments and of cleanings find each kind of damage, and accept sound results.

A log is a sequence of segments (files); a segment that is full is followed by a new one. A cleaning
removes each record whose key has a newer record. Two kinds of records stay for some time:
tombstones (a record without a value deletes its key) and transaction markers (the record that ends
a transaction). Their first cleaning writes the end of this time, the delete horizon, into the
batch. Sound cleanings are checked in `test_compaction`, too.

- `written("a=1", ...)` returns batches of one record each, from offset 0. `a=` is a tombstone,
  `a!1` a record of producer 7's transaction; `commit` and `abort` are markers of this producer.
- `check(before, after, ...)` checks a cleaning at 1,000 ms that turned the batches `before` into
  `after`. Tombstones and markers must stay for 10 ms.
- `left(batch, horizon)` returns a batch after a cleaning that has set this delete horizon.

Each test begins with a sound cleaning, and damages its result.
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
NEXT_MS = 1_010
"""The delete horizon that a cleaning at 1,000 ms sets."""


def log_of(*texts: str) -> PartitionLog:
    """Return a log with these records, in the notation of the module's docstring."""
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for text in texts:
        is_marker = text in ("commit", "abort")
        # Without a separator, as in "commit", the key is the whole text and is not used.
        key, separator, value = text.partition("!" if "!" in text else "=")
        marker = EndTransactionMarker(is_commit=text == "commit", coordinator_epoch=0)
        is_transactional = is_marker or separator == "!"
        log.append_as_leader(
            (
                encode_marker(marker, 1)
                if is_marker
                else Record(key.encode() or None, value.encode() or None, 1),
            ),
            leader_epoch=0,
            producer_id=PRODUCER if is_transactional else -1,
            producer_epoch=0 if is_transactional else -1,
            is_transactional=is_transactional,
            is_control=is_marker,
        )
    return log


def written(*texts: str) -> list[RecordBatch]:
    """Return the batches of a log with these records."""
    log = log_of(*texts)
    return [log.storage.batch(index) for index in range(len(log.storage))]


def left(batch: RecordBatch, horizon_ms: int = -1, *, is_empty: bool = False) -> RecordBatch:
    """Return the batch after a cleaning, with all its records or none. -1 means no horizon."""
    records = [] if is_empty else [record for _, record in records_of(batch)]
    return cleaned_batch(batch, Cleaned(tuple(range(len(records))), horizon_ms), records)


def check(
    before: Sequence[RecordBatch], after: Sequence[RecordBatch], *, is_time_exact: bool = True
) -> None:
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
    before = written("a=1", "a=2", "b=1")
    first, second, other = before
    check(before, [second, other])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [other])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check(before, [first, second, other])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [first, other])


def test_records_must_keep_offset_order_and_header() -> None:
    before = written("a=1", "b=1")
    with pytest.raises(InvariantViolation, match="the order is"):
        check(before, before[::-1])
    # The log had no batch at 5, so no header is expected there.
    with pytest.raises(InvariantViolation, match="expected the header None"):
        check(before, [before[0], replace(before[1], base_offset=5)])
    with pytest.raises(InvariantViolation, match="expected the header"):
        check(before, [before[0], replace(before[1], partition_leader_epoch=3)])


def test_record_without_key_must_go() -> None:
    # The first record has no key.
    before = written("=1", "b=1")
    check(before, before[1:])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check(before, before)


def test_tombstone_must_get_a_horizon_and_go_after_it() -> None:
    """The first cleaning keeps a tombstone and sets its horizon.

    A later cleaning keeps the tombstone and its horizon before the horizon, and removes it after.
    """
    before = written("a=")
    (tombstone,) = before
    check(before, [left(tombstone, NEXT_MS)])
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check(before, [])
    with pytest.raises(InvariantViolation, match=r"horizon -1, expected 1010"):
        check(before, before)

    # The cleaning at 1,000 ms is before a horizon of 1,001 ms.
    future = left(tombstone, 1_001)
    check([future], [future])
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check([future], [])
    with pytest.raises(InvariantViolation, match=r"horizon 1010, expected 1001"):
        check([future], [left(tombstone, NEXT_MS)])

    past = left(tombstone, 1_000)
    check([past], [])
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check([past], [past])


def test_tombstones_are_not_judged_by_an_inexact_time() -> None:
    """If the time of the cleaning is not known exactly, it may be before the horizon or after.

    So the tombstone may be there or be gone.
    """
    past = left(written("a=")[0], 1_000)
    check([past], [past], is_time_exact=False)
    check([past], [], is_time_exact=False)


def test_records_of_an_aborted_transaction_must_go_and_replace_none() -> None:
    """The aborted record of key `a` goes; the older record of `a` stays."""
    before = written("a=1", "a!2", "abort", "b!1")
    plain, aborted, marker, new = before
    check(before, [plain, marker, new])
    with pytest.raises(InvariantViolation, match="the record at 1 is left"):
        check(before, before)
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check(before, [aborted, marker, new])


def test_records_of_a_committed_transaction_must_stay() -> None:
    before = written("a=1", "a!2", "commit")
    check(before, before[1:])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [before[0], before[2]])


def test_marker_must_stay_while_its_transaction_has_batches() -> None:
    """A marker gets its horizon only when the data of its transaction are gone.

    While the data are there, a marker must stay even if it has a horizon in the past.
    """
    before = written("a!1", "commit")
    data, marker = before
    check(before, before)
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check(before, [data])
    with pytest.raises(InvariantViolation, match="the record at 1 is gone"):
        check([data, left(marker, 1)], [data])


def test_marker_without_data_must_get_a_horizon_and_go_after_it() -> None:
    """The first marker has no data of its transaction left; the second transaction has its data."""
    first, *rest = written("commit", "a!1", "commit")
    check([first, *rest], [left(first, NEXT_MS), *rest])
    with pytest.raises(InvariantViolation, match=r"horizon -1, expected 1010"):
        check([first, *rest], [first, *rest])
    with pytest.raises(InvariantViolation, match="the record at 0 is gone"):
        check([first, *rest], rest)
    past = left(first, 1_000)
    check([past, *rest], rest)
    with pytest.raises(InvariantViolation, match="the record at 0 is left"):
        check([past, *rest], [past, *rest])


def test_last_batch_of_a_producer_must_stay_without_records() -> None:
    """The last batch tells a later leader the producer's newest sequence number."""
    before = written("a!1", "commit", "a=2")
    data, marker, plain = before
    check(before, [left(data, is_empty=True), marker, plain])
    with pytest.raises(InvariantViolation, match="the last batch of producer 7, at 0, is gone"):
        check(before, [marker, plain])


class MovedSegments(Segments):
    """Damaged segments, whose first border is `moved_by` batches from its place."""

    moved_by = 1

    @property
    def base_offsets(self) -> tuple[int, ...]:
        first, second, *rest = super().base_offsets
        return (first, second + self.moved_by, *rest)


def segments_of(log: PartitionLog, kind: type[Segments]) -> Segments:
    """Return segments of at most three batches each; a segment also ends after 100 ms."""
    size = log.storage.batch(0).size_in_bytes
    return kind(log, first_dirty_offset=0, segment_bytes=3 * size, roll_ms=100)


def test_segments_must_end_when_they_are_full() -> None:
    """Three batches fill a segment. The check finds a first segment of four or of two batches."""
    log = log_of(*["a=1"] * 8)
    check_segments(segments_of(log, Segments))
    for moved_by in (1, -1):
        damaged = segments_of(log, MovedSegments)
        damaged.moved_by = moved_by  # type: ignore[attr-defined]
        with pytest.raises(InvariantViolation, match="a segment ends at segment"):
            check_segments(damaged)


def test_segments_must_end_after_their_time() -> None:
    """The batches are 60 ms apart, so a segment of 100 ms has two of them."""
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for number in range(6):
        log.append_as_leader((Record(b"a", b"1", 1 + 60 * number),), leader_epoch=0)
    segments = segments_of(log, Segments)
    assert segments.base_offsets == (0, 2, 4)
    check_segments(segments)
    # With the border moved, the first segment has a third batch, which is too late for it.
    with pytest.raises(InvariantViolation, match="is in it"):
        check_segments(segments_of(log, MovedSegments))


def test_segments_of_a_truncated_log_are_not_checked() -> None:
    """Segments of a truncated log are computed anew before their next use, so they may be wrong."""
    log = log_of(*["a=1"] * 8)
    damaged = segments_of(log, MovedSegments)
    log.truncate_to(1)
    check_segments(damaged)
