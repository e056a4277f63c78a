"""Partition: one replica of one partition, as leader or follower.

Terms:
- Leader epoch: the number of the partition's leadership; each election increases it.
- Partition epoch: the number of the last change of the partition's leader, replicas or ISR.
- ISR: the in-sync replicas.
- High watermark: the offset below which all in-sync replicas have the records. These records are
  committed.
- Log end offset: the offset that the next record will get.
- AlterPartition: the request by which a leader proposes a new ISR to the controller.
- Transaction marker: the record that ends a producer's transaction in a partition.

Inputs are metadata (make_leader, make_follower), appends, Fetches and their answers, and the
answers to AlterPartition. For each input a method returns a value of `outcomes`, on which the
broker acts; a Partition itself neither sends nor waits. It owns the leader, the leader epoch and
the partition epoch. `in_sync_replicas` computes the high watermark, and `fetching` makes a
follower's log equal to its leader's.
Source: docs/kafka/BEHAVIOUR.md 6.1, Kafka 3.9 `Partition`.
"""

from collections.abc import Mapping

from partition_log.batches import build_batch, check_batch
from partition_log.fetching import apply_fetched, find_divergence, read_for_fetch
from partition_log.follower_state import FollowerState, SharedFetchTime
from partition_log.in_sync_replicas import InSyncReplicas
from partition_log.log import PartitionLog
from partition_log.log_validation import Refusal, validate_produced
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
"""The replica id in a consumer's Fetch."""

