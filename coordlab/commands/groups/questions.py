"""The questions of each subcommand of `groups`: they call an AdminClient, and return facts.

The AdminClient returns a ClientError in place of an answer for each group or partition that failed.
It raises only errors that concern a whole request. Facts are the documents of the command; their
`error` is a text, or None after success. A log end is the offset that the next record of a
partition will get.
"""

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
"""Types of the groups that are listed.

Groups of other types have no consumers; Kafka's tool leaves them out, too. "" is the type of a
group that no member has ever joined, and that only stores offsets.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTopic:
    """A topic on the command line; if `partitions` is None, all its partitions are meant."""

    topic: str
    partitions: tuple[int, ...] | None


async def list_groups(
    admin: AdminClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> GroupList:
    """Return the groups of consumers, from the lists of all live brokers. Raises: TimeoutError."""
    listings = await admin.list_groups(states=states, types=types)
    return GroupList(
        groups=tuple(
            CoordinatedGroup(
                group=listed.group_id,
                type=listed.group_type,
                protocol_type=listed.protocol_type,
                state=listed.state,
                coordinator=listed.broker,
            )
            for listed in listings.groups
            if listed.protocol_type in CONSUMER_PROTOCOL_TYPES
        ),
        failures={broker: _error_text(error) for broker, error in listings.failures.items()},
    )


async def describe_groups(
    admin: AdminClient, groups: Sequence[str], *, with_offsets: bool
) -> tuple[GroupFacts, ...]:
    """Return the facts about each group, in the order of `groups`.

    There are three steps, each of which asks about all groups together:

    1. the descriptions of the groups;
    2. the committed offsets of the groups that exist;
    3. the log ends of all partitions of these groups.
    """
    # `dict.fromkeys` drops a group that the command line names twice, and keeps the order.
    descriptions = await admin.describe_groups(tuple(dict.fromkeys(groups)))
    facts = {group: _described(group, answer) for group, answer in descriptions.items()}
    if not with_offsets:
        return tuple(facts.values())

    existing = [group.group for group in facts.values() if group.error is None]
    committed = await admin.list_consumer_group_offsets(existing)

    partitions_by_group = {
        group: _partitions(facts[group], offsets)
        for group, offsets in committed.items()
        if not isinstance(offsets, ClientError)
    }
    # Each partition is requested once, even if several groups read it.
    all_partitions = {
        partition for partitions in partitions_by_group.values() for partition in partitions
    }
    ends = await admin.list_offsets(tuple(sorted(all_partitions)), OffsetSpec.LATEST)
    return tuple(
        _with_offsets(
            group, committed.get(group.group), partitions_by_group.get(group.group, ()), ends
        )
        for group in facts.values()
    )


async def delete_groups(admin: AdminClient, groups: Sequence[str]) -> tuple[DeletedGroup, ...]:
    """Delete groups; a group with members stays, and its outcome names these members."""
    # `dict.fromkeys` drops a group that the command line names twice, and keeps the order.
    outcomes = await admin.delete_groups(tuple(dict.fromkeys(groups)))
    held = [
        group
        for group, error in outcomes.items()
        if error is not None and error.name == ErrorCode.NON_EMPTY_GROUP.name
    ]
    # The error of a deletion does not name the members, so they are asked for.
    members = {
        group: answer.members if isinstance(answer, GroupDescription) else ()
        for group, answer in (await admin.describe_groups(held)).items()
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
    partitions, problems = await _chosen(admin, topics)
    try:
        # If none of the chosen partitions exists, there is nothing to delete.
        codes = await admin.delete_consumer_group_offsets(group, partitions) if partitions else {}
    except ClientError as error:
        return DeletedOffsets(group=group, error=_error_text(error))
    errors = {partition: _name(code) for partition, code in codes.items()} | problems
    return DeletedOffsets(
        group=group,
        error=None,
        offsets=tuple(
            DeletedOffset(topic=deleted.topic, partition=deleted.partition, error=error_name)
            for deleted, error_name in errors.items()
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

    `topics`: None for all partitions with committed offsets. If one partition gets no new offset,
    nothing is committed.
    Raises: TimeoutError.
    """
    # There is one answer, because one group was asked about.
    (described,) = (await admin.describe_groups((group,))).values()
    if isinstance(described, ClientError):
        return OffsetReset(group=group, executed=False, error=_error_text(described))
    # If the group had members, their next commits would overwrite the new offsets. A group that
    # does not exist (Dead) is allowed, because a commit creates it.
    if described.state not in (EMPTY, DEAD):
        return OffsetReset(
            group=group,
            executed=False,
            error=ErrorCode.NON_EMPTY_GROUP.name,
            state=described.state,
            held_by=tuple(map(_member, described.members)),
        )

    (committed,) = (await admin.list_consumer_group_offsets((group,))).values()
    if isinstance(committed, ClientError):
        return OffsetReset(
            group=group, executed=False, error=_error_text(committed), state=described.state
        )

    # `problems` has the partitions that get no new offset, each with the reason.
    if topics is None:
        partitions: tuple[TopicPartition, ...] = tuple(sorted(committed))
        problems: dict[TopicPartition, str] = {}
    else:
        partitions, problems = await _chosen(admin, topics)
    bounds, without_bounds = await _bounds(admin, partitions)
    problems |= without_bounds
    try:
        planned = plan_reset(target, bounds, committed)
    except CannotShift as error:
        problems |= dict.fromkeys(error.partitions, "nothing is committed to shift from")
        # The plan of the other partitions is shown, although a problem prevents the whole reset.
        shiftable = {name: log for name, log in bounds.items() if name not in error.partitions}
        planned = plan_reset(target, shiftable, committed)

    errors: Mapping[TopicPartition, ErrorCode] = {}  # stays empty if nothing is committed
    executes = execute and bool(planned) and not problems
    if executes:
        try:
            errors = await admin.alter_consumer_group_offsets(
                group, {plan.partition: plan.new for plan in planned}
            )
        except ClientError as refused:
            return OffsetReset(
                group=group, executed=False, error=_error_text(refused), state=described.state
            )

    return OffsetReset(
        group=group,
        executed=executes,
        error=None,
        state=described.state,
        offsets=(
            *(
                ResetOffset(
                    topic=plan.partition.topic,
                    partition=plan.partition.partition,
                    current_offset=plan.current,
                    new_offset=plan.new,
                    asked_for=plan.asked_for,
                    error=_name(errors.get(plan.partition, ErrorCode.NONE)),
                )
                for plan in planned
            ),
            *(
                ResetOffset(
                    topic=partition.topic,
                    partition=partition.partition,
                    current_offset=committed.get(partition),
                    new_offset=None,
                    error=problem,
                )
                for partition, problem in problems.items()
            ),
        ),
    )


