"""Messages of group membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A rebalance gives a group's members their partitions: each sends JoinGroup, then SyncGroup. The
generation is the number of the rebalance. Between rebalances, members send Heartbeats.

The structs have the fields of the newest version. The envelope of a request has its `api_version`;
for example, a LeaveGroup below v3 has exactly one member. A number after the name of a request is
its API key; versions in use are written as v0-v9. Between processes of this project, a struct is
sent as an array of its fields (`array_like`); a request or an answer begins with the name of its
struct (`tag`).
Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode


class JoinGroupRequestProtocol(msgspec.Struct, frozen=True, array_like=True):
    """A way to assign partitions (an assignor) that the member supports, and its subscription."""

    name: str
    metadata: bytes


class JoinGroupRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """JoinGroup (11) v0-v9.

    `member_id` is "" until an answer has given the client an id. `rebalance_timeout_ms` is -1 in
    v0, which lacks the field.
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: str | None = None


class JoinGroupResponseMember(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A member in the answer to the leader, with its metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to JoinGroup; `members` is filled for the leader only.

    `skip_assignment`: the leader must compute no assignment, since it is a static member that has
    only restarted (KIP-814).
    """

    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


class SyncGroupRequestAssignment(msgspec.Struct, frozen=True, array_like=True):
    """The assignment bytes of one member."""

    member_id: str
    assignment: bytes


class SyncGroupRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """SyncGroup (14) v0-v5: `assignments` is filled by the group's leader only."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to SyncGroup with this member's assignment bytes."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Heartbeat (12) v0-v4: a member keeps its session open, and learns whether to rejoin."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to Heartbeat; the error REBALANCE_IN_PROGRESS tells the member to rejoin."""

    error_code: ErrorCode = ErrorCode.NONE


class MemberIdentity(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A member that a LeaveGroup removes.

    An administrator who removes a static member sends its `group_instance_id` and member id "".
    """

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """LeaveGroup (13) v0-v5: members leave, or an administrator removes static members."""

    group_id: str
    members: tuple[MemberIdentity, ...]


class MemberResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None = None
    error_code: ErrorCode = ErrorCode.NONE


class LeaveGroupResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to LeaveGroup; below v3 the error of the single member is the top-level error."""

    error_code: ErrorCode = ErrorCode.NONE
    members: tuple[MemberResponse, ...] = ()
