"""The plan of a run: which faults it injects, and when each of them begins and ends.

A plan is a list of faults, each with its time and its duration:

    2 s: kill broker-1, for 5 s       4 s: cut off broker-2, for 1 s

The runner needs moments in the order of time instead, so `schedule_of` makes them from a plan:

    2 s: inject the kill     4 s: inject the cut     5 s: heal the cut     7 s: heal the kill

The schedule also has the starts of late members, which the experiment lets join during the run. All
times count from the steady state. A plan may come from an experiment file, from the search (which
draws plans at random), or from the shrinker; the runner need not know.
"""

from dataclasses import dataclass

from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    OneOrMany,
    consumer_name,
    microseconds,
)
from protocol.ids import NodeName
from results_schema.manifest import Plan, PlannedFault


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAct:
    """A moment of a plan: the injection of a fault, or its healing if `heals` is True."""

    at_us: int
    planned: PlannedFault
    heals: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A moment at which a gradual fault takes its next step."""

    at_us: int
    planned: PlannedFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A moment at which a late member starts. Units: `at_us` counts from the steady state."""

    at_us: int
    node: NodeName


Moment = PlannedAct | NextStep | Arrival
"""Something that the runner does at a given time."""


def plan_of(experiment: Experiment) -> Plan:
    """Return the plan of an experiment file, in the file's order.

    The id of a fault is its kind and its index in the file. If the first fault is a crash that is
    injected three times (`repeat: 3`), its ids are `crash-0`, `crash-0.1` and `crash-0.2`.
    """
    return tuple(
        _planned_fault(fault, index, repetition)
        for index, fault in enumerate(experiment.faults)
        for repetition in range(fault.repeat or 1)  # without `repeat`, it is injected once
    )


def _planned_fault(fault: FaultDefinition, index: int, repetition: int) -> PlannedFault:
    """Return one injection of a fault of the file; `repetition` counts from 0."""
    every_us = 0 if fault.every is None else microseconds(fault.every)
    fault_id = f"{fault.fault}-{index}"
    return PlannedFault(
        fault_id=fault_id if repetition == 0 else f"{fault_id}.{repetition}",
        at_us=microseconds(fault.at) + repetition * every_us,
        fault=fault.fault,
        target=fault.target or "",
        from_=ends_of(fault.from_),
        to=ends_of(fault.to),
        duration_us=None if fault.duration is None else microseconds(fault.duration),
        args=dict(fault.args),
    )


def ends_of(ends: OneOrMany | None) -> tuple[str, ...]:
    """Return one end of a link fault (`from` or `to`) as a tuple of targets.

    In a file an end may be one target or a list of them: "broker-0" -> ("broker-0",).
    """
    if ends is None:
        return ()
    return (ends,) if isinstance(ends, str) else ends


def arrivals_of(experiment: Experiment) -> tuple[Arrival, ...]:
    """Return the starts of all late members, in the file's order."""
    return tuple(
        Arrival(at_us=at_us, node=consumer_name(group_id, index))
        for group_id, group in experiment.groups.items()
        for index, (_, at_us) in enumerate(group.settings_of_members())
        if at_us is not None
    )


def acts_of(plan: Plan) -> tuple[PlannedAct, ...]:
    """Return injections and healings in order of time; at equal times, healings come first."""
    acts = [PlannedAct(at_us=fault.at_us, planned=fault, heals=False) for fault in plan]
    acts += [
        PlannedAct(at_us=fault.at_us + fault.duration_us, planned=fault, heals=True)
        for fault in plan
        if fault.duration_us is not None
    ]
    # At equal times healings come before injections: the second part of the key is False for a
    # healing, and False sorts before True. One exception: the healing of a fault with duration 0
    # has True, too. Otherwise it would come before its own injection.
    return tuple(
        sorted(acts, key=lambda act: (act.at_us, not act.heals or act.planned.duration_us == 0))
    )


def schedule_of(plan: Plan, arrivals: tuple[Arrival, ...]) -> tuple[PlannedAct | Arrival, ...]:
    """Return acts and arrivals in order of time; at equal times, arrivals come last."""
    moments: list[PlannedAct | Arrival] = [*acts_of(plan), *arrivals]
    return tuple(sorted(moments, key=lambda moment: moment.at_us))
