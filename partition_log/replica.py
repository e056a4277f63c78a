"""One replica of one partition, as leader or follower.

Owns who leads, in which leader and partition epoch. Inputs are metadata (make_leader,
make_follower), appends, Fetches with their answers, and the answers to AlterPartition. It sends
nothing and waits for nothing: `outcomes` says what comes back. `in_sync_replicas` knows how far
the high watermark may go, `fetching` how two logs are brought together.
Source: BEHAVIOUR 6.1, Kafka 3.9 `Partition`.
"""

from collections.abc import Mapping

from partition_log.batches import build_batch, check_batch
from partition_log.fetching import apply_fetched, find_divergence, read_for_fetch
from partition_log.follower_state import FollowerState, SharedFetchTime
from partition_log.in_sync_replicas import InSyncReplicas
from partition_log.log import PartitionLog
from partition_log.outcomes import (
    AlterPartitionResult,
    AppendInfo,
    FetchResult,
    FollowerFetchResult,
    IsrProposal,
    LeadershipChange,
    ReplicaConfig,
)
from partition_log.traces import became_follower, became_leader, high_watermark_moved
from protocol.compression import NO_CODECS, Codecs
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicPartition,
)
from protocol.messages.controller import AlterPartitionPartitionResponse
from protocol.messages.log import EpochEndOffset, FetchPartition, PartitionData
from protocol.records.batch import Record, RecordBatch
from protocol.records.control import EndTransactionMarker, encode_marker
from protocol.trace import TraceEvent

