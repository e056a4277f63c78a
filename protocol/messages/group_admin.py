"""Messages of an administrator about groups: describe, list, delete, and delete offsets.

The structs have the fields of the newest version, even if a request is sent in an older version. In
docstrings, "(15) v0-v5" is the API key and the versions in use. `array_like` and `tag` say how this
project's processes send messages to each other: a struct is sent as an array of its fields. A
request or an answer has the name of its struct in front.

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
    """One group. A group that does not exist has the state Dead. With an error, the state is "".

    In spite of its name, `protocol_data` is the name of the protocol that the group has selected.
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
    """ListGroups (16) v0-v5. An empty filter accepts all groups. Filters ignore letter case."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One group that the answering broker coordinates."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ListGroups.

    An answer with the error COORDINATOR_LOAD_IN_PROGRESS has the groups that are known so far.
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
    """Answer to DeleteGroups. A group that the request names twice has one result."""

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
    """Answer to OffsetDelete. If there is an error of the group, there are no topics."""

    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
