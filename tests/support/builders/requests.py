"""Requests of a group's members, with sensible defaults: a test sets only the fields that matter.

For example, `join_group("m1")` is a complete JoinGroup of the member `m1`. In all functions
`instance` is the `group.instance.id` of a static member.
"""

from protocol.api import API_OF_REQUEST, GroupRequest
from protocol.envelope import RequestEnvelope
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.transaction import TxnOffsetCommitRequest
from protocol.wire.consumer_protocol import ConsumerProtocolSubscription, encode_subscription

GROUP = "group"
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 30_000


def subscription(*topics: str) -> bytes:
    """Return the encoded subscription of a member to `topics`, by default to `foo`."""
    return encode_subscription(ConsumerProtocolSubscription(topics=topics or ("foo",)))


def protocols(*names: str, metadata: bytes | None = None) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return protocols (assignors) with these names, by default one with the name `range`.

    All have the same metadata, by default a subscription to `foo`.
    """
    if metadata is None:
        metadata = subscription()
    return tuple(JoinGroupRequestProtocol(name, metadata) for name in names or ("range",))


def join_group(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    protocol_type: str = "consumer",
    offers: tuple[JoinGroupRequestProtocol, ...] | None = None,
    reason: str | None = None,
) -> JoinGroupRequest:
    """Return a JoinGroup. A new member sends an empty `member_id`.

    `offers` are the protocols that the member supports, by default only `range`.
    """
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=protocols() if offers is None else offers,
        reason=reason,
    )


def sync_group(
    member_id: str,
    generation_id: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    """Return a SyncGroup.

    `assignments` maps the id of each member to the member's encoded partitions. Only the SyncGroup
    of the group's leader has assignments.
    """
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=tuple(
            SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()
        ),
    )


def heartbeat(
    member_id: str, generation_id: int, *, group_id: str = GROUP, instance: str | None = None
) -> HeartbeatRequest:
    """Return a Heartbeat."""
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
    )


def leave_group(
    *members: str | MemberIdentity, group_id: str = GROUP, reason: str | None = None
) -> LeaveGroupRequest:
    """Return a LeaveGroup of members.

    A member is given by its id, or by a MemberIdentity if the test sets more than the id.
    """
    return LeaveGroupRequest(
        group_id=group_id,
        members=tuple(
            member
            if isinstance(member, MemberIdentity)
            else MemberIdentity(member_id=member, reason=reason)
            for member in members
        ),
    )


def offset_commit(
    offsets: dict[tuple[str, int], int],
    member_id: str = "",
    generation_id: int = -1,
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    metadata: str = "",
    leader_epoch: int = -1,
    retention_time_ms: int = -1,
) -> OffsetCommitRequest:
    """Return an OffsetCommit: `offset_commit({("foo", 0): 42})` commits 42 for partition foo-0.

    By default the request names no member and no generation. Such a commit is sent by a consumer
    that is no member of the group. A generation, leader epoch or retention time of -1 means that
    the request has no such value.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_time_ms,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def txn_offset_commit(
    offsets: dict[tuple[str, int], int],
    member_id: str = "",
    generation_id: int = -1,
    *,
    producer: int = 7,
    epoch: int = 0,
    group_id: str = GROUP,
    instance: str | None = None,
    metadata: str = "",
) -> TxnOffsetCommitRequest:
    """Return a TxnOffsetCommit of the producer with the id `producer`.

    The offsets are given as in `offset_commit`: `{("foo", 0): 42}`.
    """
    plain_commit = offset_commit(offsets, metadata=metadata)
    return TxnOffsetCommitRequest(
        transactional_id=f"tx-{producer}",
        group_id=group_id,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        topics=plain_commit.topics,
    )


def offset_fetch(
    *partitions: tuple[str, int], group_id: str = GROUP, require_stable: bool = False
) -> OffsetFetchRequest:
    """Return an OffsetFetch: `offset_fetch(("foo", 0))` asks for the group's offset in foo-0.

    Without partitions, the request asks for all partitions in which the group has committed. With
    `require_stable`, the coordinator has to answer with an error for a partition whose offset is
    part of an open transaction.
    """
    indexes_of_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes_of_topic.setdefault(topic, []).append(index)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = None
    if partitions:
        topics = tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(indexes))
            for name, indexes in indexes_of_topic.items()
        )
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),),
        require_stable=require_stable,
    )


def envelope(
    body: GroupRequest, *, version: int | None = None, client_id: str = "client"
) -> RequestEnvelope:
    """Return a request in its envelope, by default in the newest version of its API."""
    api = API_OF_REQUEST[type(body)]
    return RequestEnvelope(
        api_key=api,
        api_version=api.latest_version if version is None else version,
        correlation_id=0,
        client_id=client_id,
        client_host="consumer-0",
        body=body,
    )
