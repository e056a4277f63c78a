"""Kafka's message schemas of the APIs of groups: the fields of each message, with their versions.

The structs in `protocol.messages` have the fields of the newest version only. An API of which
several versions are in use has a schema here, which its row in `protocol.api` names. A field is
defined with its versions. For example, `int32_field("rebalance_timeout_ms", 1)` exists in version 1
and later. A second number would be the last version with the field.

In versions below `reshaped_below`, the messages of some APIs have another structure than in the
newest version. Then a `_lift_...` function converts a request from the old structure into the
newest structure. A `_lower_...` function converts an answer from the newest structure into the old
one.
`transaction_schemas` has the APIs of transactions.

Source: Kafka 3.9 `clients/src/main/resources/common/message/*.json`.
"""

from protocol.wire.fields import (
    ERROR,
    GROUP_ID,
    MEMBER_ID,
    ApiSchema,
    Kind,
    PlainMessage,
    WireField,
    array_field,
    bool_field,
    bytes_field,
    group_instance,
    int8_field,
    int16_field,
    int32_field,
    int64_field,
    str_field,
    struct_array,
    throttle_time,
)

# -- membership --

JOIN_GROUP = ApiSchema(
    request_fields=(
        GROUP_ID,
        int32_field("session_timeout_ms"),
        int32_field("rebalance_timeout_ms", 1),
        MEMBER_ID,
        group_instance(5),
        str_field("protocol_type"),
        struct_array("protocols", str_field("name"), bytes_field("metadata")),
        str_field("reason", 8, nullable=True),
    ),
    response_fields=(
        throttle_time(2),
        ERROR,
        int32_field("generation_id"),
        str_field("protocol_type", 7, nullable=True),
        str_field("protocol_name", nullable_since=7),
        str_field("leader"),
        bool_field("skip_assignment", 9),
        MEMBER_ID,
        struct_array("members", MEMBER_ID, group_instance(5), bytes_field("metadata")),
    ),
)

SYNC_GROUP = ApiSchema(
    request_fields=(
        GROUP_ID,
        int32_field("generation_id"),
        MEMBER_ID,
        group_instance(3),
        str_field("protocol_type", 5, nullable=True),
        str_field("protocol_name", 5, nullable=True),
        struct_array("assignments", MEMBER_ID, bytes_field("assignment")),
    ),
    response_fields=(
        throttle_time(1),
        ERROR,
        str_field("protocol_type", 5, nullable=True),
        str_field("protocol_name", 5, nullable=True),
        bytes_field("assignment"),
    ),
)

HEARTBEAT = ApiSchema(
    request_fields=(GROUP_ID, int32_field("generation_id"), MEMBER_ID, group_instance(3)),
    response_fields=(throttle_time(1), ERROR),
)


def _lift_leave_group(request: PlainMessage) -> PlainMessage:
    """Return the newest structure of a LeaveGroup below v3, which has a single member."""
    member: PlainMessage = {"member_id": request["member_id"]}
    return {"group_id": request["group_id"], "members": [member]}


LEAVE_GROUP = ApiSchema(
    request_fields=(
        GROUP_ID,
        str_field("member_id", until=2),
        struct_array(
            "members", MEMBER_ID, group_instance(3), str_field("reason", 5, nullable=True), since=3
        ),
    ),
    response_fields=(
        throttle_time(1),
        ERROR,
        struct_array("members", MEMBER_ID, group_instance(3), ERROR, since=3),
    ),
    reshaped_below=3,
    # An answer below v3 has the fields of the newest version except `members`, so `lower` is not
    # needed.
    lift=_lift_leave_group,
)


# -- offsets --

OFFSET_COMMIT = ApiSchema(
    request_fields=(
        GROUP_ID,
        int32_field("generation_id_or_member_epoch", 1),
        str_field("member_id", 1),
        group_instance(7),
        int64_field("retention_time_ms", 2, 4),
        struct_array(
            "topics",
            str_field("name"),
            struct_array(
                "partitions",
                int32_field("partition_index"),
                int64_field("committed_offset"),
                int32_field("committed_leader_epoch", 6),
                str_field("committed_metadata", nullable=True),
            ),
        ),
    ),
    response_fields=(
        throttle_time(3),
        struct_array(
            "topics",
            str_field("name"),
            struct_array("partitions", int32_field("partition_index"), ERROR),
        ),
    ),
)


def _lift_offset_fetch(request: PlainMessage) -> PlainMessage:
    """Return the newest structure of an OffsetFetch below v8, which has a single group.

    Only v7 has `require_stable`; in older versions no request demands stable offsets.
    """
    group: PlainMessage = {"group_id": request["group_id"], "topics": request["topics"]}
    return {"groups": [group], "require_stable": request.get("require_stable", False)}


def _lower_offset_fetch(response: PlainMessage) -> PlainMessage:
    """Return the structure of an answer below v8: the fields of its single group."""
    groups = response["groups"]
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        raise ValueError(f"an OffsetFetch below v8 answers for one group, not {groups!r}")
    return groups[0]


_FETCH_TOPICS = (str_field("name"), array_field(Kind.INT, "partition_indexes"))
_FETCHED_TOPICS = (
    str_field("name"),
    struct_array(
        "partitions",
        int32_field("partition_index"),
        int64_field("committed_offset"),
        int32_field("committed_leader_epoch", 5),
        str_field("metadata", nullable=True),
        ERROR,
    ),
)

