"""Messages of group membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

In a rebalance each member sends JoinGroup and then SyncGroup. The answer to SyncGroup has the
member's partitions. Between rebalances members send Heartbeats.

The structs have the fields of the newest version, even if a request is sent in an older version.
The envelope of the request has the version. For example, a LeaveGroup below v3 has exactly one
member. In docstrings, "(11) v0-v9" is the API key and the versions in use. `array_like` and `tag`
say how this project's processes send messages to each other: a struct is sent as an array of its
fields. A request or an answer has the name of its struct in front.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode


class JoinGroupRequestProtocol(msgspec.Struct, frozen=True, array_like=True):
    """A way to assign partitions that a member knows, such as "range", and its subscription."""

    name: str
    metadata: bytes


class JoinGroupRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """JoinGroup (11) v0-v9.

    `member_id` is "" until an answer has given the client an id. `rebalance_timeout_ms` is -1 in
    v0, which does not have this field.
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
    """Answer to JoinGroup. Only the leader's answer has `members`.

    `skip_assignment` tells the leader to compute no assignment, because it is a static member that
    has only restarted (KIP-814).
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
    """SyncGroup (14) v0-v5. Only the leader of the group sends `assignments`."""

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
    """Answer to Heartbeat. The error REBALANCE_IN_PROGRESS tells the member to rejoin."""

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
    """Answer to LeaveGroup. An answer below v3 has only `error_code`, the member's error."""

    error_code: ErrorCode = ErrorCode.NONE
    members: tuple[MemberResponse, ...] = ()
