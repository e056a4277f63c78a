"""Commands of a transcript that are requests to a group coordinator.

A transcript is a text file of commands and their printed results. A command has a name, words and
settings (`group=g`). The functions here are readers. A reader makes a request from a command, and
removes from the command the settings that it has read. If a setting remains, no reader knows it,
which is an error. In an optional setting, `-` stands for None.

The generation counts a group's rebalances. A static member has a configured instance id (setting
`instance`).
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
    """Return the request of a command. The caller reads the settings `client` and `version`.

    Raises: UnknownWord for a command that is no request.
    """
    read = READERS.get(command.name)
    if read is None:
        raise UnknownWord(f"no command is called {command.name}")
    return read(command)


def _join(command: Command) -> GroupRequest:
    """`join`: JoinGroup of a new member; `join m-1 protocols=range:foo,sticky`: of member m-1.

    `protocols` are those that the member offers. By default a member offers range, and a static
    member also roundrobin.
    """
    (member_id,) = command.words or [""]
    instance = command.optional("instance")
    offers = tuple(_offer(part) for part in command.parts("protocols")) or protocols(
        *(["range"] if instance is None else ["range", "roundrobin"])
    )
    return join_group(
        member_id,
        group_id=command.text("group", GROUP),
        instance=instance,
        session_timeout_ms=command.number("session", 10_000),
        rebalance_timeout_ms=command.number("rebalance", 30_000),
        protocol_type=command.text("type", "consumer"),
        offers=() if command.settings.pop("no_protocols", "") else offers,
        reason=command.optional("reason"),
    )


def _offer(part: str) -> JoinGroupRequestProtocol:
    """Return a protocol from `range:metadata`; `range` alone has a subscription to foo."""
    name, _, metadata = part.partition(":")
    return JoinGroupRequestProtocol(name, read_bytes(metadata or "foo"))


def _sync(command: Command) -> GroupRequest:
    """`sync m-1 2 assign=m-1:foo,m-2:bar`: SyncGroup of m-1 in generation 2, with assignments."""
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
    """`heartbeat m-1 2`: Heartbeat of m-1 in generation 2."""
    member_id, generation_id = command.words
    return heartbeat(
        member_id,
        int(generation_id),
        group_id=command.text("group", GROUP),
        instance=command.optional("instance"),
    )


def _leave(command: Command) -> GroupRequest:
    """`leave m-1`, `leave m-1/instance`, `leave /instance`: a member's id, instance id, or both."""
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
    """`commit m-1 2 foo-0=97`: commit offset 97 of foo-0 as m-1 in generation 2.

    Without words it is the commit of a consumer that is no member. -1 stands for no generation, no
    leader epoch and no retention time.
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
    """`txn_commit m-1 2 foo-0=97 producer=7 epoch=0`: a commit within a transaction."""
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
    """`fetch foo-0 stable=yes`: request committed offsets; without words, of all partitions.

    With `stable` a partition with an open transaction gets an error.
    """
    return offset_fetch(
        *(read_partition(word) for word in command.words),
        group_id=command.text("group", GROUP),
        require_stable=bool(command.settings.pop("stable", "")),
    )


def _offset_delete(command: Command) -> GroupRequest:
    """`offset_delete foo-0 foo-1`: delete the committed offsets of partitions."""
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
    """`describe g h`: describe the groups g and h."""
    return DescribeGroupsRequest(groups=tuple(command.words))


def _list(command: Command) -> GroupRequest:
    """`list states=Stable,Empty types=classic`: list groups of these states and types."""
    return ListGroupsRequest(
        states_filter=tuple(command.parts("states")), types_filter=tuple(command.parts("types"))
    )


def _delete(command: Command) -> GroupRequest:
    """`delete g h`: delete the groups g and h."""
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
"""Requests by the name of their command."""
