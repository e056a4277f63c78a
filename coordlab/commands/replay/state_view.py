"""States of groups, nodes and faults at one moment of a run, as lines of text.

A ClusterStatus has the answers of the live nodes about their own state; a paused or dead node gives
no answer. The broker that leads a partition of `__consumer_offsets` coordinates the groups whose
state this partition stores. In a split brain, two brokers act as the coordinator of one group. So
here a claim is the state of a group in the memory of one broker that acts as its coordinator.
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
"""Number of the trace's last rows that are printed."""


def print_state(console: Console, moment: Moment) -> None:
    """Print the whole state of the cluster, and the last rows of its trace."""
    print_lines(console, [f"at {clock(moment.time_us)}, stage {moment.stage}"], style="bold")
    print_lines(console, state_lines(moment.status, moment.faults))
    print_lines(console, ["last rows of the trace:"], style="bold")
    for row in moment.rows[-ROWS_SHOWN:]:
        console.print(f"  {row_line(row)}", highlight=False, markup=False, soft_wrap=True)


def state_lines(status: ClusterStatus, faults: Sequence[JournalEntry]) -> Iterator[str]:
    """Yield the lines on groups, then those on nodes, then those on faults."""
    yield from group_lines(status)
    yield "nodes:"
    for name, state in status.nodes.items():
        roles = "; ".join(_roles(name, state, status))
        yield f"  {name:<22} {state.value:<9} {roles}".rstrip()
    # The journal has all faults of the plan, also those that have not begun.
    yield "faults:" if faults else "no faults are planned"
    for fault in faults:
        yield f"  {fault.fault_id} on {fault.node or fault.target}: {fate(fault)}"


def group_lines(status: ClusterStatus) -> Iterator[str]:
    """Yield each group's state at every broker that coordinates it, and at its members."""
    # First the groups that brokers know, then the groups that only members know. The keys of the
    # dict keep this order, and each group is in it once.
    group_ids = dict.fromkeys(
        [*status.groups, *(member.group_id for member in status.members.values())]
    )
    for group_id in group_ids:
        yield f"group {group_id}:"
        claims = status.groups.get(group_id, [])
        if not claims:
            yield "  no broker that can be asked coordinates it"
        for claim in claims:
            yield f"  {_claim(claim)}"
        for name, member in status.members.items():
            if member.group_id == group_id:
                yield f"  {name}: {_member(member)}"


def _claim(claim: GroupStatus) -> str:
    """Return what one coordinator knows of a group, as one line."""
    members = f"{len(claim.members)} member" + ("s" if len(claim.members) != 1 else "")
    leader = "" if claim.leader is None else f", led by {claim.leader}"
    return (
        f"{broker_name(claim.coordinator)} coordinates it: {claim.state}, generation "
        f"{claim.generation}, {members}{leader} (__consumer_offsets-{claim.offsets_partition})"
    )


def _member(member: MemberStatus) -> str:
    """Return what a member knows of its group, and what it has consumed, as one line."""
    known = "none known" if member.coordinator is None else broker_name(member.coordinator)
    return (
        f"{member.state}, generation {member.generation}, coordinator {known}, owns "
        f"{_named(member.assigned)}; {member.records_consumed:,} records, "
        f"{member.commits_acknowledged:,} commits"
    )


def _roles(name: NodeName, state: NodeState, status: ClusterStatus) -> Iterator[str]:
    """Yield texts on a node, such as the partitions that it leads, or that it is fenced.

    The text on a member of a group is the member's state.
    """
    led = [
        partition
        for partition, replicas in status.partitions.items()
        if broker_name(replicas.leader) == name
    ]
    if led:
        yield f"leads {_named(tuple(led))}"
    fenced = [
        broker_name(broker_id)
        for broker_id, is_fenced in status.brokers_fenced.items()
        if is_fenced
    ]
    if name in fenced:
        yield "fenced by the controller"
    coordinates = [
        f"{group} ({claim.state}, generation {claim.generation})"
        for group, claims in status.groups.items()
        for claim in claims
        if broker_name(claim.coordinator) == name
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


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of partitions as one text; "nothing" if there are none."""
    return listed(map(str, partitions)) or "nothing"
