"""`groups`: Kafka's tool kafka-consumer-groups, for a running cluster or a moment of a replay.

Every subcommand takes the same three steps. The example is `groups delete --group tool`:

1. `asks_a_question` gives the subcommand the options that say which cluster to ask, as
   QuestionOptions.
2. The subcommand defines its question: a coroutine that sends requests with an AdminClient, here a
   DeleteGroups. `options.ask` finds or plays the cluster, and runs the question as its client.
3. `_print_and_exit_code` prints the answer, as text or as a JSON document.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from cluster.client.admin.admin_client import AdminClient
from cluster.client.admin.offset_reset import (
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from cluster.client.net.errors import ClientError
from coordinator.states import GroupState
from coordlab.commands.groups.asked_cluster import NoAnswer, QuestionOptions, TimedAnswer
from coordlab.commands.groups.facts import (
    DeletedGroup,
    DeletedOffsets,
    GroupFacts,
    GroupList,
    OffsetReset,
)
from coordlab.commands.groups.questions import (
    ChosenTopic,
    delete_group_offsets,
    delete_groups,
    describe_groups,
    list_groups,
    reset_group_offsets,
)
from coordlab.commands.groups.rebalance_view import print_rebalances, rebalances_document
from coordlab.commands.groups.view import (
    print_deleted_groups,
    print_deleted_offsets,
    print_errors,
    print_failures,
    print_group_errors,
    print_list,
    print_members,
    print_offsets,
    print_reply_times,
    print_reset,
    print_states,
)
from coordlab.console import print_document
from coordlab.options import (
    force_option,
    gather_into,
    group_with_examples,
    json_option,
    runs_option,
    space_option,
    with_examples,
)
from coordlab.parameters import DurationParam, RunTimeParam, SomeOf
from results_schema.results import EXIT_PASS, EXIT_VIOLATED

DEFAULT_TIMEOUT = "15s"
EXIT_REFUSED = EXIT_VIOLATED
"""Exit code if the cluster answered with an error, or not at all.

This is 1, the code with which other commands report a violated check.
"""
EXIT_CODES = (
    "Exit codes: 0 done, 1 the cluster answered with an error or not at all, 130 interrupted, "
    "254 bad arguments or no such cluster, 255 internal error."
)
_TOPIC_PATTERN = re.compile(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")
"""A topic name, then perhaps a colon and partition numbers: `orders`, `orders:0,1`.

