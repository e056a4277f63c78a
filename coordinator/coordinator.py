"""GroupCoordinator: the class through which a broker uses the group coordinator.

The coordinator does no I/O and reads no clock. Whenever something happens, the broker calls one of
its methods: a request has arrived, an append has completed, a timer has fired, a partition must be
loaded. The method passes this input on to the module of its API, and returns a Result: the replies,
appends and timers that the broker must now carry out. The handling of one input is called a turn.

For example, a consumer commits an offset. The broker calls `handle`, and the Result asks for an
append to `__consumer_offsets`. When the log has acknowledged the record, the broker calls
`append_completed`. The Result of this second turn has the reply to the consumer.

A broker coordinates the groups of those partitions of `__consumer_offsets` that it leads. When it
becomes the leader of a partition, a load reads the partition's log and builds the groups in memory.
From then on the broker owns the partition, and a Shard keeps its groups. When it loses the
leadership, an unload drops them.

Source: Kafka `GroupCoordinator`, `GroupMetadataManager` (scala); docs/kafka/BEHAVIOUR.md. Kafka has
two group coordinators, an old one in Scala and a new one in Java. [S] marks a rule of the Scala
coordinator, which is the default here, and [J] a rule of the Java coordinator.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coordinator.apis.delete_groups import handle_delete_groups
from coordinator.apis.describe_groups import handle_describe_groups
from coordinator.apis.heartbeat import handle_heartbeat
from coordinator.apis.join_group import handle_join_group
from coordinator.apis.leave_group import for_version, handle_leave_group
from coordinator.apis.list_groups import handle_list_groups
from coordinator.apis.offset_commit import (
    handle_offset_commit,
    late_commits_committed,
    offsets_stored,
)
from coordinator.apis.offset_delete import handle_offset_delete
from coordinator.apis.offset_fetch import handle_offset_fetch
from coordinator.apis.sync_group import assignment_stored, handle_sync_group
from coordinator.apis.txn_offset_commit import (
    complete_transaction,
    handle_txn_offset_commit,
    transaction_verified,
    transactional_offsets_stored,
)
from coordinator.delayed import cancel_all, restart_session_timer
from coordinator.errors import UnknownServerError
from coordinator.group import Group
from coordinator.invariants import check_appends, check_shards, waiting_requests
from coordinator.rebalance import RebalanceReason, prepare_rebalance
from coordinator.replies import answer_parked_sync, fail_parked_join, join_error
from coordinator.shard import Shard, Shards
from coordinator.states import GroupState
from coordinator.static_member import static_member_stored
from coordinator.storage.above_high_watermark import LogPosition
from coordinator.storage.held_writes import fail_held, give_up, release_committed
from coordinator.storage.load import Load, LoadReport
from coordinator.storage.offset_retention import MS_PER_MINUTE, expired_offsets
from coordinator.storage.tombstones import clean_up
from coordinator.timer_handlers import expire
from coordinator.turn import (
    AssignmentAppend,
    EmptyGroupAppend,
    HeldWriteTimer,
    JoinTimer,
    OffsetsAppend,
    Shared,
    StaticMemberAppend,
    SyncTimer,
    TransactionalOffsetsAppend,
    Turn,
)
from coordinator.validation import check_group_status
from protocol.api import AnyResponse, GroupRequest
from protocol.causes import DeletionCause, GroupStateCause, IgnoredCause, RebalanceCause
from protocol.compression import NO_CODECS, Codecs
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.effects import AppendCompleted, Result, TransactionVerified
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import NO_LEADER_EPOCH, AppendId, RequestId, TopicPartition, offsets_partition
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from protocol.metadata_version import metadata_version, value_versions
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind

SCALA = JavaSwitches()
"""The default. Each switch replaces one behaviour of Kafka's Scala coordinator by that of the Java
coordinator. Here all switches are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadIgnored:
    """Returned in place of a Result by a load or unload that the coordinator has ignored.

    `known_epoch` is the newest leader epoch that the coordinator has seen for the partition. The
    usual reason is that the load or unload belongs to an older epoch and has arrived late.
    """

    reason: IgnoredCause
    known_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A copy of a group's most important fields, for callers outside this package."""

    group_id: str
    partition: int
    state: GroupState
    generation: int
    members: tuple[str, ...]
    leader: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSizes:
    """How much the coordinator has in memory, as Kafka's gauges show it.

    - `groups`: number of groups in each state. A state without groups has no entry.
    - `offsets`: number of committed offsets of all groups together.
    - `heartbeats`: number of timers that wait for a member, or for the client of a pending id.
    - `rebalances`: number of timers that wait for the end of a join or sync phase.
    """

    groups: dict[GroupState, int]
    offsets: int
    heartbeats: int
    rebalances: int


