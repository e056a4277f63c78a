"""Requests with sensible defaults: a test names only the fields that matter to it.

Terms:

- The generation counts a group's rebalances; members name it in their requests.
- A protocol is a way to assign partitions, such as range. A member offers some protocols, with its
  subscription (the topics that it wants) as metadata.
- A static member has a `group.instance.id` in its settings (here `instance`). With it the member
  keeps its place in the group through a restart.
- A simple consumer is no member: it only commits offsets under the group's name.
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
    """Return subscription bytes for `topics` (default: foo)."""
    return encode_subscription(ConsumerProtocolSubscription(topics=topics or ("foo",)))


def protocols(*names: str, metadata: bytes | None = None) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return protocols of these names (default: range), all with the same metadata."""
    data = subscription() if metadata is None else metadata
    return tuple(JoinGroupRequestProtocol(name, data) for name in names or ("range",))


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
    """Return a JoinGroup; an empty `member_id` is that of a new member.

    `offers` are the protocols that the member offers (default: range).
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
    """Return a SyncGroup, by which the group's leader sends the assignments of all members.

    `assignments` are by member id. Members other than the leader send no assignments.
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
    """Return a LeaveGroup of members; each is given by its member id or by a MemberIdentity."""
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
    """Return an OffsetCommit of offsets by (topic, partition).

    Without a member and a generation it is the commit of a simple consumer. A generation, leader
    epoch or retention time of -1 stands for none.
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
    """Return a TxnOffsetCommit of offsets by (topic, partition), for producer id `producer`."""
    plain = offset_commit(offsets, metadata=metadata)
    return TxnOffsetCommitRequest(
        transactional_id=f"tx-{producer}",
        group_id=group_id,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        topics=plain.topics,
    )


def offset_fetch(
    *partitions: tuple[str, int], group_id: str = GROUP, require_stable: bool = False
) -> OffsetFetchRequest:
    """Return an OffsetFetch of one group; without partitions it asks for all.

    require_stable: a partition with an offset in an open transaction gets an error.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=tuple(
                    OffsetFetchRequestTopics(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in topics.items()
                )
                if partitions
                else None,
            ),
        ),
        require_stable=require_stable,
    )


def envelope(
    body: GroupRequest, *, version: int | None = None, client_id: str = "client"
) -> RequestEnvelope:
    """Return the envelope of a group request, of the newest version by default."""
    api = API_OF_REQUEST[type(body)]
    return RequestEnvelope(
        api_key=api,
        api_version=api.latest_version if version is None else version,
        correlation_id=0,
        client_id=client_id,
        client_host="consumer-0",
        body=body,
    )
