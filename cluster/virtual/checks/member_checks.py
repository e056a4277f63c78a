"""Checks of group coordinators: a request of a member restarts the member's session.

A member that sends requests must not expire. So when the coordinator accepts a Heartbeat, an
OffsetCommit or a SyncGroup, or ends a join phase, the member's session timeout begins anew. The
checks look at the timer that the broker has, and at the node's clock. Rows of the trace do not show
this: the coordinator writes the row SESSION_RESTARTED before it sets the timer.

A member whose request is parked (kept without an answer) has no session, and is not checked. If the
coordinator has no such group or member in memory by now, there is nothing to check.

Source: Kafka GroupCoordinator.completeAndScheduleNextHeartbeatExpiration.
"""

from cluster.broker.node import BrokerNode
from cluster.spec import ClusterSpec
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import HostTimer
from coordinator.group import Group
from coordinator.states import GroupState
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import AppendId, broker_name
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.trace import TraceRow


class MemberChecks:
    """The checks of the sessions of a run's members.

    Raises: InvariantViolation, from each method.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._holds_heartbeats = spec.java.heartbeats_wait_for_writes
        """True if the answer to a Heartbeat may leave later than the session was restarted."""
        self._generations: dict[tuple[str, str | None], int] = {}
        """Node and group -> time on the node's clock at which the last generation started."""

    def generation_started(self, row: TraceRow) -> None:
        """Note the time of a row GENERATION_STARTED. The JoinGroups are answered at this time."""
        self._generations[row.node, row.group] = row.node_time_us

    def append_started(self, broker: BrokerNode, clock: NodeClock, row: TraceRow) -> None:
        """Check the session of a member whose OffsetCommit is being appended.

        `row` is a row APPEND_STARTED of `broker`, and `clock` is the broker's clock. The commit is
        checked here and not at its answer, because the append may take long. A simple consumer or
        an administrator is no member of the group.
        """
        if row.correlation_id is not None:
            commit = broker.commit_in_flight(AppendId(row.correlation_id))
            if commit is not None:
                _check_session(broker, clock, commit.group, commit.member_id, "OffsetCommit")

    def heartbeat_answered(
        self,
        broker: BrokerNode,
        clock: NodeClock,
        request: HeartbeatRequest,
        response: HeartbeatResponse,
    ) -> None:
        """Check the session after a Heartbeat that has no error, or tells the member to rejoin."""
        error = response.error_code
        if not self._holds_heartbeats and (
            error is ErrorCode.NONE or error is ErrorCode.REBALANCE_IN_PROGRESS
        ):
            group = broker.group(request.group_id)
            if group is not None:
                _check_session(broker, clock, group, request.member_id, "Heartbeat")

    def join_answered(
        self,
        broker: BrokerNode,
        clock: NodeClock,
        request: JoinGroupRequest,
        response: JoinGroupResponse,
    ) -> None:
        """Check the session after a JoinGroup that the end of a join phase has answered.

        Other JoinGroups need not restart the session, as in Kafka: the coordinator only repeats its
        answer, or a static member has waited until its new member id was stored.
        """
        if response.error_code is not ErrorCode.NONE:
            return
        group = broker.group(request.group_id)
        if (
            group is not None
            and group.state is GroupState.COMPLETING_REBALANCE
            and self._generations.get((broker_name(broker.broker_id), request.group_id))
            == clock.now_us()
        ):
            _check_session(broker, clock, group, response.member_id, "JoinGroup")

    def sync_answered(
        self,
        broker: BrokerNode,
        clock: NodeClock,
        request: SyncGroupRequest,
        response: SyncGroupResponse,
    ) -> None:
        """Check the session after a SyncGroup that was answered with an assignment."""
        if response.error_code is ErrorCode.NONE:
            group = broker.group(request.group_id)
            if group is not None:
                _check_session(broker, clock, group, request.member_id, "SyncGroup")


def _check_session(
    broker: BrokerNode, clock: NodeClock, group: Group, member_id: str, api: str
) -> None:
    """Check that the member's session timer is due no earlier than after its session timeout."""
    member = group.members.get(member_id)
    if member is None or member.is_parked:
        return
    timer = broker.group_timer(f"heartbeat-{group.group_id}-{member_id}")
    remaining_us = timer.remaining_us if isinstance(timer, HostTimer) else None
    timeout_us = clock.run_delay_us(member.session_timeout_ms * 1_000)
    if remaining_us is None or remaining_us < timeout_us:
        raise InvariantViolation(
            "a request restarts its member's session",
            f"{group.group_id}: broker {broker.broker_id} accepts the {api} of {member_id}, "
            f"whose session timeout is {timeout_us} us, and its timer is "
            f"{'not armed' if remaining_us is None else f'due in {remaining_us} us'}",
        )
