"""`groups`: what kafka-consumer-groups does, against a running cluster or a moment of a replay."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from chaos.experiment.problems import near_miss, one_of
from cluster.client.admin.offset_reset import (
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from coordinator.states import GroupState
from coordlab.commands.groups.execution import (
    Aspect,
    Where,
    delete_command,
    delete_offsets_command,
    describe_command,
    list_command,
    reset_command,
)
from coordlab.commands.groups.questions import ChosenTopic
from coordlab.commands.replay.command import space_option
from coordlab.options import (
    group_with_examples,
    json_option,
    runs_option,
    with_examples,
)
from coordlab.parameters import Duration, Moment

DEFAULT_TIMEOUT = "15s"
EXIT_CODES = (
    "Exit codes: 0 done, 1 the cluster answered with an error or not at all, 130 interrupted, "
    "254 bad arguments or no such cluster, 255 internal error."
)
_TOPIC = re.compile(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")


class Topic(click.ParamType[ChosenTopic]):
    """A topic, or some of its partitions: `orders`, `orders:0,1`."""

    name = "topic"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ChosenTopic:
        """Return the topic that `value` names."""
        if isinstance(value, ChosenTopic):
            return value
        match = _TOPIC.fullmatch(str(value))
        if match is None:
            self.fail(f"expected a topic such as `orders` or `orders:0,1`, got `{value}`")
        numbers = match[2]
        return ChosenTopic(
            topic=match[1],
            partitions=None
            if numbers is None
            else tuple(dict.fromkeys(map(int, numbers.split(",")))),
        )


class Words(click.ParamType[tuple[str, ...]]):
    """Some of a few words, between commas, in any letter case: `Stable,Empty`."""

    name = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = {word.lower(): word for word in words}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the words of `value`, as they are written."""
        if isinstance(value, tuple):
            return value
        return tuple(self._word(word.strip()) for word in str(value).split(","))

    def _word(self, given: str) -> str:
        word = self._words.get(given.lower())
        if word is None:
            words = tuple(self._words.values())
            near = near_miss(given, words)
            hint = "" if near is None else f"; did you mean `{near}`?"
            self.fail(f"expected {one_of(words)}, got `{given}`{hint}")
        return word


_STATES = Words(tuple(state.value for state in GroupState))
_TYPES = Words(("classic", "consumer"))
_WHERE = (
    click.option(
        "--run",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Ask the cluster of this run, which goes on on Ray on this machine; default: the "
        "latest that does.",
    ),
    runs_option,
    click.option(
        "--replay",
        metavar="FILE|SEED",
        help="Ask a cluster in virtual time instead: play this schedule up to --at.",
    ),
    click.option(
        "--at",
        type=Moment(),
        metavar="TIME",
        help="When to ask, on the clock of the replay, e.g. `31.5s`; time goes on by what the "
        "answer takes.",
    ),
    space_option,
    click.option(
        "--force",
        is_flag=True,
        help="Play it though the code or Python is another than the file's.",
    ),
    click.option(
        "--broker",
        type=click.IntRange(min=0),
        metavar="ID",
        help="Ask this broker, whoever the others name: what a coordinator says that was replaced "
        "and does not know it.",
    ),
    click.option(
        "--timeout",
        type=Duration(),
        default=DEFAULT_TIMEOUT,
        show_default=True,
        metavar="TIME",
        help="How long to ask, on the cluster's clock: as Kafka's AdminClient, it asks again while "
        "a coordinator loads, moves or does not answer. One question takes a third of it at most.",
    ),
)
_why = click.option(
    "--why", is_flag=True, help="Tell every rebalance of the groups so far, with its reason."
)
_group = click.option("--group", required=True, metavar="GROUP", help="The group.")
_groups = click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="A group; may be given several times."
)
_topics = click.option(
    "--topic",
    "topics",
    type=Topic(),
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; may be given several times.",
)


