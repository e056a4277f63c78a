"""Messages of an administrator about groups: describe, list, delete, and delete offsets.

The structs have the fields of the newest version, even if a request is sent in an older one. In
docstrings, "(15) v0-v5" is the API key and the versions in use. `array_like` and `tag` say how
messages are sent between processes of the lab: a struct as an array of its fields, and a request or
an answer with the name of its struct in front.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode

NO_AUTHORIZED_OPERATIONS = -2_147_483_648
"""Kafka's value for authorized operations that a request did not ask for."""


class DescribeGroupsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """DescribeGroups (15) v0-v5. `groups` are group ids."""

    groups: tuple[str, ...]


class DescribedGroupMember(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A member. Its metadata and assignment are empty unless the group is Stable."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One group. If it does not exist, its state is Dead. If there is an error, its state is "".

    `protocol_data`, in spite of its name, is the name of the protocol that the group has selected.
    """

    error_code: ErrorCode = ErrorCode.NONE
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS


class DescribeGroupsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to DescribeGroups, in the order of the request."""

    groups: tuple[DescribedGroup, ...] = ()


class ListGroupsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """ListGroups (16) v0-v5. An empty filter accepts all groups; filters ignore letter case."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One group that the answering broker coordinates."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ListGroups. It may have groups although there is an error: the groups known so far.

    The error is COORDINATOR_LOAD_IN_PROGRESS then.
    """

    error_code: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


class DeleteGroupsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """DeleteGroups (42) v0-v2: deletes groups without members, with their offsets."""

    groups_names: tuple[str, ...]


class DeletableGroupResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one group."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE


class DeleteGroupsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to DeleteGroups; a group that the request names twice is in it once."""

    results: tuple[DeletableGroupResult, ...] = ()


class OffsetDeleteRequestPartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A partition whose committed offset is to be deleted."""

    partition_index: int


class OffsetDeleteRequestTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """OffsetDelete (47) v0: deletes committed offsets of a group."""

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition. A partition without an offset also has NONE."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class OffsetDeleteResponseTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


class OffsetDeleteResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to OffsetDelete; with an error of the group there are no topics."""

    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