A number has at most nine digits, because requests carry it as an integer of 32 bits.
"""


class TopicParam(click.ParamType[ChosenTopic]):
    """A topic, or some of its partitions: `orders`, `orders:0,1`."""

    name = "topic"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ChosenTopic:
        """Return the topic that `value` names."""
        # click also converts values that are converted already, such as defaults.
        if isinstance(value, ChosenTopic):
            return value
        match = _TOPIC_PATTERN.fullmatch(str(value))
        if match is None:
            self.fail(f"expected a topic such as `orders` or `orders:0,1`, got `{value}`")
        topic, numbers = match.groups()
        if numbers is None:
            return ChosenTopic(topic=topic, partitions=None)
        # `dict.fromkeys` drops a number that is given twice, and keeps the order.
        partitions = tuple(dict.fromkeys(int(number) for number in numbers.split(",")))
        return ChosenTopic(topic=topic, partitions=partitions)


_QUESTION_OPTIONS = (
    click.option(
        "--run",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Ask the cluster of this run, which is in progress in real time on this machine; "
        "default: the latest such run.",
    ),
    runs_option,
    click.option(
        "--replay",
        metavar="FILE|SEED",
        help="Ask a cluster in virtual time instead: play this schedule up to --at.",
    ),
    click.option(
        "--at",
        "at_us",
        type=RunTimeParam(),
        metavar="TIME",
        help="When to ask, on the clock of the replay, e.g. `31.5s`; the replay runs on until the "
        "answer has arrived.",
    ),
    space_option(),
    force_option,
    click.option(
        "--broker",
        type=click.IntRange(min=0),
        metavar="ID",
        help="Ask this broker, although others may name another coordinator: shows the state of a "
        "coordinator that was replaced and does not know it.",
    ),
    click.option(
        "--timeout",
        "timeout_us",
        type=DurationParam(),
        default=DEFAULT_TIMEOUT,
        show_default=True,
        metavar="TIME",
        help="Time limit on the cluster's clock. As Kafka's AdminClient, the command retries while "
        "a coordinator loads, moves or does not answer. One request takes a third of it at most.",
    ),
)
"""The options of every subcommand. Each option sets the field of QuestionOptions with its name."""
_why_option = click.option(
    "--why", is_flag=True, help="Print every rebalance of the groups so far, with its reason."
)
_group_option = click.option("--group", required=True, metavar="GROUP", help="The group.")
_groups_option = click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="A group; may be given several times."
)
_topics_option = click.option(
    "--topic",
    "topics",
    type=TopicParam(),
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; may be given several times.",
)


def asks_a_question(command: Callable[..., int]) -> Callable[..., int]:
    """Decorate a subcommand, so that it can ask a cluster a question.

    The decorator adds the options that say which cluster to ask, and passes them to the subcommand
    as one argument, `options`. If the cluster does not answer, the decorated subcommand prints the
    reason, and returns EXIT_REFUSED.
    """

    @functools.wraps(command)
    def command_or_error(*, options: QuestionOptions, **others: Any) -> int:  # noqa: ANN401 - the command's own
        try:
            return command(options=options, **others)
        except (NoAnswer, TimeoutError, ClientError) as error:
            # With --json, standard output must have one document or nothing. So the error goes to
            # standard error.
            print_errors(Console(stderr=options.json), [str(error)])
            return EXIT_REFUSED

    decorated = gather_into(QuestionOptions, "options")(command_or_error)
    # The option that is added last comes first in the help, so the options are added in reverse.
    for option in reversed(_QUESTION_OPTIONS):
        decorated = option(decorated)
    return decorated


@click.group(
    "groups",
    cls=group_with_examples(
        "groups list --why",
        "groups describe --group orders-readers --members --verbose",
        "groups describe --all-groups --replay findings/fencing-1.yaml --at 31.5s",
        "groups reset-offsets --group tool --topic orders:0 --to-earliest --execute",
    ),
    epilog=EXIT_CODES,
)
def groups_command() -> None:
    """List, describe and delete consumer groups, reset and delete their offsets.

    The subcommands and columns are those of kafka-consumer-groups. They ask the cluster of a run
    that is in progress in real time, or play a run in virtual time up to a moment and ask then. The
    administrator is an ordinary client: a broker answers from its own state, even if that is stale.
    Faults of links do not affect the administrator.
    """


@groups_command.command(
    "list",
    cls=with_examples(
        "groups list",
        "groups list --state Empty,Dead",
        "groups list --broker 2",
        "groups list --replay 4711 --at 31.5s --why",
    ),
    epilog=EXIT_CODES,
)
@click.option(
    "--state",
    "states",
    type=SomeOf(tuple(state.value for state in GroupState)),
    default=(),
    metavar="STATE,...",
    help="Only groups in these states, e.g. `Stable,Empty`.",
)
@click.option(
    "--type",
    "types",
    type=SomeOf(("classic", "consumer")),
    default=(),
    metavar="TYPE,...",
    help="Only groups of these types.",
)
@_why_option
@json_option("asked, groups, failures, and with --why rebalances and unseen")
@asks_a_question
def list_groups_command(
    options: QuestionOptions, states: tuple[str, ...], types: tuple[str, ...], why: bool
) -> int:
    """List the groups that each live broker coordinates.

    A group that two brokers claim is listed twice. A broker that loads is asked again until its
    load is complete; at the end of the time limit the groups that it has loaded so far are listed.
    """

    async def question(admin: AdminClient) -> GroupList:
        return await list_groups(admin, states, types)

    reply = options.ask(question, with_rebalances=why)
    listed = reply.answer
    names = [group.group for group in listed.groups]
    if reply.rebalances is not None and not states and not types:
        # If the coordinator of a group is down, no broker lists the group at the moment, but the
        # trace has its rebalances. These rebalances are printed, too. If the user filters groups by
        # state or type, such groups are left out, because nobody knows their state.
        names += reply.rebalances.groups()
    return _print_and_exit_code(
        options,
        reply,
        {"groups": listed.groups, "failures": listed.failures},
        lambda console: print_list(console, listed),
        groups=tuple(dict.fromkeys(names)),  # each name once
        complete=not listed.failures,
    )


@groups_command.command(
    "describe",
    cls=with_examples(
        "groups describe --group orders-readers",
        "groups describe --all-groups --state --why",
        "groups describe --group readers --members --verbose --replay 4711 --at 31.5s",
    ),
    epilog=EXIT_CODES,
)
@_groups_option
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", is_flag=True, help="Committed offsets and lag; this is the default.")
@click.option("--members", is_flag=True, help="The members.")
@click.option("--state", is_flag=True, help="Coordinator, assignment strategy and state.")
@click.option("--verbose", is_flag=True, help="With --members: the partitions of each member.")
@_why_option
@json_option("asked, groups, failures, and with --why rebalances and unseen")
@asks_a_question
def describe_command(
    options: QuestionOptions,
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    why: bool,
) -> int:
    """Describe groups: their offsets and lag, their members, or their coordinator and state."""
    has_names = bool(groups)
    if all_groups == has_names:  # both were given, or neither
        raise click.UsageError("name groups with --group, or all of them with --all-groups")
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("give one of --offsets, --members and --state")
    if verbose and not members:
        raise click.UsageError("--verbose needs --members")

    async def question(admin: AdminClient) -> tuple[tuple[GroupFacts, ...], Mapping[int, str]]:
        names: Sequence[str] = groups
        failures: Mapping[int, str] = {}
        if all_groups:
            listed = await list_groups(admin)
            names = [group.group for group in listed.groups]
            failures = listed.failures
        # By default the offsets are shown, so --offsets itself changes nothing.
        with_offsets = not (members or state)
        return await describe_groups(admin, names, with_offsets=with_offsets), failures

    reply = options.ask(question, with_rebalances=why)
    described, failures = reply.answer

    def print_answer(console: Console) -> None:
        if state:
            print_states(console, described)
        else:
            _print_offsets_or_members(console, described, members=members, verbose=verbose)
        print_failures(console, failures)

    return _print_and_exit_code(
        options,
        reply,
        {"groups": described, "failures": failures},
        print_answer,
        groups=tuple(group.group for group in described),
        complete=not failures and all(group.error is None for group in described),
    )


def _print_offsets_or_members(
    console: Console, groups: Sequence[GroupFacts], *, members: bool, verbose: bool
) -> None:
    """Print the members or the offsets of each group, or why it could not be described."""
    for group in groups:
        if group.error is not None:
            print_group_errors(console, [group])
        elif members:
            print_members(console, group, verbose=verbose)
        else:
            print_offsets(console, group)


@groups_command.command(
    "delete", cls=with_examples("groups delete --group tool"), epilog=EXIT_CODES
)
@_groups_option
@json_option("asked, groups")
@asks_a_question
def delete_command(options: QuestionOptions, groups: tuple[str, ...]) -> int:
    """Delete groups that have no members, with their offsets.

    In a replay the change is lost when the command ends.
    """
    if not groups:
        raise click.UsageError("name the groups to delete with --group")

    async def question(admin: AdminClient) -> tuple[DeletedGroup, ...]:
        return await delete_groups(admin, groups)

    reply = options.ask(question)
    deleted = reply.answer
    return _print_and_exit_code(
        options,
        reply,
        {"groups": deleted},
        lambda console: print_deleted_groups(console, deleted),
        complete=all(group.error is None for group in deleted),
    )


@groups_command.command(
    "delete-offsets",
    cls=with_examples("groups delete-offsets --group tool --topic orders:0,1"),
    epilog=EXIT_CODES,
)
@_group_option
@_topics_option
@json_option("asked, group, error, offsets")
@asks_a_question
def delete_offsets_command(
    options: QuestionOptions, group: str, topics: tuple[ChosenTopic, ...]
) -> int:
    """Delete a group's committed offsets of topics that none of its members reads."""
    if not topics:
        raise click.UsageError("name the topics with --topic")

    async def question(admin: AdminClient) -> DeletedOffsets:
        return await delete_group_offsets(admin, group, topics)

    reply = options.ask(question)
    deleted = reply.answer
    return _print_and_exit_code(
        options,
        reply,
        msgspec.structs.asdict(deleted),
        lambda console: print_deleted_offsets(console, deleted),
        complete=deleted.error is None and all(offset.error is None for offset in deleted.offsets),
    )


