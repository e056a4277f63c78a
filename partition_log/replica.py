"""Partition: one replica of one partition, as leader or follower.

A Partition neither sends messages nor waits. The broker calls its methods when something concerns
the replica, and acts on the result, which is a value of `outcomes`:

- The metadata names a leader: `make_leader` or `make_follower`.
- The replica leads: `append_records` and similar methods append, and `fetch` answers the Fetches of
  followers and consumers. With the request AlterPartition a leader proposes a new ISR to the
  controller: `maybe_shrink_isr` and `handle_alter_partition_response`.
- The replica follows: `fetch_position` returns its next Fetch, and `handle_fetch_response` handles
  the leader's answer.

This module knows who leads, the leader epoch, and the partition epoch. The controller increases the
partition epoch with every change of the partition's leader, replicas or ISR. `in_sync_replicas`
computes the high watermark, and `fetching` makes a follower's log equal to its leader's.

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
"""The replica id in the Fetch of a consumer, which is no replica."""

_GIVE_UP = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors of AlterPartition after which the leader does not try again, but waits for newer
metadata."""


class Partition:
    """One replica of one partition, as leader or follower.

    Other modules only read the attributes. `leader_id` is -1 if no broker leads. `leader_epoch` and
    `partition_epoch` are -1 before the first metadata.
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
        """The last answer of `_nothing_new`, which can often be sent again."""

    @property
    def is_leader(self) -> bool:
        """True if this replica leads the partition, as far as the replica knows."""
        return self.leader_id == self.broker_id

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The ISR that the controller has stored, as far as this replica knows."""
        return self._in_sync.committed

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The stored ISR, together with the replicas that an AlterPartition in flight adds."""
        return self._in_sync.maximal

    @property
    def isr_in_flight(self) -> IsrProposal | None:
        """The proposed ISR that waits for the controller's answer, None if there is none."""
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
        """Where the log ended when this replica became the leader. -1 on a follower."""
        return self._in_sync.epoch_start_offset

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if this number is smaller."""
        return self._in_sync.effective_min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """True if the ISR is too small for acks=all, so that such an append is refused.

        An experiment may switch off this check of Kafka (`min_insync_check`). Then the value is
        always False.
        """
        return self._in_sync.is_under_min

    @property
    def uses_log_append_time(self) -> bool:
        """True if records get the leader's time instead of their producer's."""
        return self._config.uses_log_append_time

    def follower_log_end_offset(self, broker_id: BrokerId) -> Offset:
        """Return where a follower's log ended at its last Fetch, -1 before its first Fetch.

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
        """Return the broker epoch in a follower's last Fetch, None before its first Fetch."""
        follower = self._in_sync.followers.get(broker_id)
        return None if follower is None else follower.broker_epoch

    # -- metadata --

    def update_eligible_brokers(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Set the brokers that may join an ISR, with their broker epochs.

        These are the brokers that send heartbeats to the controller and are not shutting down. A
        broker registers at each start, and each time gets a higher broker epoch. This method must
        be called after each change of a broker in the metadata. The mapping is not copied.
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
        """Handle metadata in which this replica leads.

        The replica may have been elected. Then a new leader epoch begins at the end of its log. Or
        the replica led before, and only the ISR or the replicas have changed.

        At the beginning of a leader epoch the followers in the ISR count as caught up. The high
        watermark stays where it is, except if this replica is alone in the ISR. A proposed ISR in
        flight is forgotten, because the controller's answer to the proposal will be older than this
        metadata.

        Raises: SimulationError if this replica is not in `replicas`.
        Source: Kafka Partition.makeLeader.
        """
        if self.broker_id not in replicas:
            raise SimulationError(
                f"{self.topic_partition}: {self.broker_id} is made leader of {replicas}"
            )
        # A leader also learns a new partition epoch from the answer to its AlterPartition. This
        # answer may arrive before the metadata. So older metadata can follow, and is ignored here.
        if partition_epoch < self.partition_epoch:
            return LeadershipChange(stale=True)
        if (
            self.is_leader
            and partition_epoch == self.partition_epoch
            and leader_epoch == self.leader_epoch
        ):
            # DEVIATION: Kafka forgets the proposal in flight here, although the proposal may be
            # newer:
            # 1. The controller answers an AlterPartition, and the leader proposes the next ISR.
            # 2. The metadata about the first change arrives, with the same epochs as the answer.
            return LeadershipChange()

        # DEVIATION: if this leader has missed an epoch, another replica led in that epoch, and the
        # followers may have truncated their logs. So this leader forgets what it knows about the
        # followers. A Kafka leader keeps this knowledge.
        is_new_leader = not self.is_leader or leader_epoch > self.leader_epoch + 1
        is_new_leader_epoch = leader_epoch > self.leader_epoch

        self.replicas = replicas
        self.partition_epoch = PartitionEpoch(partition_epoch)
        self.leader_id = self.broker_id
        # `begin_epoch` needs the followers and the ISR, so they are set first.
        self._in_sync.assign(replicas, is_leader=True)
        self._in_sync.commit(isr)
        trace: tuple[TraceEvent, ...] = ()
        if is_new_leader_epoch:
            self.leader_epoch = LeaderEpoch(leader_epoch)
            self.log.assign_epoch_start(self.leader_epoch)
            self._in_sync.begin_epoch(is_new_leader=is_new_leader, now_us=now_us)
            trace = (became_leader(self.log, self.leader_epoch),)

        # Normally the Fetches of followers raise the high watermark. If this replica is alone in
        # the ISR, no follower needs to fetch, so the high watermark is raised here.
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
        """Handle metadata in which another broker leads, or no broker (`leader_id` is -1).

        The log may have records that the new leader does not have. They are not removed here. They
        are removed when the leader's answer to a Fetch says where the logs diverge.

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
        """Append `records` of a coordinator as one batch, or return an error.

        `records` must not be empty. `required_acks` is -1 (all), 0 or 1. `compression` is the id of
        a codec in `codecs`, or 0 for no compression. A transactional batch needs the
        `verification_guard` that `log.producers.begin_verification` returned.

        Errors:
        - NOT_LEADER_OR_FOLLOWER;
        - NOT_ENOUGH_REPLICAS: the ISR is too small for acks=all;
        - MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: the batch is larger than message.max.bytes or
          segment.bytes;
        - for a transactional batch, the errors of `ProducerStates.check_transactional`.

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
        """Append a marker, which is the record that ends a producer's transaction, with acks=all.

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
        """Append a batch that a producer has sent.

        A producer sends a batch again if it gets no answer. If the log has the batch already,
        nothing is appended, and the result has the batch's offsets in the log.

        wall_ms: the present time. The records get this time if the topic uses LogAppendTime.
        codecs: decompress a compressed batch, so that its records can be checked.
        Errors: CORRUPT_MESSAGE, and the errors of `append_records`, of `log_validation` and of
        `ProducerStates.check_produced`.
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
        # The answer tells the producer the time that the records got, or -1 if they keep their own.
        return self._append(
            validated, now_us, -1 if log_append_time_ms is None else log_append_time_ms
        )

    def check_acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the outcome of an append with acks=all that ended before `required_offset`.

        - None: the outcome is open, because the high watermark is below `required_offset`.
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
        """Read this partition for a Fetch, and note how far a follower has got.

        A follower gets records up to the log end, a consumer up to the high watermark.

        replica_id: the follower's broker id, -1 for a consumer.
        max_bytes: number of bytes that still fit into the answer. A Fetch reads several partitions.
        min_one_batch: True if no other partition has returned a batch so far. Then a batch is
            returned even if it is larger than `max_bytes`.
        update_fetch_state: False if the Fetch was held, because there was no new record when it
            arrived, and is read again now. The follower's progress was noted when the Fetch
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

        # As in Kafka, the answer has the high watermark from before this Fetch. If the Fetch raises
        # the high watermark, the follower learns of the new one only from its next Fetch.
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
        """Return NONE if this replica leads in the epoch that a request names, otherwise the error.

        An epoch of -1 stands for any epoch.
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
        """Return the answer to a Fetch for which this partition has no new record, otherwise None.

        This is a fast path, which the broker tries before `fetch`. A follower's Fetch names all its
        partitions, and usually only one of them has a new record. If the result is None, the broker
        must call `fetch`. Otherwise this call has noted the Fetch, and `fetch` is not needed.
        `now_us` is None if the Fetch was held and is read again. Then there is nothing to note.
        """
        if request.current_leader_epoch != self.leader_epoch or self.leader_id != self.broker_id:
            return None
        log = self.log
        if replica_id == CONSUMER:
            # A consumer that names the epoch of its last record wants to know whether this log has
            # diverged from what it read. Only `fetch` checks this.
            if (
                request.fetch_offset != log.high_watermark
                or request.last_fetched_epoch != NO_LEADER_EPOCH
            ):
                return None
        elif (
            request.fetch_offset != log.log_end_offset
            # A follower with an empty log names no epoch (-1). An empty log cannot diverge.
            or request.last_fetched_epoch not in (log.epochs.latest_epoch, NO_LEADER_EPOCH)
            # This condition must be the last one, because `stays_at_end` notes the Fetch.
            or not self._in_sync.stays_at_end(BrokerId(replica_id), replica_epoch, now_us)
        ):
            return None
        return self._nothing_new()

    def follower_counted_with(
        self, replica_id: int, shared: SharedFetchTime
    ) -> FollowerState | None:
        """Let a follower's state take the times of its Fetches from `shared`, and return the state.

        This saves time: `shared` stands for many partitions in which the follower only waits for
        new records. The shared times are right only as long as `fetch_nothing` would answer the
        Fetches. As soon as this partition changes, or the follower fetches from another offset, the
        caller must call `count_alone` of the returned state. The result is None if `replica_id` is
        no follower.
        """
        follower = self._in_sync.followers.get(BrokerId(replica_id))
        if follower is not None:
            follower.count_with(shared)
        return follower

    def isr_members_behind_for(self, longest_us: int, now_us: int) -> tuple[BrokerId, ...]:
        """Return the followers of the ISR that were last caught up more than `longest_us` ago.

        Checks of the simulated cluster call this. The result is empty if this replica does not
        lead.
        """
        return self._in_sync.members_behind_for(longest_us, now_us) if self.is_leader else ()

    def maybe_shrink_isr(self, now_us: int) -> IsrProposal | None:
        """Propose an ISR without the replicas that lag.

        The broker calls this every replica.lag.time.max.ms / 2. The result is None if no replica
        lags, if a proposal is in flight already, or if this replica does not lead. The ISR changes
        only when the controller has answered.

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
        """Apply the controller's answer to a proposed ISR.

        If the request got no answer, the caller passes a `response` with NETWORK_EXCEPTION.

        Source: Kafka Partition.submitAlterPartition, handleAlterPartitionError.
        """
        if self._in_sync.in_flight is not proposal:
            return AlterPartitionResult()  # newer metadata has arrived before
        if response.error_code is ErrorCode.INELIGIBLE_REPLICA:
            # Only this error proves that the controller has not applied the proposal.
            self._in_sync.revert()
            return AlterPartitionResult()
        if response.error_code is not ErrorCode.NONE:
            # The controller may have applied the proposal or not. So the proposal stays in flight
            # until another answer or newer metadata says which.
            return AlterPartitionResult(retry=response.error_code not in _GIVE_UP)
        if (
            response.leader_epoch != self.leader_epoch
            or response.partition_epoch < self.partition_epoch
        ):
            return AlterPartitionResult()  # this replica's metadata is newer than the answer

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
        """Return this follower's part of its broker's next Fetch, which begins at the log end."""
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
        """Append or truncate as the leader's answer to `request` says.

        The follower also takes over the leader's high watermark.

        If the leader or the end of this log has changed since the request, the answer is ignored.
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
        """Return the error of an append that this replica cannot accept now, otherwise NONE."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def _check_producer(self, batch: RecordBatch) -> AppendInfo | None:
        """Return None if a batch may be appended.

        Otherwise the batch is a duplicate, or does not follow the producer's last batch. Then
        return the result of the append.
        """
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
        """Append a batch, unless it is too large. The caller has made all other checks."""
        # `append_batch` has checked the size already, because Kafka checks the size before the
        # producer. The other callers have not checked it.
        size = batch.size_in_bytes
        if size > self._config.message_max_bytes:
            return AppendInfo(error=ErrorCode.MESSAGE_TOO_LARGE)
        if size > self._config.segment_bytes:
            return AppendInfo(error=ErrorCode.RECORD_LIST_TOO_LARGE)
        placed = self.log.append_batch_as_leader(batch, leader_epoch=self.leader_epoch)
        # If the leader is alone in the ISR, the batch is committed immediately.
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
        """Return the error of a Fetch that must get no records from this replica, or NONE."""
        epoch = request.current_leader_epoch
        error = self.check_leadership(epoch)
        if error is not ErrorCode.NONE:
            return error
        if replica_id == CONSUMER:
            return ErrorCode.NONE
        broker = BrokerId(replica_id)
        if broker not in self._in_sync.followers:
            # The broker that fetches may have been added to the replicas, and this leader does not
            # know this yet. After the error the broker fetches again later.
            if epoch == NO_LEADER_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_epoch != -1 and self._in_sync.registered_epoch(broker) > replica_epoch:
            # The follower has sent this Fetch before its restart, and may have lost records by the
            # restart. An old version of Fetch has no broker epoch (-1), so it cannot be checked.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _nothing_new(self) -> PartitionData:
        """Return the answer to a Fetch if there is no new record."""
        # Idle followers get this answer thousands of times, so the answer is kept and sent again. A
        # new answer is built if the high watermark or the leader epoch has changed. The other
        # fields never change: the log start does not move, and the leader is this broker.
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
        """Note how far a follower has got, and what follows for the ISR and the high watermark.

        Returns: a proposal to add the follower to the ISR, or None; and True if the high watermark
        moved.
        """
        follower = self._in_sync.followers[broker]
        previous_end_offset = follower.log_end_offset
        follower.update_fetch_state(
            fetch_offset=fetch_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_us=now_us,
        )
        # The proposal comes before the high watermark, for which the added follower must count.
        proposal = self._in_sync.propose_expansion(
            broker, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )
        # As in Kafka, the high watermark is computed only if the follower's log has grown.
        moved = (
            follower.log_end_offset != previous_end_offset
            and self._in_sync.maybe_increment_high_watermark(now_us)
        )
        return proposal, moved

    def _high_watermark_trace(self, moved: bool) -> tuple[TraceEvent, ...]:
        return high_watermark_moved(self.log, self.leader_epoch) if moved else ()
