"""GroupCoordination connects the group coordinator with the broker around it.

The coordinator (package `coordinator`) is a pure state machine, without a clock and connections. It
gets one input at a time, such as a request or a timer that fired, and returns a Result: the replies
to send, the records to append, the timers to set, the trace rows to write and so on.
GroupCoordination passes the inputs to the coordinator, and carries out the Results.

While a Result is carried out, new inputs may arise; for example, an append may be complete
immediately. Such an input waits in a queue until the current Result has been carried out, so that
replies leave in the order in which the coordinator gave them.

Kafka also has a newer coordinator, which is written in Java. A coordinator that imitates it gets
one more kind of input: that the end or the high watermark of an offsets partition's log has moved
(`follows_log`).
"""

from collections import deque
from dataclasses import dataclass

from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.broker.coordination.coordinator_metrics import COUNTED_GROUP_EVENTS, CoordinatorMetrics
from cluster.broker.coordination.unknown_partitions import UnknownPartitions, with_unknown
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.broker.transactions.transaction_verifier import TransactionVerifier
from cluster.host.host import Host, Timer
from cluster.host.keyed_timers import KeyedTimers
from cluster.spec import ClusterSpec
from coordinator.coordinator import GroupCoordinator
from coordinator.storage.above_high_watermark import LogPosition
from partition_log.replica import Partition
from protocol.api import AnyRequest, GroupRequest, error_of
from protocol.effects import AppendCompleted, Result, TransactionVerified
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode, InvariantViolation, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import JoinGroupRequest, SyncGroupRequest
from protocol.trace import TraceKind


@dataclass(frozen=True, slots=True)
class _LogMoved:
    """The input that the end or the high watermark of an offsets partition's log has moved."""

    partition: int
    position: LogPosition | None
    """The end and the high watermark of the log; None if this broker does not lead the partition.
    """


_Outcome = AppendCompleted | TransactionVerified | _LogMoved
"""An input that may arise while a Result is carried out."""


