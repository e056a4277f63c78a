"""The plan: what is broken when, as explicit data.

A fault and its undoing are one record. The runner takes a plan and nothing else; where it came
from (a file, a seed, a shrinker) it does not know.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from chaos.experiment import Experiment, microseconds


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a plan.

    Units: `at_us` counts from the steady state, `duration_us` from the injection; None lasts until
    the healing at the end.
    """

    fault_id: str
    at_us: int
    fault: str
    target: str
    duration_us: int | None = None
    args: dict[str, Any] = {}  # checked by the fault's own struct when the file was read


Plan = tuple[PlannedFault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAct:
    """One moment of a plan: a fault begins, or ends."""

    at_us: int
    planned: PlannedFault
    heals: bool


def plan_of(experiment: Experiment) -> Plan:
    """Return the plan that stands in an experiment file, in the file's order."""
    return tuple(
        PlannedFault(
            fault_id=f"{fault.fault}-{index}",
            at_us=microseconds(fault.at),
            fault=fault.fault,
            target=fault.target,
            duration_us=None if fault.duration is None else microseconds(fault.duration),
            args=dict(fault.args),
        )
        for index, fault in enumerate(experiment.faults)
    )


def acts_of(plan: Plan) -> tuple[PlannedAct, ...]:
    """Return the beginnings and ends of a plan in time order; ends go first where both are due."""
    acts = [PlannedAct(at_us=fault.at_us, planned=fault, heals=False) for fault in plan]
    acts += [
        PlannedAct(at_us=fault.at_us + fault.duration_us, planned=fault, heals=True)
        for fault in plan
        if fault.duration_us is not None
    ]
    # The sort is stable: what falls together keeps the plan's order. A fault of no length would
    # be healed before it began, so it is given the other order.
    return tuple(
        sorted(acts, key=lambda act: (act.at_us, not act.heals or act.planned.duration_us == 0))
    )


def length_us(plan: Plan) -> int:
    """Return the time from the steady state to the last act of the plan."""
    return max((act.at_us for act in acts_of(plan)), default=0)
