"""Compaction: removes every record of a log whose key was written again later.

One round of compaction is called a cleaning. A cleaning reads the log up to an end offset, in two
passes:
1. Map: read what was written since the last cleaning (the dirty batches), and note the last offset
   of each key.
2. Filter: go through the log from its start, and keep only the records that are the last of their
   keys.
The records keep their offsets, so the log gets holes. For example, a log has the records a=1, b=1,
a=2 at the offsets 0, 1 and 2. After a cleaning, the records at 1 and 2 are left. A reader that
keeps the last value of each key ends with the same values as before.

A tombstone is a record without a value, and deletes its key. The tombstone must not vanish together
with the record that it deletes: a reader may have read that record before, and must learn of the
deletion. So the tombstone stays for delete.retention.ms more. The end of this time is noted in the
tombstone's batch, as the *delete horizon*. A cleaning after the horizon removes the tombstone. In
the same way the marker that ends a transaction stays for a while when the records of the
transaction are gone.

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
"""Delete horizon of a batch in which nothing expires: a batch without tombstones, or the marker of
a transaction that still has records. Any other horizon is a time in milliseconds since the
epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a cleaning has done. After it, every batch below `end_offset` is clean.

    The numbers of bytes are sizes of whole batches: the compressed records and Kafka's batch
    header.
    """

    end_offset: Offset
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


class Compaction:
    """One cleaning of the batches of `log` below `end_offset`.

    first_dirty_offset: end of the last cleaning. Below this offset, no key has two records.
    end_offset: at most the log's last stable offset. An open transaction may begin there, and it
        may still be aborted.
    now_ms: the present time, in milliseconds since the epoch. A tombstone or marker is removed if
        its horizon is not later than `now_ms`.
    delete_retention_ms: how long a tombstone or marker stays after the cleaning that sets its
        horizon.
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
        """What is left of the batches in `_sources`."""
        # How far the two passes have got: the index of the next batch to map, and of the next batch
        # to filter. The map pass begins with the first dirty batch, because only a dirty record can
        # replace an earlier record. The index of the first dirty batch is the number of clean
        # batches.
        self._mapped = sum(batch.base_offset < first_dirty_offset for batch in self._sources)
        self._filtered = 0
        self._epoch = -1
        """Leader epoch of the batch that was filtered last, -1 before the first batch."""
        self._has_data: dict[int, bool] = {}
        """Producer id -> True if the log has a data batch of the producer since its last marker."""

    def step(self, max_bytes: int) -> bool:
        """Work through batches of about `max_bytes`. Return True if both passes are done."""
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

        # A truncation removes batches from the end. So if the last of the sources is still in the
        # log, all sources are.
        if source_count and (
            len(storage) < source_count or storage.batch(source_count - 1) is not sources[-1]
        ):
            return None

        # A batch that the cleaning has not changed is the same object in both lists. If no batch
        # has changed, nothing needs to be written.
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
        """Note the offset of each record as the last offset of its key so far."""
        if batch.is_control or self._transactions.is_aborted(batch):
            return
        latest = self._latest
        for offset, record in records_of(batch, self._codecs):
            if record.key is not None:
                latest[record.key] = offset

    def _filter(self, batch: RecordBatch) -> None:
        """Add to `_left` what is left of a batch, with its delete horizon."""
        horizon_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        # An earlier cleaning may have set a horizon. If it has passed, the tombstones or the marker
        # are removed now. A batch without a horizon gets a horizon now if it has a tombstone, or is
        # the marker of a transaction without records.
        expired = horizon_ms != NO_HORIZON and self._now_ms >= horizon_ms
        if batch.is_control:
            kept = records_of(batch)
            # `_ends_nothing` is called first, because it must see every control batch: it notes the
            # ends of transactions.
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
        """Return the records that are the last of their keys, without tombstones if `expired`."""
        latest = self._latest
        return [
            (offset, record)
            for offset, record in records_of(batch, self._codecs)
            if record.key is not None
            # If no dirty batch has the key (-1), this clean record is still the last record of the
            # key.
            and latest.get(record.key, -1) <= offset
            and not (expired and record.value is None)
        ]

    def _ends_nothing(self, batch: RecordBatch) -> bool:
        """Return True if `batch` is the marker of a transaction of which no data batch is left.

        The call also notes that the producer's transaction has ended (`_has_data`).
        """
        # A control batch without a marker has another control record, such as a leader change, or
        # an earlier cleaning has removed its marker.
        if decode_marker(batch) is None:
            return False
        return not self._has_data.pop(batch.producer_id, False)

    def _keep(self, batch: RecordBatch, kept: list[tuple[int, Record]], horizon_ms: int) -> None:
        """Add what is left of a batch to the cleaned batches."""
        begins_epoch = batch.partition_leader_epoch != self._epoch
        self._epoch = batch.partition_leader_epoch
        # The horizon that an earlier cleaning has set.
        before_ms = NO_HORIZON if batch.cleaned is None else batch.cleaned.delete_horizon_ms
        # 1. The batch has some records and keeps all of them, and its horizon: it stays as it is.
        if len(kept) == batch.record_count and horizon_ms == before_ms and kept:
            self._left.append(batch)
            return
        # 2. The batch has no record left.
        if not kept:
            # The batch is removed, unless a restarted replica needs its header to learn where a
            # leader epoch begins, or which epoch a producer has.
            if not (begins_epoch or self._transactions.is_last_of_producer(batch)):
                return
            if batch.record_count == 0:
                # The batch had no record before, so there is nothing to change.
                self._left.append(batch)
                return
            horizon_ms = NO_HORIZON  # nothing is left that could expire
        # 3. In all other cases the batch is built anew, with a new CRC.
        cleaned = Cleaned(tuple(offset - batch.base_offset for offset, _ in kept), horizon_ms)
        records = [record for _, record in kept]
        self._left.append(cleaned_batch(batch, cleaned, records, self._codecs))