OFFSET_FETCH = ApiSchema(
    request_fields=(
        str_field("group_id", until=7),
        struct_array("topics", *_FETCH_TOPICS, until=7, nullable=True),
        struct_array(
            "groups",
            GROUP_ID,
            str_field("member_id", 9, nullable=True),
            int32_field("member_epoch", 9),
            struct_array("topics", *_FETCH_TOPICS, nullable=True),
            since=8,
        ),
        bool_field("require_stable", 7),
    ),
    response_fields=(
        throttle_time(3),
        struct_array("topics", *_FETCHED_TOPICS, until=7),
        int16_field("error_code", 2, 7),
        struct_array("groups", GROUP_ID, struct_array("topics", *_FETCHED_TOPICS), ERROR, since=8),
    ),
    reshaped_below=8,
    lift=_lift_offset_fetch,
    lower=_lower_offset_fetch,
)


OFFSET_DELETE = ApiSchema(
    request_fields=(
        GROUP_ID,
        struct_array(
            "topics", str_field("name"), struct_array("partitions", int32_field("partition_index"))
        ),
    ),
    response_fields=(
        ERROR,
        throttle_time(0),
        struct_array(
            "topics",
            str_field("name"),
            struct_array("partitions", int32_field("partition_index"), ERROR),
        ),
    ),
)


# -- administration of groups --

DESCRIBE_GROUPS = ApiSchema(
    request_fields=(
        array_field(Kind.STRING, "groups"),
        bool_field("include_authorized_operations", 3, unused=True),
    ),
    response_fields=(
        throttle_time(1),
        struct_array(
            "groups",
            ERROR,
            GROUP_ID,
            str_field("group_state"),
            str_field("protocol_type"),
            str_field("protocol_data"),
            struct_array(
                "members",
                MEMBER_ID,
                group_instance(4),
                str_field("client_id"),
                str_field("client_host"),
                bytes_field("member_metadata"),
                bytes_field("member_assignment"),
            ),
            int32_field("authorized_operations", 3),
        ),
    ),
)

LIST_GROUPS = ApiSchema(
    request_fields=(
        array_field(Kind.STRING, "states_filter", 4),
        array_field(Kind.STRING, "types_filter", 5),
    ),
    response_fields=(
        throttle_time(1),
        ERROR,
        struct_array(
            "groups",
            GROUP_ID,
            str_field("protocol_type"),
            str_field("group_state", 4),
            str_field("group_type", 5),
        ),
    ),
)

DELETE_GROUPS = ApiSchema(
    request_fields=(array_field(Kind.STRING, "groups_names"),),
    response_fields=(throttle_time(0), struct_array("results", GROUP_ID, ERROR)),
)


_OWNED = (str_field("topic_id"), array_field(Kind.INT, "partitions"))
"""Partitions that a member owns, in the request, or gets, in the answer."""

CONSUMER_GROUP_HEARTBEAT = ApiSchema(
    request_fields=(
        GROUP_ID,
        MEMBER_ID,
        int32_field("member_epoch"),
        str_field("instance_id", nullable=True),
        str_field("rack_id", nullable=True),
        int32_field("rebalance_timeout_ms"),
        WireField(name="subscribed_topic_names", kind=Kind.STRING, is_array=True, is_nullable=True),
        str_field("server_assignor", nullable=True),
        struct_array("topic_partitions", *_OWNED, nullable=True),
    ),
    response_fields=(
        throttle_time(0),
        ERROR,
        str_field("error_message", nullable=True),
        str_field("member_id", nullable=True),
        int32_field("member_epoch"),
        int32_field("heartbeat_interval_ms"),
        WireField(
            name="assignment",
            kind=Kind.STRUCT,
            is_nullable=True,
            fields=(struct_array("topic_partitions", *_OWNED),),
        ),
    ),
)


# -- discovery --


def _lift_find_coordinator(request: PlainMessage) -> PlainMessage:
    """Return the newest structure of a request below v4, which has a single key.

    In v0, which has no key type, the key is a group id (type 0).
    """
    return {"coordinator_keys": [request["key"]], "key_type": request.get("key_type", 0)}


def _lower_find_coordinator(response: PlainMessage) -> PlainMessage:
    """Return the structure of an answer below v4: the fields of its single coordinator."""
    found = response["coordinators"]
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise ValueError(f"a FindCoordinator below v4 answers for one key, not {found!r}")
    return found[0]


_COORDINATOR = (int32_field("node_id"), str_field("host"), int32_field("port"))

FIND_COORDINATOR = ApiSchema(
    request_fields=(
        str_field("key", until=3),
        int8_field("key_type", 1),
        array_field(Kind.STRING, "coordinator_keys", 4),
    ),
    response_fields=(
        throttle_time(1),
        int16_field("error_code", until=3),
        str_field("error_message", 1, 3, nullable=True),
        int32_field("node_id", until=3),
        str_field("host", until=3),
        int32_field("port", until=3),
        struct_array(
            "coordinators",
            str_field("key"),
            *_COORDINATOR,
            ERROR,
            str_field("error_message", nullable=True),
            since=4,
        ),
    ),
    reshaped_below=4,
    lift=_lift_find_coordinator,
    lower=_lower_find_coordinator,
)
