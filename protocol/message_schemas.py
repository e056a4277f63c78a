"""Kafka's message schemas as data: which field of which API exists in which version.

Owns what is on the wire in each version, for every API whose versions matter here; the messages
themselves have the shape of the newest version alone. To add an API: its two tables, and one entry
in SCHEMAS. Source: Kafka 3.9 `clients/src/main/resources/common/message/*.json`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from protocol.consumer_group_messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.discovery_messages import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.group_admin_messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from protocol.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.offset_messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

NEWEST = 32_767
"""A version above every one that there is."""

PlainValue = bool | int | str | bytes | list["PlainValue"] | dict[str, "PlainValue"] | None
PlainMessage = dict[str, PlainValue]
"""A message as plain data, under the names that one version of its API has."""


class Kind(Enum):
    """What a field holds."""

    INT = "an integer"
    BOOL = "true or false"
    STRING = "a string"
    BYTES = "bytes"
    STRUCT = "an object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message, in the versions `since` to `until`.

    Shape: `fields` are those of a STRUCT. `absent` is what an answer has where our message knows
    no such field. A request's field that `is_unused` changes nothing here and is dropped.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NEWEST
    is_array: bool = False
    is_nullable: bool = False
    fields: tuple["Field", ...] = ()
    absent: PlainValue = None
    is_unused: bool = False

    def is_in(self, version: int) -> bool:
        """Return whether the field is there in this version."""
        return self.since <= version <= self.until


Reshape = Callable[[PlainMessage], PlainMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSchema:
    """One API: our messages, Kafka's fields of both, and the versions that we have.

    Below `reshaped_below` a message has another shape than the newest: `lift` brings a request
    into the newest, `lower` an answer out of it.
    """

    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    versions: range
    request_fields: tuple[Field, ...]
    response_fields: tuple[Field, ...]
    reshaped_below: int = 0
    lift: Reshape | None = None
    lower: Reshape | None = None


# -- how the tables are written --


def _int(name: str, since: int = 0, until: int = NEWEST, *, absent: PlainValue = None) -> Field:
    return Field(name=name, kind=Kind.INT, since=since, until=until, absent=absent)


def _str(name: str, since: int = 0, until: int = NEWEST, *, nullable: bool = False) -> Field:
    return Field(name=name, kind=Kind.STRING, since=since, until=until, is_nullable=nullable)


def _bytes(name: str) -> Field:
    return Field(name=name, kind=Kind.BYTES)


def _bool(name: str, since: int = 0, *, unused: bool = False) -> Field:
    return Field(name=name, kind=Kind.BOOL, since=since, is_unused=unused)


def _array(kind: Kind, name: str, since: int = 0, until: int = NEWEST) -> Field:
    return Field(name=name, kind=kind, since=since, until=until, is_array=True)


def _structs(
    name: str, *fields: Field, since: int = 0, until: int = NEWEST, nullable: bool = False
) -> Field:
    return Field(
        name=name,
        kind=Kind.STRUCT,
        since=since,
        until=until,
        is_array=True,
        is_nullable=nullable,
        fields=fields,
    )


def _throttle_time(since: int) -> Field:
    # There are no quotas here: nobody is ever throttled.
    return _int("throttle_time_ms", since, absent=0)


_ERROR = _int("error_code")
_GROUP_ID = _str("group_id")
_MEMBER_ID = _str("member_id")


def _instance(since: int) -> Field:
    return _str("group_instance_id", since, nullable=True)


# -- membership --

JOIN_GROUP = ApiSchema(
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    versions=range(10),
    request_fields=(
        _GROUP_ID,
        _int("session_timeout_ms"),
        _int("rebalance_timeout_ms", 1),
        _MEMBER_ID,
        _instance(5),
        _str("protocol_type"),
        _structs("protocols", _str("name"), _bytes("metadata")),
        _str("reason", 8, nullable=True),
    ),
    response_fields=(
        _throttle_time(2),
        _ERROR,
        _int("generation_id"),
        _str("protocol_type", 7, nullable=True),
        _str("protocol_name", nullable=True),
        _str("leader"),
        _bool("skip_assignment", 9),
        _MEMBER_ID,
        _structs("members", _MEMBER_ID, _instance(5), _bytes("metadata")),
    ),
)

SYNC_GROUP = ApiSchema(
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    versions=range(6),
    request_fields=(
        _GROUP_ID,
        _int("generation_id"),
        _MEMBER_ID,
        _instance(3),
        _str("protocol_type", 5, nullable=True),
        _str("protocol_name", 5, nullable=True),
        _structs("assignments", _MEMBER_ID, _bytes("assignment")),
    ),
    response_fields=(
        _throttle_time(1),
        _ERROR,
        _str("protocol_type", 5, nullable=True),
        _str("protocol_name", 5, nullable=True),
        _bytes("assignment"),
    ),
)

HEARTBEAT = ApiSchema(
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    versions=range(5),
    request_fields=(_GROUP_ID, _int("generation_id"), _MEMBER_ID, _instance(3)),
    response_fields=(_throttle_time(1), _ERROR),
)


def _lift_leave_group(request: PlainMessage) -> PlainMessage:
    """Below v3 a LeaveGroup is about one member."""
    member: PlainMessage = {"member_id": request["member_id"]}
    return {"group_id": request["group_id"], "members": [member]}


LEAVE_GROUP = ApiSchema(
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    versions=range(6),
    request_fields=(
        _GROUP_ID,
        _str("member_id", until=2),
        _structs("members", _MEMBER_ID, _instance(3), _str("reason", 5, nullable=True), since=3),
    ),
    response_fields=(
        _throttle_time(1),
        _ERROR,
        _structs("members", _MEMBER_ID, _instance(3), _ERROR, since=3),
    ),
    reshaped_below=3,
    lift=_lift_leave_group,
)


# -- offsets --

OFFSET_COMMIT = ApiSchema(
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    versions=range(2, 10),
    request_fields=(
        _GROUP_ID,
        _int("generation_id_or_member_epoch", 1),
        _str("member_id", 1),
        _instance(7),
        _int("retention_time_ms", 2, 4),
        _structs(
            "topics",
            _str("name"),
            _structs(
                "partitions",
                _int("partition_index"),
                _int("committed_offset"),
                _int("committed_leader_epoch", 6),
                _str("committed_metadata", nullable=True),
            ),
        ),
    ),
    response_fields=(
        _throttle_time(3),
        _structs(
            "topics",
            _str("name"),
            _structs("partitions", _int("partition_index"), _ERROR),
        ),
    ),
)


def _lift_offset_fetch(request: PlainMessage) -> PlainMessage:
    """Below v8 an OffsetFetch is about one group."""
    group: PlainMessage = {"group_id": request["group_id"], "topics": request["topics"]}
    return {"groups": [group], "require_stable": request.get("require_stable", False)}


def _lower_offset_fetch(response: PlainMessage) -> PlainMessage:
    groups = response["groups"]
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        raise ValueError(f"an OffsetFetch below v8 answers for one group, not {groups!r}")
    return groups[0]


_FETCH_TOPICS = (_str("name"), _array(Kind.INT, "partition_indexes"))
_FETCHED_TOPICS = (
    _str("name"),
    _structs(
        "partitions",
        _int("partition_index"),
        _int("committed_offset"),
        _int("committed_leader_epoch", 5),
        _str("metadata", nullable=True),
        _ERROR,
    ),
)

OFFSET_FETCH = ApiSchema(
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    versions=range(1, 10),
    request_fields=(
        _str("group_id", until=7),
        _structs("topics", *_FETCH_TOPICS, until=7, nullable=True),
        _structs(
            "groups",
            _GROUP_ID,
            _str("member_id", 9, nullable=True),
            _int("member_epoch", 9),
            _structs("topics", *_FETCH_TOPICS, nullable=True),
            since=8,
        ),
        _bool("require_stable", 7),
    ),
    response_fields=(
        _throttle_time(3),
        _structs("topics", *_FETCHED_TOPICS, until=7),
        _int("error_code", 2, 7),
        _structs("groups", _GROUP_ID, _structs("topics", *_FETCHED_TOPICS), _ERROR, since=8),
    ),
    reshaped_below=8,
    lift=_lift_offset_fetch,
    lower=_lower_offset_fetch,
)


OFFSET_DELETE = ApiSchema(
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    versions=range(1),
    request_fields=(
        _GROUP_ID,
        _structs("topics", _str("name"), _structs("partitions", _int("partition_index"))),
    ),
    response_fields=(
        _ERROR,
        _throttle_time(0),
        _structs("topics", _str("name"), _structs("partitions", _int("partition_index"), _ERROR)),
    ),
)


# -- an administrator's --

DESCRIBE_GROUPS = ApiSchema(
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    versions=range(6),
    request_fields=(
        _array(Kind.STRING, "groups"),
        _bool("include_authorized_operations", 3, unused=True),
    ),
    response_fields=(
        _throttle_time(1),
        _structs(
            "groups",
            _ERROR,
            _GROUP_ID,
            _str("group_state"),
            _str("protocol_type"),
            _str("protocol_data"),
            _structs(
                "members",
                _MEMBER_ID,
                _instance(4),
                _str("client_id"),
                _str("client_host"),
                _bytes("member_metadata"),
                _bytes("member_assignment"),
            ),
            _int("authorized_operations", 3),
        ),
    ),
)

LIST_GROUPS = ApiSchema(
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    versions=range(6),
    request_fields=(
        _array(Kind.STRING, "states_filter", 4),
        _array(Kind.STRING, "types_filter", 5),
    ),
    response_fields=(
        _throttle_time(1),
        _ERROR,
        _structs(
            "groups",
            _GROUP_ID,
            _str("protocol_type"),
            _str("group_state", 4),
            _str("group_type", 5),
        ),
    ),
)

DELETE_GROUPS = ApiSchema(
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    versions=range(3),
    request_fields=(_array(Kind.STRING, "groups_names"),),
    response_fields=(_throttle_time(0), _structs("results", _GROUP_ID, _ERROR)),
)


_OWNED = (_str("topic_id"), _array(Kind.INT, "partitions"))

CONSUMER_GROUP_HEARTBEAT = ApiSchema(
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    versions=range(1),
    request_fields=(
        _GROUP_ID,
        _MEMBER_ID,
        _int("member_epoch"),
        _str("instance_id", nullable=True),
        _str("rack_id", nullable=True),
        _int("rebalance_timeout_ms"),
        Field(name="subscribed_topic_names", kind=Kind.STRING, is_array=True, is_nullable=True),
        _str("server_assignor", nullable=True),
        _structs("topic_partitions", *_OWNED, nullable=True),
    ),
    response_fields=(
        _throttle_time(0),
        _ERROR,
        _str("error_message", nullable=True),
        _str("member_id", nullable=True),
        _int("member_epoch"),
        _int("heartbeat_interval_ms"),
        Field(
            name="assignment",
            kind=Kind.STRUCT,
            is_nullable=True,
            fields=(_structs("topic_partitions", *_OWNED),),
        ),
    ),
)


# -- discovery --


def _lift_find_coordinator(request: PlainMessage) -> PlainMessage:
    """Below v4 a FindCoordinator is about one key; in v0 it is a group's."""
    return {"coordinator_keys": [request["key"]], "key_type": request.get("key_type", 0)}


