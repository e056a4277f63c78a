"""PartitionLog, the log of one replica: append, read, truncate.

The batches themselves are in a storage. The PartitionLog keeps what is computed from them: where
the log begins and ends, where each leader epoch begins (`epochs`), and what each producer has
written (`producers`). It also keeps the high watermark, but does not compute it. The module must
not know which replica leads: `replica` decides which batches are appended, and sets the high
watermark.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from partition_log.batches import build_batch, check_batch, place_batch
from partition_log.epochs import EpochEntry, LeaderEpochCache
from partition_log.producer_states import ProducerStates
from partition_log.storage import LogStorage
from protocol.errors import ErrorCode, InvariantViolation, SimulationError
from protocol.ids import NO_PRODUCER_ID, LeaderEpoch, Offset, TopicPartition
from protocol.records.batch import Record, RecordBatch


class PartitionLog:
    """The batches of one partition, over their storage.

    The constructor computes everything from the stored batches, as a broker does after a restart.

    Invariant: log_start_offset <= high_watermark <= log_end_offset.
    Invariant: log_start_offset <= recovery_point <= log_end_offset.
    Invariant: there are no holes between batches, except in a compacted log.
    Invariant: the leader epochs of the batches never fall.

    The owner of the log may set two attributes:
    - `flush_interval_messages`: Kafka's flush.messages. None means that an append never flushes.
    - `is_compacted`: True if the topic is compacted. This may change while the log is open.

    Other modules only read the other attributes. Among them are:
    - `recovery_point`: the records below this offset are flushed.
    - `producers`: what each producer has written. A truncation may replace this object.
    - `truncations`: number of truncations that have removed a batch.
    """

    __slots__ = (
        "_base_offsets",
        "epochs",
        "flush_interval_messages",
        "high_watermark",
        "is_compacted",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "storage",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        storage: LogStorage,
        *,
        high_watermark: int = 0,
        flush_interval_messages: int | None = None,
    ) -> None:
        """Open the log.

        `high_watermark` is the value in the broker's checkpoint. The log may have lost records
        since the checkpoint was written, so the value is limited to the log's offsets.

        Raises: InvariantViolation if a stored batch begins before the end of its predecessor.
        """
        self.topic_partition = topic_partition
        self.storage = storage
        self.flush_interval_messages = flush_interval_messages
        self.is_compacted = False
        self.truncations = 0
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStates()
        # The base offset of each stored batch, in a list in which `bisect` can search.
        self._base_offsets: list[int] = []
        self.log_start_offset = Offset(storage.base_offset(0) if len(storage) else 0)
        self.log_end_offset = self.log_start_offset

        for index in range(len(storage)):
            batch = storage.batch(index)
            if batch.base_offset < self.log_end_offset:
                raise InvariantViolation(
                    "batches in order",
                    f"{topic_partition}: stored batch {index} begins at {batch.base_offset}, "
                    f"the one before ends at {self.log_end_offset}",
                )
            self._index(batch)

        self.high_watermark = self.log_start_offset  # `update_high_watermark` needs a first value
        self.update_high_watermark(high_watermark)
        # The recovery point is the beginning of the first batch that is not flushed.
        flushed_length = storage.flushed_length
        self.recovery_point: Offset = (
            Offset(self._base_offsets[flushed_length])
            if flushed_length < len(self._base_offsets)
            else self.log_end_offset
        )

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The last leader epoch that the log knows, -1 if it knows none.

        This is the epoch of the last batch, or a later epoch in which nothing was appended so far.
        """
        return self.epochs.latest_epoch

    def append_as_leader(
        self,
        records: tuple[Record, ...],
        *,
        leader_epoch: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> RecordBatch:
        """Append `records` as one batch at the log end and return the batch.

        Until the batch is flushed, a power loss may remove it. The append itself flushes the log if
        there are at least flush.messages records that are not flushed.

        Raises: SimulationError if `records` is empty or `leader_epoch` is below the latest.
        """
        batch = build_batch(
            records,
            base_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
            is_control=is_control,
        )
        self._append(batch)
        if self.flush_interval_messages is not None:
            self._flush_if_due(self.flush_interval_messages)
        return batch

    def append_batch_as_leader(self, batch: RecordBatch, *, leader_epoch: int) -> RecordBatch:
        """Append a batch at the log end. Return the batch with its offset and leader epoch.

        The caller has checked the batch and its producer.

        Raises: SimulationError if `leader_epoch` is below the latest.
        Source: Kafka UnifiedLog.appendAsLeader.
        """
        placed = place_batch(batch, base_offset=self.log_end_offset, leader_epoch=leader_epoch)
        self._append(placed)
        if self.flush_interval_messages is not None:
            self._flush_if_due(self.flush_interval_messages)
        return placed

    def append_as_follower(self, batches: Sequence[RecordBatch]) -> ErrorCode:
        """Append the leader's batches unchanged. If there is an error, append none of them.

        Errors:
        - CORRUPT_MESSAGE: a CRC is wrong.
        - UNKNOWN_SERVER_ERROR: the batches do not continue this log, because an offset is not the
          next offset, or the leader epoch falls. After this error the replica fetches no more until
          the next leader epoch, like a replica in Kafka after an UnexpectedAppendOffsetException.
        """
        # All batches are checked before the first is appended, so that an error changes nothing.
        expected_offset: int = self.log_end_offset
        epoch: int = self.epochs.latest_epoch
        for batch in batches:
            error = check_batch(batch)
            if error is not ErrorCode.NONE:
                return error
            # If the base offset is higher than expected, there is a hole, which only a compacted
            # log may have.
            if batch.base_offset != expected_offset and (
                batch.base_offset < expected_offset or not self.is_compacted
            ):
                return ErrorCode.UNKNOWN_SERVER_ERROR
            if batch.partition_leader_epoch < epoch:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            expected_offset = batch.next_offset
            epoch = batch.partition_leader_epoch
        for batch in batches:
            self._append(batch)
        if self.flush_interval_messages is not None:
            self._flush_if_due(self.flush_interval_messages)
        return ErrorCode.NONE

    def flush(self) -> None:
        """Write all batches to the disk. After that the batches survive a power loss.

        Source: Kafka UnifiedLog.flush.
        """
        self.storage.flush()
        self.recovery_point = self.log_end_offset

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> tuple[RecordBatch, ...]:
        """Return the batches from `offset` on that end at or below `up_to`.

        The first batch is the one that contains `offset`, so it may begin before `offset`. If a
        compaction has removed the record at `offset` and its batch, the next batch comes first.
        All batches together have at most `max_bytes`. But with `min_one_batch`, the first batch is
        returned even if it alone is larger.

        Raises: SimulationError if `offset` is outside the log. The caller checks this before, and
            answers OFFSET_OUT_OF_RANGE.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise SimulationError(
                f"{self.topic_partition}: read at {offset} outside "
                f"[{self.log_start_offset}, {self.log_end_offset}]"
            )
        if offset >= up_to:
            return ()

        read_batch = self.storage.batch
        found: list[RecordBatch] = []
        bytes_left = max_bytes
        # The index of the last batch that begins at `offset` or before.
        first = bisect_right(self._base_offsets, offset) - 1
        # If this batch ends at `offset` or before, `offset` lies in a hole that a compaction has
        # left, and the next batch is the first to return. A batch that begins at `offset` certainly
        # contains this offset, so the batch need not be read for this check.
        if self._base_offsets[first] != offset and read_batch(first).next_offset <= offset:
            first += 1

        for index in range(first, bisect_left(self._base_offsets, up_to)):
            batch = read_batch(index)
            bytes_left -= batch.size_in_bytes
            if batch.next_offset > up_to or (bytes_left < 0 and (found or not min_one_batch)):
                break
            found.append(batch)
        return tuple(found)

    def end_offset_for_epoch(self, epoch: int) -> EpochEntry:
        """Return the largest epoch of this log up to `epoch`, and the offset at which it ends.

        See `LeaderEpochCache.end_offset_for_epoch`.
        """
        return self.epochs.end_offset_for_epoch(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: LeaderEpoch) -> None:
        """Note that the leader epoch `epoch` begins at the end of the log."""
        self.epochs.assign(epoch, self.log_end_offset)

    def truncate_to(self, offset: int) -> Offset:
        """Remove the records from `offset` on and return the new log end.

        Only whole batches are removed. If `offset` is in the middle of a batch, the batch is
        removed, and the log ends before `offset`.

        Raises: SimulationError if `offset` is before the log start.
        Source: Kafka UnifiedLog.truncateTo.
        """
        if offset < self.log_start_offset:
            raise SimulationError(
                f"{self.topic_partition}: truncate to {offset} before the log start "
                f"{self.log_start_offset}"
            )
        if offset < self.log_end_offset:
            # `length` is the number of batches that stay. It is also the index of the batch that
            # contains `offset`, which is removed.
            length = bisect_right(self._base_offsets, offset) - 1
            new_end = self._base_offsets[length]
            # But if `offset` lies in a hole after this batch, the batch stays, and the log ends at
            # `offset`. As in `read`, a batch that begins at `offset` need not be read.
            if new_end != offset and self.storage.batch(length).next_offset <= offset:
                length, new_end = length + 1, offset
            self.truncations += 1
            self.storage.truncate(length)
            del self._base_offsets[length:]
            self.log_end_offset = Offset(new_end)
            # After an unclean election the truncation may remove even committed records. Then the
            # high watermark must fall, too.
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self._rebuild_producers()
        # The epochs are cut even if no batch was removed. Otherwise a replica might get the same
        # answer for ever:
        # 1. The replica leads in an epoch and writes no record. The epoch begins at its log end.
        # 2. Later, as a follower, the replica names this epoch in its Fetch. A leader that does not
        #    know the epoch answers that the logs diverge there.
        # 3. The replica truncates to its log end, which removes no batch. If the epoch stayed in
        #    the cache, every further Fetch would get this answer again.
        self.epochs.truncate_from_end(self.log_end_offset)
        return self.log_end_offset

    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by the batches that a compaction has left.

        The records that are left keep their offsets, so the end of the log does not move. The new
        batches are on the disk when this returns.

        Raises: SimulationError if `batches` begin at another offset; OSError if the disk fails.
        Source: Kafka UnifiedLog.replaceSegments.
        """
        if not batches or batches[0].base_offset != self._base_offsets[0]:
            raise SimulationError(f"{self.topic_partition}: a cleaning moved the log's beginning")
        # `end` is the end of the replaced batches. After the replacement, all records below `end`
        # are flushed. `end` must be computed before `_base_offsets` changes.
        end = (
            Offset(self._base_offsets[length])
            if length < len(self._base_offsets)
            else self.log_end_offset
        )
        self.storage.replace_prefix(length, batches)
        self._base_offsets[:length] = [batch.base_offset for batch in batches]
        self.recovery_point = max(self.recovery_point, end)

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark to `offset`, limited to the log. Return True if it changed.

        The high watermark may fall, although no record is lost: a follower may know a higher high
        watermark than its new leader, and takes over the leader's value.

        Source: Kafka UnifiedLog.updateHighWatermark.
        """
        clamped = Offset(max(self.log_start_offset, min(offset, self.log_end_offset)))
        changed = clamped != self.high_watermark
        self.high_watermark = clamped
        return changed

    def _flush_if_due(self, flush_interval_messages: int) -> None:
        """Flush if at least `flush_interval_messages` records are not flushed.

        Source: Kafka UnifiedLog.append, at its end.
        """
        if self.log_end_offset - self.recovery_point >= flush_interval_messages:
            self.flush()

    def _append(self, batch: RecordBatch) -> None:
        """Write `batch` to the storage and update the state that is computed from the batches.

        Raises: SimulationError if the batch's leader epoch is below the latest.
        """
        if batch.partition_leader_epoch < self.epochs.latest_epoch:
            raise SimulationError(
                f"{self.topic_partition}: append in epoch {batch.partition_leader_epoch}, "
                f"the log is in {self.epochs.latest_epoch}"
            )
        self.storage.append(batch)
        self._index(batch)

    def _index(self, batch: RecordBatch) -> None:
        """Update what is computed from the batches, because the storage has another batch."""
        if batch.partition_leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(LeaderEpoch(batch.partition_leader_epoch), Offset(batch.base_offset))
        if batch.producer_id != NO_PRODUCER_ID:
            self.producers.appended(batch)
        self._base_offsets.append(batch.base_offset)
        self.log_end_offset = Offset(batch.next_offset)

    def _rebuild_producers(self) -> None:
        """Compute anew what each producer has written, because a truncation has removed batches."""
        if not self.producers.had_any:
            return  # no producer has ever written, so the batches need not be read
        self.producers = ProducerStates()
        for index in range(len(self.storage)):
            batch = self.storage.batch(index)
            if batch.producer_id != NO_PRODUCER_ID:
                self.producers.appended(batch)
