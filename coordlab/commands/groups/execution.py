"""`coordlab groups`: asks a cluster about its groups, or changes them, and shows the answer.

Wiring only: whom to ask, what to ask, how to show it, and the exit code.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from rich.console import Console

from cluster.client.admin.group_admin import GroupAdmin
from cluster.client.admin.offset_reset import ResetTarget
from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from coordlab.commands.groups.asked_cluster import (
    Asked,
    AskedCluster,
    NoAnswer,
    ReplayedCluster,
    running_cluster,
)
from coordlab.commands.groups.facts import DescribedGroup, GroupList
from coordlab.commands.groups.questions import (
    ChosenTopic,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
    reset_offsets,
)
from coordlab.commands.groups.rebalance_view import print_rebalances, rebalances_document
from coordlab.commands.groups.view import (
    print_asked,
    print_deleted_groups,
    print_deleted_offsets,
    print_errors,
    print_failures,
    print_group_errors,
    print_list,
    print_members,
    print_offsets,
    print_reset,
    print_states,
)
from coordlab.schedules import schedule_of
from protocol.ids import BrokerId
from results_schema.results import EXIT_PASS, EXIT_VIOLATED

T = TypeVar("T")

EXIT_REFUSED = EXIT_VIOLATED
"""The cluster answered with an error, or not at all."""


class Aspect(StrEnum):
    """What is described of a group."""

    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Whom to ask, and how the answer is wanted.

    Units: `at_us` is on the run's clock, from its beginning; `timeout_ms` on that clock too.
    `broker` None: each group's coordinator, as the brokers name it.
    """

    run: Path | None
    runs: Path
    replay: str | None
    space: str
    at_us: int | None
    force: bool
    timeout_ms: int
    broker: int | None
    json: bool

    def cluster(self) -> AskedCluster:
        """Return the cluster that is meant. Raises: click.UsageError, ExperimentError, NotARun."""
        if self.replay is None:
            if self.at_us is not None:
                raise click.UsageError("--at is a moment of a replay: name that with --replay")
            return running_cluster(self.run, self.runs)
        if self.run is not None:
            raise click.UsageError("--run asks a running cluster, --replay plays one: give one")
        if self.at_us is None:
            raise click.UsageError("--replay needs the moment to ask at, e.g. --at 31.5s")
        schedule = schedule_of(self.replay, self.space)
        return ReplayedCluster(schedule, self.at_us, force=self.force)


def list_command(
    where: Where, console: Console, *, states: Sequence[str], types: Sequence[str], why: bool
) -> int:
    """List the groups; return the exit code."""

    async def question(admin: GroupAdmin) -> GroupList:
        return await list_groups(admin, states, types)

    asked = _ask(where, console, question, follows=why)
    if asked is None:
        return EXIT_REFUSED
    found = asked.answer
    named = [each.group for each in found.groups]
    if asked.rebalances is not None and not states and not types:
        named += asked.rebalances.groups()  # also those that nobody coordinates now
    groups = tuple(dict.fromkeys(named))
    if where.json:
        _print_document(
            console, asked, groups, {"groups": found.groups, "failures": found.failures}
        )
    else:
        print_list(console, found)
        _print_why(console, asked, groups)
    return EXIT_REFUSED if found.failures else EXIT_PASS


def describe_command(
    where: Where,
    console: Console,
    *,
    groups: Sequence[str],
    aspect: Aspect,
    verbose: bool,
    why: bool,
) -> int:
    """Describe groups, every one if none is named; return the exit code."""

    async def question(
        admin: GroupAdmin,
    ) -> tuple[tuple[DescribedGroup, ...], Mapping[int, str]]:
        names: Sequence[str] = groups
        failures: Mapping[int, str] = {}
        if not names:
            listed = await list_groups(admin)
            names, failures = [each.group for each in listed.groups], listed.failures
        with_offsets = aspect is Aspect.OFFSETS
        return await describe_groups(admin, names, with_offsets=with_offsets), failures

    asked = _ask(where, console, question, follows=why)
    if asked is None:
        return EXIT_REFUSED
    found, failures = asked.answer
    names = tuple(each.group for each in found)
    if where.json:
        _print_document(console, asked, names, {"groups": found, "failures": failures})
    else:
        _print_described(console, found, aspect, verbose=verbose)
        print_failures(console, failures)
        _print_why(console, asked, names)
    is_whole = not failures and all(each.error is None for each in found)
    return EXIT_PASS if is_whole else EXIT_REFUSED


