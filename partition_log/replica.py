"""One replica of one partition, as leader or follower. Kafka's `cluster.Partition`.

Owns who leads, the leader epoch and partition epoch, the ISR, and how far the high watermark may
go. Inputs are metadata (make_leader, make_follower), appends, Fetches with their answers, and the
answers to AlterPartition. It sends nothing and waits for nothing: see `outcomes` for what comes
back. Source: BEHAVIOUR 6.1, Kafka 3.9 `Partition`.
"""

from collections.abc import Mapping

from partition_log.batches import build_batch, check_batch
from partition_log.fetching import find_divergence, read_for_fetch, truncation_offset
from partition_log.follower_state import FollowerState
from partition_log.leader_isr import LeaderIsr
from partition_log.log import PartitionLog
from partition_log.outcomes import (
    AlterPartitionResult,
    AppendInfo,
    FetchResult,
    FollowerFetchResult,
    IsrProposal,
    LeadershipChange,
)
from protocol.config import BrokerConfig
from protocol.controller_messages import AlterPartitionPartitionResponse
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import (
    CONSUMER_OFFSETS,
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicPartition,
    broker_name,
)
from protocol.log_messages import EpochEndOffset, FetchPartition, PartitionData
from protocol.record_batch import Record, RecordBatch
from protocol.trace import TraceEvent, TraceKind

ACKS_ALL = -1
CONSUMER = -1
"""The replica id of a Fetch that comes from a consumer."""
_US_PER_MS = 1_000
_DEFAULT_MESSAGE_MAX_BYTES = BrokerConfig().message_max_bytes