_GIVE_UP = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors of AlterPartition after which the leader waits for newer metadata instead of retrying."""


class Partition:
    """One replica of one partition, as leader or follower.

    Attributes, to read only: `topic_partition`, `broker_id`, `log`, `replicas`, `leader_id` (-1: no
    broker leads); `leader_epoch` and `partition_epoch` (-1 before the first metadata).
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
        """The last answer of `_nothing_new`, reused while it is still right."""

    @property
    def is_leader(self) -> bool:
        """True if this replica leads the partition, as far as it knows."""
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
        """The proposal that waits for the controller's answer, None if there is none."""
        return self._in_sync.in_flight

    @property
    def high_watermark(self) -> Offset:
        """Offset below which every record is committed, as far as this replica knows."""
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record to be appended."""
        return self.log.log_end_offset

    @property
    def leader_epoch_start_offset(self) -> Offset:
        """Log end offset when this leader's epoch began; -1 on a follower."""
        return self._in_sync.epoch_start_offset

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is smaller."""
        return self._in_sync.effective_min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """True if the ISR is too small for acks=all; never with `min_insync_check` off."""
        return self._in_sync.is_under_min

    @property
    def uses_log_append_time(self) -> bool:
        """True if records get the leader's time instead of their producer's."""
        return self._config.uses_log_append_time

    def follower_log_end_offset(self, broker_id: BrokerId) -> Offset:
        """Return the log end that a follower's last Fetch named, -1 before its first Fetch.

        Raises: SimulationError if `broker_id` is not a follower of this leader.
        """
        follower = self._in_sync.followers.get(broker_id)
        if follower is None:
            raise SimulationError(
                f"{self.topic_partition}: {broker_id} is no follower, "
                f"{tuple(self._in_sync.followers)} are"
            )
        return follower.log_end_offset

    def follower_broker_epoch(self, broker_id: BrokerId) -> int | None:
        """Return the broker epoch of a follower's last Fetch, None if there was none."""
        follower = self._in_sync.followers.get(broker_id)
        return None if follower is None else follower.broker_epoch

    # -- metadata --

    def update_eligible_brokers(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Set the brokers that may join an ISR, with their broker epochs.

        These are the brokers that are not fenced and not shutting down. A fenced broker sends the
        controller no heartbeats. A broker epoch is the number of a broker's registration, which a
        restart increases. To be called after each change of a broker in the metadata. The mapping
        itself is kept, not a copy.
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
        """Become leader in a new epoch, or take over a new ISR or assignment as leader.

        A new leader epoch begins at the log end, and the followers in the ISR count as caught up.
        The high watermark stays, except if this replica is alone in the ISR. If a proposal is in
        flight, new metadata ends it, because the answer to it will be older than the metadata.
        Raises: SimulationError if this replica is not in `replicas`.
        Source: Kafka Partition.makeLeader.
        """
        if self.broker_id not in replicas:
            raise SimulationError(
                f"{self.topic_partition}: {self.broker_id} is made leader of {replicas}"
            )
        # The controller's answer to an AlterPartition also has the new partition epoch, and may
        # come before the metadata. Metadata that is older than such an answer is ignored.
        if partition_epoch < self.partition_epoch:
            return LeadershipChange(stale=True)
        if (
            self.is_leader
            and partition_epoch == self.partition_epoch
            and leader_epoch == self.leader_epoch
        ):
            # DEVIATION: Kafka forgets the proposal in flight here, which may be a newer one:
            # 1. The controller answers an AlterPartition; the leader proposes the next ISR.
            # 2. The metadata delta of the first change arrives, with the epochs of that answer.
            return LeadershipChange()

        # DEVIATION: Kafka keeps the followers' log ends even if this leader has missed an epoch.
        # Another replica led in that epoch, and the followers may have truncated their logs.
        is_new_leader = not self.is_leader or leader_epoch > self.leader_epoch + 1
        is_new_leader_epoch = leader_epoch > self.leader_epoch

        self.replicas = replicas
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.leader_id = self.broker_id
        # The followers and the ISR are set before `begin_epoch`, which uses them.
        self._in_sync.assign(replicas, is_leader=True)
        self._in_sync.commit(isr)
        trace: tuple[TraceEvent, ...] = ()
        if is_new_leader_epoch:
            self.leader_epoch = LeaderEpoch(leader_epoch)
            self.log.assign_epoch_start(self.leader_epoch)
            self._in_sync.begin_epoch(is_new_leader=is_new_leader, now_us=now_us)
            trace = (became_leader(self.log, self.leader_epoch),)

        # If this replica is alone in the ISR, no Fetch will ever move the high watermark.
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
        """Become a follower of the broker `leader_id`; -1 means that the partition has no leader.

        The log is not truncated here. Records that the new leader lacks are removed when the leader
        answers a Fetch with a diverging epoch.
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
        """Stop leading or following: the partition was deleted, or moved to other brokers."""
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

        `records` is non-empty; `required_acks` is -1 (all), 0 or 1; `verification_guard`
        comes from `log.producers.begin_verification`; `compression` is the id of one of `codecs`.
        Errors: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS, if the ISR is too small for acks=all;
        MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE, if the batch is larger than the settings
        permit; for a transactional batch also INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE.
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
        """Append the marker that ends a producer's transaction, with acks=all.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS; INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED as in `ProducerStates.check_marker`.
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

    def append_batch(
        self,
        batch: RecordBatch,
        *,
        required_acks: int,
        now_us: int,
        wall_ms: int = 0,
        codecs: Codecs = NO_CODECS,
    ) -> AppendInfo:
        """Append a producer's batch.

        If the log has the batch already, nothing is appended, and the result has the offsets of the
        batch in the log.

        wall_ms: the timestamp for LogAppendTime. codecs: read the records of a compressed batch.
        Errors: the errors of `append_records`, of `log_validation` and of
        `ProducerStates.check_produced`, and CORRUPT_MESSAGE.
        Source: Kafka UnifiedLog.append, which checks in this order.
        """
        error = self._check_append(required_acks)
        if error is ErrorCode.NONE and batch.size_in_bytes > self._config.message_max_bytes:
            error = ErrorCode.MESSAGE_TOO_LARGE
        if error is ErrorCode.NONE:
            error = check_batch(batch)
        if error is not ErrorCode.NONE:
            return AppendInfo(error=error)

        log_append_time_ms = wall_ms if self._config.uses_log_append_time else None
        validated = validate_produced(
            batch,
            codecs=codecs,
            is_compacted=self.log.is_compacted,
            log_append_time_ms=log_append_time_ms,
        )
        if isinstance(validated, Refusal):
            return AppendInfo(
                error=validated.error,
                error_message=validated.message,
                record_errors=validated.record_errors,
            )

        if validated.size_in_bytes > self._config.segment_bytes:
            return AppendInfo(error=ErrorCode.RECORD_LIST_TOO_LARGE)
        known = self._check_producer(validated)
        if known is not None:
            return known
        # -1 tells the producer that the records keep its timestamps.
        return self._append(
            validated, now_us, -1 if log_append_time_ms is None else log_append_time_ms
        )

    def check_acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the outcome of an acks=all append whose `next_offset` is `required_offset`.

        - None: the outcome is not decided, since the high watermark is below `required_offset`.
        - NONE: the append is acknowledged.
        - NOT_ENOUGH_REPLICAS_AFTER_APPEND: the high watermark has reached `required_offset`, but
          the ISR has become smaller than min.insync.replicas. The records stay in the log.
        - NOT_LEADER_OR_FOLLOWER: this replica no longer leads.

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
        """Read the log for a Fetch, and record the progress of a follower.

        A follower gets records up to the log end, a consumer up to the high watermark.

        replica_id: the follower's broker id, -1 for a consumer.
        max_bytes: what the partitions before this one have left of the request's limit.
        min_one_batch: False if an earlier partition of the request has returned a batch.
        update_fetch_state: False if a parked Fetch is read again; its progress was recorded when it
            arrived.
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

        # The high watermark is read before the follower's progress is recorded, as in Kafka. So if
        # this Fetch moves the high watermark, the follower learns of that only with its next Fetch.
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

    def check_leadership(self, current_leader_epoch: int) -> ErrorCode:
        """Return NONE if this replica leads in the epoch that a client names, else the error.

        A client that names -1 accepts every epoch.
        Errors: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        Source: Kafka Partition.checkCurrentLeaderEpoch.
        """
        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetch_nothing(
        self, request: FetchPartition, replica_id: int, replica_epoch: int, now_us: int | None
    ) -> PartitionData | None:
        """Return the answer of a Fetch for which this partition has no new record, else None.

        The broker calls this method before `fetch`, because it is faster: a follower's Fetch names
        all its partitions, and mostly only one has a new record. If the result is None, the broker
        must call `fetch`. Otherwise this call has recorded the Fetch. If `now_us` is None, nothing
        is recorded: a parked Fetch is read again, and it was recorded when it arrived.
        """
        if request.current_leader_epoch != self.leader_epoch or self.leader_id != self.broker_id:
            return None
        log = self.log
        if replica_id == CONSUMER:
            # A consumer that names its last epoch needs the check for divergence in `fetch`.
            if (
                request.fetch_offset != log.high_watermark
                or request.last_fetched_epoch != NO_LEADER_EPOCH
            ):
                return None
        elif (
            request.fetch_offset != log.log_end_offset
            # A follower with an empty log names no epoch (-1), and has nothing that could diverge.
            or request.last_fetched_epoch not in (log.epochs.latest_epoch, NO_LEADER_EPOCH)
            # The last condition, because `stays_at_end` records the Fetch.
            or not self._in_sync.stays_at_end(BrokerId(replica_id), replica_epoch, now_us)
        ):
            return None
        return self._nothing_new()

    def follower_counted_with(
        self, replica_id: int, shared: SharedFetchTime
    ) -> FollowerState | None:
        """Let the follower's state take the times of its Fetches from `shared`, and return it.

        The sharing is right only while `fetch_nothing` would answer the follower's Fetches. When
        this partition changes, or the follower fetches from another offset, the caller must
        immediately call `count_alone` of the returned state. The result is None if `replica_id` is
        no follower.
        """
        follower = self._in_sync.followers.get(BrokerId(replica_id))
        if follower is not None:
            follower.count_with(shared)
        return follower

    def isr_members_behind_for(self, longest_us: int, now_us: int) -> tuple[BrokerId, ...]:
        """Return the followers of the ISR that were last caught up more than `longest_us` ago.

        For checks. The result is empty if this replica does not lead.
        """
        return self._in_sync.members_behind_for(longest_us, now_us) if self.is_leader else ()

    def maybe_shrink_isr(self, now_us: int) -> IsrProposal | None:
        """Propose an ISR without lagging replicas; to be called every replica.lag.time.max.ms / 2.

        The result is None if no replica lags, if a proposal is in flight already, or if this
        replica does not lead. The ISR changes only when the controller has answered.
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
        """Apply the controller's answer to `proposal`.

        If the request got no answer, the caller passes a `response` with NETWORK_EXCEPTION.
        Source: Kafka Partition.submitAlterPartition, handleAlterPartitionError.
        """
        if self._in_sync.in_flight is not proposal:
            return AlterPartitionResult()  # newer metadata came first and ended the proposal
        if response.error_code is ErrorCode.INELIGIBLE_REPLICA:
            # Only this error proves that the controller has not applied the proposal.
            self._in_sync.revert()
            return AlterPartitionResult()
        if response.error_code is not ErrorCode.NONE:
            # The proposal may have been applied: it stays in flight, so that the maximal ISR
            # counts until a retry is answered or newer metadata comes.
            return AlterPartitionResult(retry=response.error_code not in _GIVE_UP)
        if (
            response.leader_epoch != self.leader_epoch
            or response.partition_epoch < self.partition_epoch
        ):
            return AlterPartitionResult()  # the answer is older than this replica's metadata

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
        """Return the next Fetch of this follower: from its log end, in its leader's epoch."""
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
        """Append or truncate as the leader's answer to `request` says; adopt its high watermark.

        The answer is ignored if the leadership or the log end has changed since the request.
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
        """Return the error of an append that this replica cannot accept now, else NONE."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def _check_producer(self, batch: RecordBatch) -> AppendInfo | None:
        """Return the result for a batch that is a duplicate or out of order; None to append it."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        producers = self.log.producers
        duplicate = producers.find_duplicate(batch)
        if duplicate is not None:
            return AppendInfo(
                base_offset=Offset(duplicate.first_offset),
                next_offset=Offset(duplicate.last_offset + 1),
                leader_epoch=self.leader_epoch,
                is_duplicate=True,
                log_append_time_ms=duplicate.timestamp_ms,
                log_start_offset=self.log.log_start_offset,
            )
        error = producers.check_produced(batch)
        return None if error is ErrorCode.NONE else AppendInfo(error=error)

    def _append(self, batch: RecordBatch, now_us: int, log_append_time_ms: int = -1) -> AppendInfo:
        """Append a batch, unless it is too large. Raise the high watermark if this is possible.

        The caller has made all other checks.
        """
        # `append_batch` has checked the size already, because Kafka checks it before the sequence.
        # The other callers have not.
        size = batch.size_in_bytes
        if size > self._config.message_max_bytes:
            return AppendInfo(error=ErrorCode.MESSAGE_TOO_LARGE)
        if size > self._config.segment_bytes:
            return AppendInfo(error=ErrorCode.RECORD_LIST_TOO_LARGE)
        placed = self.log.append_batch_as_leader(batch, leader_epoch=self.leader_epoch)
        # If the leader is alone in the ISR, its own log end becomes the high watermark now.
        moved = self._in_sync.maybe_increment_high_watermark(now_us)
        return AppendInfo(
            base_offset=Offset(placed.base_offset),
            next_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
            new_high_watermark=self.log.high_watermark if moved else None,
            trace=self._high_watermark_trace(moved),
            log_append_time_ms=log_append_time_ms,
            log_start_offset=self.log.log_start_offset,
        )

    def _check_fetch(
        self, request: FetchPartition, replica_id: int, replica_epoch: int
    ) -> ErrorCode:
        """Return the error of a Fetch that this replica must not answer, else NONE."""
        epoch = request.current_leader_epoch
        error = self.check_leadership(epoch)
        if error is not ErrorCode.NONE:
            return error
        if replica_id == CONSUMER:
            return ErrorCode.NONE
        broker = BrokerId(replica_id)
        if broker not in self._in_sync.followers:
            # The fetcher may know a newer assignment than this leader. It gets an error after which
            # it fetches again later.
            if epoch == NO_LEADER_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_epoch != -1 and self._in_sync.registered_epoch(broker) > replica_epoch:
            # The follower sent this Fetch before its restart. It may have lost records since then.
            # If `replica_epoch` is -1, the version of the Fetch has no broker epoch to check.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _nothing_new(self) -> PartitionData:
        """Return the answer for a fetcher that has every record."""
        # Idle followers get this answer thousands of times, so it is built once and reused. It must
        # be built again if the high watermark or the leader epoch has changed. The other fields
        # never change: the log start does not move, and the leader is this broker.
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
        """Record a follower's Fetch.

        Returns: a proposal to add the follower to the ISR, or None if there is no proposal; and
        True if the high watermark moved.
        """
        follower = self._in_sync.followers[broker]
        previous_end_offset = follower.log_end_offset
        follower.update_fetch_state(
            fetch_offset=fetch_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_us=now_us,
        )
        # The proposal comes first, because the follower that it adds then counts for the high
        # watermark.
        proposal = self._in_sync.propose_expansion(
            broker, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )
        # As in Kafka: only a new log end of the follower can raise the high watermark.
        moved = (
            follower.log_end_offset != previous_end_offset
            and self._in_sync.maybe_increment_high_watermark(now_us)
        )
        return proposal, moved

    def _high_watermark_trace(self, moved: bool) -> tuple[TraceEvent, ...]:
        return high_watermark_moved(self.log, self.leader_epoch) if moved else ()
