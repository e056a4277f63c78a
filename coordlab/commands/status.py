"""`status`: shows a standing cluster, one that `up` started: brokers, groups, members, faults.

The process that runs the cluster answers the command. A group is listed once for each broker that
acts as its coordinator. After a partition of the network a group can have two coordinators for a
short time. ISR means the in-sync replicas of a partition. The epoch of a partition grows with each
change of its leader.
"""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from chaos.standing.messages import GroupAtBroker, StatusAnswer, StatusRequest
from coordlab.options import with_examples
from coordlab.standing_options import (
    NO_CLUSTER_HELP,
    ask_cluster,
    ends_with_refusal,
    name_option,
    runs_of_cluster_option,
)
from results_schema.journal import FaultOutcome, JournalEntry


@click.command(
    "status",
    cls=with_examples("status", "status --partitions", "status --json --name lab"),
    epilog=NO_CLUSTER_HELP,
)
@click.option("--partitions", is_flag=True, help="Show leader and ISR of each partition.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document instead: name, run_directory, runtime, stage, bootstrap, "
    "brokers, topics, partitions, groups, faults and more.",
)
@name_option
@runs_of_cluster_option
@ends_with_refusal
def status_command(partitions: bool, as_json: bool, name: str | None, runs: Path) -> int:
    """Show a cluster that is up: brokers, controller, groups with their members, faults.

    Members of clients from outside are shown as their coordinator knows them.
    """
    answer = ask_cluster(runs, name, StatusRequest(partitions=partitions), StatusAnswer)
    if as_json:
        # `coordlab.console` is not used, because it imports rich, which takes time.
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return 0
    for line in status_lines(answer):
        click.echo(line)
    return 0


def status_lines(status: StatusAnswer) -> Iterator[str]:
    """Yield the lines that show a cluster."""
    yield (
        f"{status.name} on {status.runtime}, {status.time_us / 1e6:.1f} s, {status.stage}; "
        f"process {status.pid}; {status.run_directory}"
    )
    if status.bootstrap:
        yield f"bootstrap servers: {','.join(status.bootstrap)}"
    yield f"controller: {status.controller or 'none answers'}"
    yield "brokers: " + ", ".join(f"{broker.broker_id} {broker.state}" for broker in status.brokers)
    if status.not_up:
        yield "not up: " + ", ".join(f"{node} {state}" for node, state in status.not_up.items())
    yield "topics: " + (
        ", ".join(f"{name} ({count})" for name, count in status.topics.items()) or "none"
    )
    for partition in status.partitions:
        # As in Kafka's metadata, -1 means that the partition has no leader.
        leader = "no leader" if partition.leader < 0 else f"leader {partition.leader}"
        yield (
            f"  {partition.topic}-{partition.partition}: {leader}, epoch "
            f"{partition.leader_epoch}, isr {_ids(partition.isr)} of {_ids(partition.replicas)}"
        )
    if not status.groups:
        yield "groups: none"
    for group in status.groups:
        yield from _group_lines(group)
    for fault in status.faults:
        yield f"fault {fault.fault_id}: {fault.fault} of {fault.target}: {_fate(fault)}"
    for finding in status.findings:
        yield f"seems violated: {finding}"


def _group_lines(group: GroupAtBroker) -> Iterator[str]:
    """Yield a line on a group as one broker knows it, then a line for each member.

    A member is a node of the cluster, or a client from outside, whose `node` is None.
    """
    count = len(group.members)
    yield (
        f"group {group.group}: {group.state} at broker {group.coordinator}, generation "
        f"{group.generation}, {count} member{'' if count == 1 else 's'}"
    )
    for member in group.members:
        client = "client from outside" if member.node is None else member.node
        yield f"  {member.member_id} ({client}{', leads' if member.is_leader else ''})"


def _ids(brokers: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, brokers)) + "]"


def _fate(fault: JournalEntry) -> str:
    """Return the state of a fault in words.

    A momentary fault, such as a moved leadership, is over when it is done, and is never healed.
    """
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "planned"
        case FaultOutcome.HIT if fault.momentary:
            return f"done to {fault.hit}"
        case FaultOutcome.HIT if fault.healed_at_us is None:
            return f"in force on {fault.hit}"
        case FaultOutcome.HIT:
            return f"healed on {fault.hit}"
        case FaultOutcome.MISSED:
            return f"hit nothing: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed: {fault.error}"
