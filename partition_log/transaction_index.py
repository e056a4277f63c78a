"""TransactionIndex: the ends of the transactions in a log, and the last stable offset.

A transaction ends with a marker, which commits or aborts the transaction. The records of an aborted
transaction do not count: consumers with read_committed skip these records, and a compaction removes
them. The last stable offset is the offset below which no transaction is open.

Source: Kafka `TransactionIndex`, `UnifiedLog.lastStableOffset`, `collectAbortedTransactions`.
DEVIATION: the index is computed from the batches when it is needed. Kafka stores an index with each
segment.
"""

from bisect import bisect_right

from partition_log.log import PartitionLog
from protocol.ids import NO_PRODUCER_ID
from protocol.records.batch import RecordBatch
from protocol.records.control import decode_marker


class TransactionIndex:
    """The transactions of one log, as far as their markers are below `up_to`.

    `up_to` is the high watermark by default. `last_stable_offset` is never above `up_to`.
    """

    def __init__(self, log: PartitionLog, up_to: int | None = None) -> None:
        self._up_to = log.high_watermark if up_to is None else up_to
        self.last_stable_offset: int = self._up_to
        self._ends: dict[int, tuple[list[int], list[bool]]] = {}
        """Producer id -> (offsets of its markers, a flag for each marker: True if it commits)."""
        self._last_batches: dict[int, int] = {}
        """Producer id -> base offset of its last data batch. For a producer without a data batch,
        base offset of its last marker."""
        if log.producers.had_any:
            self._read(log)

    def counts(self, batch: RecordBatch) -> bool | None:
        """Return True if the records of `batch` count, False if they are of an aborted transaction.

        The result is None if the transaction is open, because its end is not decided yet.
        """
        if not batch.is_transactional or batch.is_control:
            return True  # the batch has no records of a transaction
        # The first marker of the producer after the batch has ended the batch's transaction. `end`
        # is the index of this marker.
        offsets, commits = self._ends.get(batch.producer_id, ((), ()))
        end = bisect_right(offsets, batch.base_offset)
        return commits[end] if end < len(commits) else None

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return True if `batch` belongs to an aborted transaction."""
        return self.counts(batch) is False

    def is_last_of_producer(self, batch: RecordBatch) -> bool:
        """Return True if a restarted replica needs `batch` to know the epoch of its producer.

        A compaction must keep the header of such a batch, even if it removes all records of the
        batch.
        """
        return self._last_batches.get(batch.producer_id) == batch.base_offset

    def _read(self, log: PartitionLog) -> None:
        """Find the transactions of a log in its batches."""
        storage = log.storage
        first_open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        has_data: dict[int, bool] = {}  # producer id -> True after its first data batch
        for index in range(len(storage)):
            batch = storage.batch(index)
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            # If a marker follows the last data batch, the data batch stays in `_last_batches`. The
            # marker and the data batch both have the producer's epoch, but only the data batch has
            # the producer's last sequence number.
            if not (batch.is_control and has_data.get(producer_id, False)):
                self._last_batches[producer_id] = batch.base_offset
            has_data[producer_id] = has_data.get(producer_id, False) or not batch.is_control

            # A batch that ends above `up_to` may still be lost, so it does not count here.
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
