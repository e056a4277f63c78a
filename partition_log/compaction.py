"""Compaction: of each key only the last record stays, and in the end no tombstone.

One pass over a log's beginning, in bounded steps: first the keys of what was written since the last
cleaning, then what of the whole is left. Offsets stay: where records go, holes are left. What is
left of the log means the same to whoever replays it. Must not know when a log is to be cleaned.

Tombstones and markers stay for `delete.retention.ms` after the cleaning that first saw that nothing
else is left of what they end, so that whoever reads the log meanwhile hears of the deletion.
Source: Kafka `Cleaner`, `MemoryRecords.filterTo`, `CleanedTransactionMetadata`; KIP-534.
DEVIATION: the first batch of each leader epoch stays, without records if need be: epochs and the
log's start are read from the batches, Kafka keeps them in files of their own. One offset map holds
all keys, whatever log.cleaner.dedupe.buffer.size would allow.
"""

from dataclasses import dataclass

from partition_log.batches import cleaned_batch
from partition_log.log import PartitionLog
from partition_log.transaction_index import TransactionIndex
from protocol.compression import NO_CODECS, Codecs
from protocol.ids import Offset
from protocol.records.batch import Cleaned, Record, RecordBatch, records_of
from protocol.records.control import decode_marker

NO_HORIZON = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a cleaning did. Everything below `end_offset` is clean now.

    Units: bytes as batches count in fetch limits.
    """

    end_offset: Offset
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


class Compaction:
    """One cleaning of `log`, of everything below `end_offset`.

    `first_dirty_offset` is where the last one ended; `end_offset` must not be above the log's last
    stable offset. `now_ms` is the time since the epoch by which tombstones go; `codecs` are those
    that its batches may be compressed with.
    """

    def __init__(
        self,
        log: PartitionLog,
        transactions: TransactionIndex,
        *,
        first_dirty_offset: int,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        codecs: Codecs = NO_CODECS,
    ) -> None:
        self._log = log
        self._codecs = codecs
        self._transactions = transactions
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._end_offset = end_offset
        self._sources: list[RecordBatch] = []
        for index in range(len(log.storage)):
            batch = log.storage.batch(index)
            if batch.next_offset > end_offset:
                break
            self._sources.append(batch)
        self._latest: dict[bytes, int] = {}
        self._left: list[RecordBatch] = []
        self._mapped = sum(batch.base_offset < first_dirty_offset for batch in self._sources)
        self._filtered = 0
        self._epoch = -1
        self._has_data: dict[int, bool] = {}
        """By producer: whether its present transaction has any data batch left."""

    def step(self, max_bytes: int) -> bool:
        """Go on by about `max_bytes`, one batch at least; return whether everything is done."""
        done_bytes = 0
        while done_bytes < max_bytes:
            if self._mapped < len(self._sources):
                batch = self._sources[self._mapped]
                self._map(batch)
                self._mapped += 1
            elif self._filtered < len(self._sources):
                batch = self._sources[self._filtered]
                self._filter(batch)
                self._filtered += 1
            else:
                return True
            done_bytes += batch.size_in_bytes
        return self._mapped == self._filtered == len(self._sources)

    def apply(self) -> CompactionResult | None:
        """Put what is left into the log; None, and nothing changes, if the log was cut meanwhile.

        Raises: OSError.
        """
        sources, left, storage = self._sources, self._left, self._log.storage
        length = len(sources)
        if length and (len(storage) < length or storage.batch(length - 1) is not sources[-1]):
            return None
        if any(old is not new for old, new in zip(sources, left, strict=False)) or (
            len(left) != length
        ):
            self._log.replace_prefix(length, left)
        return CompactionResult(
            end_offset=Offset(self._end_offset),
            records_before=sum(batch.record_count for batch in sources),
            records_after=sum(batch.record_count for batch in left),
            bytes_before=sum(batch.size_in_bytes for batch in sources),
            bytes_after=sum(batch.size_in_bytes for batch in left),
        )

    def _map(self, batch: RecordBatch) -> None:
        """Remember where each key was written last."""
        if batch.is_control or self._transactions.is_aborted(batch):
            return
        latest = self._latest
        for offset, record in records_of(batch, self._codecs):
            if record.key is not None:
                latest[record.key] = offset

    def _filter(self, batch: RecordBatch) -> None:
        """Keep what stays of a batch."""
        horizon_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        # What has a horizon from an earlier cleaning goes after it; what has none gets one now.
        expired = horizon_ms != NO_HORIZON and self._now_ms >= horizon_ms
        if batch.is_control:
            kept = records_of(batch)
            if self._ends_nothing(batch):
                if expired:
                    kept = []
                elif horizon_ms == NO_HORIZON and kept:
                    horizon_ms = self._horizon_ms
        else:
            if batch.is_transactional:
                self._has_data[batch.producer_id] = True
            kept = [] if self._transactions.is_aborted(batch) else self._last(batch, expired)
            if horizon_ms == NO_HORIZON and any(record.value is None for _, record in kept):
                horizon_ms = self._horizon_ms
        self._keep(batch, kept, horizon_ms)

    def _last(self, batch: RecordBatch, expired: bool) -> list[tuple[int, Record]]:
        """Return the records of `batch` that nothing has replaced, tombstones unless `expired`."""
        latest = self._latest
        return [
            (offset, record)
            for offset, record in records_of(batch, self._codecs)
            if record.key is not None
            and latest.get(record.key, -1) <= offset
            and not (expired and record.value is None)
        ]

    def _ends_nothing(self, batch: RecordBatch) -> bool:
        """Return whether `batch` is the marker of a transaction of which no data batch is left."""
        if decode_marker(batch) is None:
            return False
        return not self._has_data.pop(batch.producer_id, False)

    def _keep(self, batch: RecordBatch, kept: list[tuple[int, Record]], horizon_ms: int) -> None:
        begins_epoch = batch.partition_leader_epoch != self._epoch
        self._epoch = batch.partition_leader_epoch
        before_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        if len(kept) == batch.record_count and horizon_ms == before_ms and kept:
            self._left.append(batch)
            return
        if not kept:
            if not (begins_epoch or self._transactions.is_last_of_producer(batch)):
                return
            if batch.record_count == 0:
                self._left.append(batch)
                return
            horizon_ms = NO_HORIZON
        cleaned = Cleaned(tuple(offset - batch.base_offset for offset, _ in kept), horizon_ms)
        records = [record for _, record in kept]
        self._left.append(cleaned_batch(batch, cleaned, records, self._codecs))