@groups_command.command(
    "reset-offsets",
    cls=with_examples(
        "groups reset-offsets --group tool --all-topics --to-earliest",
        "groups reset-offsets --group tool --topic orders:0 --shift-by -10 --execute",
    ),
    epilog=EXIT_CODES,
)
@_group_option
@_topics_option
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option(
    "--to-current", is_flag=True, help="To the committed offset; without one, to the log's end."
)
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="N records forward; back, if negative.")
@click.option("--execute", is_flag=True, help="Commit the offsets; without it they are only shown.")
@json_option("asked, group, executed, error, state, held_by, offsets")
@asks_a_question
def reset_offsets_command(
    options: QuestionOptions,
    group: str,
    topics: tuple[ChosenTopic, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    execute: bool,
) -> int:
    """Show, or with --execute commit, new offsets for a group that has no members.

    An offset outside of the log is replaced by the nearer end of the log.
    """
    has_names = bool(topics)
    if all_topics == has_names:  # both were given, or neither
        raise click.UsageError("name topics with --topic, or all of them with --all-topics")
    # The user must give exactly one of the five options that set the target. So the given options
    # are collected and counted.
    targets: list[ResetTarget] = []
    if to_earliest:
        targets.append(ToEarliest())
    if to_latest:
        targets.append(ToLatest())
    if to_current:
        targets.append(ToCurrent())
    if to_offset is not None:
        targets.append(ToOffset(offset=to_offset))
    if shift_by is not None:
        targets.append(ShiftBy(records=shift_by))
    if len(targets) != 1:
        raise click.UsageError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by"
        )
    (target,) = targets

    async def question(admin: AdminClient) -> OffsetReset:
        chosen = None if all_topics else topics
        return await reset_group_offsets(admin, group, chosen, target, execute=execute)

    reply = options.ask(question)
    reset = reply.answer
    return _print_and_exit_code(
        options,
        reply,
        msgspec.structs.asdict(reset),
        lambda console: print_reset(console, reset, execute=execute),
        complete=reset.error is None and all(offset.error is None for offset in reset.offsets),
    )


def _print_and_exit_code(
    options: QuestionOptions,
    reply: TimedAnswer[object],
    facts: Mapping[str, object],
    print_answer: Callable[[Console], None],
    *,
    complete: bool,
    groups: Sequence[str] = (),
) -> int:
    """Print the answer to a question, and return the exit code.

    - `facts`: the answer as the fields of the JSON document, for --json.
    - `print_answer`: prints the answer as text, without --json.
    - `complete`: False if some part of the answer is an error; the exit code is then EXIT_REFUSED.
    - `groups`: the groups whose rebalances are printed, too, with --why.
    """
    console = Console()
    if options.json:
        document = {"asked": reply.times(), **facts}
        if reply.rebalances is not None:
            document["rebalances"] = rebalances_document(reply.rebalances, groups)
            document["unseen"] = reply.missing_traces
        print_document(console, document, indented=True)
    else:
        print_reply_times(console, reply)
        print_answer(console)
        if reply.rebalances is not None:
            print_rebalances(console, reply.rebalances, groups)
        if reply.missing_traces is not None:
            print_errors(console, [reply.missing_traces])
    return EXIT_PASS if complete else EXIT_REFUSED