def delete_command(where: Where, console: Console, *, groups: Sequence[str]) -> int:
    """Delete groups; return the exit code."""
    asked = _ask(where, console, lambda admin: delete_groups(admin, groups))
    if asked is None:
        return EXIT_REFUSED
    if where.json:
        _print_document(console, asked, (), {"groups": asked.answer})
    else:
        print_deleted_groups(console, asked.answer)
    return EXIT_PASS if all(each.error is None for each in asked.answer) else EXIT_REFUSED


def delete_offsets_command(
    where: Where, console: Console, *, group: str, topics: Sequence[ChosenTopic]
) -> int:
    """Delete offsets of a group; return the exit code."""
    asked = _ask(where, console, lambda admin: delete_offsets(admin, group, topics))
    if asked is None:
        return EXIT_REFUSED
    deleted = asked.answer
    if where.json:
        _print_document(console, asked, (), msgspec.structs.asdict(deleted))
    else:
        print_deleted_offsets(console, deleted)
    is_done = deleted.error is None and all(each.error is None for each in deleted.offsets)
    return EXIT_PASS if is_done else EXIT_REFUSED


def reset_command(
    where: Where,
    console: Console,
    *,
    group: str,
    topics: Sequence[ChosenTopic] | None,
    target: ResetTarget,
    execute: bool,
) -> int:
    """Plan a reset of a group's offsets, and carry it out if told to; return the exit code."""
    asked = _ask(
        where,
        console,
        lambda admin: reset_offsets(admin, group, topics, target, execute=execute),
    )
    if asked is None:
        return EXIT_REFUSED
    reset = asked.answer
    if where.json:
        _print_document(console, asked, (), msgspec.structs.asdict(reset))
    else:
        print_reset(console, reset, execute=execute)
    is_done = reset.error is None and all(each.error is None for each in reset.offsets)
    return EXIT_PASS if is_done else EXIT_REFUSED


def _ask(
    where: Where,
    console: Console,
    question: Callable[[GroupAdmin], Awaitable[T]],
    *,
    follows: bool = False,
) -> Asked[T] | None:
    """Ask, and say who answered when; None, with the reason printed, if nobody did.

    Raises: as Where.cluster.
    """

    async def ask(host: Host, cluster: ClusterSpec) -> T:
        broker = _broker(where.broker, cluster)
        admin = GroupAdmin(host, cluster, timeout_ms=where.timeout_ms, broker=broker)
        try:
            return await question(admin)
        finally:
            admin.close()

    try:
        asked = where.cluster().ask(ask, follows=follows)
    except (NoAnswer, TimeoutError, ClientError) as error:
        # With --json, standard output is one document or nothing.
        print_errors(Console(stderr=True) if where.json else console, [str(error)])
        return None
    if not where.json:
        print_asked(console, asked)
    return asked


def _broker(broker_id: int | None, cluster: ClusterSpec) -> BrokerId | None:
    """Return the broker of this id. Raises: click.UsageError if there is none."""
    known = [broker.broker_id for broker in cluster.brokers]
    if broker_id is None:
        return None
    if broker_id not in known:
        raise click.UsageError(f"--broker: there is no broker {broker_id}, there are {known}")
    return BrokerId(broker_id)


def _print_described(
    console: Console, groups: Sequence[DescribedGroup], aspect: Aspect, *, verbose: bool
) -> None:
    if aspect is Aspect.STATE:
        print_states(console, groups)
        return
    for group in groups:
        if group.error is not None:
            print_group_errors(console, [group])
        elif aspect is Aspect.MEMBERS:
            print_members(console, group, verbose=verbose)
        else:
            print_offsets(console, group)


def _print_why(console: Console, asked: Asked[T], groups: Sequence[str]) -> None:
    if asked.rebalances is None:
        return
    print_rebalances(console, asked.rebalances, groups)
    if asked.unseen is not None:
        print_errors(console, [asked.unseen])


def _print_document(
    console: Console, asked: Asked[T], groups: Sequence[str], facts: Mapping[str, object]
) -> None:
    document: dict[str, object] = {
        "asked": {
            "where": asked.where,
            "asked_at_us": asked.asked_at_us,
            "answered_at_us": asked.answered_at_us,
        },
        **facts,
    }
    if asked.rebalances is not None:
        document["rebalances"] = rebalances_document(asked.rebalances, groups)
        document["unseen"] = asked.unseen
    console.file.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
