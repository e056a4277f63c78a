"""Turns the answer of a broker into the outcome for each group or partition that was asked about.

AdminDriver sends requests about several groups or partitions, its *keys*. It calls a function of
this module with the answer, the broker and the keys, and gets a value or a ClientError for each
key. For example, the outcome of `described_groups` for a group is a GroupDescription. If a request
is about one group only, the value may have an entry for each partition or member. An error is
retriable if Kafka's AdminClient repeats such a request after this error.

Some functions do not need all three arguments. The names of arguments that a function does not need
begin with an underscore. `coordinators` and `leaders` take no broker, because they find brokers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cluster.client.net.errors import ClientError
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.discovery import FindCoordinatorResponse, MetadataResponse
from protocol.messages.group import LeaveGroupResponse
from protocol.messages.group_admin import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    OffsetDeleteResponse,
)
from protocol.messages.log import ListOffsetsResponse
from protocol.messages.offset import OffsetCommitResponse, OffsetFetchResponse
from protocol.wire.consumer_protocol import ConsumerProtocolError, decode_assignment

# For `by_topic`: E is a request's object for a partition, T its object for a topic.
E = TypeVar("E")
T = TypeVar("T")

_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors after which every request about a group is repeated."""
_RETRIED_COMMITS = _RETRIED | {ErrorCode.REBALANCE_IN_PROGRESS}
"""Errors after which a commit is repeated."""
_RETRIED_PARTITIONS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors of a partition's leader after which Metadata or ListOffsets is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group, as `broker` has listed it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    broker: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListings:
    """All listed groups, sorted, and the errors of brokers whose list is missing or incomplete."""

    groups: tuple[GroupListing, ...]
    failures: Mapping[BrokerId, ClientError]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member; `assigned` is empty if the member has no assignment that can be decoded."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as its coordinator reports it; `state` is `Dead` if the group does not exist."""

    group_id: str
    coordinator: BrokerId
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


def coordinators(
    response: FindCoordinatorResponse, keys: tuple[str, ...]
) -> Mapping[str, BrokerId | ClientError]:
    """Return the coordinator of each group."""
    # The outcome of a group that is missing in the answer.
    missing = ClientError(ErrorCode.UNKNOWN_SERVER_ERROR.name, retriable=False)
    found: dict[str, BrokerId | ClientError] = dict.fromkeys(keys, missing)
    for each in response.coordinators:
        refused = failure(each.error_code)
        found[each.key] = BrokerId(each.node_id) if refused is None else refused
    return found


def failure(code: ErrorCode) -> ClientError | None:
    """Return the error for an answer about a group; None for NONE."""
    if code is ErrorCode.NONE:
        return None
    return ClientError(code.name, retriable=code in _RETRIED)


def listing(group: ListedGroup, broker: BrokerId) -> GroupListing:
    """Return a group's entry in the list of `broker`."""
    return GroupListing(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        state=group.group_state,
        group_type=group.group_type,
        broker=broker,
    )


def described_groups(
    response: DescribeGroupsResponse, broker: BrokerId, _keys: tuple[str, ...]
) -> Mapping[str, GroupDescription | ClientError]:
    """Return the description of each group by its coordinator."""
    # `failure` returns None for success; then `or` takes the description.
    return {
        group.group_id: failure(group.error_code) or _description(group, broker)
        for group in response.groups
    }


def _description(group: DescribedGroup, broker: BrokerId) -> GroupDescription:
    """Return a group's description, as `broker` (its coordinator) has answered it."""
    return GroupDescription(
        group_id=group.group_id,
        coordinator=broker,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_data,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assigned=_decode_assigned(member),
            )
            for member in group.members
        ),
    )


