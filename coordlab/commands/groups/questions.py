"""Questions of `groups`, command by command: calls of an administrator's client become facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cluster.client.admin.admin_client import AdminClient, OffsetSpec
from cluster.client.admin.admin_driver import GaveUp
from cluster.client.admin.offset_reset import (
    CannotShift,
    LogBounds,
    ResetTarget,
    plan_reset,
)
from cluster.client.admin.outcomes import GroupDescription, MemberDescription
from cluster.client.net.errors import ClientError
from coordlab.commands.groups.facts import (
    DEAD,
    EMPTY,
    WHOLE_TOPIC,
    CoordinatedGroup,
    DeletedGroup,
    DeletedOffset,
    DeletedOffsets,
    GroupFacts,
    GroupList,
    GroupMember,
    GroupOffset,
    OffsetReset,
    ResetOffset,
)
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition

CONSUMER_PROTOCOL_TYPES = ("consumer", "")
"""Groups of other types hold no consumers: Kafka's tool leaves them out too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTopic:
    """A topic on the command line; `partitions` None means every one."""

    topic: str
    partitions: tuple[int, ...] | None


async def list_groups(
    admin: AdminClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> GroupList:
    """Return the groups that every live broker lists. Raises: TimeoutError."""
    listings = await admin.list_groups(states=states, types=types)
    return GroupList(
        groups=tuple(
            CoordinatedGroup(
                group=each.group_id,
                type=each.group_type,
                protocol_type=each.protocol_type,
                state=each.state,
                coordinator=each.broker,
            )
            for each in listings.groups
            if each.protocol_type in CONSUMER_PROTOCOL_TYPES
        ),
        failures={broker: _error_text(error) for broker, error in listings.failures.items()},
    )


async def describe_groups(
    admin: AdminClient, groups: Sequence[str], *, with_offsets: bool
) -> tuple[GroupFacts, ...]:
    """Return each group, in that order."""
    found = await admin.describe_groups(tuple(dict.fromkeys(groups)))
    described = {group: _described(group, each) for group, each in found.items()}
    if not with_offsets:
        return tuple(described.values())
    there = [each.group for each in described.values() if each.error is None]
    committed = await admin.list_consumer_group_offsets(there)
    read = {group: each for group, each in committed.items() if not isinstance(each, ClientError)}
    wanted = {group: _partitions(described[group], offsets) for group, offsets in read.items()}
    every = tuple(sorted({each: None for partitions in wanted.values() for each in partitions}))
    ends = await admin.list_offsets(every, OffsetSpec.LATEST)
    return tuple(
        _with_offsets(each, committed.get(each.group), wanted.get(each.group, ()), ends)
        for each in described.values()
    )


async def delete_groups(admin: AdminClient, groups: Sequence[str]) -> tuple[DeletedGroup, ...]:
    """Delete groups; of one that has members, say which."""
    outcomes = await admin.delete_groups(tuple(dict.fromkeys(groups)))
    held = [
        group
        for group, error in outcomes.items()
        if error is not None and error.name == ErrorCode.NON_EMPTY_GROUP.name
    ]
    members = {
        group: found.members if isinstance(found, GroupDescription) else ()
        for group, found in (await admin.describe_groups(held)).items()
    }
    return tuple(
        DeletedGroup(
            group=group,
            error=None if error is None else _error_text(error),
            held_by=tuple(map(_member, members.get(group, ()))),
        )
        for group, error in outcomes.items()
    )


async def delete_group_offsets(
    admin: AdminClient, group: str, topics: Sequence[ChosenTopic]
) -> DeletedOffsets:
    """Delete the committed offsets of some partitions. Raises: TimeoutError."""
    partitions, unknown = await _chosen(admin, topics)
    try:
        errors = await admin.delete_consumer_group_offsets(group, partitions) if partitions else {}
    except ClientError as error:
        return DeletedOffsets(group=group, error=_error_text(error))
    return DeletedOffsets(
        group=group,
        error=None,
        offsets=(
            *(
                DeletedOffset(topic=each.topic, partition=each.partition, error=_name(code))
                for each, code in errors.items()
            ),
            *(
                DeletedOffset(topic=each.topic, partition=each.partition, error=why)
                for each, why in unknown.items()
            ),
        ),
    )


async def reset_group_offsets(
    admin: AdminClient,
    group: str,
    topics: Sequence[ChosenTopic] | None,
    target: ResetTarget,
    *,
    execute: bool,
) -> OffsetReset:
    """Plan new offsets for a group without members; commit them if `execute`.

    `topics` None means those of which it has committed offsets. Nothing is committed unless
    everything can be planned. Raises: TimeoutError.
    """
    (found,) = (await admin.describe_groups((group,))).values()
    if isinstance(found, ClientError):
        return OffsetReset(group=group, executed=False, error=_error_text(found))
    if found.state not in (EMPTY, DEAD):
        return OffsetReset(
            group=group,
            executed=False,
            error=ErrorCode.NON_EMPTY_GROUP.name,
            state=found.state,
            held_by=tuple(map(_member, found.members)),
        )
    (committed,) = (await admin.list_consumer_group_offsets((group,))).values()
    if isinstance(committed, ClientError):
        return OffsetReset(
            group=group, executed=False, error=_error_text(committed), state=found.state
        )
    if topics is None:
        partitions, problems = tuple(sorted(committed)), dict[TopicPartition, str]()
    else:
        partitions, problems = await _chosen(admin, topics)
    bounds, without_bounds = await _bounds(admin, partitions)
    problems |= without_bounds
    try:
        planned = plan_reset(target, bounds, committed)
    except CannotShift as error:
        problems |= dict.fromkeys(error.partitions, "nothing is committed to shift from")
        planned = ()
    errors: Mapping[TopicPartition, ErrorCode] = {}
    executes = execute and bool(planned) and not problems
    if executes:
        try:
            errors = await admin.alter_consumer_group_offsets(
                group, {each.partition: each.new for each in planned}
            )
        except ClientError as refused:
            return OffsetReset(
                group=group, executed=False, error=_error_text(refused), state=found.state
            )
    return OffsetReset(
        group=group,
        executed=executes,
        error=None,
        state=found.state,
        offsets=(
            *(
                ResetOffset(
                    topic=each.partition.topic,
                    partition=each.partition.partition,
                    current_offset=each.current,
                    new_offset=each.new,
                    asked_for=each.asked_for,
                    error=_name(errors.get(each.partition, ErrorCode.NONE)),
                )
                for each in planned
            ),
            *(
                ResetOffset(
                    topic=each.topic,
                    partition=each.partition,
                    current_offset=committed.get(each),
                    new_offset=None,
                    error=why,
                )
                for each, why in problems.items()
            ),
        ),
    )


async def _chosen(
    admin: AdminClient, topics: Sequence[ChosenTopic]
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, str]]:
    """Return the partitions that were chosen, and why others cannot be."""
    replicas = await admin.describe_topics(tuple(dict.fromkeys(each.topic for each in topics)))
    found: dict[TopicPartition, None] = {}
    unknown: dict[TopicPartition, str] = {}
    for each in topics:
        described = replicas.get(each.topic, {})
        known = 0 if isinstance(described, ClientError) else len(described)
        for index in range(known) if each.partitions is None else each.partitions:
            partition = TopicPartition(each.topic, index)
            if index < known:
                found[partition] = None
            else:
                unknown[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        if isinstance(described, ClientError) and each.partitions is None:
            unknown[TopicPartition(each.topic, WHOLE_TOPIC)] = _error_text(described)
    return tuple(found), unknown


async def _bounds(
    admin: AdminClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, LogBounds], dict[TopicPartition, str]]:
    """Return where each partition's log begins and ends, and why that of others is not known."""
    earliest = await admin.list_offsets(partitions, OffsetSpec.EARLIEST)
    latest = await admin.list_offsets(partitions, OffsetSpec.LATEST)
    bounds: dict[TopicPartition, LogBounds] = {}
    unknown: dict[TopicPartition, str] = {}
    for partition in partitions:
        begin, end = earliest[partition], latest[partition]
        if isinstance(begin, ClientError):
            unknown[partition] = _error_text(begin)
        elif isinstance(end, ClientError):
            unknown[partition] = _error_text(end)
        else:
            bounds[partition] = LogBounds(earliest=begin, latest=end)
    return bounds, unknown


