"""Invariants of log compaction: of the segments that a cleaning may take, and of its result.

A cleaning is one round of log compaction; a dirty batch is one that no cleaning has read yet. Where
`compaction` reads only the dirty batches of a log and keeps state from batch to batch, the checks
here state the result for the whole log at once, so that both would have to be wrong in one way.
The docstring of each check states what holds; the check raises InvariantViolation with the evidence
where it does not.

- Tombstone: a record without a value. Marker: the control record that ends a transaction.
- Delete horizon: the time, in a batch, after which a cleaning removes its tombstones or marker.
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

    - Records of an aborted transaction, and records without a key, go; they replace no record.
    - A tombstone that is the last of its key stays until the delete horizon of its batch has
      passed. A marker stays while its transaction has batches, and then until its horizon.
    - A batch whose tombstones or marker could go one day gets its horizon at its first cleaning,
      `delete_retention_ms` ahead, and keeps it.
    - The headers of the batches stay, and the last batch with data of each producer stays, from
      which a restarted replica learns the producer's sequence numbers.

    Shape: `before` are all batches of the log, whose first `length` ones were replaced by `after`.
    Units: `now_ms` since the epoch is the time of the cleaning. If it is not `is_time_exact`, the
    cleaning began earlier, and nothing is asked of tombstones and markers that have a horizon.
    Source: KIP-534, Kafka Cleaner, CleanedTransactionMetadata.
    """
    sources = {batch.base_offset: batch for batch in before[:length]}
    records = {offset: records_of(batch, codecs) for offset, batch in sources.items()}
    aborted = _aborted(before)
    endings = _ends_without_data(before[:length])
    latest: dict[bytes | None, int] = {}
    for base_offset, batch in sources.items():
        if not batch.is_control and base_offset not in aborted:
            latest.update({record.key: offset for offset, record in records[base_offset]})

    expected: list[tuple[int, Record]] = []
    skipped: dict[int, None] = {}  # offsets of which nothing is asked
    for base_offset, batch in sources.items():
        horizon_ms = _horizon_ms(batch)
        is_expired = horizon_ms != _NO_HORIZON and now_ms >= horizon_ms
        for offset, record in records[base_offset]:
            if batch.is_control:
                may_expire = base_offset in endings
            elif base_offset in aborted or record.key is None or latest[record.key] != offset:
                continue
            else:
                may_expire = record.value is None
            if may_expire and horizon_ms != _NO_HORIZON and not is_time_exact:
                skipped[offset] = None
            elif not (may_expire and is_expired):
                expected.append((offset, record))

    found: list[tuple[int, Record]] = []
    for batch in after:
        source = sources.get(batch.base_offset)
        if source is batch:
            left = records[batch.base_offset]
        elif source is None or _header(source) != _header(batch):
            raise _violation(
                name, f"expected the header {source and _header(source)}, got {_header(batch)}"
            )
        else:
            left = records_of(batch, codecs)
        found += [entry for entry in left if entry[0] not in skipped] if skipped else left
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

    It has at most segment.bytes, unless it has one batch, and no batch later than segment.ms after
    its first one with a timestamp.
    Source: Kafka LogSegment.shouldRoll.
    """
    storage, name = segments.log.storage, segments.log.topic_partition
    borders = {offset: None for offset in segments.base_offsets}
    if segments.is_outdated:
        return
    base_offset, count, size_in_bytes, first_ms = -1, 0, 0, 0
    for index in range(segments.read_length):
        batch = storage.batch(index)
        if batch.base_offset < segments.first_dirty_offset:
            continue
        timestamp_ms = batch.max_timestamp_ms
        is_too_large = size_in_bytes + batch.size_in_bytes > segments.segment_bytes
        is_too_late = first_ms > 0 and timestamp_ms - first_ms > segments.roll_ms
        begins = batch.base_offset in borders
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
    """Return the base offsets of the batches whose transaction was aborted: read backwards."""
    commits: dict[int, bool] = {}  # producer id -> True if the next marker is a commit
    found: dict[int, None] = {}
    for batch in reversed(batches):
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                commits[batch.producer_id] = marker.is_commit
        elif batch.is_transactional and not commits.get(batch.producer_id, True):
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
    """Check the horizon of a batch with records: its earlier one, or now `next_ms` if it has one.

    A batch whose last tombstone was replaced may keep its horizon.
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
