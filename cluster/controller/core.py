"""The controller as a pure state machine: it takes a request or a timer, and returns one Result.

The controller decides about the metadata of the cluster: which brokers live, which topics exist,
and the leader and the ISR of each partition. It writes every change to the metadata log, and the
brokers read this log.

An input goes through these steps:

1. A function of another module, such as `alter_partition`, makes a Decision: records for the
   metadata log, and a response.
2. The records are appended to the log, and then replayed. Only the replay changes the `image`,
   which is the present metadata. So another controller that replays the same log has the same
   image, and can take over.
3. The response and everything else that must be done (timers, trace rows, answers to Fetches that
   waited for new records) are returned as a Result. ControllerNode carries out the Result.

Two things are not in the log, and are lost when the controller restarts: the time of each broker's
last heartbeat, and the Fetches that wait.

Source: Kafka `QuorumController`.
"""

from typing import TypeVar

from cluster.controller.administration import alter_partition_reassignments, elect_leaders
from cluster.controller.alter_partition import alter_partition
from cluster.controller.broker_control import BrokerControl
from cluster.controller.broker_liveness import BrokerLiveness
from cluster.controller.decision import Decision
from cluster.controller.election import elect_preferred_leader
from cluster.controller.invariants import check_image, check_sessions
from cluster.controller.metadata_fetches import TIMER_PREFIX as FETCH_TIMER_PREFIX
from cluster.controller.metadata_fetches import MetadataFetches
from cluster.controller.metadata_image import MetadataImage, PartitionRegistration
from cluster.controller.producer_ids import allocate_producer_ids
from cluster.controller.quorum_state import next_controller_epoch
from cluster.controller.topic_creation import create_missing_topics, handle_create_topics
from cluster.controller.topic_deletion import handle_delete_topics
from cluster.spec import ClusterSpec
from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from protocol.api import AnyResponse
from protocol.causes import PREFERRED_LEADER, TOPIC_CREATED
from protocol.effects import Reply, Result, SetTimer
from protocol.envelope import RequestEnvelope
from protocol.errors import InvariantViolation, SimulationError
from protocol.ids import BrokerId, LeaderEpoch, RequestId, TopicPartition, broker_name
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from protocol.messages.controller import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from protocol.messages.log import FetchRequest
from protocol.records.batch import decode_records
from protocol.records.metadata import (
    NO_LEADER,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.trace import TraceEvent, TraceKind

T = TypeVar("T")
R = TypeVar("R", bound=AnyResponse)

FENCE_TIMER = "maybe-fence-replicas"
"""Timer for the next moment at which the session of a broker may end. A name of Kafka."""
BALANCE_TIMER = "maybe-balance-partition-leaders"
"""Timer for the periodic election of preferred leaders. A name of Kafka."""


class ControllerCore:
    """The active controller.

    `log` is this controller's replica of the metadata log, `__cluster_metadata-0`.
    `controller_epoch` must be above every epoch in the log; None means the next epoch.
    """

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        cluster: ClusterSpec,
        log: PartitionLog,
        controller_epoch: LeaderEpoch | None = None,
    ) -> None:
        config = cluster.broker_config
        self.image = MetadataImage()
        """The image; only this class changes it, by replays."""
        self._cluster = cluster
        self._config = config
        self._log = log
        self.controller_epoch = (
            next_controller_epoch(log) if controller_epoch is None else controller_epoch
        )
        """The leader epoch of the records that this controller writes."""
        self._epoch_before = log.latest_epoch
        """The highest epoch in the log when this controller started."""
        self._liveness = BrokerLiveness(config.broker_session_timeout_ms * 1_000)
        self._brokers = BrokerControl(
            self.image,
            self._liveness,
            unclean_by_default=config.unclean_leader_election_enable,
        )
        self._fetches = MetadataFetches(log, controller_id, self.controller_epoch)
        self._fence_timer_set = False
        """True while FENCE_TIMER is set."""
        self._checked_up_to = 0
        """`end_offset` of the image at the last check of its invariants."""

    def start(self, now_us: int) -> Result:
        """Replay the log; every unfenced broker in it gets a full session."""
        log = self._log
        # One read returns a limited number of bytes, so a long log needs several reads.
        while self.image.end_offset < log.log_end_offset:
            batches = log.read(
                self.image.end_offset,
                self._config.replica_fetch_max_bytes,
                up_to=log.log_end_offset,
            )
            for batch in batches:
                for record in decode_records(batch.records):
                    self.image.replay(decode_metadata_record(record))
        # This controller does not know when each broker sent its last heartbeat.
        for broker in self.image.brokers.values():
            if not broker.fenced:
                self._liveness.touch(broker.broker_id, now_us)
        result = Result()
        self._schedule_fencing(result, now_us)
        if self._config.auto_leader_rebalance_enable:
            self._schedule_balancing(result)
        return result

    def handle(self, request_id: RequestId, envelope: RequestEnvelope, now_us: int) -> Result:
        """Handle a request; the Result has the reply, except for a Fetch that is parked.

        Raises: SimulationError for an API that controllers do not serve.
        """
        result = Result()
        match envelope.body:
            case FetchRequest() as request:
                self._fetches.handle(request_id, request, result)
            case BrokerHeartbeatRequest() as request:
                heartbeat = self._brokers.heartbeat(request, now_us)
                self._carry_out(request_id, heartbeat, result)
                if heartbeat.records:
                    # The topics in the cluster's spec are created when all brokers of the spec are
                    # active. This heartbeat may have activated the last broker.
                    self._create_topics(result)
            case BrokerRegistrationRequest() as request:
                self._carry_out(request_id, self._brokers.register(request, now_us), result)
            case AlterPartitionRequest() as request:
                self._carry_out(request_id, alter_partition(self.image, request), result)
            case AllocateProducerIdsRequest() as request:
                self._carry_out(request_id, allocate_producer_ids(self.image, request), result)
            case ElectLeadersRequest() as request:
                self._carry_out(request_id, elect_leaders(self.image, request), result)
            case AlterPartitionReassignmentsRequest() as request:
                self._carry_out(
                    request_id, alter_partition_reassignments(self.image, request), result
                )
            case CreateTopicsRequest() as request:
                self._carry_out(
                    request_id, handle_create_topics(self.image, self._config, request), result
                )
            case DeleteTopicsRequest() as request:
                self._carry_out(request_id, handle_delete_topics(self.image, request), result)
            case other:
                raise SimulationError(
                    f"a controller answers Fetch and ControllerRequest; "
                    f"{envelope.client_host} sent {type(other).__name__}"
                )
        # If this request is a heartbeat that has begun the first session, the timer must be set.
        self._schedule_fencing(result, now_us)
        return result

    def timer_fired(self, key: str, now_us: int) -> Result:
        """Handle the firing of the timer `key`, set by an earlier Result."""
        result = Result()
        if key == FENCE_TIMER:
            self._fence_timer_set = False
            # Stale brokers are fenced one after the other, because each decision depends on the
            # image after the previous decision.
            while (decision := self._brokers.fence_stale_broker(now_us)) is not None:
                self._write(decision, result)
            self._schedule_fencing(result, now_us)
        elif key == BALANCE_TIMER:
            self._balance_leaders(result)
            self._schedule_balancing(result)
        elif key.startswith(FETCH_TIMER_PREFIX):
            self._fetches.wait_ended(key, result)
        else:
            raise SimulationError(f"the controller never set a timer {key!r}")
        return result

    def waiting(self) -> frozenset[RequestId]:
        """Return the requests that a later Result will answer: the parked Fetches."""
        return self._fetches.waiting()

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check all invariants between two inputs; `start` must have been called.

        If `thoroughly`, the log is read and checked, too.

        Raises: InvariantViolation.
        """
        # Checking the image is slow, and only a replay changes the image and its end offset.
        if self._checked_up_to != self.image.end_offset:
            self._checked_up_to = self.image.end_offset
            check_image(self.image)
        if self.controller_epoch <= self._epoch_before:
            raise InvariantViolation(
                "a controller's epoch is above those in its log",
                f"{self.controller_epoch}, the log was in {self._epoch_before} when it began",
            )
        if thoroughly:
            check_log(self._log)
        check_sessions(
            self.image,
            self._liveness.tracked(),
            self._liveness.shutting_down(),
            is_timer_set=self._fence_timer_set,
        )

    # -- decisions without a request --

    def _create_topics(self, result: Result) -> None:
        """Create the missing topics of the cluster's spec, once all its brokers are active.

        Without a missing topic, or before that moment, there are no records to write.
        """
        records = create_missing_topics(self.image, self._cluster.topics, self._cluster.brokers)
        # The None is the response: no request waits for one.
        self._write(Decision(None, records=records, reason=TOPIC_CREATED), result)

    def _balance_leaders(self, result: Result) -> None:
        """Make the preferred replica of each partition its leader, where this is possible."""
        decision = Decision(None, reason=PREFERRED_LEADER)
        for name, partition in self.image.partitions():
            record = elect_preferred_leader(
                name, partition, is_acceptable_leader=self.image.is_active
            )
            if record is not None:
                decision.records.append(record)
        self._write(decision, result)

    # -- the log --

    def _carry_out(self, request_id: RequestId, decision: Decision[R], result: Result) -> None:
        """Write the records of a decision, and reply only after that."""
        self._write(decision, result)
        result.replies.append(Reply(request_id=request_id, response=decision.response))

    def _write(self, decision: Decision[T], result: Result) -> None:
        """Append the records of `decision` as one batch, sync the log, and replay the records.

        As in KRaft, the records are on the disk before any broker can read them. So a record that a
        broker has read survives a loss of power.
        """
        if decision.records:
            self._log.append_as_leader(
                tuple(encode_metadata_record(record) for record in decision.records),
                leader_epoch=self.controller_epoch,
            )
            self._log.flush()
        # These events come before the events of the replay. So in the trace, the cause (a fenced
        # broker) comes before its effects (new leaders).
        result.trace.extend(decision.trace)
        for record in decision.records:
            self._replay(record, decision.reason, result)
        if decision.records:
            self._fetches.log_grew(result)

    def _replay(self, record: MetadataRecord, reason: str, result: Result) -> None:
        """Apply a record to the image; trace a new leader or ISR with `reason`."""
        match record:
            case PartitionRecord() | PartitionChangeRecord():
                name = TopicPartition(record.topic, record.partition_id)
                before = self.image.partition(name)
                self.image.replay(record)
                after = self.image.partition(name)
                if after is not None:  # only for mypy: the replay has created it or changed it
                    result.trace.extend(_partition_events(name, before, after, reason))
            case _:
                self.image.replay(record)

    # -- timers --

    def _schedule_fencing(self, result: Result, now_us: int) -> None:
        """Set the timer for the end of the session that ends first, unless it is set already.

        A heartbeat does not move the timer, although the session then ends later. The timer fires
        too early, finds no stale broker, and is set again.
        """
        next_check_us = self._liveness.next_check_us()
        if self._fence_timer_set or next_check_us is None:
            return
        self._fence_timer_set = True
        result.timers.append(SetTimer(key=FENCE_TIMER, delay_us=max(0, next_check_us - now_us)))

    def _schedule_balancing(self, result: Result) -> None:
        interval_us = self._config.leader_imbalance_check_interval_seconds * 1_000_000
        result.timers.append(SetTimer(key=BALANCE_TIMER, delay_us=interval_us))


def _partition_events(
    name: TopicPartition,
    before: PartitionRegistration | None,
    after: PartitionRegistration,
    reason: str,
) -> list[TraceEvent]:
    """Return the trace events of a partition that was created (`before` None) or changed."""
    events = []
    partition = str(name)
    isr = list(after.isr)
    # A new leader epoch may also mean that the partition has lost its leader.
    if before is None or after.leader_epoch != before.leader_epoch:
        detail: dict[str, object] = {"isr": isr, "reason": reason}
        # A leader that was not in the ISR may lack acknowledged records: an unclean election.
        if before is not None and after.leader != NO_LEADER and after.leader not in before.isr:
            detail["unclean"] = True
        events.append(
            TraceEvent(
                kind=TraceKind.LEADER_ELECTED,
                partition=partition,
                leader_epoch=after.leader_epoch,
                peer="" if after.leader == NO_LEADER else broker_name(after.leader),
                detail=detail,
            )
        )
    if before is not None and after.isr != before.isr:
        events.append(
            TraceEvent(
                kind=TraceKind.ISR_CHANGED,
                partition=partition,
                leader_epoch=after.leader_epoch,
                detail={"isr": isr, "partition_epoch": after.partition_epoch},
            )
        )
    return events
