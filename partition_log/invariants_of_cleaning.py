"""Invariants of log compaction: segments that a cleaning may take, and results of cleanings.

A cleaning is one round of log compaction, as the module `compaction` describes it. The checks here
compute the result of a cleaning in another way than `compaction`. That module finds the last
records of keys in the batches since the last cleaning, and works in steps. The checks look at the
whole log at once, which is slower but simpler. So they find an error in `compaction`, unless they
have the same error.

The docstring of each check says what must be true. Otherwise the check raises InvariantViolation
with evidence.
"""

from collections.abc import Sequence

from partition_log.segments import Segments
from protocol.compression import NO_CODECS, Codecs
from protocol.errors import InvariantViolation
from protocol.ids import NO_PRODUCER_ID, TopicPartition
from protocol.records.batch import Record, RecordBatch, records_of
from protocol.records.control import decode_marker

_NO_HORIZON = -1
"""Delete horizon of a batch in which nothing expires. Any other horizon is a time in milliseconds
since the epoch."""


def check_cleaning(
    name: TopicPartition,
    before: Sequence[RecordBatch],
    length: int,
    after: Sequence[RecordBatch],
    *,
    now_ms: int,
    delete_retention_ms: int,
    is_time_exact: bool = True,
    codecs: Codecs = NO_CODECS,
) -> None:
    """A cleaning keeps the last record of each key, at its offset, and no other record.

    - Records of aborted transactions and records without a key are removed. They do not count as
      the last record of a key.
    - A tombstone (a record without a value) stays until the delete horizon of its batch. A marker
      (the end of a transaction) stays as long as its transaction has batches, and after that until
      the horizon of its own batch.
    - A batch gets its horizon in the first cleaning that leaves a tombstone in the batch, or that
      finds no other batch of the transaction that the batch's marker ends. The horizon is the time
      of this cleaning plus `delete_retention_ms`. Later cleanings do not change the horizon.
    - The headers of batches do not change. The last data batch of each producer stays, because a
      restarted replica learns the producer's sequence numbers from it.

    The log had the batches `before`. The cleaning has replaced the first `length` batches by
    `after`. `now_ms` is the time of the cleaning, in milliseconds since the epoch. If
    `is_time_exact` is False, the cleaning began at an unknown time before `now_ms`. Then it is not
    known which horizons had passed, and records that may expire are not checked.

    Source: KIP-534, Kafka Cleaner, CleanedTransactionMetadata.
    """
    # Base offset of a batch -> the batch, for the batches that the cleaning has read.
    sources = {batch.base_offset: batch for batch in before[:length]}
    # Base offset of a batch -> its records, each with its own offset.
    records = {offset: records_of(batch, codecs) for offset, batch in sources.items()}
    aborted = _aborted(before)
    # Markers whose transaction has no batch left. Only such markers may expire.
    endings = _ends_without_data(before[:length])
    # Key -> offset of its last record.
    latest: dict[bytes | None, int] = {}
    for base_offset, batch in sources.items():
        if not batch.is_control and base_offset not in aborted:
            latest.update({record.key: offset for offset, record in records[base_offset]})

    # First compute which records must be left: (offset, record).
    expected: list[tuple[int, Record]] = []
    # Offsets that are not checked. Only the keys of the dict matter.
    skipped: dict[int, None] = {}
    for base_offset, batch in sources.items():
        horizon_ms = _horizon_ms(batch)
        is_expired = horizon_ms != _NO_HORIZON and now_ms >= horizon_ms
        for offset, record in records[base_offset]:
            # `may_expire` is True if the record is removed at the horizon of its batch.
            if batch.is_control:
                may_expire = base_offset in endings
            elif base_offset in aborted or record.key is None or latest[record.key] != offset:
                continue  # this record is removed in any case
            else:
                may_expire = record.value is None
            # If the time is not exact, it is not known whether the horizon had passed.
            if may_expire and horizon_ms != _NO_HORIZON and not is_time_exact:
                skipped[offset] = None
            elif not (may_expire and is_expired):
                expected.append((offset, record))

    # Then compare with the records that are left, and check the headers and horizons.
    found: list[tuple[int, Record]] = []
    for batch in after:
        source = sources.get(batch.base_offset)
        if source is batch:  # the same object, so it has not changed
            left = records[batch.base_offset]
        elif source is None or _header(source) != _header(batch):
            # If no batch began at this offset before, the message says None.
            raise _violation(
                name, f"expected the header {source and _header(source)}, got {_header(batch)}"
            )
        else:
            left = records_of(batch, codecs)
        # Usually `skipped` is empty. Then the records need not be looked up.
        found += [entry for entry in left if entry[0] not in skipped] if skipped else left
        # Here `may_expire` is True if any record of the batch is removed at the horizon.
        may_expire = source.base_offset in endings or any(
            record.value is None for _, record in left
        )
        if is_time_exact and left:
            _check_horizon(name, source, batch, may_expire, now_ms + delete_retention_ms)
    if found != expected:
        raise _violation(name, _difference(expected, found))
    kept = {batch.base_offset for batch in after}
    for producer_id, offset in _last_data(before).items():
        if offset in sources and offset not in kept:
            raise _violation(
                name, f"the last batch of producer {producer_id}, at {offset}, is gone"
            )


