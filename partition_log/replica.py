"""One replica of one partition, as leader or follower. Kafka's `cluster.Partition`."""

from collections.abc import Mapping

from partition_log.log import PartitionLog
from partition_log.outcomes import (
    AlterPartitionResult,
    AppendInfo,
    FetchResult,
    FollowerFetchResult,
    IsrProposal,
    LeadershipChange,
)
from protocol.controller_messages import AlterPartitionPartitionResponse
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicPartition
from protocol.log_messages import FetchPartition, PartitionData
from protocol.record_batch import Record, RecordBatch


class Partition:
    """One replica of one partition, as leader or follower.

    Attributes, to read only: `topic_partition`, `broker_id`, `log`, `leader_id` (-1 none),
    `leader_epoch` (-1 before the first delta), `partition_epoch`, `replicas`, `isr` (committed, as
    far as this replica knows), `leader_epoch_start_offset`.
    """

    topic_partition: TopicPartition
    broker_id: BrokerId
    log: PartitionLog
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    leader_epoch_start_offset: Offset

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: BrokerId,
        log: PartitionLog,
        *,
        min_insync_replicas: int,
        replica_lag_time_max_ms: int,
        min_insync_check: bool = True,
    ) -> None: ...

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads the partition, as far as it knows."""
        raise NotImplementedError

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR."""
        raise NotImplementedError

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the replicas being added by an AlterPartition in flight."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        """The log's high watermark."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> Offset:
        """The log's end."""
        raise NotImplementedError

    def update_eligible_brokers(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Learn which brokers may join an ISR: unfenced, not shutting down; with broker epochs.

        Call it after each metadata delta that changes a broker; the mapping is kept, not copied.
        """

    def make_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        now_us: int,
    ) -> LeadershipChange:
        """Lead the partition as metadata says, or learn a new ISR or assignment as its leader."""
        raise NotImplementedError

    def make_follower(
        self,
        *,
        leader_id: BrokerId,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
    ) -> LeadershipChange:
        """Follow `leader_id` (-1: nobody leads) as metadata says."""
        raise NotImplementedError

    # -- leader --

    def append_records(
        self,
        records: tuple[Record, ...],
        *,
        required_acks: int,
        now_us: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
    ) -> AppendInfo:
        """Append `records` as one batch; errors NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS."""
        raise NotImplementedError

    def append_batch(self, batch: RecordBatch, *, required_acks: int, now_us: int) -> AppendInfo:
        """Append a producer's batch; errors as append_records, and CORRUPT_MESSAGE."""
        raise NotImplementedError

    def check_acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Say whether an acks=all append that ends at `required_offset` (its next_offset) is done.

        Returns: None while the high watermark is below it; NONE when acknowledged;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND; NOT_LEADER_OR_FOLLOWER.
        """
        raise NotImplementedError

    def fetch(
        self,
        request: FetchPartition,
        *,
        replica_id: int,
        replica_epoch: int,
        max_bytes: int,
        now_us: int,
        min_one_batch: bool = True,
        update_fetch_state: bool = True,
    ) -> FetchResult:
        """Read for a Fetch: up to the log end for a follower, to the high watermark for a consumer.

        Shape: `replica_id` -1 is a consumer. `max_bytes` is what is left of the request's own
        limit. `update_fetch_state` False when a parked Fetch is read again: its progress was
        counted when it came.
        """
        raise NotImplementedError

    def maybe_shrink_isr(self, now_us: int) -> IsrProposal | None:
        """Propose an ISR without the replicas that lag; call every replica.lag.time.max.ms / 2."""
        raise NotImplementedError

    def handle_alter_partition_response(
        self,
        proposal: IsrProposal,
        response: AlterPartitionPartitionResponse,
        *,
        now_us: int,
    ) -> AlterPartitionResult:
        """Take the answer to `proposal`; for a lost request, one with NETWORK_EXCEPTION."""
        raise NotImplementedError

    # -- follower --

    def fetch_position(self, partition_max_bytes: int) -> FetchPartition:
        """Return where this follower fetches next."""
        raise NotImplementedError

    def handle_fetch_response(
        self, request: FetchPartition, data: PartitionData
    ) -> FollowerFetchResult:
        """Append or truncate by the leader's answer to `request`, and follow its high watermark."""
        raise NotImplementedError
