"""Pairs of a fault and a group, computed without Spark; several tables use them.

A fault affects a group in two cases: the trace lists the group as affected by the fault, or the
fault moved the group's offsets partition (its partition of `__consumer_offsets`, whose leader is
the group's coordinator). The effects of a fault on a group can last until the next fault that
affects the group, or until the run's end. Of two faults at the same moment, neither is the other's
next one. `pipeline.tables.failovers` computes the same with Spark.

A tenure is the time in which a broker is the active coordinator of an offsets partition. It begins
when the broker has loaded the partition (read its groups into memory).
"""

from dataclasses import dataclass

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, once_per_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One fault and one group, whether or not the fault affects the group.

    - `partition`: the group's partition of `__consumer_offsets`, None if it is not known.
    - `affected`: whether the fault affects the group.
    - `move`: the row of the table `broker_phases` about this fault and this partition; None if the
      fault did not move the partition.
    - `old_leader`, `new_leader`: leader of the partition before the fault, and after it. If the
      fault did not move the partition, both are the group's coordinator at the time of the fault.
    - `fault_us`: time of the fault.
    - `until_us`: time of the next fault that affects the group, or the run's end.
    - `later_coordinators`: the brokers that coordinated the group after the move, each with the
      time at which it became active because its load had ended; empty without a move.

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
    """Return each pair of a fault and a group of the run, sorted by group and time."""
    faults = faults_of(trace)
    all_moves = {(row["fault"], row["partition"]): row for row in broker_phases_of(trace)}
    tenures = coordinator_tenures_of(trace)
    failovers = []
    for group, partition in sorted(trace.groups().items()):
        group_tenures = [tenure for tenure in tenures if tenure["partition"] == partition]
        # One entry for each fault; None if the fault did not move this partition.
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
            # The tenure with the highest leader epoch (the number of the partition's leadership)
            # among the tenures that began before the fault. This need not be the tenure that began
            # last, because a broker that lost its leadership can finish its load later than its
            # successor.
            newest = max(
                (tenure for tenure in group_tenures if tenure["start_us"] <= fault_us),
                key=lambda tenure: (tenure["leader_epoch"], tenure["start_us"]),
                default=None,
            )
            old_leader = new_leader = newest["broker"] if newest else None
            if move:
                # If the trace lacks the election of the old leader, the move has no `old_leader`.
                # Then the broker of the tenure `newest` counts.
                old_leader = move["old_leader"] or old_leader
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


def _later_coordinators(move: TableRow, tenures: list[TableRow]) -> tuple[tuple[str, int], ...]:
    """Return the coordinators of the move's epoch and of later ones, with the start of each tenure.

    A tenure starts when the broker's load has ended. If the trace lacks the load after the move,
    `tenures` lacks the new leader's tenure. Then the moment of the election counts as its start.
    """
    coordinators = [
        (tenure["broker"], tenure["start_us"])
        for tenure in tenures
        if tenure["leader_epoch"] >= move["leader_epoch"]
    ]
    if move["active_us"] is None:
        coordinators.append((move["new_leader"], move["decided_us"]))
    return tuple(coordinators)
