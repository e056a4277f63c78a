"""Drawn rollouts and scalings, and how they are shrunk.

A rollout replaces the members of a group one after the other, a scaling changes their number; both
are called operations. A seed draws an experiment from a space (a file of what may vary). A failing
experiment is shrunk: a pass of the shrinker yields simpler candidates, and a candidate that still
fails is kept.
"""

from typing import Any

import msgspec
import pytest

from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.exploration.draw.draw import draw
from chaos.exploration.draw.fault_draw import FaultDraw
from chaos.exploration.draw.operations import draw_operation
from chaos.exploration.shrink.passes import wording
from chaos.exploration.space import Space
from chaos.exploration.space_definition import FaultSpace
from chaos.faults.registry import FAULT_KINDS
from tests.support.builders.packaged_spaces import packaged_space
from tests.support.builders.quick_experiment import quick_experiment

SEEDS = 60


@pytest.fixture(scope="module")
def space() -> Space:
    return packaged_space("operations")


def operations(experiment: Experiment) -> list[FaultDefinition]:
    """Return the rollouts and scalings of an experiment."""
    return [fault for fault in experiment.faults if fault.fault in {"rollout", "scale"}]


def test_space_draws_operations_of_every_form_and_each_can_be_run(space: Space) -> None:
    """`draw` checks each experiment as if it were read from a file."""
    drawn = [fault for seed in range(SEEDS) for fault in operations(draw(space, seed))]
    assert {fault.fault for fault in drawn} == {"rollout", "scale"}
    for name in ("max_surge", "partition", "broken_from", "stop", "grace_period", "in_batches"):
        assert any(name in fault.args for fault in drawn), name
    assert any(isinstance(fault.args.get("start_up"), list) for fault in drawn)
    assert all(fault.duration is None for fault in drawn)


def test_standard_space_draws_no_operation() -> None:
    """Documents cite seeds of this space; a new kind of fault would change the plans of all."""
    assert not {"rollout", "scale"} & set(packaged_space("standard").faults.kinds)


def test_group_without_a_place_for_a_member_gets_no_operation() -> None:
    """A group of no members has none to replace, so no fault is drawn (None)."""
    made = quick_experiment()
    group = msgspec.structs.replace(made.groups["readers"], members=0)
    empty = msgspec.structs.replace(made, groups={"readers": group})
    draw = FaultDraw(experiment=empty, space=FaultSpace(), seed=1, index=0, at_ms=1_000)
    assert draw_operation(draw, FAULT_KINDS["rollout"]) is None


def shortened(args: dict[str, Any], fails: Any) -> dict[str, Any]:  # noqa: ANN401 - a predicate
    """Return the arguments to which a rollout is shrunk; `fails(args)`: the candidate fails."""
    made = quick_experiment(
        faults=[{"at": "1s", "fault": "rollout", "target": "members(readers)", "args": args}]
    )
    (shortening,) = [
        shrink_pass for shrink_pass in wording(None) if shrink_pass.does == "shortening rollouts"
    ]
    # The pass is a generator: it yields a candidate, and `send` tells it whether that still fails.
    steps, still_fails, smallest = shortening.steps(made), None, made
    while True:
        try:
            candidate = next(steps) if still_fails is None else steps.send(still_fails)
        except StopIteration:
            return smallest.faults[0].args
        still_fails = fails(candidate.faults[0].args)
        if still_fails:
            smallest = candidate


def test_durations_of_a_rollout_are_shortened_one_by_one() -> None:
    """A list of durations becomes one short duration, unless only a list makes the run fail."""
    args = {"start_up": ["3s", "9s"], "ready_after": "8s", "max_unavailable": "50%"}
    assert shortened(args, lambda _: True) == {
        "start_up": "200ms",
        "ready_after": "200ms",
        "max_unavailable": "50%",
    }
    shortest = shortened(args, lambda tried: isinstance(tried["start_up"], list))
    assert shortest["start_up"] == ["3s", "9s"]
