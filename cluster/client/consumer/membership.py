"""Joining and leaving the group: JoinGroup, SyncGroup, LeaveGroup, and each of their errors.

In a rebalance each member of a group sends JoinGroup and then SyncGroup, and the answer to
SyncGroup contains the member's new partitions. Here the two requests together are called a *join*.
Its result is the assignment, still as bytes.

The handler of an answer runs as soon as the answer arrives, even while the application is busy. But
the module `consumer_coordinator` revokes and assigns partitions only when the application polls,
because the application may commit before a revocation.

An answer may come late, when the member has already entered another generation. Therefore each
handler also gets `sent`: the generation that the member had when it sent the request. If `sent` is
not the member's generation any more, an error like UNKNOWN_MEMBER_ID does not reset the member.

Source: Kafka AbstractCoordinator; docs/kafka, BEHAVIOUR 7.3.
"""

from collections.abc import Callable
from typing import Protocol

from cluster.client.consumer.generation import (
    ConsumerMember,
    Generation,
    MemberState,
    StateReason,
    reset_reason,
)
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import (
    ClientError,
    UnjoinedGroupError,
    error_from_code,
    unexpected_error,
)
from cluster.client.net.futures import RequestFuture
from cluster.client.net.retries import MS
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import GenerationId, MemberId
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups of consumers. Groups of Kafka Connect, for example, have another
type."""

JOIN_GROUP_EXTRA_MS = 5_000
"""The client waits for the answer to JoinGroup this long beyond the rebalance timeout.

The coordinator may answer only at the end of the rebalance timeout. The rest is for the network.
"""

REASON_BYTES_MAX = 255
"""Length to which the reason in JoinGroup and LeaveGroup is cut. Source: JoinGroupRequest."""

JOIN_FATAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""JoinGroup errors that poll raises to the application."""

REJOIN_AT_ONCE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID.name,
        ErrorCode.ILLEGAL_GENERATION.name,
        ErrorCode.REBALANCE_IN_PROGRESS.name,
        ErrorCode.MEMBER_ID_REQUIRED.name,
    }
)
"""Failures after which the join loop tries again without a backoff."""

Assignments = tuple[SyncGroupRequestAssignment, ...]
"""The assignment of each member, as the leader's SyncGroup sends it."""


class Subscriber(Protocol):
    """Methods of the member's own code that a Membership calls; `GroupSubscriber` has them."""

    def protocols(self) -> tuple[JoinGroupRequestProtocol, ...]:
        """Return the protocols that JoinGroup offers, in order of preference."""

    def on_leader_elected(
        self, response: JoinGroupResponse, assign: Callable[[Assignments], None]
    ) -> None:
        """Compute the assignments of all members and call `assign`, now or later."""


