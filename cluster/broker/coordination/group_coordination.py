"""Hosts the group coordinator: feeds it its inputs, one at a time, and carries out each Result.

An append may end while the Result that asked for it is still being carried out, and so may the
verification of a transaction: the outcome waits its turn, so that replies go out in the order in
which the coordinator gave them. So does news of a log, which only a coordinator gets that has
switches for it.
"""

from collections import deque
from dataclasses import dataclass

from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.broker.coordination.coordinator_metrics import COUNTED_GROUP_EVENTS, CoordinatorMetrics
from cluster.broker.coordination.unknown_partitions import UnknownPartitions, with_unknown
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.broker.transactions.transaction_verifier import TransactionVerifier
from cluster.host.host import Host
from cluster.host.keyed_timers import KeyedTimers
from cluster.spec import ClusterSpec
from coordinator.coordinator import GroupCoordinator
from coordinator.storage.above_high_watermark import LogPosition
from partition_log.replica import Partition
from protocol.api import GroupRequest
from protocol.effects import AppendCompleted, Result, TransactionVerified
from protocol.envelope import RequestEnvelope
from protocol.errors import InvariantViolation, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import JoinGroupRequest, SyncGroupRequest
from protocol.trace import TraceKind


@dataclass(frozen=True, slots=True)
class _LogMoved:
    partition: int
    position: LogPosition | None


_Outcome = AppendCompleted | TransactionVerified | _LogMoved


class GroupCoordination:
    """The coordinator of one broker incarnation on its Host."""

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
        self._appends = CoordinatorAppends(host, cluster, replicas, self._ended)
        self._verifier = TransactionVerifier(host, replicas, cache, self._ended)
        self._timers = KeyedTimers(host, self._timer_fired)
        self._has_gate = cluster.guards.high_watermark_gate
        self._completed: deque[_Outcome] = deque()
        self._is_busy = False
        self._unknown: dict[RequestId, UnknownPartitions] = {}
        if coordinator.follows_log:
            replicas.watch_offsets_logs(self._log_moved)

    def handle(
        self,
        request_id: RequestId,
        envelope: RequestEnvelope,
        unknown: UnknownPartitions | None = None,
    ) -> None:
        """Hand a group request to the coordinator.

        `unknown` are partitions that were taken out of it: they are put before its answer.
        """
        if unknown:
            self._unknown[request_id] = unknown
        self.carry_out(self.coordinator.handle(request_id, envelope, self._host.wall_us()))

    def loaded(self, partition: Partition) -> None:
        """Tell the coordinator, if it follows logs, how far that of a loaded partition goes."""
        if self.coordinator.follows_log:
            self._log_moved(partition)

    def partitions_deleted(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Tell the coordinator which partitions of topics there are no more."""
        self.carry_out(self.coordinator.partitions_deleted(partitions, self._host.wall_us()))

    def expire_offsets(self) -> None:
        """Look for offsets that offsets.retention.minutes no longer keeps, and tell of those."""
        result = self.coordinator.expire_offsets(self._host.wall_us())
        removed = sum(event.kind is TraceKind.OFFSET_REMOVED for event in result.trace)
        if removed:
            self._host.log(f"removed {removed} expired offsets")
        self.carry_out(result)

    def check_invariants(self) -> None:
        """Check what must hold between two inputs. Raises: InvariantViolation."""
        self.coordinator.check_invariants()
        self._check_unanswered()
        self._timers.require(self.coordinator.timers())

    def _check_unanswered(self) -> None:
        """The coordinator holds every request without an answer, but for what Kafka forgets too.

        A request that its member has sent again, over another connection, takes the place of the
        old one, which is never answered; nor is the SyncGroup of a member that was removed.
        """
        waiting = self.coordinator.waiting()
        left: dict[tuple[str, str], RequestId] = {}
        for request_id, envelope in self._host.unanswered():
            body = envelope.body
            if isinstance(body, SyncGroupRequest):
                group = self.coordinator.group(body.group_id)
                if group is None or body.member_id not in group.members:
                    continue
            if isinstance(body, JoinGroupRequest | SyncGroupRequest):
                member = body.member_id or body.group_instance_id or f"new {request_id}"
                left[envelope.api_key.label, member] = request_id
            elif isinstance(body, GroupRequest):
                left[envelope.api_key.label, f"request {request_id}"] = request_id
        for (api, of), request_id in left.items():
            if request_id not in waiting:
                raise InvariantViolation(
                    "a group request is answered, or the coordinator holds it",
                    f"nobody will ever answer {api} {request_id} of {of}",
                )

    def carry_out(self, result: Result) -> None:
        """Do what the coordinator asks for, and then what that brings about."""
        was_busy, self._is_busy = self._is_busy, True
        self._carry_out_one(result)
        if was_busy:
            return
        while self._completed:
            completed = self._completed.popleft()
            now_us = self._host.wall_us()
            match completed:
                case AppendCompleted():
                    result = self.coordinator.append_completed(completed, now_us)
                case TransactionVerified():
                    result = self.coordinator.transaction_verified(completed, now_us)
                case _LogMoved():
                    result = self.coordinator.log_moved(
                        completed.partition, completed.position, now_us
                    )
            self._carry_out_one(result)
        self._is_busy = False

    def _carry_out_one(self, result: Result) -> None:
        host = self._host
        for event in result.trace:
            host.trace(event)
            if event.kind in COUNTED_GROUP_EVENTS:
                self.metrics.observe(event)
        if result.timers:
            self._timers.apply(result.timers)
        for append in result.appends:
            self._appends.append(append)
        for asked in result.verifications:
            self._verifier.verify(asked)
        if result.sends:
            raise SimulationError(f"the group coordinator sends nothing, not {result.sends}")
        for reply in result.replies:
            response = reply.response
            if self._unknown:
                unknown = self._unknown.pop(reply.request_id, None)
                response = response if unknown is None else with_unknown(response, unknown)
            host.reply(reply.request_id, response)

    def _log_moved(self, partition: Partition) -> None:
        log = partition.log
        position = None
        if partition.is_leader:
            end = log.log_end_offset
            position = LogPosition(end, log.high_watermark if self._has_gate else end)
        self._ended(_LogMoved(partition.topic_partition.partition, position))

    def _ended(self, outcome: _Outcome) -> None:
        """Take what an earlier Result asked for, now or when the one at hand is carried out."""
        self._completed.append(outcome)
        if not self._is_busy:
            self.carry_out(_NOTHING)

    def _timer_fired(self, key: str) -> None:
        self.carry_out(self.coordinator.timer_fired(key, self._host.wall_us()))


_NOTHING = Result()