class GroupCoordinator:
    """The group coordinator of one broker process.

    A broker that restarts gets a new coordinator, which has nothing in memory.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        guards: Guards,
        num_offsets_partitions: int,
        new_uuid: Callable[[], str],
        java: JavaSwitches = SCALA,
        codecs: Codecs = NO_CODECS,
    ) -> None:
        """Create a coordinator that owns no partition yet.

        `guards` are checks of Kafka that an experiment can switch off, to see what they prevent.
        `codecs` decompress the record batches that a load reads from the log.
        """
        self._codecs = codecs
        self._shared = Shared(
            config=config,
            guards=guards,
            java=java,
            new_uuid=new_uuid,
            versions=value_versions(metadata_version(config.inter_broker_protocol_version)),
        )
        self._shards = Shards(num_offsets_partitions)
        self._guards = guards
        self._is_active = True

    # -- requests, appends, timers --

    def handle(self, request_id: RequestId, envelope: RequestEnvelope, now_us: int) -> Result:
        """Handle a group request.

        The Result has the answer only if the answer need not wait for anything. Otherwise a later
        Result has the answer, for example the Result of `append_completed`. A few requests never
        get an answer, because Kafka does not answer them either (BEHAVIOUR 0.1).

        Raises: SimulationError if another API's request is in the envelope.
        """
        turn = Turn(self._shared, now_us)
        body = envelope.body
        if not isinstance(body, GroupRequest):
            raise SimulationError(f"{envelope.api_key.label} is not the group coordinator's")
        try:
            self._dispatch(turn, request_id, body, envelope)
        except UnknownServerError:
            self._mark_answered(body, request_id)
            # The handler may have answered the request before it failed:
            # 1. The group is full, so the handler refuses a JoinGroup and removes its member.
            # 2. The join phase waited only for this member, so the phase is complete now.
            # 3. The next generation cannot begin, because a member's subscription is corrupt. This
            #    raises the exception.
            # Kafka ignores a second answer to a request, so none is sent here.
            if all(reply.request_id != request_id for reply in turn.result.replies):
                turn.reply(request_id, _server_error(body, envelope.api_version))
        return turn.result

    def append_completed(self, completed: AppendCompleted, now_us: int) -> Result:
        """Continue after an append that an earlier Result requested.

        Raises: SimulationError if no such append is in flight.
        """
        turn = Turn(self._shared, now_us)
        pending = self._shared.in_flight.take_append(completed.append_id)
        match pending:
            case AssignmentAppend():
                assignment_stored(turn, completed.append_id, pending, completed.error)
            case StaticMemberAppend():
                static_member_stored(turn, pending, completed.error)
            case OffsetsAppend():
                # The shard is None if the partition was unloaded while the append was in flight.
                shard = self._shards.owned.get(pending.group.partition)
                offsets_stored(turn, shard, pending, completed)
            case TransactionalOffsetsAppend():
                transactional_offsets_stored(turn, pending, completed)
            case EmptyGroupAppend():
                # There is nothing to do, even after a failure, which Kafka only writes to its log
                # file. After a failure, the partition's log still says that the group has its
                # former members. The next load adds these members to the group again. They have
                # left and send no heartbeats, so their sessions expire soon after the load.
                pass
        return turn.result

    def transaction_verified(self, verified: TransactionVerified, now_us: int) -> Result:
        """Continue after a verification that an earlier Result requested.

        Raises: SimulationError if no such verification is under way.
        """
        turn = Turn(self._shared, now_us)
        pending = self._shared.verifications.pop(verified.verification_id, None)
        if pending is None:
            raise SimulationError(f"verification {verified.verification_id} is not under way")
        transaction_verified(turn, pending, verified)
        return turn.result

    def transaction_completed(
        self, producer_id: int, partitions: Iterable[int], *, is_commit: bool, now_us: int
    ) -> Result:
        """End a producer's transaction in memory, after its markers were written to `partitions`.

        Groups of these partitions may have committed offsets in the transaction. These offsets
        count from now on, or are dropped if the transaction was aborted. Partitions that this
        coordinator does not own are skipped. If it loads them later, the load reads the marker from
        the log.
        """
        turn = Turn(self._shared, now_us)
        for partition in partitions:
            shard = self._shards.owned.get(partition)
            if shard is not None:
                complete_transaction(turn, shard, producer_id, is_commit=is_commit)
        return turn.result

    def timer_fired(self, key: str, now_us: int) -> Result:
        """Do what the timer `key` was started for. A timer that was cancelled does nothing."""
        turn = Turn(self._shared, now_us)
        timer = self._shared.in_flight.take_timer(key)
        if isinstance(timer, HeldWriteTimer):
            give_up(turn, timer.shard, key)
        elif timer is not None:
            try:
                expire(turn, timer)
            except UnknownServerError:
                # Kafka's timer thread logs the exception. The join phase that the timer should
                # have completed then hangs, in Kafka and here (BEHAVIOUR 0.1).
                return turn.result
        return turn.result

    @property
    def follows_log(self) -> bool:
        """True if the broker must call `log_moved` whenever the log of an owned partition grows.

        Only two switches of the Java coordinator need these calls. With either switch, an answer
        may wait for the high watermark, and only the broker sees the high watermark move.
        """
        java = self._shared.java
        return java.heartbeats_wait_for_writes or java.commits_apply_on_append

    def log_moved(self, partition: int, position: LogPosition | None, now_us: int) -> Result:
        """Answer the requests that waited for the log of `partition` to reach `position`.

        The broker calls this only if `follows_log` is True: after a load, and whenever the log's
        end or its high watermark has moved. If this broker no longer leads the partition,
        `position` is None, and the waiting requests fail with NOT_COORDINATOR. A partition that is
        not owned is skipped.
        """
        turn = Turn(self._shared, now_us)
        shard = self._shards.owned.get(partition)
        # Once the position is None, it stays None until the partition is unloaded and loaded again.
        # There was another leader, which may have truncated records that the waiting requests saw.
        # So a high watermark beyond the offsets of these records would not prove that they are
        # committed.
        if shard is None or shard.above_high_watermark.position is None:
            return turn.result
        shard.above_high_watermark.position = position
        if position is None:
            fail_held(turn, shard)
        else:
            late_commits_committed(turn, shard, position.high_watermark)
            release_committed(turn, shard)
        return turn.result

    def expire_offsets(self, now_us: int) -> Result:
        """Delete offsets older than offsets.retention.minutes, and groups without any offset.

        The broker calls this every offsets.retention.check.interval.ms.
        """
        turn = Turn(self._shared, now_us)
        retention_ms = turn.config.offsets_retention_minutes * MS_PER_MINUTE
        for shard in self._shards.owned.values():
            # A copy, because `clean_up` removes Empty groups without offsets from the shard.
            for group in tuple(shard.groups.values()):
                expired = expired_offsets(group, now_ms=turn.now_ms, retention_ms=retention_ms)
                clean_up(turn, shard, group, expired, cause=DeletionCause.EXPIRED)
        return turn.result

    def partitions_deleted(self, partitions: tuple[TopicPartition, ...], now_us: int) -> Result:
        """Delete every group's offsets of partitions whose topic was deleted.

        Source: Kafka `GroupCoordinator.handleDeletedPartitions`; BEHAVIOUR 2.13, 0.1.
        """
        turn = Turn(self._shared, now_us)
        for shard in self._shards.owned.values():
            # As in Kafka, every group is cleaned up, even one that has no offset of the deleted
            # partitions. A side effect is that each Empty group without any offset is removed.
            # The tuple is a copy, because `clean_up` removes such groups from the shard.
            for group in tuple(shard.groups.values()):
                clean_up(turn, shard, group, partitions, cause=DeletionCause.TOPIC_DELETED)
        return turn.result

    # -- load and unload --

    def begin_load(self, partition: int, leader_epoch: int, now_us: int) -> Result | LoadIgnored:
        """Begin a load; until it ends, groups of `partition` answer COORDINATOR_LOAD_IN_PROGRESS.

        The load is ignored if the coordinator has already seen a newer leader epoch of the
        partition, or if the partition is loading or loaded already. With the switch
        `failed_load_refuses` [J] it is also ignored if a load in the same epoch has failed.
        """
        shards = self._shards
        if not self._accepts_epoch(partition, leader_epoch):
            return self._ignored(partition, IgnoredCause.STALE_LEADER_EPOCH)
        if partition in shards.owned or partition in shards.loading:
            return self._ignored(partition, IgnoredCause.ALREADY_LOADED)
        if leader_epoch <= shards.failed.get(partition, NO_LEADER_EPOCH):
            return self._ignored(partition, IgnoredCause.LOAD_FAILED)
        shards.failed.pop(partition, None)
        shards.loading[partition] = Load(partition, leader_epoch, self._codecs)
        # This Result has no effects. But since it is no LoadIgnored, the broker now reads the log.
        return Turn(self._shared, now_us).result

    def load_batches(self, partition: int, batches: tuple[RecordBatch, ...]) -> Result:
        """Read the next batches of the log into the running load of `partition`.

        The broker passes the log in chunks, in the order of offsets.

        Raises: SimulationError if the partition is not loading.
        """
        self._loading(partition).read(batches)
        return Result()  # empty, because the effects of a load are in the Result of finish_load

    def finish_load(self, partition: int, now_us: int, *, stopped: str | None = None) -> Result:
        """Build the groups from what was read, and serve `partition` from now on.

        Every member gets a full session timeout. `stopped` is None if the log was read to its end.
        Otherwise it says why the broker stopped reading, for example because it no longer leads the
        partition.

        Raises: SimulationError if the partition is not loading.
        """
        turn = Turn(self._shared, now_us)
        shards = self._shards
        load = self._loading(partition)
        groups = load.finish(now_us)
        del shards.loading[partition]

        # A load may have been stopped before the end of the log, or have met an unreadable record.
        # - The Scala coordinator serves the partition all the same. If the load was stopped, the
        #   partition has the groups read so far. If a record was unreadable, the partition has no
        #   groups. The coordinator answers an OffsetFetch of a missing group with offset -1, as if
        #   nothing had ever been committed.
        # - The Java coordinator (switch `failed_load_refuses`) does not serve the partition, and
        #   clients get NOT_COORDINATOR.
        refuses = self._shared.java.failed_load_refuses
        error = load.error
        if refuses and error is None:
            error = stopped
        shards.load_reports[partition] = LoadReport(
            error=error, unknown_records=load.unknown_records
        )
        if refuses and error is not None:
            shards.failed[partition] = load.leader_epoch
            return turn.result

        shard = Shard(partition)
        shards.owned[partition] = shard
        for group in groups:
            # The markers of transactions that are still open will come later. A marker names its
            # producer but no group, so the shard must know which groups wait for this producer.
            for producer_id in group.offsets.producers():
                shard.add_producer(producer_id, group)
            _group_loaded(turn, shard.add(group))
        return turn.result

    def unload(self, partition: int, leader_epoch: int | None, now_us: int) -> Result | LoadIgnored:
        """Forget `partition`: its groups become Dead, parked requests fail with NOT_COORDINATOR.

        A request is parked while it waits for the end of a join or sync phase. A request that waits
        for an append is answered when the append completes.

        The unload is ignored if the coordinator has already seen a newer leader epoch of the
        partition. `leader_epoch` is None if this broker's replica was deleted. Such an unload is
        never ignored, and does not change the newest epoch seen.
        """
        if leader_epoch is not None and not self._accepts_epoch(partition, leader_epoch):
            return self._ignored(partition, IgnoredCause.STALE_LEADER_EPOCH)
        turn = Turn(self._shared, now_us)
        shard = self._shards.owned.pop(partition, None)
        self._shards.loading.pop(partition, None)
        self._shards.failed.pop(partition, None)
        if shard is not None:
            for group in shard.groups.values():
                _group_unloaded(turn, group)
            fail_held(turn, shard)
        return turn.result

    def shut_down(self) -> None:
        """Refuse every later request with COORDINATOR_NOT_AVAILABLE."""
        self._is_active = False

    # -- queries: nothing below changes the coordinator --

    def load_report(self, partition: int) -> LoadReport | None:
        """Return the outcome of the last load of `partition`, None if no load has ended yet."""
        return self._shards.load_reports.get(partition)

    def load_error(self, partition: int) -> str | None:
        """Return `LoadReport.error` of the last load of `partition`; None before the first load."""
        report = self._shards.load_reports.get(partition)
        return None if report is None else report.error

    def is_loading(self, partition: int) -> bool:
        """Return True if `partition` is between begin_load and finish_load."""
        return partition in self._shards.loading

    def is_owned(self, partition: int) -> bool:
        """Return True if this broker serves the groups of `partition`."""
        return partition in self._shards.owned

    def partition_of(self, group_id: str) -> int:
        """Return the offsets partition of a group."""
        return self._shards.partition_of(group_id)

    def groups(self) -> tuple[GroupSummary, ...]:
        """Return every cached group.

        Partitions come in the order of their loads, and a partition's groups in the order in which
        they were created.
        """
        return tuple(
            GroupSummary(
                group_id=group.group_id,
                partition=group.partition,
                state=group.state,
                generation=group.generation_id,
                members=tuple(group.members),
                leader=group.leader_id,
            )
            for group in self._shards.groups()
        )

    def sizes(self) -> CoordinatorSizes:
        """Count groups, offsets and timers."""
        groups: dict[GroupState, int] = {}
        offsets = 0
        for group in self._shards.groups():
            groups[group.state] = groups.get(group.state, 0) + 1
            offsets += len(group.offsets)
        # A HeldWriteTimer ends a request's wait for the high watermark. Such a timer belongs
        # neither to a member nor to a phase of a rebalance, so it must not be counted in
        # `heartbeats` or `rebalances`.
        timers = [
            t for t in self._shared.in_flight.timers.values() if not isinstance(t, HeldWriteTimer)
        ]
        rebalances = sum(isinstance(timer, JoinTimer | SyncTimer) for timer in timers)
        return CoordinatorSizes(
            groups=groups,
            offsets=offsets,
            heartbeats=len(timers) - rebalances,
            rebalances=rebalances,
        )

    def group(self, group_id: str) -> Group | None:
        """Return the group in memory, for reading only. Only this package may change a group."""
        shard = self._shards.owned.get(self._shards.partition_of(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def commit_in_flight(self, append_id: AppendId) -> OffsetsAppend | None:
        """Return the OffsetCommit that an append in flight writes, for reading only.

        The result is None if the append has ended, or writes something else.
        """
        append = self._shared.in_flight.appends.get(append_id)
        return append if isinstance(append, OffsetsAppend) else None

    def waiting(self) -> frozenset[RequestId]:
        """Return the requests that this coordinator holds and will answer in a later Result."""
        in_flight, verifications = self._shared.in_flight, self._shared.verifications
        return waiting_requests(self._shards, in_flight.appends, verifications)

    def check_invariants(self) -> None:
        """Check all invariants of groups, shards, timers and appends.

        Raises: InvariantViolation.
        """
        check_shards(self._shards, self._shared.in_flight.timers)
        check_appends(self._shards, self._shared.in_flight.appends)

    def timers(self) -> frozenset[str]:
        """Return the keys of the running timers."""
        return frozenset(self._shared.in_flight.timers)

    # -- helpers --

    def _dispatch(
        self, turn: Turn, request_id: RequestId, body: GroupRequest, envelope: RequestEnvelope
    ) -> None:
        """Pass a request to the handler of its API."""
        # First each request passes a gate (`_gate` or `_gate_of_offsets`). The gate returns the
        # shard of a group, or an error that says why this broker does not serve the group. A
        # handler of a request on one group gets what the gate returned. A request on several groups
        # may pass for one group and fail for another, so its handler gets the gate itself.
        version = envelope.api_version
        match body:
            case JoinGroupRequest():
                shard = self._gate(body.group_id)
                handle_join_group(turn, shard, request_id, body, envelope)
            case SyncGroupRequest():
                handle_sync_group(turn, self._gate(body.group_id), request_id, body, version)
            case HeartbeatRequest():
                handle_heartbeat(turn, self._gate(body.group_id), request_id, body)
            case LeaveGroupRequest():
                handle_leave_group(turn, self._gate(body.group_id), request_id, body, version)
            case OffsetCommitRequest():
                shard = self._gate_of_offsets(body.group_id)
                handle_offset_commit(turn, shard, request_id, body, version)
            case TxnOffsetCommitRequest():
                shard = self._gate(body.group_id)
                handle_txn_offset_commit(turn, shard, request_id, body, version)
            case OffsetFetchRequest():
                handle_offset_fetch(turn, self._gate_of_offsets, request_id, body, version)
            case OffsetDeleteRequest():
                handle_offset_delete(turn, self._gate(body.group_id), request_id, body)
            case DescribeGroupsRequest():
                handle_describe_groups(turn, self._gate_of_offsets, request_id, body)
            case ListGroupsRequest():
                handle_list_groups(turn, self._shards, request_id, body, is_active=self._is_active)
            case DeleteGroupsRequest():
                handle_delete_groups(turn, self._gate_of_offsets, request_id, body)

    def _gate(self, group_id: str) -> Shard | ErrorCode:
        return check_group_status(self._shards, group_id, is_active=self._is_active)

    def _gate_of_offsets(self, group_id: str) -> Shard | ErrorCode:
        # Consumers that never join a group may store offsets under the empty group id, so this gate
        # accepts it (BEHAVIOUR 2.0).
        return check_group_status(
            self._shards, group_id, is_active=self._is_active, allow_empty_id=True
        )

    def _mark_answered(self, body: GroupRequest, request_id: RequestId) -> None:
        """Mark the failed request `request_id` as answered, if it is a JoinGroup that was parked.

        Without the mark, the end of the next join phase would answer the request a second time.
        """
        group = self.group(body.group_id) if isinstance(body, JoinGroupRequest) else None
        if group is not None:
            for member in group.members.values():
                parked = member.awaiting_join
                if parked is not None and parked.request_id == request_id:
                    parked.answered = True

    def _accepts_epoch(self, partition: int, leader_epoch: int) -> bool:
        """Return True if a load or unload of this epoch must be carried out.

        `known_epochs` keeps the newest epoch of each partition. A load or unload of an older epoch
        has arrived late and must be ignored, unless an experiment has switched off this protection
        (`leader_epoch_guard`). Even then `known_epochs` keeps the newest epoch.
        """
        known = self._shards.known_epochs.get(partition)
        if known is None or leader_epoch >= known:
            self._shards.known_epochs[partition] = leader_epoch
            return True
        return not self._guards.leader_epoch_guard

    def _ignored(self, partition: int, reason: IgnoredCause) -> LoadIgnored:
        return LoadIgnored(reason=reason, known_epoch=self._shards.known_epochs[partition])

    def _loading(self, partition: int) -> Load:
        load = self._shards.loading.get(partition)
        if load is None:
            raise SimulationError(f"partition {partition} is not loading")
        return load


def _group_loaded(turn: Turn, group: Group) -> None:
    """Trace a loaded group and start a full session timeout for every member.

    A group that has more members than group.max.size begins a rebalance.

    Source: Kafka `onGroupLoaded`.
    """
    detail: dict[str, object] = {
        "state": group.state.value,
        "members": list(group.members),
        "offsets": len(group.offsets),
    }
    pending = group.offsets.producers()
    if pending:
        detail["pending"] = list(pending)
    turn.trace(
        TraceEvent(
            kind=TraceKind.GROUP_LOADED,
            group=group.group_id,
            partition=str(offsets_partition(group.partition)),
            generation=group.generation_id,
            detail=detail,
        )
    )
    # Somebody may have lowered group.max.size since the group was stored. In the rebalance the
    # members that rejoin first keep their places, and the others are refused.
    if len(group.members) > turn.config.group_max_size:
        prepare_rebalance(
            turn,
            group,
            RebalanceReason(
                cause=RebalanceCause.GROUP_TOO_LARGE,
                text="loaded with more members than group.max.size",
            ),
        )
    for member in group.members.values():
        restart_session_timer(turn, group, member)


def _group_unloaded(turn: Turn, group: Group) -> None:
    """Answer the group's parked requests with NOT_COORDINATOR and stop its timers.

    Source: Kafka `onGroupUnloaded`.
    """
    previous = group.state
    group.transition_to(
        GroupState.DEAD,
        now_us=turn.now_us,
        cause=GroupStateCause.UNLOADED,
        trace=turn.result.trace,
    )
    error = ErrorCode.NOT_COORDINATOR
    # In the state Stable a JoinGroup is parked only while the new id of a restarted static member
    # is being stored. Such a JoinGroup is answered when this append (a StaticMemberAppend) has
    # completed, so it is not answered here.
    for member in group.members.values():
        match previous:
            case GroupState.PREPARING_REBALANCE:
                fail_parked_join(turn, group, member, member.member_id, error)
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                answer_parked_sync(turn, group, member, SyncGroupResponse(error_code=error))
            case GroupState.EMPTY | GroupState.DEAD:
                pass  # no member, so no parked request
    cancel_all(turn, group)


def _server_error(body: GroupRequest, api_version: int) -> AnyResponse:
    """Return the answer to a request whose handler failed: UNKNOWN_SERVER_ERROR.

    Source: Kafka `AbstractRequest.getErrorResponse` of each API.
    """
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    # Only the handlers of JoinGroup and LeaveGroup raise UnknownServerError, so the other answers
    # are never sent. They are here so that the match has every request of the group coordinator.
    match body:
        case JoinGroupRequest():
            return join_error("", error, api_version)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case LeaveGroupRequest():
            return for_version(LeaveGroupResponse(error_code=error), api_version)
        case OffsetCommitRequest():
            return OffsetCommitResponse()
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse()
        case OffsetFetchRequest():
            return OffsetFetchResponse()
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case DescribeGroupsRequest():
            return DescribeGroupsResponse()
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=error)
        case DeleteGroupsRequest():
            return DeleteGroupsResponse()
