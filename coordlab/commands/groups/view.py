"""Answers of `groups` as columns with the headings of Kafka's own tool.

Rows are not wrapped at the console's width, because a wrapped member id cannot be copied. In the
answers, an `error` of None means success. In any other field, None means that the value is unknown
or does not exist.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from coordlab.commands.groups.asked_cluster import Asked
from coordlab.commands.groups.facts import (
    DEAD,
    EMPTY,
    STABLE,
    WHOLE_TOPIC,
    DeletedGroup,
    DeletedOffsets,
    GroupFacts,
    GroupList,
    GroupMember,
    OffsetReset,
)
from coordlab.console import clock, print_lines
from protocol.ids import TopicPartition, broker_name

NOTHING = "-"
"""Text of an empty cell, as in Kafka's tool."""
_GAP = " "
"""Text between two columns."""
_MEMBERS_SHOWN = 5
"""Limit of the members that an error message names."""


def print_asked(console: Console, asked: Asked[object]) -> None:
    """Print the cluster that answered, and the times of question and answer on its clock."""
    took_us = asked.answered_at_us - asked.asked_at_us
    print_lines(
        console,
        [f"{asked.where} at {clock(asked.asked_at_us)}, answered after {took_us / 1e6:.3f} s"],
        style="dim",
    )


def print_list(console: Console, listed: GroupList) -> None:
    """Print the listed groups, and the brokers whose lists are missing or incomplete."""
    rows = [
        (group.group, group.type, group.state, _broker(group.coordinator))
        for group in listed.groups
    ]
    if rows:
        print_columns(console, ("GROUP", "TYPE", "STATE", "COORDINATOR (ID)"), rows)
    else:
        print_lines(console, ["no groups"])
    print_failures(console, listed.failures)


def print_failures(console: Console, failures: Mapping[int, str]) -> None:
    """Print each broker whose list is missing or incomplete, with the reason."""
    print_errors(
        console,
        [f"the list of {broker_name(broker)}: {why}" for broker, why in failures.items()],
    )


def print_offsets(console: Console, group: GroupFacts) -> None:
    """Print a group's committed offset and lag in each partition."""
    headings = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    _print_unstable(console, group)
    rows = [
        (
            group.group,
            offset.topic,
            str(offset.partition),
            _cell_text(offset.current_offset),
            _cell_text(offset.log_end_offset),
            _cell_text(offset.lag),
            offset.member_id or NOTHING,
            offset.host or NOTHING,
            offset.client_id or NOTHING,
        )
        for offset in group.offsets or ()
    ]
    if rows:
        print_columns(console, headings, rows)
    elif group.offsets is not None:
        # `offsets` is empty here. If it is None, the offsets are not known, and nothing is said.
        print_lines(console, [f"group {group.group} has committed nothing"])
    print_errors(
        console,
        [
            f"the log of {TopicPartition(offset.topic, offset.partition)}: {offset.error}"
            for offset in group.offsets or ()
            if offset.error is not None
        ],
    )


def print_members(console: Console, group: GroupFacts, *, verbose: bool) -> None:
    """Print the members of a group; with `verbose`, also the partitions of each."""
    # As in Kafka's tool, the column GROUP-INSTANCE-ID is shown only if some member has one.
    any_static = any(member.group_instance_id for member in group.members)
    headings = (
        "GROUP",
        "CONSUMER-ID",
        *(["GROUP-INSTANCE-ID"] if any_static else []),
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        *(["ASSIGNMENT"] if verbose else []),
    )
    _print_unstable(console, group)
    rows = [
        (
            group.group,
            member.member_id,
            *([member.group_instance_id or NOTHING] if any_static else []),
            member.host,
            member.client_id,
            str(len(member.assigned)),
            *([_assignment(member.assigned)] if verbose else []),
        )
        for member in group.members
    ]
    if rows:
        print_columns(console, headings, rows)


def print_states(console: Console, groups: Sequence[GroupFacts]) -> None:
    """Print each group's coordinator and state."""
    headings = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = [
        (
            group.group,
            NOTHING if group.coordinator is None else _broker(group.coordinator),
            group.assignment_strategy or NOTHING,
            group.state or NOTHING,
            str(len(group.members)),
        )
        for group in groups
        if group.error is None
    ]
    if rows:
        print_columns(console, headings, rows)
    print_group_errors(console, groups)


