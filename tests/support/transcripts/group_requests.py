"""Commands of a transcript that are requests to a group coordinator.

A transcript is a text file of commands and their results. Each function here makes the request from
a command such as `heartbeat m-1 2 group=g`. The function removes the settings that it knows from
the command, such as `group`. If a setting is left in the end, the command is wrong. The value `-`
of a setting means None.
"""

from collections.abc import Callable

from protocol.api import GroupRequest
from protocol.messages.group import JoinGroupRequestProtocol, MemberIdentity
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.builders.requests import (
    GROUP,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    protocols,
    sync_group,
    txn_offset_commit,
)
from tests.support.transcripts.words import (
    Command,
    UnknownWord,
    read_bytes,
    read_offsets,
    read_partition,
)


def read_request(command: Command) -> GroupRequest:
    """Return the request that a command describes.

    The settings `client` and `version` are no part of the request. The caller has to take them.

    Raises: UnknownWord if the command is no request.
    """
    read = READERS.get(command.name)
    if read is None:
        raise UnknownWord(f"no command is called {command.name}")
    return read(command)


def _join(command: Command) -> GroupRequest:
    """`join` is the JoinGroup of a new member, and `join m-1` is the JoinGroup of the member m-1.

    `protocols=range:foo,sticky` are the protocols that the member offers. By default a member
    offers `range`, and a static member also `roundrobin`. With `no_protocols=yes` it offers none.
    """
    (member_id,) = command.words or [""]
    instance = command.optional("instance")
    offers = tuple(_offer(part) for part in command.parts("protocols"))
    if not offers:
        offers = protocols("range") if instance is None else protocols("range", "roundrobin")
    if command.settings.pop("no_protocols", ""):
        offers = ()
    return join_group(
        member_id,
        group_id=command.text("group", GROUP),
        instance=instance,
        session_timeout_ms=command.number("session", 10_000),
        rebalance_timeout_ms=command.number("rebalance", 30_000),
        protocol_type=command.text("type", "consumer"),
        offers=offers,
        reason=command.optional("reason"),
    )


def _offer(part: str) -> JoinGroupRequestProtocol:
    """Return the protocol that `range:foo+bar` describes. By default it subscribes to foo."""
    name, _, metadata = part.partition(":")
    return JoinGroupRequestProtocol(name, read_bytes(metadata or "foo"))


def _sync(command: Command) -> GroupRequest:
    """`sync m-1 2` is the SyncGroup of m-1 in generation 2.

    `assign=m-1:foo,m-2:bar` are the assignments, which only the leader of the group sends.
    """
    member_id, generation_id = command.words
    assignments = (part.partition(":") for part in command.parts("assign"))
    return sync_group(
        member_id,
        int(generation_id),
        {member: read_bytes(data) for member, _, data in assignments},
        group_id=command.text("group", GROUP),
        instance=command.optional("instance"),
        protocol_type=command.optional("type", "consumer"),
        protocol_name=command.optional("protocol", "range"),
    )


def _heartbeat(command: Command) -> GroupRequest:
    """`heartbeat m-1 2` is the Heartbeat of m-1 in generation 2."""
    member_id, generation_id = command.words
    return heartbeat(
        member_id,
        int(generation_id),
        group_id=command.text("group", GROUP),
        instance=command.optional("instance"),
    )


def _leave(command: Command) -> GroupRequest:
    """`leave m-1 m-2/instance /instance` is a LeaveGroup of three members.

    A member is named by its member id, by its instance id after a slash, or by both.
    """
    reason = command.optional("reason")
    return leave_group(
        *(_identity(word, reason) for word in command.words),
        group_id=command.text("group", GROUP),
    )


def _identity(word: str, reason: str | None) -> MemberIdentity:
    """Return the member that a word of `leave` names, such as `m-1/instance`."""
    member_id, slash, instance = word.partition("/")
    return MemberIdentity(
        member_id=member_id, group_instance_id=instance if slash else None, reason=reason
    )


def _commit(command: Command) -> GroupRequest:
    """`commit m-1 2 foo-0=97` commits offset 97 of foo-0, as m-1 in generation 2.

    `commit foo-0=97` is the commit of a consumer that is no member. A generation, leader epoch or
    retention time of -1 means that the request has no such value.
    """
    member_id, generation_id = command.words or ("", "-1")
    return offset_commit(
        dict(read_offsets(command)),
        member_id,
        int(generation_id),
        group_id=command.text("group", GROUP),
        instance=command.optional("instance"),
        metadata=command.text("metadata", ""),
        leader_epoch=command.number("leader_epoch", -1),
        retention_time_ms=command.number("retention", -1),
    )


def _txn_commit(command: Command) -> GroupRequest:
    """`txn_commit m-1 2 foo-0=97 producer=7 epoch=0` is a commit within a transaction."""
    member_id, generation_id = command.words or ("", "-1")
    return txn_offset_commit(
        dict(read_offsets(command)),
        member_id,
        int(generation_id),
        producer=command.number("producer", 7),
        epoch=command.number("epoch", 0),
        group_id=command.text("group", GROUP),
        instance=command.optional("instance"),
        metadata=command.text("metadata", ""),
    )


def _fetch(command: Command) -> GroupRequest:
    """`fetch foo-0` asks for the committed offset of foo-0.

    `fetch` asks for all committed offsets of the group. With `stable=yes` the answer must have an
    error for a partition with an open transaction.
    """
    return offset_fetch(
        *(read_partition(word) for word in command.words),
        group_id=command.text("group", GROUP),
        require_stable=bool(command.settings.pop("stable", "")),
    )


def _offset_delete(command: Command) -> GroupRequest:
    """`offset_delete foo-0 foo-1` deletes the committed offsets of these partitions."""
    topics: dict[str, list[int]] = {}
    for word in command.words:
        partition = read_partition(word)
        topics.setdefault(partition.topic, []).append(partition.partition)
    return OffsetDeleteRequest(
        group_id=command.text("group", GROUP),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ),
            )
            for topic, indexes in topics.items()
        ),
    )


def _describe(command: Command) -> GroupRequest:
    """`describe g h` asks for descriptions of the groups g and h."""
    return DescribeGroupsRequest(groups=tuple(command.words))


def _list(command: Command) -> GroupRequest:
    """`list states=Stable,Empty types=classic` asks which groups of these kinds there are."""
    return ListGroupsRequest(
        states_filter=tuple(command.parts("states")), types_filter=tuple(command.parts("types"))
    )


def _delete(command: Command) -> GroupRequest:
    """`delete g h` deletes the groups g and h."""
    return DeleteGroupsRequest(groups_names=tuple(command.words))


READERS: dict[str, Callable[[Command], GroupRequest]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "txn_commit": _txn_commit,
    "fetch": _fetch,
    "offset_delete": _offset_delete,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
}
"""The name of a command -> the function that makes its request."""