def _described(group: str, found: GroupDescription | ClientError) -> GroupFacts:
    if isinstance(found, ClientError):
        return GroupFacts(group=group, error=_error_text(found))
    return GroupFacts(
        group=group,
        error=ErrorCode.GROUP_ID_NOT_FOUND.name if found.state == DEAD else None,
        state=found.state,
        coordinator=found.coordinator,
        assignment_strategy=found.protocol_name,
        members=tuple(map(_member, found.members)),
    )


def _member(found: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=found.member_id,
        group_instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.client_host,
        assigned=found.assigned,
    )


def _partitions(
    group: GroupFacts, committed: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, ...]:
    """Return what is committed or assigned, by name."""
    assigned = [partition for member in group.members for partition in member.assigned]
    return tuple(sorted(dict.fromkeys([*committed, *assigned])))


def _with_offsets(
    group: GroupFacts,
    committed: Mapping[TopicPartition, int] | ClientError | None,
    partitions: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, int | ClientError],
) -> GroupFacts:
    if committed is None:  # the group itself could not be described
        return group
    if isinstance(committed, ClientError):
        return msgspec.structs.replace(group, error=_error_text(committed))
    owners = {each: member for member in group.members for each in member.assigned}
    offsets = tuple(
        _offset(each, committed.get(each), ends[each], owners.get(each)) for each in partitions
    )
    return msgspec.structs.replace(group, offsets=offsets)


def _offset(
    partition: TopicPartition,
    current: int | None,
    end: int | ClientError,
    owner: GroupMember | None,
) -> GroupOffset:
    known = None if isinstance(end, ClientError) else end
    return GroupOffset(
        topic=partition.topic,
        partition=partition.partition,
        current_offset=current,
        log_end_offset=known,
        lag=None if current is None or known is None else known - current,
        member_id=None if owner is None else owner.member_id,
        host=None if owner is None else owner.host,
        client_id=None if owner is None else owner.client_id,
        error=_error_text(end) if isinstance(end, ClientError) else None,
    )


def _name(code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else code.name


def _error_text(error: ClientError) -> str:
    """Return an error's name, and how long it was asked for in vain where it was."""
    if isinstance(error, GaveUp):
        return f"{error.name}, still after {error.waited_us / 1e6:g} s"
    return error.name