async def _chosen(
    admin: AdminClient, topics: Sequence[ChosenTopic]
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, str]]:
    """Return the chosen partitions that exist, and an error for each one that does not."""
    # A topic that the command line names several times is described once.
    replicas = await admin.describe_topics(tuple(dict.fromkeys(topic.topic for topic in topics)))
    existing: dict[TopicPartition, None] = {}  # an ordered set: a partition can be named twice
    errors: dict[TopicPartition, str] = {}
    for chosen in topics:
        described = replicas.get(chosen.topic, {})
        # An unknown topic has 0 partitions here, so each named partition of it becomes an error.
        number = 0 if isinstance(described, ClientError) else len(described)
        indexes = range(number) if chosen.partitions is None else chosen.partitions
        for index in indexes:
            partition = TopicPartition(chosen.topic, index)
            if index < number:
                existing[partition] = None
            else:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        if isinstance(described, ClientError) and chosen.partitions is None:
            # Neither the user nor the cluster has named a partition that could have the error.
            errors[TopicPartition(chosen.topic, WHOLE_TOPIC)] = _error_text(described)
    return tuple(existing), errors


async def _bounds(
    admin: AdminClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, LogBounds], dict[TopicPartition, str]]:
    """Return the first offset and the end of each log, or an error if one of them is not known."""
    earliest = await admin.list_offsets(partitions, OffsetSpec.EARLIEST)
    latest = await admin.list_offsets(partitions, OffsetSpec.LATEST)
    bounds: dict[TopicPartition, LogBounds] = {}
    errors: dict[TopicPartition, str] = {}
    for partition in partitions:
        begin, end = earliest[partition], latest[partition]
        if isinstance(begin, ClientError):
            errors[partition] = _error_text(begin)
        elif isinstance(end, ClientError):
            errors[partition] = _error_text(end)
        else:
            bounds[partition] = LogBounds(earliest=begin, latest=end)
    return bounds, errors


def _described(group: str, answer: GroupDescription | ClientError) -> GroupFacts:
    """Return the facts of a group from its description, or the error of the description.

    Kafka describes a group that does not exist as Dead.
    """
    if isinstance(answer, ClientError):
        return GroupFacts(group=group, error=_error_text(answer))
    return GroupFacts(
        group=group,
        error=ErrorCode.GROUP_ID_NOT_FOUND.name if answer.state == DEAD else None,
        state=answer.state,
        coordinator=answer.coordinator,
        assignment_strategy=answer.protocol_name,
        members=tuple(map(_member, answer.members)),
    )


def _member(member: MemberDescription) -> GroupMember:
    """Return a member as it stands in the facts."""
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assigned=member.assigned,
    )


def _partitions(
    group: GroupFacts, committed: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, ...]:
    """Return the partitions with a committed offset, or assigned to a member, sorted by name."""
    assigned = [partition for member in group.members for partition in member.assigned]
    return tuple(sorted({*committed, *assigned}))


def _with_offsets(
    group: GroupFacts,
    committed: Mapping[TopicPartition, int] | ClientError | None,
    partitions: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, int | ClientError],
) -> GroupFacts:
    """Add the offsets to the facts of a group.

    Each of its partitions has the committed offset, the log end, and the member that owns it.
    """
    if committed is None:  # the group itself could not be described
        return group
    if isinstance(committed, ClientError):
        return msgspec.structs.replace(group, error=_error_text(committed))
    owners = {partition: member for member in group.members for partition in member.assigned}
    offsets = tuple(
        _offset(partition, committed.get(partition), ends[partition], owners.get(partition))
        for partition in partitions
    )
    return msgspec.structs.replace(group, offsets=offsets)


def _offset(
    partition: TopicPartition,
    current: int | None,
    end: int | ClientError,
    owner: GroupMember | None,
) -> GroupOffset:
    """Return one partition's offsets; the lag is unknown if either offset is unknown."""
    end_offset = None if isinstance(end, ClientError) else end
    return GroupOffset(
        topic=partition.topic,
        partition=partition.partition,
        current_offset=current,
        log_end_offset=end_offset,
        lag=None if current is None or end_offset is None else end_offset - current,
        member_id=None if owner is None else owner.member_id,
        host=None if owner is None else owner.host,
        client_id=None if owner is None else owner.client_id,
        error=_error_text(end) if isinstance(end, ClientError) else None,
    )


def _name(code: ErrorCode) -> str | None:
    """Return the name of an error; None for success, as in the facts."""
    return None if code is ErrorCode.NONE else code.name


def _error_text(error: ClientError) -> str:
    """Return an error's name, and, if the client retried, the time after which it gave up."""
    if isinstance(error, GaveUp):
        return f"{error.name}, still after {error.waited_us / 1e6:g} s"
    return error.name
