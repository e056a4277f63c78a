"""Invariants of log compaction: of the segments that a cleaning may take, and of its result.

A cleaning is one round of log compaction; a dirty batch is one that no cleaning has read yet. The
checks here compute the result of a cleaning in another way than `compaction`. `compaction` reads
only the dirty batches of a log to find the last records of keys, and keeps state from batch to
batch. The checks look at the whole log at a time. So an error in `compaction` is found unless the
checks have the same error.
The docstring of each check states what must hold. If it does not hold, the check raises
InvariantViolation with the evidence.

- Tombstone: a record without a value, which deletes its key.
- Marker: the control record that ends a transaction.
- Delete horizon: a time that is stored in a batch. A cleaning after this time removes the batch's
  tombstones or marker.
- Replace: a record replaces the earlier records with the same key. A cleaning removes records that
  are replaced.
"""

from collections.abc import Sequence

from partition_log.segments import Segments
from protocol.compression import NO_CODECS, Codecs
from protocol.errors import InvariantViolation
from protocol.ids import NO_PRODUCER_ID, TopicPartition
from protocol.records.batch import Record, RecordBatch, records_of
from protocol.records.control import decode_marker

_NO_HORIZON = -1


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

    - Records of an aborted transaction, and records without a key, are removed. They replace no
      earlier record.
    - A tombstone that is the last of its key stays until the delete horizon of its batch has
      passed. A marker stays while its transaction has batches, and then until its horizon.
    - A batch gets its horizon at the first cleaning after which it has a tombstone, or a marker of
      a transaction without batches. The horizon is the time of that cleaning plus
      `delete_retention_ms`. Later cleanings do not change it.
    - The headers of the batches stay. Each producer's last batch with data stays, because a
      restarted replica learns the producer's sequence numbers from it.

    `before`: all batches that the log had. `length`, `after`: the cleaning replaced the first
    `length` batches by the batches `after`.
    `now_ms`: the time of the cleaning, in milliseconds since the epoch.
    `is_time_exact`: False if the cleaning began before `now_ms`, at an unknown time. Then
    tombstones and markers with a horizon are not checked, because they may stay or be removed.
    Source: KIP-534, Kafka Cleaner, CleanedTransactionMetadata.
    """
    sources = {batch.base_offset: batch for batch in before[:length]}
    # Base offset of a batch -> its records, each with its own offset.
    records = {offset: records_of(batch, codecs) for offset, batch in sources.items()}
    aborted = _aborted(before)
    # Markers whose transaction has no batch left: only these may expire.
    endings = _ends_without_data(before[:length])
    # Key -> offset of its last record, since a later record overwrites the entry of its key.
    latest: dict[bytes | None, int] = {}
    for base_offset, batch in sources.items():
        if not batch.is_control and base_offset not in aborted:
            latest.update({record.key: offset for offset, record in records[base_offset]})

    expected: list[tuple[int, Record]] = []
    # Offsets that are not checked. The dict, whose values are all None, is a set in fixed order.
    skipped: dict[int, None] = {}
    for base_offset, batch in sources.items():
        horizon_ms = _horizon_ms(batch)
        is_expired = horizon_ms != _NO_HORIZON and now_ms >= horizon_ms
        for offset, record in records[base_offset]:
            # `may_expire`: the record stays until its batch's horizon, and is then removed.
            if batch.is_control:
                may_expire = base_offset in endings
            elif base_offset in aborted or record.key is None or latest[record.key] != offset:
                continue  # the cleaning removes it in any case
            else:
                may_expire = record.value is None
            # Without an exact time it is unknown whether the horizon has passed.
            if may_expire and horizon_ms != _NO_HORIZON and not is_time_exact:
                skipped[offset] = None
            elif not (may_expire and is_expired):
                expected.append((offset, record))

    found: list[tuple[int, Record]] = []
    for batch in after:
        source = sources.get(batch.base_offset)
        if source is batch:  # the same object: the cleaning did not change this batch
            left = records[batch.base_offset]
        elif source is None or _header(source) != _header(batch):
            # `source and ...` is None if no batch began at this offset before the cleaning.
            raise _violation(
                name, f"expected the header {source and _header(source)}, got {_header(batch)}"
            )
        else:
            left = records_of(batch, codecs)
        # Usually `skipped` is empty. Then all records are added without looking them up.
        found += [entry for entry in left if entry[0] not in skipped] if skipped else left
        # Here `may_expire` is about the batch: True if one of its records may expire.
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
    """A segment ends only before a batch that is too large for it, or too late for it.

    A batch is too large if the segment would exceed segment.bytes with it. It is too late if its
    timestamp is more than segment.ms after the segment's first timestamp. The first batch of a
    segment is never too large or too late. The check reads the batches again, and compares the
    borders that it finds with the borders in `segments`. Only the dirty part of the log has
    borders.
    Source: Kafka LogSegment.shouldRoll.
    """
    storage, name = segments.log.storage, segments.log.topic_partition
    borders = {offset: None for offset in segments.base_offsets}  # used as a set
    if segments.is_outdated:
        return  # the log was truncated meanwhile: these segments describe batches that are gone
    base_offset, count, size_in_bytes, first_ms = -1, 0, 0, 0
    for index in range(segments.read_length):
        batch = storage.batch(index)
        if batch.base_offset < segments.first_dirty_offset:
            continue  # a cleaned batch: `segments` has only segments of dirty batches
        timestamp_ms = batch.max_timestamp_ms
        is_too_large = size_in_bytes + batch.size_in_bytes > segments.segment_bytes
        # While `first_ms` is 0 or less, no batch of the segment has had a timestamp.
        is_too_late = first_ms > 0 and timestamp_ms - first_ms > segments.roll_ms
        begins = batch.base_offset in borders
        # In a segment that has batches (`count`), a batch must begin the next segment exactly if it
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
    """Return the base offsets of the batches whose transaction was aborted.

    The batches are read backwards, so that a transaction's marker comes before its batches.
    """
    commits: dict[int, bool] = {}  # producer id -> True if the next marker is a commit
    found: dict[int, None] = {}
    for batch in reversed(batches):
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                commits[batch.producer_id] = marker.is_commit
        elif batch.is_transactional and not commits.get(batch.producer_id, True):
            # The default True is for an open transaction, which has no marker and is not aborted.
            found[batch.base_offset] = None
    return found


def _ends_without_data(batches: Sequence[RecordBatch]) -> dict[int, None]:
    """Return the offsets of the markers whose transactions have no batch left in `batches`."""
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
    """Return, by producer id, the base offset of the last batch that is no marker."""
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

    - If the batch had a horizon before the cleaning, it keeps it.
    - If it had no horizon and some record may expire, its horizon is `next_ms`.
    - If it had no horizon and no record may expire, it gets no horizon.

    A batch with a horizon may have lost its last tombstone, because a later record has replaced it.
    Then no record may expire any more, and the batch may keep its horizon or lose it.
    """
    earlier_ms, horizon_ms = _horizon_ms(source), _horizon_ms(batch)
    expected_ms = next_ms if may_expire and earlier_ms == _NO_HORIZON else earlier_ms
    if horizon_ms != expected_ms and (may_expire or horizon_ms != _NO_HORIZON):
        raise _violation(
            name,
            f"the batch at {batch.base_offset} has the delete horizon {horizon_ms}, expected "
            f"{expected_ms}",
        )


def _difference(expected: list[tuple[int, Record]], found: list[tuple[int, Record]]) -> str:
    """Return the first record that is missing, or that should be gone or elsewhere, as text."""
    for entry in expected:
        if entry not in found:
            return f"the record at {entry[0]} is gone: {entry[1]}"
    for entry in found:
        if entry not in expected:
            return f"the record at {entry[0]} is left: {entry[1]}"
    return f"the order is {[offset for offset, _ in found]}"


def _violation(name: TopicPartition, problem: str) -> InvariantViolation:
    return InvariantViolation("a cleaning keeps the last record of each key", f"{name}: {problem}")
