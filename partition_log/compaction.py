"""Compaction: removes every record of a log whose key was written again later.

A cleaning is one round of compaction. It works on the log's batches below an end offset, in bounded
steps, in two passes. Batches below the end of the last cleaning are clean, the others are dirty.
1. Map: read what was written since the last cleaning, and note the last offset of each key.
2. Filter: for every batch from the start of the log, keep the records that the map does not
   replace.
Kept records keep their offsets, so the log gets holes. A reader of the cleaned log that keeps the
last value of each key ends with the same values as before.

A tombstone is a record without a value, which deletes its key. A marker is the record that ends a
transaction. A reader that has read the deleted record, or the transaction's records, must still be
able to read the tombstone or the marker. So when those records are gone, the tombstone or marker
stays in the log for `delete.retention.ms` more. The end of this time is the *delete horizon* of its
batch. A cleaning after the horizon removes the tombstone or marker.
Source: Kafka `Cleaner`, `MemoryRecords.filterTo`, `CleanedTransactionMetadata`; KIP-534.
DEVIATION: the first batch of each leader epoch stays, even without records: epochs and the log's
start are read from the batches, whereas Kafka keeps them in separate files. One map holds all keys,
without the limit of log.cleaner.dedupe.buffer.size.
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
"""Stands for "no delete horizon". The batch has no tombstone, or it is the marker of a transaction
that still has data. (A horizon is a time in milliseconds since the epoch.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The effect of a cleaning, after which every batch below `end_offset` is clean.

    Units: bytes are sums of `size_in_bytes`: the compressed records and Kafka's batch header.
    """

    end_offset: Offset
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


class Compaction:
    """One cleaning of the batches of `log` below `end_offset`.

    first_dirty_offset: end of the last cleaning; the batches below it have one record per key.
    end_offset: at most the log's last stable offset. Above it is an open transaction, which may
        still be aborted.
    now_ms: the present time, in milliseconds since the epoch. Tombstones and markers whose horizon
        has passed at this time are removed.
    codecs: decompress and compress the batches.
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
        self._latest: dict[bytes, int] = {}  # key -> offset of its last record
        self._left: list[RecordBatch] = []
        """The cleaned batches, which replace `_sources`."""
        # Progress of the two passes: the index in `_sources` of the next batch to map, and of the
        # next batch to filter. The clean batches come first; the sum below is their number. The map
        # pass begins after them, because only a record of a dirty batch can replace an earlier
        # record.
        self._mapped = sum(batch.base_offset < first_dirty_offset for batch in self._sources)
        self._filtered = 0
        self._epoch = -1
        """Leader epoch of the batch that was filtered last."""
        self._has_data: dict[int, bool] = {}
        """Producer id -> True if its transaction has had a data batch since the last marker."""

    def step(self, max_bytes: int) -> bool:
        """Process about `max_bytes`, at least one batch; return True if both passes are done."""
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
        """Replace the log's batches by the cleaned ones.

        If the log was truncated since the cleaning began, return None and change nothing.

        Raises: OSError.
        """
        sources, cleaned_batches, storage = self._sources, self._left, self._log.storage
        source_count = len(sources)

        # A truncation removes batches at the end. So if the last source batch is still in the log,
        # all before it are, too.
        if source_count and (
            len(storage) < source_count or storage.batch(source_count - 1) is not sources[-1]
        ):
            return None

        # An unchanged batch is the same object in both lists. If all batches are unchanged, nothing
        # is written. `zip` ends with the shorter list, so the lengths are compared, too.
        if any(old is not new for old, new in zip(sources, cleaned_batches, strict=False)) or (
            len(cleaned_batches) != source_count
        ):
            self._log.replace_prefix(source_count, cleaned_batches)
        return CompactionResult(
            end_offset=Offset(self._end_offset),
            records_before=sum(batch.record_count for batch in sources),
            records_after=sum(batch.record_count for batch in cleaned_batches),
            bytes_before=sum(batch.size_in_bytes for batch in sources),
            bytes_after=sum(batch.size_in_bytes for batch in cleaned_batches),
        )

    def _map(self, batch: RecordBatch) -> None:
        """Note the offset of each key in the batch as the key's last offset so far."""
        if batch.is_control or self._transactions.is_aborted(batch):
            return
        latest = self._latest
        for offset, record in records_of(batch, self._codecs):
            if record.key is not None:
                latest[record.key] = offset

    def _filter(self, batch: RecordBatch) -> None:
        """Add the remaining records of a batch to the cleaned batches, and set its horizon."""
        horizon_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        # If an earlier cleaning has set a horizon, and the horizon has passed, then the batch loses
        # its tombstones or its marker now. A batch without a horizon gets a horizon now if it has a
        # tombstone, or if it is the marker of a transaction without data.
        expired = horizon_ms != NO_HORIZON and self._now_ms >= horizon_ms
        if batch.is_control:
            kept = records_of(batch)
            # Called for every control batch: it also notes that the transaction has ended.
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
        """Return the records of `batch` that are the last of their keys.

        Tombstones are left out if `expired`.
        """
        latest = self._latest
        return [
            (offset, record)
            for offset, record in records_of(batch, self._codecs)
            if record.key is not None
            # The default -1: no dirty batch has the key, so this record is still its last.
            and latest.get(record.key, -1) <= offset
            and not (expired and record.value is None)
        ]

    def _ends_nothing(self, batch: RecordBatch) -> bool:
        """Return True if `batch` is the marker of a transaction without a data batch left.

        Effect: `_has_data` forgets the transaction, since the producer's next data batch begins
        another one.
        """
        # Without a marker, the batch has another control record, such as a leader change, or an
        # earlier cleaning has removed the marker. Such a batch ends no transaction, and gets no
        # horizon.
        if decode_marker(batch) is None:
            return False
        return not self._has_data.pop(batch.producer_id, False)

    def _keep(self, batch: RecordBatch, kept: list[tuple[int, Record]], horizon_ms: int) -> None:
        """Add what is left of a batch to the cleaned batches; add nothing if nothing is left."""
        begins_epoch = batch.partition_leader_epoch != self._epoch
        self._epoch = batch.partition_leader_epoch
        # The horizon that an earlier cleaning has set.
        before_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        # 1. The batch keeps all its records and its horizon: it stays as it is. Case 2 handles a
        #    batch that had no record before.
        if len(kept) == batch.record_count and horizon_ms == before_ms and kept:
            self._left.append(batch)
            return
        # 2. The batch keeps no record.
        if not kept:
            # An empty batch stays if a restarted replica needs its header: for the start of a
            # leader epoch, or for the last epoch of a producer.
            if not (begins_epoch or self._transactions.is_last_of_producer(batch)):
                return
            if batch.record_count == 0:
                # An earlier cleaning has emptied the batch, so it stays as it is.
                self._left.append(batch)
                return
            horizon_ms = NO_HORIZON  # nothing is left that could expire
        # 3. The batch lost records or got a horizon, or only its header is kept. A new batch with a
        #    new CRC is built.
        cleaned = Cleaned(tuple(offset - batch.base_offset for offset, _ in kept), horizon_ms)
        records = [record for _, record in kept]
        self._left.append(cleaned_batch(batch, cleaned, records, self._codecs))
