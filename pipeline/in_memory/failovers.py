"""What each fault means for each group: did it move the group's coordinator, and to which broker?

Several tables start from these facts. A fault affects a group if the trace lists the group as
affected, or if the fault moved the group's partition of `__consumer_offsets`, whose leader is the
group's coordinator. What happens to a group after a fault counts as an effect of this fault, until
the next fault that affects the group. `pipeline.tables.failovers` computes the same with Spark.
"""

from dataclasses import dataclass

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, once_per_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One fault and one group, whether or not the fault affects the group.

    - `partition`: the group's partition of `__consumer_offsets`; None if it is not known.
    - `affected`: True if the fault affects the group.
    - `move`: the row of the table `broker_phases` about the move of this partition by this fault;
      None if the fault did not move it.
    - `old_leader`, `new_leader`: the leader of the partition before the fault, and after it. If the
      fault did not move the partition, both are the group's coordinator at that time.
    - `fault_us`: when the fault was injected.
    - `until_us`: when the next fault that affects the group was injected; the run's end if there is
      no such fault. A fault at the same moment does not count as the next fault.
    - `later_coordinators`: the brokers that coordinated the group after the move, each with the
      time at which it became active; empty without a move.

    Times are microseconds on the run's clock.
    """

    fault: str
    group: str
    partition: str | None
    affected: bool
    move: TableRow | None
    old_leader: str | None
    new_leader: str | None
    fault_us: int
    until_us: int
    later_coordinators: tuple[tuple[str, int], ...]


@once_per_trace
def failovers_of(trace: Trace) -> list[Failover]:
    """Return a Failover for each group and fault of the run, sorted by group and time."""
    faults = faults_of(trace)
    all_moves = {(row["fault"], row["partition"]): row for row in broker_phases_of(trace)}
    tenures = coordinator_tenures_of(trace)
    failovers = []
    for group, partition in sorted(trace.groups().items()):
        group_tenures = [tenure for tenure in tenures if tenure["partition"] == partition]
        # The lists `moves` and `affected` have an entry for each fault.
        moves = [all_moves.get((fault["fault"], partition)) for fault in faults]
        affected = [
            group in fault["groups"] or move is not None
            for fault, move in zip(faults, moves, strict=True)
        ]
        for index, (fault, move) in enumerate(zip(faults, moves, strict=True)):
            fault_us = fault["injected_us"]
            later_faults = zip(faults[index + 1 :], affected[index + 1 :], strict=True)
            later_faults_us = [
                other["injected_us"]
                for other, other_affects_group in later_faults
                if other_affects_group and other["injected_us"] > fault_us
            ]
            coordinator = _coordinator_at(fault_us, group_tenures)
            old_leader = new_leader = coordinator
            if move:
                # The move has no `old_leader` if the trace lacks the election of the old leader.
                old_leader = move["old_leader"] or coordinator
                new_leader = move["new_leader"]
            failovers.append(
                Failover(
                    fault=fault["fault"],
                    group=group,
                    partition=partition,
                    affected=affected[index],
                    move=move,
                    old_leader=old_leader,
                    new_leader=new_leader,
                    fault_us=fault_us,
                    until_us=min(later_faults_us, default=trace.end_us),
                    later_coordinators=_later_coordinators(move, group_tenures) if move else (),
                )
            )
    return failovers


def _coordinator_at(time_us: int, tenures: list[TableRow]) -> str | None:
    """Return which broker was the coordinator at a moment.

    This is the broker with the highest leader epoch. It need not be the broker that became active
    last, because a broker that has lost its leadership may end its load later than its successor.
    Returns None if no broker had become active until this moment.
    """
    newest = max(
        (tenure for tenure in tenures if tenure["start_us"] <= time_us),
        key=lambda tenure: (tenure["leader_epoch"], tenure["start_us"]),
        default=None,
    )
    return newest["broker"] if newest else None


def _later_coordinators(move: TableRow, tenures: list[TableRow]) -> tuple[tuple[str, int], ...]:
    """Return the new and all later coordinators after a move, with the start of each tenure.

    A tenure starts when the broker has loaded the partition. If the trace does not have the load of
    the new leader, its election counts as the start.
    """
    coordinators = [
        (tenure["broker"], tenure["start_us"])
        for tenure in tenures
        if tenure["leader_epoch"] >= move["leader_epoch"]
    ]
    if move["active_us"] is None:
        coordinators.append((move["new_leader"], move["decided_us"]))
    return tuple(coordinators)