class GroupCoordination:
    """The group coordinator of one incarnation of a broker, with its inputs and Results."""

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        replicas: ReplicaManager,
        cache: MetadataCache,
        coordinator: GroupCoordinator,
    ) -> None:
        self.coordinator = coordinator
        self.metrics = CoordinatorMetrics(
            host, coordinator, interval_us=cluster.metrics_interval_us
        )
        self._host = host
        self._appends = CoordinatorAppends(host, cluster, replicas, self._feed)
        self._verifier = TransactionVerifier(host, replicas, cache, self._feed)
        self._timers = KeyedTimers(host, self._timer_fired)
        # An experiment may switch off single checks of Kafka, called guards. With this guard, a
        # record counts as committed only when the high watermark has passed it.
        self._has_gate = cluster.guards.high_watermark_gate
        self._outcomes: deque[_Outcome] = deque()
        """Inputs that wait until the current Result is carried out."""
        self._is_busy = False
        """True while `carry_out` runs."""
        self._unknown: dict[RequestId, UnknownPartitions] = {}
        """Request without an answer -> the partitions in it that do not exist."""
        self._replaced: set[RequestId] = set()
        """JoinGroup and SyncGroup requests that a later request of the same member replaced.

        A replaced request may never be answered. `_check_unanswered` removes a request from this
        set once the request is answered or its connection has ended.
        """
        self._violation: InvariantViolation | None = None
        """The first invariant that was found violated; `check_invariants` raises it."""
        if coordinator.follows_log:
            replicas.watch_offsets_logs(self._log_moved)

    def handle(
        self,
        request_id: RequestId,
        envelope: RequestEnvelope,
        unknown: UnknownPartitions | None = None,
    ) -> None:
        """Pass a group request to the coordinator.

        `unknown` are partitions that do not exist. BrokerApi has removed them from the request;
        their errors are added to the coordinator's answer.
        """
        if unknown:
            self._unknown[request_id] = unknown
        # The coordinator holds at most one JoinGroup and one SyncGroup of each member. If it held
        # an earlier request of this member, and does not hold it after `handle`, then the earlier
        # request was answered or replaced. (An answered request does no harm in `_replaced`.)
        held = self._held_of_sender(envelope.body)
        self.carry_out(self.coordinator.handle(request_id, envelope, self._host.wall_us()))
        if held is not None and self._held_of_sender(envelope.body) != held:
            self._replaced.add(held)

    def loaded(self, partition: Partition) -> None:
        """Pass the end of a loaded partition's log to the coordinator, if it follows logs."""
        if self.coordinator.follows_log:
            self._log_moved(partition)

    def partitions_deleted(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Report deleted partitions of any topic to the coordinator."""
        self.carry_out(self.coordinator.partitions_deleted(partitions, self._host.wall_us()))
        self._check_deleted(partitions)

    def expire_offsets(self) -> None:
        """Remove offsets older than offsets.retention.minutes, and log their number."""
        result = self.coordinator.expire_offsets(self._host.wall_us())
        # Each removed offset has one trace event.
        removed = sum(event.kind is TraceKind.OFFSET_REMOVED for event in result.trace)
        if removed:
            self._host.log(f"removed {removed} expired offsets")
        self.carry_out(result)

    def timer(self, key: str) -> Timer | None:
        """Return the coordinator's pending timer with this key; to read only."""
        return self._timers.pending(key)

    def check_invariants(self) -> None:
        """Check all invariants between two inputs. Raises: InvariantViolation."""
        if self._violation is not None:
            raise self._violation
        self.coordinator.check_invariants()
        self._check_unanswered()
        self._timers.require(self.coordinator.timers())

    def _held_of_sender(self, body: AnyRequest) -> RequestId | None:
        """Return the request of the same type and member as `body` that the coordinator holds.

        Returns None if there is none, and for a `body` that is neither a JoinGroup nor a SyncGroup.
        """
        if not isinstance(body, JoinGroupRequest | SyncGroupRequest):
            return None
        group = self.coordinator.group(body.group_id)
        member = None if group is None else group.members.get(body.member_id)
        if member is None:
            return None
        if isinstance(body, SyncGroupRequest):
            return member.awaiting_sync
        return None if member.awaiting_join is None else member.awaiting_join.request_id

    def _check_unanswered(self) -> None:
        """Check that the coordinator holds every unanswered group request of a live connection.

        As in Kafka, two kinds of requests are never answered, so the coordinator need not hold
        them:
        1. requests that a later request of the same member has replaced (`_replaced`);
        2. the SyncGroup of a member that was removed from the group.
        """
        waiting = self.coordinator.waiting()
        unanswered: set[RequestId] = set()
        for request_id, envelope, is_connected in self._host.unanswered():
            body = envelope.body
            if not isinstance(body, GroupRequest) or not is_connected:
                continue
            unanswered.add(request_id)
            if request_id in waiting or request_id in self._replaced:
                continue
            if isinstance(body, SyncGroupRequest):
                group = self.coordinator.group(body.group_id)
                if group is None or body.member_id not in group.members:
                    continue  # the member was removed
            raise InvariantViolation(
                "a group request is answered, or the coordinator holds it",
                f"{envelope.api_key.label} {request_id} of {envelope.client_id} has no answer, and "
                "the coordinator lacks it",
            )
        self._replaced &= unanswered

    def _check_deleted(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Check that no loaded group still has an offset of a deleted partition."""
        for summary in self.coordinator.groups():
            group = self.coordinator.group(summary.group_id)
            if group is None:
                continue  # the group is being loaded
            kept = [str(name) for name in partitions if group.offsets.latest(name) is not None]
            if kept:
                self._note(
                    "a group has no offsets of a deleted topic",
                    f"{group.group_id} still has offsets of {', '.join(kept)}",
                )

    def _check_outcome(self, completed: AppendCompleted, result: Result) -> None:
        """Check that no request is answered with success because of an append that failed."""
        if completed.error is ErrorCode.NONE:
            return
        for reply in result.replies:
            if error_of(reply.response) == ErrorCode.NONE.name:
                self._note(
                    "a failed append is not answered with success",
                    f"append {completed.append_id} ended with {completed.error.name}, and its "
                    f"answer is a {type(reply.response).__name__} with NONE",
                )

    def _note(self, rule: str, evidence: str) -> None:
        """Keep the first violation, which the next call of `check_invariants` raises."""
        if self._violation is None:
            self._violation = InvariantViolation(rule, evidence)

    def carry_out(self, result: Result) -> None:
        """Carry out a Result; then handle all inputs that arose meanwhile, in the same way."""
        was_busy, self._is_busy = self._is_busy, True
        self._carry_out_one(result)
        if was_busy:
            return  # Another call of `carry_out` is running, and will handle the queue.
        while self._outcomes:
            outcome = self._outcomes.popleft()
            now_us = self._host.wall_us()
            match outcome:
                case AppendCompleted():
                    result = self.coordinator.append_completed(outcome, now_us)
                    self._check_outcome(outcome, result)
                case TransactionVerified():
                    result = self.coordinator.transaction_verified(outcome, now_us)
                case _LogMoved():
                    result = self.coordinator.log_moved(outcome.partition, outcome.position, now_us)
            self._carry_out_one(result)
        self._is_busy = False

    def _carry_out_one(self, result: Result) -> None:
        """Carry out a Result: trace rows, timers, appends, verifications, and only then replies.

        `protocol.effects` demands this order.
        """
        host = self._host
        for event in result.trace:
            host.trace(event)
            if event.kind in COUNTED_GROUP_EVENTS:
                self.metrics.observe(event)
        if result.timers:
            self._timers.apply(result.timers)
        for append in result.appends:
            self._appends.append(append)
        for verification in result.verifications:
            self._verifier.verify(verification)
        if result.sends:
            raise SimulationError(f"the group coordinator sends nothing, not {result.sends}")
        for reply in result.replies:
            response = reply.response
            if self._unknown:
                unknown = self._unknown.pop(reply.request_id, None)
                response = response if unknown is None else with_unknown(response, unknown)
            host.reply(reply.request_id, response)

    def _log_moved(self, partition: Partition) -> None:
        """Pass the position of an offsets partition's log to the coordinator, as an input."""
        log = partition.log
        position = None
        if partition.is_leader:
            end = log.log_end_offset
            # The second argument is the offset below which records count as committed. Without the
            # guard, this is the end of the log.
            position = LogPosition(end, log.high_watermark if self._has_gate else end)
        self._feed(_LogMoved(partition.topic_partition.partition, position))

    def _feed(self, outcome: _Outcome) -> None:
        """Queue an input that an earlier Result caused; handle it now unless `carry_out` runs."""
        self._outcomes.append(outcome)
        if not self._is_busy:
            self.carry_out(_EMPTY_RESULT)  # handles the queue

    def _timer_fired(self, key: str) -> None:
        """Pass a timer that fired to the coordinator; a timer never fires during `carry_out`."""
        self.carry_out(self.coordinator.timer_fired(key, self._host.wall_us()))


_EMPTY_RESULT = Result()
"""The Result with which `_feed` calls `carry_out`, which then handles the queue."""
