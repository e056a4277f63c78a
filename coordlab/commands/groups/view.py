"""Prints the answers of `groups`, in the columns of Kafka's tool kafka-consumer-groups.

For example, `print_states` prints these lines:

    GROUP          COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE  #MEMBERS
    orders-readers broker-2 (2)     range               Stable 3

A row is not wrapped at the width of the console, because a wrapped member id cannot be copied.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from coordlab.commands.groups.asked_cluster import TimedAnswer
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

EMPTY_CELL = "-"
"""The text of a value that does not exist or is not known. Kafka's tool prints the same text."""
_GAP = " "
"""The text between two columns."""
_MEMBERS_SHOWN = 5
"""The largest number of members that an error message names.

If there are more members, the message ends with `and 3 more`, for example.
"""


def print_reply_times(console: Console, reply: TimedAnswer[object]) -> None:
    """Print a line about the answer: `fencing-1 at 31.500000s, answered after 0.012 s`."""
    took_us = reply.answered_at_us - reply.asked_at_us
    print_lines(
        console,
        [f"{reply.where} at {clock(reply.asked_at_us)}, answered after {took_us / 1e6:.3f} s"],
        style="dim",
    )


def print_list(console: Console, listed: GroupList) -> None:
    """Print the listed groups, and the brokers whose lists are missing or incomplete."""
    rows = [
        (group.group, group.type, group.state, _broker_cell(group.coordinator))
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
    _print_state_unless_stable(console, group)
    rows = [
        (
            group.group,
            offset.topic,
            str(offset.partition),
            _number_cell(offset.current_offset),
            _number_cell(offset.log_end_offset),
            _number_cell(offset.lag),
            offset.member_id or EMPTY_CELL,
            offset.host or EMPTY_CELL,
            offset.client_id or EMPTY_CELL,
        )
        for offset in group.offsets or ()
    ]
    if rows:
        print_columns(console, headings, rows)
    elif group.offsets is not None:  # None means that the committed offsets are not known
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
    """Print the members of a group; with `verbose`, also the partitions of each member."""
    _print_state_unless_stable(console, group)
    if not group.members:
        return
    members = group.members
    columns = {
        "GROUP": [group.group for _ in members],
        "CONSUMER-ID": [member.member_id for member in members],
        "GROUP-INSTANCE-ID": [member.group_instance_id or EMPTY_CELL for member in members],
        "HOST": [member.host for member in members],
        "CLIENT-ID": [member.client_id for member in members],
        "#PARTITIONS": [str(len(member.assigned)) for member in members],
        "ASSIGNMENT": [_assignment_cell(member.assigned) for member in members],
    }
    # As in Kafka's tool, this column is shown only if the group has a static member.
    if not any(member.group_instance_id for member in members):
        del columns["GROUP-INSTANCE-ID"]
    if not verbose:
        del columns["ASSIGNMENT"]
    rows = list(zip(*columns.values(), strict=True))
    print_columns(console, tuple(columns), rows)


def print_states(console: Console, groups: Sequence[GroupFacts]) -> None:
    """Print each group's coordinator and state."""
    headings = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = [
        (
            group.group,
            EMPTY_CELL if group.coordinator is None else _broker_cell(group.coordinator),
            group.assignment_strategy or EMPTY_CELL,
            group.state or EMPTY_CELL,
            str(len(group.members)),
        )
        for group in groups
        if group.error is None
    ]
    if rows:
        print_columns(console, headings, rows)
    print_group_errors(console, groups)


def print_group_errors(console: Console, groups: Sequence[GroupFacts]) -> None:
    """Print an error for each group that could not be described."""
    errors = []
    for group in groups:
        if group.error is None:
            continue
        subject = f"group {group.group}"
        if group.state == DEAD:
            subject = f"{subject} does not exist"
        errors.append(f"{subject}: {group.error}")
    print_errors(console, errors)


def print_deleted_groups(console: Console, groups: Sequence[DeletedGroup]) -> None:
    """Print the groups that were deleted, and the reasons why others were not deleted."""
    print_lines(
        console, [f"group {group.group} was deleted" for group in groups if group.error is None]
    )
    print_errors(
        console,
        [
            f"group {group.group} was not deleted: {group.error}{_held_by_clause(group.held_by)}"
            for group in groups
            if group.error is not None
        ],
    )


def print_deleted_offsets(console: Console, deleted: DeletedOffsets) -> None:
    """Print the offsets that were deleted, and the reasons why others were not deleted."""
    if deleted.error is not None:
        print_errors(console, [f"no offset of {deleted.group} was deleted: {deleted.error}"])
        return
    rows = [
        (offset.topic, _partition_cell(offset.partition), offset.error or "deleted")
        for offset in deleted.offsets
    ]
    print_columns(console, ("TOPIC", "PARTITION", "STATUS"), rows)


def print_reset(console: Console, reset: OffsetReset, *, execute: bool) -> None:
    """Print the plan of a reset, or with `execute` its outcome."""
    if reset.error is not None:
        error = f"offsets of {reset.group} cannot be reset: {reset.error}"
        if reset.state is not None:
            error += f", it is {reset.state}"
        print_errors(console, [error + _held_by_clause(reset.held_by)])
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
            f"{offset.topic} {_partition_cell(offset.partition)}: {offset.error}"
            for offset in reset.offsets
            if offset.error is not None
        ],
    )
    if rows and not execute:
        print_lines(console, ["nothing was changed: --execute commits these offsets"])
    elif rows and not reset.executed:
        # The user wants to execute the reset, but some partition got no new offset. Then nothing is
        # committed for the other partitions either.
        print_lines(console, ["nothing was changed"])


