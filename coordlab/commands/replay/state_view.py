"""Prints the state of a cluster at one moment: its groups, its nodes and the faults.

The following lines are a part of the output for a split brain, in which two brokers both act as the
coordinator of a group:

    group readers:
      broker-0 coordinates it: Stable, generation 3, 2 members (__consumer_offsets-7)
      broker-2 coordinates it: PreparingRebalance, generation 4, 1 member (__consumer_offsets-7)
      consumer-readers-0: stable, generation 3, coordinator broker-0, owns orders-0; ...
    nodes:
      broker-0               running   leads orders-0; coordinates readers (Stable, generation 3)

Each node answers for itself, so the lines need not agree. A paused or dead node gives no answer.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console

from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus, NodeState
from coordlab.commands.replay.recording import Moment
from coordlab.console import clock, print_lines, row_line
from coordlab.views.run_view import fate
from pipeline.summary.outcomes import listed
from protocol.ids import NodeName, TopicPartition, broker_name
from results_schema.journal import JournalEntry

ROWS_SHOWN = 12
"""The number of rows of the trace that are printed. They are the last rows."""


def print_state(console: Console, moment: Moment) -> None:
    """Print the whole state of the cluster, and the last rows of its trace."""
    print_lines(console, [f"at {clock(moment.time_us)}, stage {moment.stage}"], style="bold")
    print_lines(console, state_lines(moment.status, moment.faults))
    print_lines(console, ["last rows of the trace:"], style="bold")
    for row in moment.rows[-ROWS_SHOWN:]:
        console.print(f"  {row_line(row)}", highlight=False, markup=False, soft_wrap=True)


def state_lines(status: ClusterStatus, faults: Sequence[JournalEntry]) -> Iterator[str]:
    """Yield the lines about groups, then the lines about nodes, then the lines about faults."""
    yield from group_lines(status)
    yield "nodes:"
    for name, state in status.nodes.items():
        roles = "; ".join(_roles(name, state, status))
        yield f"  {name:<22} {state.value:<9} {roles}".rstrip()
    # All faults of the plan are shown, including faults that are still to come.
    yield "faults:" if faults else "no faults are planned"
    for fault in faults:
        yield f"  {fault.fault_id} on {fault.node or fault.target}: {fate(fault)}"


def group_lines(status: ClusterStatus) -> Iterator[str]:
    """Yield the lines about each group: what its coordinators know, then what its members know."""
    known_to_members = [member.group_id for member in status.members.values()]
    # If no coordinator answers, a group is known only to its members. The dict has each id once.
    group_ids = dict.fromkeys([*status.groups, *known_to_members])
    for group_id in group_ids:
        yield f"group {group_id}:"
        coordinators = status.groups.get(group_id, [])
        if not coordinators:
            yield "  no broker that can be asked coordinates it"
        for group_status in coordinators:
            yield f"  {_line_of_coordinator(group_status)}"
        for name, member in status.members.items():
            if member.group_id == group_id:
                yield f"  {name}: {_line_of_member(member)}"


def _line_of_coordinator(group_status: GroupStatus) -> str:
    """Return what one coordinator knows of a group."""
    count = len(group_status.members)
    members = "1 member" if count == 1 else f"{count} members"
    leader = "" if group_status.leader is None else f", led by {group_status.leader}"
    return (
        f"{broker_name(group_status.coordinator)} coordinates it: {group_status.state}, generation "
        f"{group_status.generation}, {members}{leader} "
        f"(__consumer_offsets-{group_status.offsets_partition})"
    )


def _line_of_member(member: MemberStatus) -> str:
    """Return what a member knows of its group, and how much it has consumed."""
    coordinator = "none known" if member.coordinator is None else broker_name(member.coordinator)
    return (
        f"{member.state}, generation {member.generation}, coordinator {coordinator}, owns "
        f"{_partition_names(member.assigned)}; {member.records_consumed:,} records, "
        f"{member.commits_acknowledged:,} commits"
    )


def _roles(name: NodeName, state: NodeState, status: ClusterStatus) -> Iterator[str]:
    """Yield the present roles of a node: `leads orders-0`, `the active controller` and so on.

    If the node is a member of a group, its role is the state of the member.
    """
    led = [
        partition
        for partition, replicas in status.partitions.items()
        if broker_name(replicas.leader) == name
    ]
    if led:
        yield f"leads {_partition_names(tuple(led))}"
    fenced = [
        broker_name(broker_id)
        for broker_id, is_fenced in status.brokers_fenced.items()
        if is_fenced
    ]
    if name in fenced:
        yield "fenced by the controller"
    coordinates = [
        f"{group} ({group_status.state}, generation {group_status.generation})"
        for group, coordinators in status.groups.items()
        for group_status in coordinators
        if broker_name(group_status.coordinator) == name
    ]
    if coordinates:
        yield f"coordinates {listed(coordinates)}"
    if name == status.controller:
        yield "the active controller"
    if name in status.members:
        member = status.members[name]
        yield f"{member.state} in {member.group_id}"
    if state is NodeState.PAUSED:
        yield "cannot be asked"


def _partition_names(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of partitions for a sentence; "nothing" if there are none."""
    if not partitions:
        return "nothing"
    return listed(map(str, partitions))
