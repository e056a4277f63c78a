"""The questions that the subcommands of `groups` ask, one public function for each subcommand.

Each function calls an AdminClient, and returns the answer as structs of the module `facts`. The
request for one group or partition may fail while the requests for others succeed. So the
AdminClient does not raise such an error, but returns a ClientError in the place of the value. For
instance, `list_offsets` may return `{orders-0: 117, orders-1: ClientError}`. Here the ClientError
becomes the `error` of a struct.
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
"""The protocol types of the groups that are listed. Kafka's tool lists the same types.

A group of another type has no consumers. For instance, Kafka Connect has groups of workers. "" is
the type of a group that no member has ever joined, and that only stores offsets.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTopic:
    """A topic on the command line.

    `partitions`: `(0, 1)` for `--topic orders:0,1`; None for all partitions, as in
    `--topic orders`.
    """

    topic: str
    partitions: tuple[int, ...] | None


async def list_groups(
    admin: AdminClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> GroupList:
    """Ask every live broker which groups of consumers it coordinates. Raises: TimeoutError."""
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
    """Describe the groups, in the order of `groups`.

    There are three steps. Each step asks about all groups together:

    1. the descriptions of the groups;
    2. the committed offsets of the groups that exist;
    3. the end of the log of each partition that these groups have committed or read.
    """
    # `dict.fromkeys` drops a group that the command line names twice, and keeps the order.
    descriptions = await admin.describe_groups(tuple(dict.fromkeys(groups)))
    facts = {group: _facts_of_group(group, answer) for group, answer in descriptions.items()}
    if not with_offsets:
        return tuple(facts.values())

    existing = [group.group for group in facts.values() if group.error is None]
    committed = await admin.list_consumer_group_offsets(existing)

    partitions_by_group = {
        group: _committed_or_assigned(facts[group], offsets)
        for group, offsets in committed.items()
        if not isinstance(offsets, ClientError)
    }
    # Each partition is requested once, even if several groups read it.
    all_partitions = {
        partition for partitions in partitions_by_group.values() for partition in partitions
    }
    log_ends = await admin.list_offsets(tuple(sorted(all_partitions)), OffsetSpec.LATEST)
    return tuple(
        _add_offsets(
            group, committed.get(group.group), partitions_by_group.get(group.group, ()), log_ends
        )
        for group in facts.values()
    )


async def delete_groups(admin: AdminClient, groups: Sequence[str]) -> tuple[DeletedGroup, ...]:
    """Delete groups. A group with members is not deleted, and the result names these members."""
    # `dict.fromkeys` drops a group that the command line names twice, and keeps the order.
    outcomes = await admin.delete_groups(tuple(dict.fromkeys(groups)))
    with_members = [
        group
        for group, error in outcomes.items()
        if error is not None and error.name == ErrorCode.NON_EMPTY_GROUP.name
    ]
    # The error does not name the members. A second request asks for them.
    members_by_group = {
        group: answer.members if isinstance(answer, GroupDescription) else ()
        for group, answer in (await admin.describe_groups(with_members)).items()
    }
    return tuple(
        DeletedGroup(
            group=group,
            error=None if error is None else _error_text(error),
            held_by=tuple(map(_facts_of_member, members_by_group.get(group, ()))),
        )
        for group, error in outcomes.items()
    )


async def delete_group_offsets(
    admin: AdminClient, group: str, topics: Sequence[ChosenTopic]
) -> DeletedOffsets:
    """Delete the committed offsets of some partitions. Raises: TimeoutError."""
    partitions, reasons = await _chosen_partitions(admin, topics)
    codes: Mapping[TopicPartition, ErrorCode] = {}
    if partitions:  # it is empty if none of the chosen partitions exists
        try:
            codes = await admin.delete_consumer_group_offsets(group, partitions)
        except ClientError as error:
            return DeletedOffsets(group=group, error=_error_text(error))
    # Partition -> why its offset was not deleted; None if it was deleted. The chosen partitions
    # that do not exist come last.
    errors = {partition: _error_name(code) for partition, code in codes.items()} | reasons
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
    """Compute new offsets for a group without members, and commit them if `execute` is True.

    Either all partitions are reset, or no partition is. If a partition cannot get a new offset, for
    instance because its log is not known, nothing is committed.

    `topics`: the topics to reset; None for all partitions with a committed offset.
    Raises: TimeoutError.
    """
    # The answer has one entry, because the question is about one group.
    (described,) = (await admin.describe_groups((group,))).values()
    if isinstance(described, ClientError):
        return OffsetReset(group=group, executed=False, error=_error_text(described))
    # Members would overwrite the new offsets with their next commits. So the group must have no
    # members. The group need not exist: an unknown group is described as Dead, and a commit creates
    # it.
    if described.state not in (EMPTY, DEAD):
        return OffsetReset(
            group=group,
            executed=False,
            error=ErrorCode.NON_EMPTY_GROUP.name,
            state=described.state,
            held_by=tuple(map(_facts_of_member, described.members)),
        )

    (committed,) = (await admin.list_consumer_group_offsets((group,))).values()
    if isinstance(committed, ClientError):
        return OffsetReset(
            group=group, executed=False, error=_error_text(committed), state=described.state
        )

    # `partitions` are the partitions to reset. `reasons` says why other partitions are not reset.
    partitions: tuple[TopicPartition, ...]
    reasons: dict[TopicPartition, str]
    if topics is None:
        partitions = tuple(sorted(committed))
        reasons = {}
    else:
        partitions, reasons = await _chosen_partitions(admin, topics)
    bounds, why_unknown = await _log_bounds(admin, partitions)
    reasons |= why_unknown
    try:
        planned = plan_reset(target, bounds, committed)
    except CannotShift as error:
        reasons |= dict.fromkeys(error.partitions, "nothing is committed to shift from")
        # Nothing can be committed now, but the user still sees the plan for the other partitions.
        shiftable = {
            partition: log for partition, log in bounds.items() if partition not in error.partitions
        }
        planned = plan_reset(target, shiftable, committed)

    commit_errors: Mapping[TopicPartition, ErrorCode] = {}
    commits = execute and bool(planned) and not reasons
    if commits:
        try:
            commit_errors = await admin.alter_consumer_group_offsets(
                group, {plan.partition: plan.new for plan in planned}
            )
        except ClientError as refused:
            return OffsetReset(
                group=group, executed=False, error=_error_text(refused), state=described.state
            )

    with_new_offset = [
        ResetOffset(
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            current_offset=plan.current,
            new_offset=plan.new,
            asked_for=plan.asked_for,
            error=_error_name(commit_errors.get(plan.partition, ErrorCode.NONE)),
        )
        for plan in planned
    ]
    without_new_offset = [
        ResetOffset(
            topic=partition.topic,
            partition=partition.partition,
            current_offset=committed.get(partition),
            new_offset=None,
            error=reason,
        )
        for partition, reason in reasons.items()
    ]
    return OffsetReset(
        group=group,
        executed=commits,
        error=None,
        state=described.state,
        offsets=(*with_new_offset, *without_new_offset),
    )


async def _chosen_partitions(
    admin: AdminClient, topics: Sequence[ChosenTopic]
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, str]]:
    """Return the chosen partitions that exist, and an error for each other chosen partition.

    For `--topic orders:0,9` and a topic with 4 partitions, this is `(orders-0,)` and
    `{orders-9: "UNKNOWN_TOPIC_OR_PARTITION"}`.
    """
    # A topic that the command line names several times is described once.
    described_topics = await admin.describe_topics(
        tuple(dict.fromkeys(topic.topic for topic in topics))
    )
    existing: dict[TopicPartition, None] = {}  # an ordered set: a partition can be named twice
    errors: dict[TopicPartition, str] = {}
    for chosen in topics:
        described = described_topics.get(chosen.topic, {})
        # An unknown topic counts as a topic without partitions. So each of its partitions that the
        # user named gets an error below.
        partition_count = 0 if isinstance(described, ClientError) else len(described)
        indexes = range(partition_count) if chosen.partitions is None else chosen.partitions
        for index in indexes:
            partition = TopicPartition(chosen.topic, index)
            if index < partition_count:
                existing[partition] = None
            else:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        if isinstance(described, ClientError) and chosen.partitions is None:
            # The user chose all partitions of a topic whose partitions are not known. One entry for
            # the whole topic gets the error.
            errors[TopicPartition(chosen.topic, WHOLE_TOPIC)] = _error_text(described)
    return tuple(existing), errors


