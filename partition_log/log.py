"""The log of one replica of one partition: append, read, truncate, and where it is committed.

Owns the offsets (log start, log end, high watermark) and the leader epoch cache. Must not know who
leads or follows: `replica` decides what may be appended and how far the high watermark may go.
"""

from collections.abc import Sequence

from partition_log.storage import LogStorage
from protocol.ids import LeaderEpoch, Offset, TopicPartition
from protocol.record_batch import Record, RecordBatch


class PartitionLog:
    """A partition's batches on their storage. Opening it is the recovery after a restart.

    Invariant: log_start_offset <= high_watermark <= log_end_offset.
    Attributes, to read only: `topic_partition`, `log_start_offset`, `log_end_offset`,
    `high_watermark`, `epochs` (LeaderEpochCache), `size_in_bytes`.
    """

    def __init__(
        self, topic_partition: TopicPartition, storage: LogStorage, *, high_watermark: int = 0
    ) -> None:
        """Open the log; `high_watermark` is the checkpointed one, cut to what the log has."""
        self.topic_partition = topic_partition
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(high_watermark)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last batch or assigned start, -1 in an empty log."""
        raise NotImplementedError

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
        """Append `records` as one batch at the log end and return the batch."""
        raise NotImplementedError

    def append_batch_as_leader(self, batch: RecordBatch, *, leader_epoch: int) -> RecordBatch:
        """Append a prebuilt batch with its offset and epoch set, and return it as appended."""
        raise NotImplementedError

    def append_as_follower(self, batches: Sequence[RecordBatch]) -> None:
        """Append the leader's batches as they are."""
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> tuple[RecordBatch, ...]:
        """Return the batches from the one that holds `offset` on, all of them below `up_to`.

        Shape: `up_to` is `high_watermark` or `log_end_offset`; at most `max_bytes`, but one
        batch at least if `min_one_batch`; empty at `up_to`.
        """
        raise NotImplementedError

    def truncate_to(self, offset: int) -> Offset:
        """Forget everything from `offset` on and return the new log end."""
        raise NotImplementedError