CONSUMER = -1
"""The replica id of a Fetch that comes from a consumer."""

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
    leads), `leader_epoch` and `partition_epoch` (-1 before the first metadata), `replicas`.
    """

    __slots__ = (
        "_config",
        "_empty_answer",
        "_in_sync",
        "broker_id",
        "leader_epoch",
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
        config: ReplicaConfig,
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.log = log
        self.leader_id = NO_BROKER
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = PartitionEpoch(-1)
        self.replicas: tuple[BrokerId, ...] = ()
        self._config = config
        self._in_sync = InSyncReplicas(broker_id, log, config)
        self._empty_answer: PartitionData | None = None
        """The last one of `_nothing_new`."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads the partition, as far as it knows."""
        return self.leader_id == self.broker_id

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR, as far as this replica knows."""
        return self._in_sync.committed

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the replicas being added by an AlterPartition in flight."""
        return self._in_sync.maximal

    @property
    def isr_in_flight(self) -> IsrProposal | None:
        """The proposal that waits for its answer, None if there is none."""
        return self._in_sync.in_flight

    @property
    def high_watermark(self) -> Offset:
        """Offset below which everything is committed, as far as this replica knows."""
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record to be appended."""
        return self.log.log_end_offset

    @property
    def leader_epoch_start_offset(self) -> Offset:
        """Log end when the leader epoch of this leader began; -1 on a follower."""
        return self._in_sync.epoch_start_offset

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is smaller."""
        return self._in_sync.effective_min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is too small for acks=all; never with `min_insync_check` off."""
        return self._in_sync.is_under_min

    def follower_log_end_offset(self, broker_id: BrokerId) -> Offset:
        """Return what this leader knows of a follower's log end, -1 before its first Fetch.

        Raises: SimulationError if `broker_id` is none of its followers.
        """
        follower = self._in_sync.followers.get(broker_id)
        if follower is None:
            raise SimulationError(
                f"{self.topic_partition}: {broker_id} is no follower, "
                f"{tuple(self._in_sync.followers)} are"
            )
        return follower.log_end_offset

    # -- metadata --

    def update_eligible_brokers(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Learn which brokers may join an ISR: unfenced, not shutting down; with broker epochs.

        Call it after each metadata delta that changes a broker. The mapping is kept, not copied.
        """
        self._in_sync.update_eligible(eligible)

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
        proposal in flight is forgotten if there is news: its answer will be out of date. The high
        watermark stays where this replica last knew it, unless the ISR is this replica alone.
        Raises: SimulationError if this replica is not in `replicas`.
        Source: Kafka Partition.makeLeader.
        """
        if self.broker_id not in replicas:
            raise SimulationError(
                f"{self.topic_partition}: {self.broker_id} is made leader of {replicas}"
            )
        if partition_epoch < self.partition_epoch:
            return LeadershipChange(stale=True)
        if (
            self.is_leader
            and partition_epoch == self.partition_epoch
            and leader_epoch == self.leader_epoch
        ):
            # DEVIATION: Kafka would forget a proposal in flight here. The delta may come after
            # the answer to AlterPartition that said the same, and after the next proposal.
            return LeadershipChange()
        # DEVIATION: Kafka keeps the followers' offsets also when this leader has missed epochs in
        # between. Somebody else led then, and the followers may have truncated below them.
        is_new_leader = not self.is_leader or leader_epoch > self.leader_epoch + 1
        is_new_leader_epoch = leader_epoch > self.leader_epoch
        self.replicas = replicas
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.leader_id = self.broker_id
        self._in_sync.assign(replicas, is_leader=True)
        self._in_sync.commit(isr)
        trace: tuple[TraceEvent, ...] = ()
        if is_new_leader_epoch:
            self.leader_epoch = LeaderEpoch(leader_epoch)
            self.log.assign_epoch_start(self.leader_epoch)
            self._in_sync.begin_epoch(is_new_leader=is_new_leader, now_us=now_us)
            trace = (became_leader(self.log, self.leader_epoch),)
        # The ISR may be down to this replica: then nobody's Fetch will move the high watermark.
        moved = self._in_sync.maybe_increment_high_watermark(now_us)
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
        self.replicas = replicas
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.leader_id = leader_id
        self.leader_epoch = LeaderEpoch(leader_epoch)
        self._in_sync.assign(replicas, is_leader=False)
        self._in_sync.commit(isr)
        return LeadershipChange(
            is_new_leader_epoch=is_new_leader_epoch,
            trace=(
                (became_follower(self.log, self.leader_epoch, leader_id),)
                if is_new_leader_epoch
                else ()
            ),
        )

    def delete(self) -> None:
        """Lead and follow nobody any more: the partition was deleted, or is kept elsewhere."""
        self.leader_id = NO_BROKER
        self.replicas = ()
        self._in_sync.assign((), is_leader=False)
        self._in_sync.commit(())

    # -- leader: appends --

    def append_records(
        self,
        records: tuple[Record, ...],
        *,
        required_acks: int,
        now_us: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        is_transactional: bool = False,
        verification_guard: int | None = None,
        compression: int = 0,
        codecs: Codecs = NO_CODECS,
    ) -> AppendInfo:
        """Append `records` as one batch; with an error nothing is appended.

        Shape: `records` is non-empty; `required_acks` is -1 (all), 0 or 1; `verification_guard`
        is what `log.producers.begin_verification` gave; `compression` is one of `codecs`.
        Errors: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=all with too small an ISR);
        MESSAGE_TOO_LARGE; of a transactional batch INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE.
        Source: Kafka Partition.appendRecordsToLeader.
        """
        error = self._check_append(required_acks)
        if error is ErrorCode.NONE and is_transactional:
            error = self.log.producers.check_transactional(
                producer_id, producer_epoch, verification_guard
            )
        if error is not ErrorCode.NONE:
            return AppendInfo(error=error)
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
            compression=compression,
            codecs=codecs,
        )
        return self._append(batch, now_us)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        timestamp_ms: int,
        now_us: int,
    ) -> AppendInfo:
        """Append the end of a producer's transaction, with acks=all.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS; INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED for one that another has overtaken.
        Source: Kafka KafkaApis.handleWriteTxnMarkersRequest.
        """
        error = self._check_append(ACKS_ALL)
        if error is ErrorCode.NONE:
            error = self.log.producers.check_marker(producer_id, producer_epoch, marker)
        if error is not ErrorCode.NONE:
            return AppendInfo(error=error)
        batch = build_batch(
            (encode_marker(marker, timestamp_ms),),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
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
        if self._in_sync.is_maximal_under_min:
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
            return FetchResult(
                data=self._fetch_data(request, high_watermark, diverging_epoch=diverging)
            )
        records = read_for_fetch(
            self.log,
            request,
            up_to=high_watermark if replica_id == CONSUMER else self.log.log_end_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
        )
        if isinstance(records, ErrorCode):
            return self._fetch_error(request, records)
        data = self._fetch_data(request, high_watermark, records=records)
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

    def fetch_nothing(
        self, request: FetchPartition, replica_id: int, replica_epoch: int, now_us: int | None
    ) -> PartitionData | None:
        """Return what `fetch` would answer if nothing is new and nothing moves, otherwise None.

        To be asked before `fetch`, which takes longer: followers ask for all that they follow after
        every append, and lack something of one partition. Such a Fetch of a follower is counted
        here, unless `now_us` is None (a parked one is read again).
        """
        if request.current_leader_epoch != self.leader_epoch or self.leader_id != self.broker_id:
            return None
        log = self.log
        if replica_id == CONSUMER:
            if (
                request.fetch_offset != log.high_watermark
                or request.last_fetched_epoch != NO_LEADER_EPOCH
            ):
                return None
        elif (
            request.fetch_offset != log.log_end_offset
            # A follower whose log is empty has no last epoch, and nothing that could diverge.
            or request.last_fetched_epoch not in (log.epochs.latest_epoch, NO_LEADER_EPOCH)
            or not self._in_sync.stays_at_end(BrokerId(replica_id), replica_epoch, now_us)
        ):
            return None
        return self._nothing_new()

    def follower_counted_with(
        self, replica_id: int, shared: SharedFetchTime
    ) -> FollowerState | None:
        """Let `shared` count the Fetches of a follower for which `fetch_nothing` is the answer.

        Returns: the follower, whose `count_alone` ends it: to be called as soon as anything of this
        partition changes, or the follower asks otherwise. None if there is no such follower.
        """
        follower = self._in_sync.followers.get(BrokerId(replica_id))
        if follower is not None:
            follower.count_with(shared)
        return follower

    def maybe_shrink_isr(self, now_us: int) -> IsrProposal | None:
        """Propose an ISR without the replicas that lag; call every replica.lag.time.max.ms / 2.

        None if nobody lags, a proposal is in flight, or this replica does not lead. Nothing
        changes until the controller has answered.
        Source: Kafka Partition.maybeShrinkIsr.
        """
        if not self.is_leader:
            return None
        return self._in_sync.propose_shrink(
            leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch, now_us=now_us
        )

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
        if self._in_sync.in_flight is not proposal:
            return AlterPartitionResult()
        if response.error_code is ErrorCode.INELIGIBLE_REPLICA:
            self._in_sync.revert()
            return AlterPartitionResult()
        if response.error_code is not ErrorCode.NONE:
            return AlterPartitionResult(retry=response.error_code not in _GIVE_UP)
        if (
            response.leader_epoch != self.leader_epoch
            or response.partition_epoch < self.partition_epoch
        ):
            return AlterPartitionResult()
        isr = tuple(BrokerId(broker) for broker in response.isr)
        self._in_sync.commit(isr)
        self.partition_epoch = PartitionEpoch(response.partition_epoch)
        moved = self._in_sync.maybe_increment_high_watermark(now_us)
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
        return apply_fetched(self.log, data, leader_epoch=self.leader_epoch)

    # -- helpers --

    def _check_append(self, required_acks: int) -> ErrorCode:
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def _append(self, batch: RecordBatch, now_us: int) -> AppendInfo:
        size = batch.size_in_bytes
        if size > self._config.message_max_bytes:
            return AppendInfo(error=ErrorCode.MESSAGE_TOO_LARGE)
        if size > self._config.segment_bytes:
            return AppendInfo(error=ErrorCode.RECORD_LIST_TOO_LARGE)
        placed = self.log.append_batch_as_leader(batch, leader_epoch=self.leader_epoch)
        # In an ISR of one the leader's own log end is the high watermark.
        moved = self._in_sync.maybe_increment_high_watermark(now_us)
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
        if epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            if epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id == CONSUMER:
            return ErrorCode.NONE
        broker = BrokerId(replica_id)
        if broker not in self._in_sync.followers:
            # The fetcher may know of a newer assignment than this leader: it must ask again.
            if epoch == NO_LEADER_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_epoch != -1 and self._in_sync.registered_epoch(broker) > replica_epoch:
            # A Fetch of the follower's earlier incarnation must not speak for the present one.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _nothing_new(self) -> PartitionData:
        """Return the answer to who has everything: the same object while it is true."""
        answer = self._empty_answer
        if (
            answer is None
            or answer.high_watermark != self.log.high_watermark
            or answer.leader_epoch != self.leader_epoch
        ):
            answer = self._empty_answer = PartitionData(
                partition_index=self.topic_partition.partition,
                high_watermark=self.log.high_watermark,
                log_start_offset=self.log.log_start_offset,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
            )
        return answer

    def _fetch_data(
        self,
        request: FetchPartition,
        high_watermark: Offset,
        *,
        diverging_epoch: EpochEndOffset | None = None,
        records: tuple[RecordBatch, ...] = (),
    ) -> PartitionData:
        return PartitionData(
            partition_index=request.partition,
            high_watermark=high_watermark,
            log_start_offset=self.log.log_start_offset,
            leader_id=self.leader_id,
            leader_epoch=self.leader_epoch,
            diverging_epoch=diverging_epoch,
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
        follower = self._in_sync.followers[broker]
        previous_end_offset = follower.log_end_offset
        follower.update_fetch_state(
            fetch_offset=fetch_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_us=now_us,
        )
        # First the ISR: who is being added counts for the high watermark from here on.
        proposal = self._in_sync.propose_expansion(
            broker, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )
        moved = (
            follower.log_end_offset != previous_end_offset
            and self._in_sync.maybe_increment_high_watermark(now_us)
        )
        return proposal, moved

    def _high_watermark_trace(self, moved: bool) -> tuple[TraceEvent, ...]:
        return high_watermark_moved(self.log, self.leader_epoch) if moved else ()