def print_columns(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def print_row(row: Sequence[str], style: str) -> None:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.print(Text(_GAP.join(cells).rstrip(), style=style), soft_wrap=True)

    print_row(headings, "bold")
    for row in rows:
        print_row(row, "")


def print_errors(console: Console, lines: Sequence[str]) -> None:
    """Print lines as errors."""
    print_lines(console, (f"Error: {line}" for line in lines), style="red")


def _print_state_unless_stable(console: Console, group: GroupFacts) -> None:
    """Print a line above the rows of a group that has no members or is rebalancing.

    The line warns the reader that the assignments in the rows are not in force. A group whose state
    is not known (None) gets no line.
    """
    if group.state == EMPTY:
        print_lines(console, [f"group {group.group} has no members"])
    elif group.state not in (STABLE, None):
        print_lines(console, [f"group {group.group} is rebalancing: {group.state}"], style="yellow")


def _assignment_cell(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions in the form of Kafka's tool: `payments(0,2), orders(1)`."""
    if not partitions:
        return EMPTY_CELL
    indexes_by_topic: dict[str, list[str]] = {}
    for partition in partitions:
        indexes_by_topic.setdefault(partition.topic, []).append(str(partition.partition))
    return ", ".join(f"{topic}({','.join(indexes)})" for topic, indexes in indexes_by_topic.items())


def _held_by_clause(members: Sequence[GroupMember]) -> str:
    """Return the end of an error sentence that names the members of a group.

    An example is `, held by consumer-1 on /10.0.0.1, consumer-2 on /10.0.0.2`. Without members, the
    text is "".
    """
    if not members:
        return ""
    shown = [f"{member.member_id} on {member.host}" for member in members[:_MEMBERS_SHOWN]]
    clause = f", held by {', '.join(shown)}"
    more = len(members) - len(shown)
    return f"{clause} and {more} more" if more else clause


def _broker_cell(broker_id: int) -> str:
    """Return a broker in the form of Kafka's tool: `broker-2 (2)`."""
    return f"{broker_name(broker_id)} ({broker_id})"


def _partition_cell(index: int) -> str:
    """Return a partition's number, or "-" if the row is about an error of a whole topic."""
    return EMPTY_CELL if index == WHOLE_TOPIC else str(index)


def _number_cell(value: int | None) -> str:
    return EMPTY_CELL if value is None else str(value)