async def _log_bounds(
    admin: AdminClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, LogBounds], dict[TopicPartition, str]]:
    """Return the first offset and the end of each log.

    Also return an error for each log whose offsets are not known.
    """
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


def _facts_of_group(group: str, answer: GroupDescription | ClientError) -> GroupFacts:
    """Return the facts of a group from the answer to `describe_groups`, without offsets."""
    if isinstance(answer, ClientError):
        return GroupFacts(group=group, error=_error_text(answer))
    # Kafka describes a group that does not exist as Dead, without an error.
    error = ErrorCode.GROUP_ID_NOT_FOUND.name if answer.state == DEAD else None
    return GroupFacts(
        group=group,
        error=error,
        state=answer.state,
        coordinator=answer.coordinator,
        assignment_strategy=answer.protocol_name,
        members=tuple(map(_facts_of_member, answer.members)),
    )


def _facts_of_member(member: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assigned=member.assigned,
    )


def _committed_or_assigned(
    group: GroupFacts, committed: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, ...]:
    """Return the partitions that have a committed offset, or are assigned to a member, sorted."""
    assigned = [partition for member in group.members for partition in member.assigned]
    return tuple(sorted({*committed, *assigned}))


def _add_offsets(
    group: GroupFacts,
    committed: Mapping[TopicPartition, int] | ClientError | None,
    partitions: Sequence[TopicPartition],
    log_ends: Mapping[TopicPartition, int | ClientError],
) -> GroupFacts:
    """Add the rows of `partitions` to the facts of a group: committed offset, log end and owner.

    `committed`: the committed offsets; None if they were not requested, because the group could not
    be described.
    """
    if committed is None:
        return group
    if isinstance(committed, ClientError):
        return msgspec.structs.replace(group, error=_error_text(committed))
    owners = {partition: member for member in group.members for partition in member.assigned}
    offsets = tuple(
        _facts_of_partition(
            partition, committed.get(partition), log_ends[partition], owners.get(partition)
        )
        for partition in partitions
    )
    return msgspec.structs.replace(group, offsets=offsets)