def asks_a_cluster(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say which cluster is asked; `command` gets them as `where`."""

    @functools.wraps(command)
    def with_where(
        *,
        run: Path | None,
        runs: Path,
        replay: str | None,
        at: int | None,
        space: str,
        force: bool,
        timeout: int,
        broker: int | None,
        json: bool,
        **others: Any,  # noqa: ANN401 - the command's own, as click has converted them
    ) -> int:
        where = Where(
            run=run,
            runs=runs,
            replay=replay,
            space=space,
            at_us=at,
            force=force,
            timeout_ms=max(1, timeout // 1_000),
            broker=broker,
            json=json,
        )
        return command(where=where, **others)

    decorated: Callable[..., int] = with_where
    for option in reversed(_WHERE):
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

    As kafka-consumer-groups does, with the same columns: against the cluster of a run that goes on
    on Ray, or at a moment of a run in virtual time. The administrator is a client like others: the
    brokers answer what they believe, stale or not. No fault of a link concerns it.
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
    type=_STATES,
    default=(),
    metavar="STATE,...",
    help="Only groups in these states, e.g. `Stable,Empty`.",
)
@click.option(
    "--type",
    "types",
    type=_TYPES,
    default=(),
    metavar="TYPE,...",
    help="Only groups of these types.",
)
@_why
@json_option("asked, groups, failures, and with --why rebalances and unseen")
@asks_a_cluster
def _list(where: Where, state: tuple[str, ...], types: tuple[str, ...], why: bool) -> int:
    """List the groups that each live broker says it coordinates.

    One that two brokers claim is listed twice. A broker that loads is asked until it has, and at
    the end what it knew by then is listed.
    """
    return list_command(where, Console(), states=state, types=types, why=why)


@groups_command.command(
    "describe",
    cls=with_examples(
        "groups describe --group orders-readers",
        "groups describe --all-groups --state --why",
        "groups describe --group readers --members --verbose --replay 4711 --at 31.5s",
    ),
    epilog=EXIT_CODES,
)
@_groups
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", is_flag=True, help="Committed offsets and lag; this is the default.")
@click.option("--members", is_flag=True, help="The members.")
@click.option("--state", is_flag=True, help="Coordinator, assignment strategy and state.")
@click.option("--verbose", is_flag=True, help="With --members: what each is assigned.")
@_why
@json_option("asked, groups, failures, and with --why rebalances and unseen")
@asks_a_cluster
def _describe(
    where: Where,
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    why: bool,
) -> int:
    """Describe groups: where they stand, who is in them, or who coordinates them."""
    if all_groups == bool(groups):
        raise click.UsageError("name groups with --group, or all of them with --all-groups")
    if offsets + members + state > 1:
        raise click.UsageError("give one of --offsets, --members and --state")
    if verbose and not members:
        raise click.UsageError("--verbose says more with --members only")
    aspect = Aspect.MEMBERS if members else Aspect.STATE if state else Aspect.OFFSETS
    return describe_command(
        where, Console(), groups=groups, aspect=aspect, verbose=verbose, why=why
    )


@groups_command.command(
    "delete", cls=with_examples("groups delete --group tool"), epilog=EXIT_CODES
)
@_groups
@json_option("asked, groups")
@asks_a_cluster
def _delete(where: Where, groups: tuple[str, ...]) -> int:
    """Delete groups that have no members, with their offsets.

    In a replay whatever is changed is gone when the command ends.
    """
    if not groups:
        raise click.UsageError("name the groups to delete with --group")
    return delete_command(where, Console(), groups=groups)


@groups_command.command(
    "delete-offsets",
    cls=with_examples("groups delete-offsets --group tool --topic orders:0,1"),
    epilog=EXIT_CODES,
)
@_group
@_topics
@json_option("asked, group, error, offsets")
@asks_a_cluster
def _delete_offsets(where: Where, group: str, topics: tuple[ChosenTopic, ...]) -> int:
    """Delete a group's committed offsets of topics that none of its members reads."""
    if not topics:
        raise click.UsageError("name the topics with --topic")
    return delete_offsets_command(where, Console(), group=group, topics=topics)


@groups_command.command(
    "reset-offsets",
    cls=with_examples(
        "groups reset-offsets --group tool --all-topics --to-earliest",
        "groups reset-offsets --group tool --topic orders:0 --shift-by -10 --execute",
    ),
    epilog=EXIT_CODES,
)
@_group
@_topics
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To where the log begins.")
@click.option("--to-latest", is_flag=True, help="To where the log ends.")
@click.option(
    "--to-current", is_flag=True, help="To what is committed; where nothing is, to the log's end."
)
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on; back, if negative.")
@click.option("--execute", is_flag=True, help="Commit the offsets; without it they are only shown.")
@json_option("asked, group, executed, error, state, held_by, offsets")
@asks_a_cluster
def _reset_offsets(
    where: Where,
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

    What lies outside of the log goes to its nearer end.
    """
    if all_topics == bool(topics):
        raise click.UsageError("name topics with --topic, or all of them with --all-topics")
    targets: list[ResetTarget] = [
        *([ToEarliest()] if to_earliest else []),
        *([ToLatest()] if to_latest else []),
        *([ToCurrent()] if to_current else []),
        *([] if to_offset is None else [ToOffset(offset=to_offset)]),
        *([] if shift_by is None else [ShiftBy(records=shift_by)]),
    ]
    if len(targets) != 1:
        raise click.UsageError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by"
        )
    return reset_command(
        where,
        Console(),
        group=group,
        topics=None if all_topics else topics,
        target=targets[0],
        execute=execute,
    )