_GIVE_UP = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Answers to AlterPartition after which only newer metadata can help."""


class Partition:
    """One replica of one partition, as leader or follower.

    Attributes, to read only: `topic_partition`, `broker_id`, `log`, `leader_id` (-1: nobody
    leads), `leader_epoch` and `partition_epoch` (-1 before the first metadata), `replicas`,
    `leader_epoch_start_offset` (the log end when this leader epoch began; -1 on a follower).
    """

    __slots__ = (
        "_eligible",
        "_followers",
        "_isr",
        "_lag_max_us",
        "_message_max_bytes",
        "_min_insync_check",
        "_min_insync_replicas",
        "broker_id",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: BrokerId,
        log: PartitionLog,
        *,
        min_insync_replicas: int,
        replica_lag_time_max_ms: int,
        message_max_bytes: int = _DEFAULT_MESSAGE_MAX_BYTES,
        min_insync_check: bool = True,
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.log = log
        self.leader_id = NO_BROKER
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = PartitionEpoch(-1)
        self.replicas: tuple[BrokerId, ...] = ()
        self.leader_epoch_start_offset = Offset(-1)
        self._isr = LeaderIsr()
        # On the leader: the other replicas, in assignment order. Empty on a follower.
        self._followers: dict[BrokerId, FollowerState] = {}
        self._eligible: Mapping[BrokerId, BrokerEpoch] = {}
        self._min_insync_replicas = min_insync_replicas
        self._lag_max_us = replica_lag_time_max_ms * _US_PER_MS
        self._message_max_bytes = message_max_bytes
        self._min_insync_check = min_insync_check

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads the partition, as far as it knows."""
        return self.leader_id == self.broker_id

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR, as far as this replica knows."""
        return self._isr.committed

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the replicas being added by an AlterPartition in flight."""
        return self._isr.maximal

    @property
    def isr_in_flight(self) -> IsrProposal | None:
        """The proposal that waits for its answer, None if there is none."""
        return self._isr.in_flight

    @property
    def high_watermark(self) -> Offset:
        """Offset below which everything is committed, as far as this replica knows."""
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record to be appended."""
        return self.log.log_end_offset

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is smaller."""
        return min(self._min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is too small for acks=all; never with `min_insync_check` off."""
        return self._min_insync_check and len(self._isr.committed) < self.effective_min_isr

    def follower_log_end_offset(self, broker_id: BrokerId) -> Offset:
        """Return what this leader knows of a follower's log end, -1 before its first Fetch.

        Raises: SimulationError if `broker_id` is none of its followers.
        """
        follower = self._followers.get(broker_id)
        if follower is None:
            raise SimulationError(
                f"{self.topic_partition}: {broker_id} is no follower; {tuple(self._followers)} are"
            )
        return follower.log_end_offset

    # -- metadata --

    def update_eligible_brokers(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Learn which brokers may join an ISR: unfenced, not shutting down; with broker epochs.

        Call it after each metadata delta that changes a broker. The mapping is kept, not copied.
        """
        self._eligible = eligible

    def make_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        now_us: int,
    ) -> LeadershipChange:
        """Lead the partition as metadata says, or learn its new ISR or assignment as its leader.

        A new leader epoch begins at the log end; followers in the ISR count as caught up now. A
        proposal in flight is forgotten: its answer will be out of date. The high watermark stays
        where this replica last knew it, unless the ISR is this replica alone.
        Raises: SimulationError if this replica is not in `replicas`.
        Source: Kafka Partition.makeLeader.
        """
        if self.broker_id not in replicas:
            raise SimulationError(
                f"{self.topic_partition}: {self.broker_id} is made leader of {replicas}"
            )
        if partition_epoch < self.partition_epoch:
            return LeadershipChange(stale=True)
        is_new_leader = not self.is_leader
        is_new_leader_epoch = leader_epoch > self.leader_epoch
        self.replicas = replicas
        self._isr.commit(isr)
        self._followers = {
            broker: self._followers.get(broker) or FollowerState()
            for broker in replicas
            if broker != self.broker_id
        }
        trace: tuple[TraceEvent, ...] = ()
        if is_new_leader_epoch:
            self.leader_epoch = LeaderEpoch(leader_epoch)
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.log.assign_epoch_start(self.leader_epoch)
            for broker, follower in self._followers.items():
                follower.reset(
                    now_us=now_us,
                    leader_end_offset=self.leader_epoch_start_offset,
                    is_new_leader=is_new_leader,
                    is_in_isr=broker in isr,
                )
            trace = (self._event(TraceKind.BECAME_LEADER, offset=self.log.log_end_offset),)
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.leader_id = self.broker_id
        # The ISR may be down to this replica: then nobody's Fetch will move the high watermark.
        moved = self._maybe_increment_high_watermark(now_us)
        return LeadershipChange(
            is_new_leader_epoch=is_new_leader_epoch,
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=trace + self._high_watermark_trace(moved),
        )

    def make_follower(
        self,
        *,
        leader_id: BrokerId,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
    ) -> LeadershipChange:
        """Follow `leader_id` (-1: nobody leads) as metadata says.

        The log stays as it is: what the new leader does not have goes when it answers a Fetch
        with a diverging epoch.
        Raises: SimulationError if the leader is this replica.
        Source: Kafka Partition.makeFollower.
        """
        if leader_id == self.broker_id:
            raise SimulationError(f"{self.topic_partition}: {leader_id} cannot follow itself")
        if partition_epoch < self.partition_epoch:
            return LeadershipChange(stale=True)
        is_new_leader_epoch = leader_epoch > self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = LeaderEpoch(leader_epoch)
        self.leader_epoch_start_offset = Offset(-1)
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.replicas = replicas
        self._isr.commit(isr)
        self._followers = {}
        trace: tuple[TraceEvent, ...] = ()
        if is_new_leader_epoch:
            peer = broker_name(leader_id) if leader_id != NO_BROKER else ""
            trace = (self._event(TraceKind.BECAME_FOLLOWER, peer=peer),)
        return LeadershipChange(is_new_leader_epoch=is_new_leader_epoch, trace=trace)

    # -- leader: appends --

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
        """Append `records` as one batch; with an error nothing is appended.

        Shape: `records` is non-empty; `required_acks` is -1 (all), 0 or 1.
        Errors: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=all with too small an ISR);
        MESSAGE_TOO_LARGE.
        Source: Kafka Partition.appendRecordsToLeader.
        """
        error = self._check_append(required_acks)
        if error is not ErrorCode.NONE:
            return AppendInfo(error=error)
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
        )
        return self._append(batch, now_us)

    def append_batch(self, batch: RecordBatch, *, required_acks: int, now_us: int) -> AppendInfo:
        """Append a producer's batch; errors as append_records, and CORRUPT_MESSAGE."""
        error = self._check_append(required_acks)
        if error is ErrorCode.NONE:
            error = check_batch(batch)
        if error is not ErrorCode.NONE:
            return AppendInfo(error=error)
        return self._append(batch, now_us)

    def check_acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Say whether an acks=all append that ends at `required_offset` (its next_offset) is done.

        Returns: None while the high watermark is below it; NONE when it is acknowledged;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND when it was reached but the ISR has shrunk too far (the
        records stay); NOT_LEADER_OR_FOLLOWER.
        Source: Kafka Partition.checkEnoughReplicasReachOffset.
        """
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        if self._min_insync_check and len(self._isr.maximal) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # -- leader: fetches --

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
        limit; `min_one_batch` False once an earlier partition filled part of it.
        `update_fetch_state` False when a parked Fetch is read again: its progress was counted
        when it came.
        Errors, in `data`: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        OFFSET_OUT_OF_RANGE.
        Source: Kafka Partition.fetchRecords.
        """
        error = self._check_fetch(request, replica_id, replica_epoch)
        if error is not ErrorCode.NONE:
            return self._fetch_error(request, error)
        diverging = find_divergence(self.log, request)
        if isinstance(diverging, ErrorCode):
            return self._fetch_error(request, diverging)
        # What is answered was true before this Fetch counted, as in Kafka: the follower learns of
        # the high watermark that it moves with its next Fetch.
        high_watermark = self.log.high_watermark
        if diverging is not None:
            return FetchResult(data=self._partition_data(request, high_watermark, diverging))
        records = read_for_fetch(
            self.log,
            request,
            up_to=high_watermark if replica_id == CONSUMER else self.log.log_end_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
        )
        if isinstance(records, ErrorCode):
            return self._fetch_error(request, records)
        data = self._partition_data(request, high_watermark, None, records)
        size_in_bytes = sum([batch.size_in_bytes for batch in records])
        if replica_id == CONSUMER or not update_fetch_state:
            return FetchResult(data=data, size_in_bytes=size_in_bytes)
        proposal, moved = self._follower_progressed(
            BrokerId(replica_id), Offset(request.fetch_offset), replica_epoch, now_us
        )
        return FetchResult(
            data=data,
            size_in_bytes=size_in_bytes,
            proposal=proposal,
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=self._high_watermark_trace(moved),
        )

    def maybe_shrink_isr(self, now_us: int) -> IsrProposal | None:
        """Propose an ISR without the replicas that lag; call every replica.lag.time.max.ms / 2.

        None if nobody lags, a proposal is in flight, or this replica does not lead. Nothing
        changes until the controller has answered.
        Source: Kafka Partition.maybeShrinkIsr.
        """
        if not self.is_leader or self._isr.in_flight is not None:
            return None
        isr = self._isr.committed
        kept = tuple(broker for broker in isr if not self._is_lagging(broker, now_us))
        return self._propose(kept) if len(kept) < len(isr) else None

    def handle_alter_partition_response(
        self,
        proposal: IsrProposal,
        response: AlterPartitionPartitionResponse,
        *,
        now_us: int,
    ) -> AlterPartitionResult:
        """Take the answer to `proposal`; for a lost request, one with NETWORK_EXCEPTION.

        Newer metadata that came first has put the proposal out of date: the answer is ignored.
        INELIGIBLE_REPLICA says that it was not applied; after the other refusals it may have
        been, so the maximal ISR counts until metadata comes. The rest is retried.
        Source: Kafka Partition.submitAlterPartition, handleAlterPartitionError.
        """
        if self._isr.in_flight is not proposal:
            return AlterPartitionResult()
        if response.error_code is ErrorCode.INELIGIBLE_REPLICA:
            self._isr.revert()
            return AlterPartitionResult()
        if response.error_code is not ErrorCode.NONE:
            return AlterPartitionResult(retry=response.error_code not in _GIVE_UP)
        if (
            response.leader_epoch != self.leader_epoch
            or response.partition_epoch < self.partition_epoch
        ):
            return AlterPartitionResult()
        isr = tuple(BrokerId(broker) for broker in response.isr)
        self._isr.commit(isr)
        self.partition_epoch = PartitionEpoch(response.partition_epoch)
        moved = self._maybe_increment_high_watermark(now_us)
        return AlterPartitionResult(
            committed_isr=isr,
            partition_epoch=self.partition_epoch,
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=self._high_watermark_trace(moved),
        )

    # -- follower --

    def fetch_position(self, partition_max_bytes: int) -> FetchPartition:
        """Return where this follower fetches next: from its log end, in its leader's epoch."""
        return FetchPartition(
            partition=self.topic_partition.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.log.log_end_offset,
            last_fetched_epoch=self.log.latest_epoch,
            log_start_offset=self.log.log_start_offset,
            partition_max_bytes=partition_max_bytes,
        )

    def handle_fetch_response(
        self, request: FetchPartition, data: PartitionData
    ) -> FollowerFetchResult:
        """Append or truncate by the leader's answer to `request`, and follow its high watermark.

        An answer of another leader epoch, or to another position, is ignored: leadership or the
        log has changed since it was asked for.
        Source: Kafka AbstractFetcherThread.processFetchRequest.
        """
        if (
            self.is_leader
            or self.leader_id == NO_BROKER
            or request.current_leader_epoch != self.leader_epoch
            or request.fetch_offset != self.log.log_end_offset
        ):
            return FollowerFetchResult(ignored=True)
        if data.error_code is not ErrorCode.NONE:
            return FollowerFetchResult(error=data.error_code)
        if data.diverging_epoch is not None:
            return self._truncate(data.diverging_epoch)
        if data.records:
            error = self.log.append_as_follower(data.records)
            if error is not ErrorCode.NONE:
                return FollowerFetchResult(error=error)
        moved = self.log.update_high_watermark(data.high_watermark)
        return FollowerFetchResult(
            appended_batches=len(data.records),
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=self._high_watermark_trace(moved),
        )

    # -- helpers --

    def _check_append(self, required_acks: int) -> ErrorCode:
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def _append(self, batch: RecordBatch, now_us: int) -> AppendInfo:
        if batch.size_in_bytes > self._message_max_bytes:
            return AppendInfo(error=ErrorCode.MESSAGE_TOO_LARGE)
        placed = self.log.append_batch_as_leader(batch, leader_epoch=self.leader_epoch)
        # In an ISR of one the leader's own log end is the high watermark.
        moved = self._maybe_increment_high_watermark(now_us)
        return AppendInfo(
            base_offset=Offset(placed.base_offset),
            next_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=self._high_watermark_trace(moved),
        )

    def _check_fetch(
        self, request: FetchPartition, replica_id: int, replica_epoch: int
    ) -> ErrorCode:
        epoch = request.current_leader_epoch
        if epoch != NO_LEADER_EPOCH and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id == CONSUMER:
            return ErrorCode.NONE
        if replica_id not in self._followers:
            # The fetcher may know of a newer assignment than this leader: it must ask again.
            if epoch == NO_LEADER_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_epoch != -1 and self._eligible.get(BrokerId(replica_id), -1) > replica_epoch:
            # A Fetch of the follower's earlier incarnation must not speak for the present one.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _partition_data(
        self,
        request: FetchPartition,
        high_watermark: Offset,
        diverging: EpochEndOffset | None,
        records: tuple[RecordBatch, ...] = (),
    ) -> PartitionData:
        return PartitionData(
            partition_index=request.partition,
            high_watermark=high_watermark,
            log_start_offset=self.log.log_start_offset,
            leader_id=self.leader_id,
            leader_epoch=self.leader_epoch,
            diverging_epoch=diverging,
            records=records,
        )

    def _fetch_error(self, request: FetchPartition, error: ErrorCode) -> FetchResult:
        return FetchResult(
            data=PartitionData(
                partition_index=request.partition,
                error_code=error,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
            )
        )

    def _follower_progressed(
        self, broker: BrokerId, fetch_offset: Offset, broker_epoch: int, now_us: int
    ) -> tuple[IsrProposal | None, bool]:
        """Count a follower's Fetch; return an ISR to propose and whether the watermark moved."""
        follower = self._followers[broker]
        previous_end_offset = follower.log_end_offset
        follower.update_fetch_state(
            fetch_offset=fetch_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_us=now_us,
        )
        # First the ISR: who is being added counts for the high watermark from here on.
        proposal = self._maybe_expand_isr(broker, follower)
        moved = follower.log_end_offset != previous_end_offset and (
            self._maybe_increment_high_watermark(now_us)
        )
        return proposal, moved

    def _maybe_expand_isr(self, broker: BrokerId, follower: FollowerState) -> IsrProposal | None:
        isr = self._isr.committed
        if (
            broker in isr
            or self._isr.in_flight is not None
            or follower.log_end_offset < self.log.high_watermark
            or follower.log_end_offset < self.leader_epoch_start_offset
            or not self._is_eligible(broker, follower)
        ):
            return None
        return self._propose((*isr, broker))

    def _propose(self, new_isr: tuple[BrokerId, ...]) -> IsrProposal:
        return self._isr.propose(
            new_isr,
            partition_index=self.topic_partition.partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            broker_epochs=tuple(self._broker_epoch(broker) for broker in new_isr),
        )

    def _broker_epoch(self, broker: BrokerId) -> int:
        if broker == self.broker_id:
            return self._eligible.get(broker, -1)
        known = self._followers[broker].broker_epoch
        return -1 if known is None else known

    def _is_eligible(self, broker: BrokerId, follower: FollowerState) -> bool:
        """Whether a follower's present incarnation may join the ISR. KIP-841, KIP-903."""
        registered = self._eligible.get(broker)
        if registered is None or follower.broker_epoch is None:
            return False
        return follower.broker_epoch in (-1, registered)

    def _is_lagging(self, broker: BrokerId, now_us: int) -> bool:
        if broker == self.broker_id:
            return False
        follower = self._followers.get(broker)
        return follower is None or not follower.is_caught_up(
            leader_end_offset=self.log.log_end_offset,
            now_us=now_us,
            lag_max_us=self._lag_max_us,
        )

    def _maybe_increment_high_watermark(self, now_us: int) -> bool:
        """Raise the high watermark to the smallest log end that counts; say whether it moved.

        Who counts: the maximal ISR, and followers that are caught up and eligible, for they are
        about to join it. Source: Kafka Partition.maybeIncrementLeaderHW.
        """
        if self.is_under_min_isr:
            return False
        log = self.log
        log_end_offset = new_high_watermark = log.log_end_offset
        for broker, follower in self._followers.items():
            if follower.log_end_offset < new_high_watermark and (
                broker in self._isr.maximal
                or (
                    follower.is_caught_up(
                        leader_end_offset=log_end_offset,
                        now_us=now_us,
                        lag_max_us=self._lag_max_us,
                    )
                    and self._is_eligible(broker, follower)
                )
            ):
                new_high_watermark = follower.log_end_offset
        if new_high_watermark <= log.high_watermark:
            return False
        return log.update_high_watermark(new_high_watermark)

    def _truncate(self, diverging: EpochEndOffset) -> FollowerFetchResult:
        log = self.log
        from_offset = log.log_end_offset
        previous_high_watermark = log.high_watermark
        log.truncate_to(max(truncation_offset(log, diverging), log.log_start_offset))
        if log.log_end_offset == from_offset:
            return FollowerFetchResult()
        moved = log.high_watermark != previous_high_watermark
        truncated = self._event(
            TraceKind.LOG_TRUNCATED,
            offset=log.log_end_offset,
            detail={"from_offset": from_offset},
        )
        return FollowerFetchResult(
            truncated_to=log.log_end_offset,
            new_high_watermark=log.high_watermark if moved else None,
            trace=(truncated, *self._high_watermark_trace(moved)),
        )

    def _event(
        self,
        kind: TraceKind,
        *,
        offset: Offset | None = None,
        peer: str | None = None,
        detail: dict[str, object] | None = None,
    ) -> TraceEvent:
        return TraceEvent(
            kind=kind,
            partition=str(self.topic_partition),
            leader_epoch=self.leader_epoch,
            offset=offset,
            peer=peer,
            detail=detail,
        )

    def _high_watermark_trace(self, moved: bool) -> tuple[TraceEvent, ...]:
        """Return HIGH_WATERMARK if it moved; only of offsets partitions, data would flood."""
        if not moved or self.topic_partition.topic != CONSUMER_OFFSETS:
            return ()
        return (self._event(TraceKind.HIGH_WATERMARK, offset=self.log.high_watermark),)