class Membership:
    """One member's side of the rebalance protocol."""

    def __init__(
        self,
        member: ConsumerMember,
        config: ConsumerConfig,
        discovery: CoordinatorDiscovery,
        subscriber: Subscriber,
        *,
        on_joined: Callable[[], None],
        on_rejoin_needed: Callable[[], None],
    ) -> None:
        """Create a membership that needs to join.

        `on_joined` is called when the member has entered a generation; heartbeats then begin.
        `on_rejoin_needed` is called when the application must poll, because a rebalance has work
        for it.
        """
        self.member = member
        self.rejoin_needed = True
        """True if the member must join: before the first join, and after `request_rejoin`."""
        self.needs_join_prepare = True
        """True if partitions must be revoked before the next JoinGroup."""
        self._config = config
        self._discovery = discovery
        self._subscriber = subscriber
        self._on_joined = on_joined
        self._on_rejoin_needed = on_rejoin_needed
        self.assigned_by: str | None = None
        """The coordinator that sent the last assignment; None before an assignment."""
        self._join: RequestFuture[bytes] | None = None
        self._rejoin_reason = ""
        """Why the member joins again, as the next JoinGroup tells the coordinator; "" if unset."""

    # -- need of a rejoin ---------------------------------------------------------------------

    @property
    def join(self) -> RequestFuture[bytes] | None:
        """The join in flight, or a finished one until `take_join`; its value is the assignment."""
        return self._join

    @property
    def rejoin_needed_or_pending(self) -> bool:
        """True if the application's poll must work on a rebalance."""
        return self.rejoin_needed or self._join is not None

    def request_rejoin(self, reason: str) -> None:
        """Rejoin at the next poll. Source: Kafka AbstractCoordinator.requestRejoin."""
        self.rejoin_needed = True
        self._rejoin_reason = reason
        self._on_rejoin_needed()

    def reset_and_rejoin(self, reason: StateReason, *, reset_member_id: bool) -> None:
        """Drop the generation and rejoin. Source: AbstractCoordinator.resetStateAndRejoin."""
        self.member.reset(reason, reset_member_id=reset_member_id)
        self.needs_join_prepare = True
        self.request_rejoin(reason.text)

    # -- join and sync ------------------------------------------------------------------------

    def initiate_join(self) -> RequestFuture[bytes]:
        """Send JoinGroup unless a join is pending, and return the join.

        Source: Kafka AbstractCoordinator.initiateJoinGroup.
        """
        if self._join is None:
            self.member.begin_rebalance(self._rejoin_reason or "first join")
            join = self._join = RequestFuture[bytes]()
            # When the join is finished, poll must handle its outcome.
            join.add_listener(lambda _join: self._on_rejoin_needed())
            self._send_join_group(join)
        return self._join

    def take_join(self) -> None:
        """Forget the finished join; the caller handles its outcome."""
        self._join = None

    def _send_join_group(self, join: RequestFuture[bytes]) -> None:
        """Send JoinGroup; its answer continues or fails `join`."""
        member, config = self.member, self._config
        sent = member.generation
        rebalance_timeout_ms = config.max_poll_interval_ms
        request = JoinGroupRequest(
            group_id=member.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=sent.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=self._subscriber.protocols(),
            reason=truncate_reason(self._rejoin_reason),
        )
        # See JOIN_GROUP_EXTRA_MS.
        timeout_ms = max(config.request_timeout_ms, rebalance_timeout_ms + JOIN_GROUP_EXTRA_MS)
        self._discovery.send(request, JoinGroupResponse, timeout_us=timeout_ms * MS).add_listener(
            lambda answer: self._join_group_answered(answer, sent, join)
        )

    def _join_group_answered(
        self,
        answer: RequestFuture[JoinGroupResponse],
        sent: Generation,
        join: RequestFuture[bytes],
    ) -> None:
        """React to the answer as Kafka does; `sent` is the generation of the request."""
        if answer.error is not None:
            join.fail(answer.error)
            return
        response = answer.value
        code = response.error_code
        if code is ErrorCode.NONE:
            self._joined(response, join)
            return
        match code:
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS | ErrorCode.REBALANCE_IN_PROGRESS:
                error = error_from_code(code)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                if self.member.generation == sent:
                    self.member.reset(reset_reason("JoinGroup", code), reset_member_id=True)
                error = error_from_code(code)
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self._discovery.mark_unknown(code.name)
                error = error_from_code(code)
            case ErrorCode.MEMBER_ID_REQUIRED:
                # KIP-394: the first answer only assigns an id. A second JoinGroup then joins.
                self.member.take_member_id(MemberId(response.member_id))
                self.request_rejoin("need to re-join with the given member-id")
                error = error_from_code(code)
            case _ if code in JOIN_FATAL:
                error = error_from_code(code)
            case _:
                error = unexpected_error(code)
        join.fail(error)

    def _joined(self, response: JoinGroupResponse, join: RequestFuture[bytes]) -> None:
        """Enter the new generation and send SyncGroup; a leader first computes the assignments."""
        # Old versions of the answer do not have this field; then it is None.
        if response.protocol_type is not None and response.protocol_type != PROTOCOL_TYPE:
            join.fail(error_from_code(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        if self.member.state is not MemberState.PREPARING_REBALANCE:
            # The member left while JoinGroup was on its way (poll timeout), so the answer is for a
            # membership that has ended.
            join.fail(UnjoinedGroupError())
            return
        generation = Generation(
            GenerationId(response.generation_id),
            MemberId(response.member_id),
            response.protocol_name,
        )
        self.member.joined(generation)
        self._on_joined()
        if response.member_id != response.leader:
            self._send_sync_group((), generation, join)  # only the leader sends assignments
            return

        def assign(assignments: Assignments) -> None:
            self._send_sync_group(assignments, generation, join)

        self._subscriber.on_leader_elected(response, assign)

    def _send_sync_group(
        self, assignments: Assignments, sent: Generation, join: RequestFuture[bytes]
    ) -> None:
        """Send SyncGroup; its answer completes or fails `join`."""
        request = SyncGroupRequest(
            group_id=self.member.group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sent.protocol_name,
            assignments=assignments,
        )
        # Remembered for the trace: when the answer arrives, the member may know another
        # coordinator.
        node = self._discovery.believed_coordinator()
        peer = None if node is None else node.name
        self._discovery.send(request, SyncGroupResponse).add_listener(
            lambda answer: self._sync_group_answered(answer, sent, peer, join)
        )

    def _sync_group_answered(
        self,
        answer: RequestFuture[SyncGroupResponse],
        sent: Generation,
        peer: str | None,
        join: RequestFuture[bytes],
    ) -> None:
        """React to the answer as Kafka does; `peer` is the coordinator that was asked."""
        if answer.error is not None:
            join.fail(answer.error)
            return
        response = answer.value
        code = response.error_code
        member = self.member
        if code is ErrorCode.NONE:
            self._synced(response, peer, join)
            return
        match code:
            case (
                ErrorCode.REBALANCE_IN_PROGRESS
                | ErrorCode.FENCED_INSTANCE_ID
                | ErrorCode.GROUP_AUTHORIZATION_FAILED
            ):
                error = error_from_code(code)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                if member.generation == sent:
                    member.reset(
                        reset_reason("SyncGroup", code),
                        reset_member_id=code is ErrorCode.UNKNOWN_MEMBER_ID,
                    )
                error = error_from_code(code)
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self._discovery.mark_unknown(code.name)
                error = error_from_code(code)
            case _:
                # As in Kafka, even COORDINATOR_LOAD_IN_PROGRESS is fatal here. Therefore a loading
                # coordinator answers SyncGroup with REBALANCE_IN_PROGRESS instead.
                error = unexpected_error(code)
        join.fail(error)

    def _synced(
        self, response: SyncGroupResponse, peer: str | None, join: RequestFuture[bytes]
    ) -> None:
        """Complete the join with the assignment, unless the generation has ended meanwhile."""
        if response.protocol_type is not None and response.protocol_type != PROTOCOL_TYPE:
            join.fail(error_from_code(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        member = self.member
        if not member.has_generation or member.state is not MemberState.COMPLETING_REBALANCE:
            # An answer to a heartbeat reset the generation while SyncGroup was on its way.
            join.fail(error_from_code(ErrorCode.ILLEGAL_GENERATION))
            return
        name = response.protocol_name  # None if the answer's version lacks this field
        if name is not None and name != member.generation.protocol_name:
            join.fail(error_from_code(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        self._rejoin_reason = ""
        self.rejoin_needed = False
        self.assigned_by = peer
        member.synced()
        join.complete(response.assignment)

    def join_failed(self, error: ClientError) -> None:
        """Handle a failed join: request a rejoin, if the handler of the answer has not done it.

        Source: Kafka AbstractCoordinator.joinGroupIfNeeded.
        """
        self.take_join()
        # The handler of MEMBER_ID_REQUIRED has requested the rejoin, with its own reason.
        if error.name != ErrorCode.MEMBER_ID_REQUIRED.name:
            self.request_rejoin(f"rebalance failed due to {error.name}")

    # -- leaving ------------------------------------------------------------------------------

    def leave(self, reason: StateReason) -> RequestFuture[LeaveGroupResponse] | None:
        """Leave the group, and forget generation and member id.

        Returns the LeaveGroup request, which is never repeated, or None if none was sent. A static
        member sends none: it stays in the group until its session ends.

        Source: Kafka AbstractCoordinator.maybeLeaveGroup.
        """
        request: RequestFuture[LeaveGroupResponse] | None = None
        member = self.member
        # A static member does not leave. A member that is UNJOINED or has no id is not in the
        # group. Without a known coordinator, no broker can get the request.
        if (
            self._config.group_instance_id is None
            and self._discovery.coordinator() is not None
            and member.state is not MemberState.UNJOINED
            and member.member_id
        ):
            request = self._discovery.send(
                LeaveGroupRequest(
                    group_id=member.group_id,
                    members=(
                        MemberIdentity(
                            member_id=member.member_id, reason=truncate_reason(reason.text)
                        ),
                    ),
                ),
                LeaveGroupResponse,
            )
        self.reset_and_rejoin(reason, reset_member_id=True)
        return request


def truncate_reason(reason: str) -> str:
    """Return `reason` cut to REASON_BYTES_MAX bytes of UTF-8.

    A character that the cut would divide is dropped.
    """
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