def check_segments(segments: Segments) -> None:
    """A segment ends only before a batch that is too large or too late for this segment.

    A batch is too large if the segment with this batch would exceed segment.bytes. A batch is too
    late if its timestamp is more than segment.ms after the segment's first timestamp. A segment has
    at least one batch, so its first batch is never too large or too late.

    The check goes through the batches, computes where segments should begin, and compares this with
    `segments`. Only the part of the log since the last cleaning has segments.

    Source: Kafka LogSegment.shouldRoll.
    """
    storage, name = segments.log.storage, segments.log.topic_partition
    borders = {offset: None for offset in segments.base_offsets}  # only the keys matter
    if segments.is_outdated:
        return  # the log was truncated since: the segments may have batches that are gone
    # The current segment: its base offset, its batches so far, their size, the first timestamp.
    base_offset, count, size_in_bytes, first_ms = -1, 0, 0, 0
    for index in range(segments.read_length):
        batch = storage.batch(index)
        if batch.base_offset < segments.first_dirty_offset:
            continue  # a batch of an earlier cleaning, which is in none of these segments
        timestamp_ms = batch.max_timestamp_ms
        is_too_large = size_in_bytes + batch.size_in_bytes > segments.segment_bytes
        # If `first_ms` is 0 or less, no batch of the segment has had a timestamp so far.
        is_too_late = first_ms > 0 and timestamp_ms - first_ms > segments.roll_ms
        begins = batch.base_offset in borders
        # If the segment has a batch already, this batch must begin the next segment exactly if it
        # is too large or too late.
        if count and begins != (is_too_large or is_too_late):
            raise InvariantViolation(
                "a segment ends at segment.bytes or segment.ms",
                f"{name}: the segment at {base_offset} has {size_in_bytes} bytes of "
                f"{segments.segment_bytes} and began at {first_ms} ms; the batch at "
                f"{batch.base_offset} with {batch.size_in_bytes} bytes and {timestamp_ms} ms "
                f"{'begins the next one' if begins else 'is in it'}",
            )
        if begins or not count:
            base_offset, count, size_in_bytes, first_ms = batch.base_offset, 0, 0, 0
        count += 1
        size_in_bytes += batch.size_in_bytes
        first_ms = timestamp_ms if first_ms <= 0 else first_ms


def _aborted(batches: Sequence[RecordBatch]) -> dict[int, None]:
    """Return the base offsets of the batches whose transaction was aborted, as keys.

    The batches are read backwards, so that the marker of a transaction comes before its batches.
    """
    commits: dict[int, bool] = {}  # producer id -> True if the next marker is a commit
    found: dict[int, None] = {}
    for batch in reversed(batches):
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                commits[batch.producer_id] = marker.is_commit
        elif batch.is_transactional and not commits.get(batch.producer_id, True):
            # An open transaction has no marker. It is not aborted, hence the default True.
            found[batch.base_offset] = None
    return found


def _ends_without_data(batches: Sequence[RecordBatch]) -> dict[int, None]:
    """Return the offsets of markers whose transactions have no batch in `batches`, as keys."""
    found: dict[int, None] = {}
    with_data: dict[int, None] = {}  # producers with a data batch since their last marker
    for batch in batches:
        if not batch.is_control:
            if batch.is_transactional:
                with_data[batch.producer_id] = None
        elif decode_marker(batch) is not None:
            if batch.producer_id not in with_data:
                found[batch.base_offset] = None
            with_data.pop(batch.producer_id, None)
    return found


def _last_data(batches: Sequence[RecordBatch]) -> dict[int, int]:
    """Return, for each producer id, the base offset of its last data batch."""
    return {
        batch.producer_id: batch.base_offset
        for batch in batches
        if batch.producer_id != NO_PRODUCER_ID and not batch.is_control
    }


def _horizon_ms(batch: RecordBatch) -> int:
    return _NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms


def _header(batch: RecordBatch) -> tuple[object, ...]:
    """Return the fields that a cleaning must not change."""
    return (
        batch.base_offset,
        batch.last_offset_delta,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.is_control,
    )


def _check_horizon(
    name: TopicPartition, source: RecordBatch, batch: RecordBatch, may_expire: bool, next_ms: int
) -> None:
    """Check the delete horizon of a batch that still has records.

    - If the batch had a horizon before the cleaning, the batch keeps this horizon.
    - If the batch had no horizon, and one of its records stays only for a time (`may_expire`), its
      horizon is now `next_ms`.
    - If the batch had no horizon, and no record in it may expire, it gets no horizon.

    There is one exception. A later record may have replaced the last tombstone of a batch with a
    horizon. Then no record in the batch may expire any more, and the batch may keep or lose its
    horizon.
    """
    earlier_ms, horizon_ms = _horizon_ms(source), _horizon_ms(batch)
    expected_ms = next_ms if may_expire and earlier_ms == _NO_HORIZON else earlier_ms
    # A batch in which nothing may expire may also have lost its horizon.
    if horizon_ms != expected_ms and (may_expire or horizon_ms != _NO_HORIZON):
        raise _violation(
            name,
            f"the batch at {batch.base_offset} has the delete horizon {horizon_ms}, expected "
            f"{expected_ms}",
        )


def _difference(expected: list[tuple[int, Record]], found: list[tuple[int, Record]]) -> str:
    """Describe the first difference, such as "the record at 7 is gone: Record(...)"."""
    for entry in expected:
        if entry not in found:
            return f"the record at {entry[0]} is gone: {entry[1]}"
    for entry in found:
        if entry not in expected:
            return f"the record at {entry[0]} is left: {entry[1]}"
    return f"the order is {[offset for offset, _ in found]}"


def _violation(name: TopicPartition, problem: str) -> InvariantViolation:
    return InvariantViolation("a cleaning keeps the last record of each key", f"{name}: {problem}")
