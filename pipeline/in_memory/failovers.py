"""The effect of each fault on each group, in plain Python; several tables read it.

A fault affects a group if it names the group or moved its offsets partition. The effects of a fault
are searched until the next fault that affects the same group, or the run's end. Faults of one
moment share this time.
"""

from dataclasses import dataclass

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, once_per_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One fault and one group.

    `phases`: the row of `broker_phases` if the group's partition moved. `old_leader`: the leader of
    the partition before; `coordinator`: its leader in the newest epoch. `later`: the brokers that
    coordinated the group after the move, with their beginnings. Times in microseconds on the run's
    clock.
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
    phases = {(each["fault"], each["partition"]): each for each in broker_phases_of(trace)}
    tenures = coordinator_tenures_of(trace)
    found = []
    for group, partition in sorted(trace.groups().items()):
        served = [tenure for tenure in tenures if tenure["partition"] == partition]
        moves = [phases.get((fault["fault"], partition)) for fault in faults]
        affected = [
            group in fault["groups"] or move is not None
            for fault, move in zip(faults, moves, strict=True)
        ]
        for place, (fault, move) in enumerate(zip(faults, moves, strict=True)):
            next_ones = [
                other["injected_us"]
                for other, hit in zip(faults[place + 1 :], affected[place + 1 :], strict=True)
                if hit and other["injected_us"] > fault["injected_us"]
            ]
            before = [each for each in served if each["start_us"] <= fault["injected_us"]]
            newest = max(
                before, key=lambda each: (each["leader_epoch"], each["start_us"]), default=None
            )
            in_office = newest["broker"] if newest else None
            found.append(
                Failover(
                    fault=fault["fault"],
                    group=group,
                    partition=partition,
                    affected=affected[place],
                    phases=move,
                    old_leader=(move["old_leader"] if move else None) or in_office,
                    coordinator=move["new_leader"] if move else in_office,
                    fault_us=fault["injected_us"],
                    until_us=min(next_ones, default=trace.end_us),
                    later=_later(move, served) if move else (),
                )
            )
    return found


def _later(move: TableRow, served: list[TableRow]) -> tuple[tuple[str, int], ...]:
    """Return the coordinators of the new epoch and of later ones, with the end of their loads.

    If the trace lacks the load of the elected leader, its election counts as the end of the load.
    """
    loaded = [
        (tenure["broker"], tenure["start_us"])
        for tenure in served
        if tenure["leader_epoch"] >= move["leader_epoch"]
    ]
    if move["active_us"] is None:
        loaded.append((move["new_leader"], move["decided_us"]))
    return tuple(loaded)