def _lower_find_coordinator(response: PlainMessage) -> PlainMessage:
    found = response["coordinators"]
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise ValueError(f"a FindCoordinator below v4 answers for one key, not {found!r}")
    return found[0]


_COORDINATOR = (_int("node_id"), _str("host"), _int("port"))

FIND_COORDINATOR = ApiSchema(
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    versions=range(7),
    request_fields=(
        _str("key", until=3),
        _int("key_type", 1),
        _array(Kind.STRING, "coordinator_keys", 4),
    ),
    response_fields=(
        _throttle_time(1),
        _int("error_code", until=3),
        _str("error_message", 1, 3, nullable=True),
        _int("node_id", until=3),
        _str("host", until=3),
        _int("port", until=3),
        _structs(
            "coordinators",
            _str("key"),
            *_COORDINATOR,
            _ERROR,
            _str("error_message", nullable=True),
            since=4,
        ),
    ),
    reshaped_below=4,
    lift=_lift_find_coordinator,
    lower=_lower_find_coordinator,
)

SCHEMAS: dict[str, ApiSchema] = {
    "FindCoordinator": FIND_COORDINATOR,
    "JoinGroup": JOIN_GROUP,
    "SyncGroup": SYNC_GROUP,
    "Heartbeat": HEARTBEAT,
    "LeaveGroup": LEAVE_GROUP,
    "OffsetCommit": OFFSET_COMMIT,
    "OffsetFetch": OFFSET_FETCH,
    "OffsetDelete": OFFSET_DELETE,
    "DescribeGroups": DESCRIBE_GROUPS,
    "ListGroups": LIST_GROUPS,
    "DeleteGroups": DELETE_GROUPS,
    "ConsumerGroupHeartbeat": CONSUMER_GROUP_HEARTBEAT,
}
"""By Kafka's name of the API."""