def _decode_assigned(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment, sorted."""
    if not member.member_assignment:  # only members of a stable group have an assignment
        return ()
    try:
        return tuple(sorted(decode_assignment(member.member_assignment).partitions()))
    except ConsumerProtocolError:
        # Groups of other clients (Kafka Connect, for example) have assignments of another form.
        return ()


def fetched_offsets(
    response: OffsetFetchResponse, _broker: BrokerId, _keys: tuple[str, ...]
) -> Mapping[str, dict[TopicPartition, int] | ClientError]:
    """Return the committed offsets of each group.

    Partitions without a committed offset (-1 in the answer) are left out.
    """
    # If `failure` returns None, `or` takes the offsets.
    return {
        group.group_id: failure(group.error_code)
        or {
            TopicPartition(topic.name, entry.partition_index): entry.committed_offset
            for topic in group.topics
            for entry in topic.partitions
            if entry.error_code is ErrorCode.NONE and entry.committed_offset >= 0
        }
        for group in response.groups
    }


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the error code of each partition of a commit."""
    return {
        TopicPartition(topic.name, entry.partition_index): entry.error_code
        for topic in response.topics
        for entry in topic.partitions
    }


def commit_outcomes(
    response: OffsetCommitResponse, _broker: BrokerId, keys: tuple[str, ...]
) -> Mapping[str, dict[TopicPartition, ErrorCode] | ClientError]:
    """Return the error code of each partition, or a retriable error for the whole commit."""
    errors = commit_errors(response)
    # The coordinator reports an error of the whole request at every partition, because the response
    # has no other field for it.
    for code in errors.values():
        if code in _RETRIED_COMMITS:
            return dict.fromkeys(keys, ClientError(code.name, retriable=True))
    return dict.fromkeys(keys, errors)


def offset_deletion_outcomes(
    response: OffsetDeleteResponse, _broker: BrokerId, keys: tuple[str, ...]
) -> Mapping[str, dict[TopicPartition, ErrorCode] | ClientError]:
    """Return the error code of each partition whose offset was to be deleted."""
    refused = failure(response.error_code)
    if refused is not None:
        return dict.fromkeys(keys, refused)
    errors = {
        TopicPartition(topic.name, entry.partition_index): entry.error_code
        for topic in response.topics
        for entry in topic.partitions
    }
    return dict.fromkeys(keys, errors)


def leave_outcomes(
    response: LeaveGroupResponse, _broker: BrokerId, keys: tuple[str, ...]
) -> Mapping[str, dict[str, ErrorCode] | ClientError]:
    """Return the error code of each removed member, by its instance id or else its member id."""
    refused = failure(response.error_code)
    if refused is not None:
        return dict.fromkeys(keys, refused)
    errors = {
        member.group_instance_id or member.member_id: member.error_code
        for member in response.members
    }
    return dict.fromkeys(keys, errors)


def group_deletion_outcomes(
    response: DeleteGroupsResponse, _broker: BrokerId, _keys: tuple[str, ...]
) -> Mapping[str, ClientError | None]:
    """Return None for each deleted group, else its error."""
    return {result.group_id: failure(result.error_code) for result in response.results}


def leaders(
    response: MetadataResponse, keys: tuple[TopicPartition, ...]
) -> Mapping[TopicPartition, BrokerId | ClientError]:
    """Return the leader of each partition."""
    # Error of a partition that is missing in the answer: the broker does not know it.
    unknown = ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, retriable=False)
    by_partition: dict[TopicPartition, BrokerId | ClientError] = dict.fromkeys(keys, unknown)
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            # Metadata names all partitions of a topic, also partitions that were not asked for.
            if partition in by_partition:
                by_partition[partition] = _partition_failure(entry.error_code) or BrokerId(
                    entry.leader_id
                )
    return by_partition


def log_offsets(
    response: ListOffsetsResponse, _broker: BrokerId, keys: tuple[TopicPartition, ...]
) -> Mapping[TopicPartition, int | ClientError]:
    """Return the requested offset of each partition's log."""
    # Error of a partition that is missing in the answer.
    missing = ClientError(ErrorCode.UNKNOWN_SERVER_ERROR.name, retriable=False)
    by_partition: dict[TopicPartition, int | ClientError] = dict.fromkeys(keys, missing)
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            by_partition[partition] = _partition_failure(entry.error_code) or entry.offset
    return by_partition


def _partition_failure(code: ErrorCode) -> ClientError | None:
    """Return the error of a partition's `code`, None for NONE."""
    if code is ErrorCode.NONE:
        return None
    return ClientError(code.name, retriable=code in _RETRIED_PARTITIONS)


def by_topic(
    partitions: Sequence[TopicPartition],
    *,
    topic: Callable[[str, tuple[E, ...]], T],
    entry: Callable[[TopicPartition], E],
) -> tuple[T, ...]:
    """Return `partitions` in the form that most requests have: one object for each topic.

    `entry` creates the object of a partition. `topic` creates the object of a topic from the name
    and the objects of its partitions.
    """
    grouped: dict[str, list[E]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(entry(partition))
    return tuple(topic(name, tuple(entries)) for name, entries in grouped.items())
