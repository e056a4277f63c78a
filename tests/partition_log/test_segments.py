"""The segments of a log, and which segments a cleaning may take.

In Kafka a segment is a file of the log. The last segment is the active segment. Records are
appended to the active segment, so it is never cleaned. When the active segment is full or old, a
new segment begins. Each batch in these tests has one record, and a segment has three batches unless
a test sets another size. So the segments begin at the offsets 0, 3, 6, and so on. With 7 batches,
the segments at 0 and 3 can be cleaned, and the active segment, at 6, cannot.
"""

import pytest

from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.segments import Cleanable, Segments
from protocol.records.batch import Record
from tests.support.builders.partition_logs import PARTITION

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def log_of(*times_ms: int) -> PartitionLog:
    """Return a log with a batch of one record for each of these times.

    All batches have the same size.
    """
    log = PartitionLog(PARTITION, MemoryLogStorage())
    for number, time_ms in enumerate(times_ms):
        record = Record(b"key", f"{number:03}".encode(), time_ms)
        log.append_as_leader((record,), leader_epoch=0)
    return log


def batch_size(log: PartitionLog) -> int:
    """Return the size of a batch of the log. All batches of the log have the same size."""
    return log.storage.batch(0).size_in_bytes


def cleanable(
    log: PartitionLog,
    *,
    batches_per_segment: int = 3,
    first_dirty: int = 0,
    first_uncleanable: int = 2**40,
    min_lag_ms: int = 0,
    roll_ms: int = HOUR_MS,
) -> Cleanable:
    """Return the part of `log` that a cleaning may take.

    first_dirty: the first offset that no cleaning has read yet.
    first_uncleanable: a cleaning must stop before this offset. The default is beyond every log.
    min_lag_ms: a cleaning may take only records of at least this age.
    roll_ms: a segment also ends when it is older than this number of milliseconds.
    """
    segments = Segments(
        log,
        first_dirty_offset=first_dirty,
        segment_bytes=batches_per_segment * batch_size(log),
        roll_ms=roll_ms,
    )
    return segments.cleanable(first_uncleanable, min_lag_ms=min_lag_ms, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("batch_count", "end_offset"), [(1, 0), (3, 0), (4, 3), (6, 3), (7, 6), (9, 6)]
)
def test_active_segment_is_never_cleaned(batch_count: int, end_offset: int) -> None:
    """A cleaning ends where the last segment begins. A full segment has three batches."""
    part = cleanable(log_of(*[NOW_MS] * batch_count))
    assert part.end_offset == end_offset
    assert part.cleanable_bytes == end_offset * batch_size(log_of(NOW_MS))


@pytest.mark.parametrize(
    ("last_stable_offset", "end_offset"), [(0, 0), (2, 0), (3, 3), (5, 3), (6, 6), (8, 6)]
)
def test_segment_with_the_last_stable_offset_is_not_cleaned(
    last_stable_offset: int, end_offset: int
) -> None:
    """Records from this offset on may still be aborted or truncated, so they are not cleaned.

    The last stable offset is the first offset of the oldest open transaction or, if this is lower,
    the high watermark.
    """
    log = log_of(*[NOW_MS] * 9)
    assert cleanable(log, first_uncleanable=last_stable_offset).end_offset == end_offset


def test_old_segment_ends_at_the_next_append() -> None:
    """A segment ends after log.roll.ms, here an hour, even if it is small.

    The batch at offset 2 is more than an hour later than the first batch, so it begins a new
    segment.
    """
    log = log_of(NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, NOW_MS + HOUR_MS + 2)
    assert cleanable(log, batches_per_segment=100).end_offset == 2


def test_batch_without_a_time_ends_no_segment() -> None:
    """A batch without a time has the timestamp 0, which does not count.

    So the hour of the first segment begins with the batch at offset 2. The batch at offset 4 comes
    more than an hour later, and begins a new segment.
    """
    log = log_of(0, 0, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS)
    assert cleanable(log, batches_per_segment=100).end_offset == 4


def test_young_segments_are_not_cleaned() -> None:
    """A cleaned record must be older than log.cleaner.min.compaction.lag.ms.

    The first segment here is an hour old, and the second segment is 10 ms old. With a limit of 1 s
    only the first segment is cleaned. With a limit of 5 ms both segments are cleaned.
    """
    log = log_of(*[NOW_MS - HOUR_MS] * 3, *[NOW_MS - 10] * 3, NOW_MS)
    # With ten hours for `roll_ms`, a segment ends only when it is full.
    assert cleanable(log, min_lag_ms=1_000, roll_ms=10 * HOUR_MS).end_offset == 3
    assert cleanable(log, min_lag_ms=5, roll_ms=10 * HOUR_MS).end_offset == 6


def test_ratio_is_the_dirty_share_of_the_cleanable_part() -> None:
    """The ratio is dirty bytes / (clean + dirty bytes), without the active segment.

    Kafka cleans a log only if its ratio is at least min.cleanable.dirty.ratio.
    """
    log = log_of(*[NOW_MS] * 10)  # the active segment begins at offset 9
    part = cleanable(log, first_dirty=6)
    size = batch_size(log)
    # Six batches are clean, and three are dirty.
    assert (part.clean_bytes, part.cleanable_bytes, part.end_offset) == (6 * size, 3 * size, 9)
    assert part.ratio == pytest.approx(3 / (6 + 3))
    assert cleanable(log, first_dirty=9).ratio == 0  # the dirty part is empty
    assert cleanable(log_of(NOW_MS)).ratio == 0  # the log has only its active segment


def test_segments_follow_later_appends_and_truncations() -> None:
    """`cleanable` sees the segments of later appends. After a truncation, Segments are outdated."""
    log = log_of(*[NOW_MS] * 3)
    size = batch_size(log)
    segments = Segments(log, first_dirty_offset=0, segment_bytes=3 * size, roll_ms=HOUR_MS)
    beyond_the_log = 100  # every record may be cleaned
    assert segments.cleanable(beyond_the_log, min_lag_ms=0, now_ms=NOW_MS).end_offset == 0
    for _ in range(4):
        log.append_as_leader((Record(b"key", b"999", NOW_MS),), leader_epoch=0)
    assert segments.cleanable(beyond_the_log, min_lag_ms=0, now_ms=NOW_MS).end_offset == 6
    assert not segments.is_outdated
    log.truncate_to(5)
    assert segments.is_outdated


def test_checkpoint_beyond_the_log_counts_as_the_log_end() -> None:
    """According to its checkpoint, the log is clean up to offset 50, but the log ends at 1.

    This happens if a power loss removes records that a cleaning has read.
    """
    segments = Segments(log_of(NOW_MS), first_dirty_offset=50, segment_bytes=10, roll_ms=HOUR_MS)
    assert segments.first_dirty_offset == 1
