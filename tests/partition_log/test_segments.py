"""The segments of a log (its files in Kafka), and which of them a cleaning may take.

The last segment is the active one, to which the log appends; it is never cleaned. A segment ends
when it is full, or when it is old. The logs here have one batch of one record per offset, and three
batches per segment unless a test sets another size. So the segments begin at 0, 3, 6, and so on.
"""

import pytest

from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.segments import Cleanable, Segments
from protocol.records.batch import Record
from tests.support.builders.partition_logs import PARTITION

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def written(*times_ms: int) -> PartitionLog:
    """Return a log with one batch of one record for each time; all batches have the same size."""
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for number, time_ms in enumerate(times_ms):
        record = Record(b"key", f"{number:03}".encode(), time_ms)
        log.append_as_leader((record,), leader_epoch=0)
    return log


def batch_size(log: PartitionLog) -> int:
    """Return the size of a batch of the log; all its batches have the same size."""
    return log.storage.batch(0).size_in_bytes


def cleanable(
    log: PartitionLog,
    *,
    batches_per_segment: int = 3,
    first_dirty: int = 0,
    uncleanable: int = 2**40,
    min_lag_ms: int = 0,
    roll_ms: int = HOUR_MS,
) -> Cleanable:
    """Return the part of `log` that a cleaning may take.

    `first_dirty` is the first offset that no cleaning has processed. `uncleanable` is the first
    offset that no cleaning may take; by default it is beyond every log. `min_lag_ms` is the least
    age of a record that a cleaning may take.
    """
    segments = Segments(
        log,
        first_dirty_offset=first_dirty,
        segment_bytes=batches_per_segment * batch_size(log),
        roll_ms=roll_ms,
    )
    return segments.cleanable(uncleanable, min_lag_ms=min_lag_ms, now_ms=NOW_MS)


@pytest.mark.parametrize(("batches", "end"), [(1, 0), (3, 0), (4, 3), (6, 3), (7, 6), (9, 6)])
def test_active_segment_is_never_cleaned(batches: int, end: int) -> None:
    """A segment ends when the next batch does not fit; the last segment is never cleaned."""
    part = cleanable(written(*[NOW_MS] * batches))
    assert part.end_offset == end
    assert part.cleanable_bytes == end * batch_size(written(NOW_MS))


@pytest.mark.parametrize(("uncleanable", "end"), [(0, 0), (2, 0), (3, 3), (5, 3), (6, 6), (8, 6)])
def test_segment_with_the_last_stable_offset_is_not_cleaned(uncleanable: int, end: int) -> None:
    """Neither the segment with the offset `uncleanable` nor a later segment is cleaned.

    In a broker this offset is the last stable offset: the first offset of the oldest open
    transaction or, if it is lower, the high watermark (the end of the committed records).
    """
    assert cleanable(written(*[NOW_MS] * 9), uncleanable=uncleanable).end_offset == end


def test_segment_ends_with_the_first_append_after_its_time() -> None:
    """A segment ends after log.roll.ms, an hour here, however small it is.

    The batch at offset 2 is more than an hour later than the first batch, and begins a new segment.
    """
    log = written(NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, NOW_MS + HOUR_MS + 2)
    assert cleanable(log, batches_per_segment=100).end_offset == 2


def test_batch_without_a_time_ends_no_segment() -> None:
    """Batches that were loaded before a run have the time 0, which does not count.

    So the hour of the first segment begins with the batch at offset 2.
    """
    log = written(0, 0, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS)
    assert cleanable(log, batches_per_segment=100).end_offset == 4


def test_young_segments_are_not_cleaned() -> None:
    """log.cleaner.min.compaction.lag.ms is the least age of a cleaned record: here 1 s, then 5 ms.

    The first segment is an hour old, the second 10 ms.
    """
    log = written(*[NOW_MS - HOUR_MS] * 3, *[NOW_MS - 10] * 3, NOW_MS)
    # With a roll time of ten hours a segment ends by its size only.
    assert cleanable(log, min_lag_ms=1_000, roll_ms=10 * HOUR_MS).end_offset == 3
    assert cleanable(log, min_lag_ms=5, roll_ms=10 * HOUR_MS).end_offset == 6


def test_ratio_is_the_dirty_share_of_the_cleanable_part() -> None:
    """The ratio is dirty bytes / (clean + dirty bytes). Kafka compares it with a setting.

    The setting is min.cleanable.dirty.ratio. The active segment, from offset 9 on, does not count.
    """
    log = written(*[NOW_MS] * 10)
    part = cleanable(log, first_dirty=6)
    size = batch_size(log)
    assert (part.clean_bytes, part.cleanable_bytes, part.end_offset) == (6 * size, 3 * size, 9)
    # Six batches are clean, three are dirty.
    assert part.ratio == pytest.approx(3 / (6 + 3))
    assert cleanable(log, first_dirty=9).ratio == 0  # the dirty part is empty
    assert cleanable(written(NOW_MS)).ratio == 0  # the log has only its active segment


def test_segments_follow_later_appends_and_truncations() -> None:
    """A Segments object follows appends, because each call of `cleanable` computes the segments.

    After a truncation the object is outdated. The first argument, 100, is an offset beyond the log:
    it says that every record may be cleaned.
    """
    log = written(*[NOW_MS] * 3)
    size = batch_size(log)
    segments = Segments(log, first_dirty_offset=0, segment_bytes=3 * size, roll_ms=HOUR_MS)
    assert segments.cleanable(100, min_lag_ms=0, now_ms=NOW_MS).end_offset == 0
    for _ in range(4):
        log.append_as_leader((Record(b"key", b"999", NOW_MS),), leader_epoch=0)
    assert segments.cleanable(100, min_lag_ms=0, now_ms=NOW_MS).end_offset == 6
    assert not segments.is_outdated
    log.truncate_to(5)
    assert segments.is_outdated


def test_checkpoint_beyond_the_log_counts_as_the_log_end() -> None:
    """The checkpoint stores the first dirty offset, here 50, but the log ends at 1.

    This happens if a power loss removes records that were cleaned.
    """
    segments = Segments(written(NOW_MS), first_dirty_offset=50, segment_bytes=10, roll_ms=HOUR_MS)
    assert segments.first_dirty_offset == 1
