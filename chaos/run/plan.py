"""The plan of a run: which faults it injects, and when each of them begins and ends.

A plan is a list of faults, each with its time and its duration:

    2 s: kill broker-1, for 5 s       4 s: cut off broker-2, for 1 s

The runner needs moments in the order of time instead, so `schedule_of` makes them from a plan:

    2 s: inject the kill     4 s: inject the cut     5 s: heal the cut     7 s: heal the kill

The schedule also has the starts of late members, which join their group during the run. All times
count from the steady state, when all groups are stable.

A plan may come from an experiment file, from the search (which draws plans at random), or from the
shrinker (which makes plans smaller). For the runner this makes no difference.
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
    """A moment at which a fault is injected or, if `heals` is True, undone (healed)."""

    at_us: int
    planned: PlannedFault
    heals: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A moment at which a gradual fault, such as a rollout, takes its next step."""

    at_us: int
    planned: PlannedFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A moment at which a late member starts. Its time `at_us` counts from the steady state."""

    at_us: int
    node: NodeName


Moment = PlannedAct | NextStep | Arrival
"""Something that the runner does at a given time."""


def plan_of(experiment: Experiment) -> Plan:
    """Return the plan of an experiment file, in the file's order.

    The id of a fault consists of its kind and its index in the file. If a fault is injected several
    times, each injection has an id of its own. For example, if the first fault is a crash with
    `repeat: 3`, the ids are `crash-0`, `crash-0.1` and `crash-0.2`.
    """
    return tuple(
        _planned_fault(fault, index, repetition)
        for index, fault in enumerate(experiment.faults)
        for repetition in range(fault.repeat or 1)  # without `repeat`, the fault is injected once
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

    In a file an end may be one target, or a list of targets. For example, the end "broker(0)"
    becomes ("broker(0)",).
    """
    if ends is None:
        return ()
    return (ends,) if isinstance(ends, str) else ends


def arrivals_of(experiment: Experiment) -> tuple[Arrival, ...]:
    """Return the starts of all late members, in the file's order."""
    # `settings_of_members` returns (settings, time of the start) for each member. The time is None
    # for members that start with the cluster.
    return tuple(
        Arrival(at_us=at_us, node=consumer_name(group_id, index))
        for group_id, group in experiment.groups.items()
        for index, (_, at_us) in enumerate(group.settings_of_members())
        if at_us is not None
    )


def acts_of(plan: Plan) -> tuple[PlannedAct, ...]:
    """Return the injections and healings of a plan, in order of time.

    If several of them have the same time, the healings come first.
    """
    acts = [PlannedAct(at_us=fault.at_us, planned=fault, heals=False) for fault in plan]
    acts += [
        PlannedAct(at_us=fault.at_us + fault.duration_us, planned=fault, heals=True)
        for fault in plan
        if fault.duration_us is not None
    ]
    # The second part of the key is False for a healing and True for an injection. False sorts
    # before True, so at equal times the healings come first. There is one exception: a fault with
    # the duration 0 is healed at the time of its own injection, and must be injected first. So the
    # key of this healing has True, too, and the healing stays behind the injection: `sorted` keeps
    # the order of acts with equal keys.
    return tuple(
        sorted(acts, key=lambda act: (act.at_us, not act.heals or act.planned.duration_us == 0))
    )


def schedule_of(plan: Plan, arrivals: tuple[Arrival, ...]) -> tuple[PlannedAct | Arrival, ...]:
    """Return the acts of a plan and the arrivals, in order of time.

    If several of them have the same time, the arrivals come last.
    """
    moments: list[PlannedAct | Arrival] = [*acts_of(plan), *arrivals]
    return tuple(sorted(moments, key=lambda moment: moment.at_us))