def _facts_of_partition(
    partition: TopicPartition,
    current: int | None,
    end: int | ClientError,
    owner: GroupMember | None,
) -> GroupOffset:
    """Return the row of one partition of a group.

    `current`: the committed offset; None if there is none.
    """
    end_offset: int | None = None
    error: str | None = None
    if isinstance(end, ClientError):
        error = _error_text(end)
    else:
        end_offset = end
    lag = None if current is None or end_offset is None else end_offset - current
    return GroupOffset(
        topic=partition.topic,
        partition=partition.partition,
        current_offset=current,
        log_end_offset=end_offset,
        lag=lag,
        member_id=None if owner is None else owner.member_id,
        host=None if owner is None else owner.host,
        client_id=None if owner is None else owner.client_id,
        error=error,
    )


def _error_name(code: ErrorCode) -> str | None:
    """Return the name of an error; None if the code means success."""
    return None if code is ErrorCode.NONE else code.name


def _error_text(error: ClientError) -> str:
    """Return an error as text, such as `COORDINATOR_NOT_AVAILABLE, still after 15 s`.

    After this time the client gave up. The text of an error without retries has no time.
    """
    if isinstance(error, GaveUp):
        return f"{error.name}, still after {error.waited_us / 1e6:g} s"
    return error.name
