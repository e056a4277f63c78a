"""Pairs of a fault and a group, in plain Python; several tables are computed from them.

`pipeline.tables.failovers` computes the same with Spark. A fault affects a group if it names the
group or moved its offsets partition. The effects of a fault are searched until the next fault that
affects the same group, or the run's end. Of faults injected at one moment, none ends the search of
another. A tenure is the time in which a broker is the active coordinator of an offsets partition.
"""

from dataclasses import dataclass

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, once_per_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One fault and one group, also if the fault did not affect the group.

    - `partition`: the group's partition of `__consumer_offsets`, None if it is not known.
    - `affected`: whether the fault affects the group.
    - `phases`: the move: the partition's row of the table `broker_phases`; None if the fault did
      not move the partition.
    - `old_leader`, `coordinator`: leader of the partition before the fault, and after it.
    - `fault_us`, `until_us`: the fault, and the next one that affects the group (or the run's end).
    - `later`: the brokers that coordinated the group after the move, each with the time at which
      its load ended and it became active.

    Units: microseconds on the run's clock.
    """

    fault: str
    group: str
    partition: str | None
    affected: bool
    phases: TableRow | None
    old_leader: str | None
    coordinator: str | None
    fault_us: int
    until_us: int
    later: tuple[tuple[str, int], ...]


@once_per_trace
def failovers_of(trace: Trace) -> list[Failover]:
    """Return each pair of a fault and a group of the run, sorted by group and time."""
    faults = faults_of(trace)
    phases = {(row["fault"], row["partition"]): row for row in broker_phases_of(trace)}
    tenures = coordinator_tenures_of(trace)
    failovers = []
    for group, partition in sorted(trace.groups().items()):
        of_partition = [tenure for tenure in tenures if tenure["partition"] == partition]
        # For each fault, its row of `broker_phases` about this partition; None: it did not move.
        moves = [phases.get((fault["fault"], partition)) for fault in faults]
        affected = [
            group in fault["groups"] or move is not None
            for fault, move in zip(faults, moves, strict=True)
        ]
        for place, (fault, move) in enumerate(zip(faults, moves, strict=True)):
            later_faults_us = [
                other["injected_us"]
                for other, hit in zip(faults[place + 1 :], affected[place + 1 :], strict=True)
                if hit and other["injected_us"] > fault["injected_us"]
            ]
            # The coordinator before the fault. The leader epoch counts before the time, because a
            # deposed leader may still be active, or may have finished its load later.
            before = [row for row in of_partition if row["start_us"] <= fault["injected_us"]]
            newest = max(
                before, key=lambda row: (row["leader_epoch"], row["start_us"]), default=None
            )
            coordinator = newest["broker"] if newest else None
            failovers.append(
                Failover(
                    fault=fault["fault"],
                    group=group,
                    partition=partition,
                    affected=affected[place],
                    phases=move,
                    old_leader=(move["old_leader"] if move else None) or coordinator,
                    coordinator=move["new_leader"] if move else coordinator,
                    fault_us=fault["injected_us"],
                    until_us=min(later_faults_us, default=trace.end_us),
                    later=_later_coordinators(move, of_partition) if move else (),
                )
            )
    return failovers


def _later_coordinators(move: TableRow, tenures: list[TableRow]) -> tuple[tuple[str, int], ...]:
    """Return the coordinators of the new epoch and of later ones, with the end of their loads.

    If the trace lacks the load of the elected leader, its election counts as the end of the load.
    """
    loaded = [
        (tenure["broker"], tenure["start_us"])
        for tenure in tenures
        if tenure["leader_epoch"] >= move["leader_epoch"]
    ]
    if move["active_us"] is None:
        loaded.append((move["new_leader"], move["decided_us"]))
    return tuple(loaded)
