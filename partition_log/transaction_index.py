"""How the transactions in a log ended, and up to where all of them have.

A marker ends the open transaction of its producer; what the producer wrote before counts, or never
does. Source: Kafka `TransactionIndex`, `UnifiedLog.lastStableOffset`, `collectAbortedTransactions`.
DEVIATION: made anew from the batches where it is needed; Kafka keeps it beside each segment.
"""

from bisect import bisect_right

from partition_log.log import PartitionLog
from protocol.ids import NO_PRODUCER_ID
from protocol.records.batch import RecordBatch
from protocol.records.control import decode_marker


class TransactionIndex:
    """The transactions of one log as of now, as far as markers below `up_to` end them.

    Without `up_to` it is the high watermark. Attribute, to read only: `last_stable_offset`: every
    transaction that wrote below it has ended, and it is not above `up_to`.
    """

    def __init__(self, log: PartitionLog, up_to: int | None = None) -> None:
        self._up_to = log.high_watermark if up_to is None else up_to
        self.last_stable_offset: int = self._up_to
        self._ends: dict[int, tuple[list[int], list[bool]]] = {}
        """By producer: the offsets of its markers, and whether each is a commit."""
        self._last_batches: dict[int, int] = {}
        """By producer: where its last data batch begins, or its last marker if it has no data."""
        if log.producers:
            self._read(log)

    def counts(self, batch: RecordBatch) -> bool | None:
        """Return whether what `batch` holds counts: not if it was aborted, None if it is open."""
        if not batch.is_transactional or batch.is_control:
            return True
        offsets, commits = self._ends.get(batch.producer_id, ((), ()))
        end = bisect_right(offsets, batch.base_offset)
        return commits[end] if end < len(commits) else None

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether a transaction wrote `batch` that was aborted."""
        return self.counts(batch) is False

    def is_last_of_producer(self, batch: RecordBatch) -> bool:
        """Return whether `batch` is what a restarted replica knows its producer's epoch from."""
        return self._last_batches.get(batch.producer_id) == batch.base_offset

    def _read(self, log: PartitionLog) -> None:
        storage = log.storage
        first_open: dict[int, int] = {}
        has_data: dict[int, bool] = {}
        for index in range(len(storage)):
            batch = storage.batch(index)
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            if not (batch.is_control and has_data.get(producer_id, False)):
                self._last_batches[producer_id] = batch.base_offset
            has_data[producer_id] = has_data.get(producer_id, False) or not batch.is_control
            if batch.next_offset > self._up_to:
                continue
            if not batch.is_control:
                if batch.is_transactional:
                    first_open.setdefault(producer_id, batch.base_offset)
                continue
            marker = decode_marker(batch)
            if marker is not None:
                offsets, commits = self._ends.setdefault(producer_id, ([], []))
                offsets.append(batch.base_offset)
                commits.append(marker.is_commit)
                first_open.pop(producer_id, None)
        for offset in first_open.values():
            self.last_stable_offset = min(self.last_stable_offset, offset)