def print_group_errors(console: Console, groups: Sequence[GroupFacts]) -> None:
    """Print why groups could not be described."""
    print_errors(
        console,
        [
            f"group {group.group} does not exist: {group.error}"
            if group.state == DEAD
            else f"group {group.group}: {group.error}"
            for group in groups
            if group.error is not None
        ],
    )


def print_deleted_groups(console: Console, groups: Sequence[DeletedGroup]) -> None:
    """Print which groups were deleted, and why others were not."""
    print_lines(
        console, [f"group {group.group} was deleted" for group in groups if group.error is None]
    )
    print_errors(
        console,
        [
            f"group {group.group} was not deleted: {group.error}{_held_by(group.held_by)}"
            for group in groups
            if group.error is not None
        ],
    )


def print_deleted_offsets(console: Console, deleted: DeletedOffsets) -> None:
    """Print which offsets were deleted, and why others were not."""
    if deleted.error is not None:
        print_errors(console, [f"no offset of {deleted.group} was deleted: {deleted.error}"])
        return
    rows = [
        (offset.topic, _partition(offset.partition), offset.error or "deleted")
        for offset in deleted.offsets
    ]
    print_columns(console, ("TOPIC", "PARTITION", "STATUS"), rows)


def print_reset(console: Console, reset: OffsetReset, *, execute: bool) -> None:
    """Print the plan of a reset, or with `execute` its outcome."""
    if reset.error is not None:
        in_state = "" if reset.state is None else f", it is {reset.state}"
        print_errors(
            console,
            [
                f"offsets of {reset.group} cannot be reset: {reset.error}{in_state}"
                f"{_held_by(reset.held_by)}"
            ],
        )
        return
    rows = [
        (reset.group, offset.topic, str(offset.partition), str(offset.new_offset))
        for offset in reset.offsets
        if offset.new_offset is not None
    ]
    if rows:
        print_columns(console, ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    elif not reset.offsets:
        print_lines(console, [f"group {reset.group} has committed nothing that could be reset"])
    print_lines(
        console,
        [
            f"{TopicPartition(offset.topic, offset.partition)}: {offset.asked_for} is outside of "
            f"the log, {offset.new_offset} is its nearer end"
            for offset in reset.offsets
            if offset.asked_for is not None
        ],
        style="yellow",
    )
    print_errors(
        console,
        [
            f"{offset.topic} {_partition(offset.partition)}: {offset.error}"
            for offset in reset.offsets
            if offset.error is not None
        ],
    )
    if rows and not execute:
        print_lines(console, ["nothing was changed: --execute commits these offsets"])
    elif rows and not reset.executed:
        # --execute was given, but a partition without a new offset prevented all commits.
        print_lines(console, ["nothing was changed"])


def print_columns(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for index, row in enumerate((headings, *rows)):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        style = "bold" if index == 0 else ""
        console.print(Text(_GAP.join(cells).rstrip(), style=style), soft_wrap=True)


def print_errors(console: Console, lines: Sequence[str]) -> None:
    """Print lines as errors."""
    print_lines(console, (f"Error: {line}" for line in lines), style="red")


def _print_unstable(console: Console, group: GroupFacts) -> None:
    """Print a line above the rows of a group that is empty or rebalances.

    The assignments in these rows are then not in force.
    """
    # If the state is None, it is not known, and no line is printed.
    if group.state == EMPTY:
        print_lines(console, [f"group {group.group} has no members"])
    elif group.state not in (STABLE, None):
        print_lines(console, [f"group {group.group} is rebalancing: {group.state}"], style="yellow")


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as in Kafka's tool, such as `payments(0,2), orders(1)`."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    texts = (f"{topic}({','.join(map(str, indexes))})" for topic, indexes in by_topic.items())
    return ", ".join(texts) or NOTHING


def _held_by(members: Sequence[GroupMember]) -> str:
    """Return the members of a group as the end of an error sentence; "" if none is known."""
    if not members:
        return ""
    more = len(members) - _MEMBERS_SHOWN
    shown = ", ".join(f"{member.member_id} on {member.host}" for member in members[:_MEMBERS_SHOWN])
    return f", held by {shown}" + (f" and {more} more" if more > 0 else "")


def _broker(broker_id: int) -> str:
    """Return a broker as in Kafka's tool: its name and its id."""
    return f"{broker_name(broker_id)} ({broker_id})"


def _partition(index: int) -> str:
    """Return a partition's number, or "-" if the row is about an error of a whole topic."""
    return NOTHING if index == WHOLE_TOPIC else str(index)


def _cell_text(value: int | None) -> str:
    return NOTHING if value is None else str(value)
