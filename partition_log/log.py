"""PartitionLog, the log of one replica: append, read, truncate.

A PartitionLog owns three offsets:
- the log start: the offset of its first record;
- the log end: the offset that the next record will get;
- the high watermark: the offset below which every in-sync replica has the records.
It also owns the leader epoch cache and the states of producers. A leader epoch is the number of a
partition's leadership; the cache has the offset at which each leader epoch begins in the log. A
PartitionLog must not know which replica leads: `replica` decides which batches may be appended, and
sets the high watermark.
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

    The constructor rebuilds all state from the stored batches, as a broker does after a restart.

    Invariant: log_start_offset <= high_watermark <= log_end_offset.
    Invariant: batches are contiguous from start to end, except for the holes that a compaction
    left.
    Invariant: the batches' leader epochs never fall.
    Invariant: log_start_offset <= recovery_point <= log_end_offset.
    Attributes, to read only: `topic_partition`, `storage`, `log_start_offset`, `log_end_offset`,
    `high_watermark`, `epochs` and
    - `recovery_point`: end of the records that this broker has flushed;
    - `producers`: the producers' states; a truncation may replace the object;
    - `truncations`: number of truncations that removed a batch.

    Attributes that the owner may set:
    - `flush_interval_messages`: Kafka's flush.messages; None: an append never flushes;
    - `is_compacted`: True if the topic is compacted; this may change while the log is open. The
      batches that `append_as_follower` receives may then have holes between them.
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

        `high_watermark` is the value in the broker's checkpoint. It is limited to the log's
        offsets.

        Raises: InvariantViolation if a stored batch begins before the end of its predecessor.
        """
        self.topic_partition = topic_partition
        self.storage = storage
        self.flush_interval_messages = flush_interval_messages
        self.is_compacted = False
        self.truncations = 0
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStates()
        # A copy of the base offsets in the storage. `bisect` searches in this list.
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

        self.high_watermark = self.log_start_offset  # `update_high_watermark` compares with it
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

        This is the epoch of the last batch, or a later epoch that `assign_epoch_start` has set.
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

        Raises: SimulationError if `records` is empty or `leader_epoch` is below the latest.
        Effects: the batch is in the page cache. Until the next `flush`, a power loss removes it.
        The append itself flushes if flush.messages records are not flushed.
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
        """Append a prebuilt batch at the log end and return it as it was appended.

        The caller has checked the batch and its producer's state.
        Raises: SimulationError if `leader_epoch` is below the latest.
        Source: Kafka UnifiedLog.appendAsLeader.
        """
        placed = place_batch(batch, base_offset=self.log_end_offset, leader_epoch=leader_epoch)
        self._append(placed)
        if self.flush_interval_messages is not None:
            self._flush_if_due(self.flush_interval_messages)
        return placed

    def append_as_follower(self, batches: Sequence[RecordBatch]) -> ErrorCode:
        """Append the leader's batches unchanged: either all, or none and return an error.

        Errors: CORRUPT_MESSAGE for a wrong CRC. UNKNOWN_SERVER_ERROR for batches that do not
        continue this log: the offset is not the next one, or the leader epoch falls. After
        UNKNOWN_SERVER_ERROR the replica fetches no more until the next epoch, as Kafka's does after
        UnexpectedAppendOffsetException.
        """
        # All checks come before the first append, so that an error changes nothing.
        expected_offset: int = self.log_end_offset
        epoch: int = self.epochs.latest_epoch
        for batch in batches:
            error = check_batch(batch)
            if error is not ErrorCode.NONE:
                return error
            # A higher base offset than expected is a hole, which only a compacted log may have.
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
        """Write all batches to the disk, so that they survive a power loss. Waits for the disk.

        Source: Kafka UnifiedLog.flush.
        """
        self.storage.flush()
        self.recovery_point = self.log_end_offset

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> tuple[RecordBatch, ...]:
        """Return batches from `offset` on that end at or below `up_to`.

        The first batch is the one that contains `offset`, so it may begin before `offset`. If
        `offset` lies in a hole that a compaction has left, the first batch is the one after it.
        The batches have at most `max_bytes` in all. With `min_one_batch`, the first batch is
        returned even if it is larger than `max_bytes`.

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
        # A batch that begins at `offset` contains it. This is checked first, since it reads no
        # batch. If the batch ends at `offset` or before, `offset` lies in a hole that a compaction
        # has left, and the batch after the hole is the first to return.
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
        """Return the largest known epoch not above `epoch`, and the offset where it ends."""
        return self.epochs.end_offset_for_epoch(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: LeaderEpoch) -> None:
        """Record that leader epoch `epoch` begins at the log end."""
        self.epochs.assign(epoch, self.log_end_offset)

    def truncate_to(self, offset: int) -> Offset:
        """Remove the records from `offset` on and return the new log end.

        A batch with `offset` in its middle is removed as a whole, so the log may end before
        `offset`.
        Raises: SimulationError if `offset` is before the log start.
        Source: Kafka UnifiedLog.truncateTo.
        """
        if offset < self.log_start_offset:
            raise SimulationError(
                f"{self.topic_partition}: truncate to {offset} before the log start "
                f"{self.log_start_offset}"
            )
        if offset < self.log_end_offset:
            # The batch with `offset` is removed, too. Its index is the number of batches that stay.
            length = bisect_right(self._base_offsets, offset) - 1
            new_end = self._base_offsets[length]
            # If `offset` lies in a hole after this batch, the batch stays, and the log ends at
            # `offset`. As in `read`, the check that reads no batch comes first.
            if new_end != offset and self.storage.batch(length).next_offset <= offset:
                length, new_end = length + 1, offset
            self.truncations += 1
            self.storage.truncate(length)
            del self._base_offsets[length:]
            self.log_end_offset = Offset(new_end)
            # After an unclean election the truncation may remove committed records. The high
            # watermark then falls with the log end, to keep the class's invariant.
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self._rebuild_producers()
        # The epochs are cut even if no batch was removed. Otherwise a replica might fetch for ever:
        # 1. The replica leads in an epoch and writes no record. The epoch begins at its log end.
        # 2. Later, as a follower, it names this epoch in its Fetch. A leader that lacks the epoch
        #    answers that the logs diverge there.
        # 3. The replica truncates to its log end, which removes no batch. If the epoch stayed in
        #    the cache, every further Fetch would get this answer again.
        self.epochs.truncate_from_end(self.log_end_offset)
        return self.log_end_offset

    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by what a cleaning has left of them.

        A cleaning is one round of log compaction. It keeps the offsets of the remaining records,
        so the log's end does not move. The new batches are on the disk when this returns.

        Raises: SimulationError if `batches` begin at another offset; OSError if the disk fails.
        Source: Kafka UnifiedLog.replaceSegments.
        """
        if not batches or batches[0].base_offset != self._base_offsets[0]:
            raise SimulationError(f"{self.topic_partition}: a cleaning moved the log's beginning")
        # The end of the replaced batches. The records below it are flushed after the replacement.
        # It is read here, because the replacement changes `_base_offsets`.
        end = (
            Offset(self._base_offsets[length])
            if length < len(self._base_offsets)
            else self.log_end_offset
        )
        self.storage.replace_prefix(length, batches)
        self._base_offsets[:length] = [batch.base_offset for batch in batches]
        self.recovery_point = max(self.recovery_point, end)

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark to `offset`, limited to the log; return True if it changed.

        The high watermark may fall although no record is lost: a new leader may know a lower one
        than its follower, and the follower then adopts it.
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
        """Update epochs, producers and offsets by `batch`, which the storage has already."""
        if batch.partition_leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(LeaderEpoch(batch.partition_leader_epoch), Offset(batch.base_offset))
        if batch.producer_id != NO_PRODUCER_ID:
            self.producers.appended(batch)
        self._base_offsets.append(batch.base_offset)
        self.log_end_offset = Offset(batch.next_offset)

    def _rebuild_producers(self) -> None:
        """Compute the producers' states anew, from the batches that a truncation has left."""
        if not self.producers.had_any:
            return  # no batch of a producer was ever appended: saves reading all batches
        self.producers = ProducerStates()
        for index in range(len(self.storage)):
            batch = self.storage.batch(index)
            if batch.producer_id != NO_PRODUCER_ID:
                self.producers.appended(batch)
