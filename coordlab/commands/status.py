"""`status`: shows a cluster that `up` has started: its brokers, groups, members and faults.

The process of `up` answers the request. For example:

    lab on local, 31.5 s, serving; process 4711; runs/lab/2026-01-31T12-00-00.000Z
    brokers: 0 up, 1 down, 2 up
    group readers: Stable at broker 2, generation 4, 1 member
      consumer-readers-0-1 (consumer-readers-0, leads)
    fault crash-0: crash of broker(1): in force on broker-1

If two brokers act as the coordinator of a group, the group is listed twice.
"""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from chaos.standing.messages import GroupAtBroker, StatusAnswer, StatusRequest
from coordlab.options import with_examples
from coordlab.standing_options import (
    EXIT_CODES_OF_REQUESTS,
    ask_cluster,
    handles_refusal,
    name_option,
    runs_of_cluster_option,
)
from results_schema.journal import FaultOutcome, JournalEntry


@click.command(
    "status",
    cls=with_examples("status", "status --partitions", "status --json --name lab"),
    epilog=EXIT_CODES_OF_REQUESTS,
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
@handles_refusal
def status_command(partitions: bool, as_json: bool, name: str | None, runs: Path) -> int:
    """Show a cluster that is up: brokers, controller, groups with their members, faults.

    Members of clients from outside are shown as their coordinator knows them.
    """
    answer = ask_cluster(runs, name, StatusRequest(partitions=partitions), StatusAnswer)
    if as_json:
        # `coordlab.console` has a function for this, but it imports rich, which takes time.
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return 0
    for line in status_lines(answer):
        click.echo(line)
    return 0


def status_lines(status: StatusAnswer) -> Iterator[str]:
    """Yield the lines about a cluster, as in the example above."""
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
    topics = ", ".join(f"{name} ({count})" for name, count in status.topics.items())
    yield f"topics: {topics or 'none'}"
    for partition in status.partitions:
        # In Kafka's metadata, the leader -1 means that the partition has no leader.
        leader = "no leader" if partition.leader < 0 else f"leader {partition.leader}"
        isr, replicas = _id_list(partition.isr), _id_list(partition.replicas)
        yield (
            f"  {partition.topic}-{partition.partition}: {leader}, epoch "
            f"{partition.leader_epoch}, isr {isr} of {replicas}"
        )
    if not status.groups:
        yield "groups: none"
    for group in status.groups:
        yield from _group_lines(group)
    for fault in status.faults:
        yield f"fault {fault.fault_id}: {fault.fault} of {fault.target}: {_what_became_of(fault)}"
    for finding in status.findings:
        yield f"seems violated: {finding}"


def _group_lines(group: GroupAtBroker) -> Iterator[str]:
    """Yield a line about a group as one broker knows it, and then a line about each member."""
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count} members"
    yield (
        f"group {group.group}: {group.state} at broker {group.coordinator}, generation "
        f"{group.generation}, {members}"
    )
    for member in group.members:
        client = "client from outside" if member.node is None else member.node
        if member.is_leader:
            client += ", leads"
        yield f"  {member.member_id} ({client})"


def _id_list(brokers: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, brokers)) + "]"


def _what_became_of(fault: JournalEntry) -> str:
    """Return the present state of a fault, such as `in force on broker-1`."""
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "planned"
        case FaultOutcome.HIT if fault.momentary:  # such as a moved leadership, never healed
            return f"done to {fault.hit}"
        case FaultOutcome.HIT if fault.healed_at_us is None:
            return f"in force on {fault.hit}"
        case FaultOutcome.HIT:
            return f"healed on {fault.hit}"
        case FaultOutcome.MISSED:
            return f"hit nothing: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed: {fault.error}"
