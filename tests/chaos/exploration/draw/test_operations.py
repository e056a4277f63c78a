"""Rollouts and scalings: how they are drawn, and how a rollout is made simpler after a finding.

A rollout replaces the members of a group one after the other, as if their program had a new
version. A scaling changes the number of members. Rollouts and scalings are called operations. In an
experiment an operation is one of the faults, like a crash.

If an experiment fails, the "shrinker" looks for the simplest experiment that still fails. The
shrinker works in passes. Each pass yields simpler experiments, the candidates. A candidate that
still fails replaces the experiment.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.exploration.draw.draw import draw
from chaos.exploration.draw.fault_draw import FaultDraw
from chaos.exploration.draw.operations import draw_operation
from chaos.exploration.shrink.passes import wording as simplifying_passes
from chaos.exploration.space import Space
from chaos.exploration.space_definition import FaultSpace
from chaos.faults.registry import FAULT_KINDS
from tests.support.builders.packaged_spaces import packaged_space
from tests.support.builders.quick_experiment import quick_experiment

SEEDS = 60
"""Number of experiments to draw: enough for every argument that a rollout may have."""


@pytest.fixture(scope="module")
def space() -> Space:
    return packaged_space("operations")


def operations(experiment: Experiment) -> list[FaultDefinition]:
    """Return the rollouts and scalings of an experiment."""
    return [fault for fault in experiment.faults if fault.fault in {"rollout", "scale"}]


def test_space_draws_operations_of_every_form_and_each_can_be_run(space: Space) -> None:
    """Each optional argument of a rollout is drawn for some rollout.

    No assertion says that each operation can be run, because `draw` raises an error for an
    experiment that could not be run.
    """
    drawn = [fault for seed in range(SEEDS) for fault in operations(draw(space, seed))]
    assert {fault.fault for fault in drawn} == {"rollout", "scale"}
    for name in ("max_surge", "partition", "broken_from", "stop", "grace_period", "in_batches"):
        assert any(name in fault.args for fault in drawn), name
    # A start-up time may also be a range: two durations.
    assert any(isinstance(fault.args.get("start_up"), list) for fault in drawn)
    # An operation ends by itself, so it needs no duration.
    assert all(fault.duration is None for fault in drawn)


def test_standard_space_draws_no_operation() -> None:
    """Documents cite seeds of this space. A new kind of fault would change what each seed draws."""
    assert not {"rollout", "scale"} & set(packaged_space("standard").faults.kinds)


def test_group_without_members_gets_no_operation() -> None:
    """Such a group has no member to replace. The result None means that no fault is drawn."""
    usual = quick_experiment()
    empty_group = msgspec.structs.replace(usual.groups["readers"], members=0)
    without_members = msgspec.structs.replace(usual, groups={"readers": empty_group})
    fault_draw = FaultDraw(
        experiment=without_members, space=FaultSpace(), seed=1, index=0, at_ms=1_000
    )
    assert draw_operation(fault_draw, FAULT_KINDS["rollout"]) is None


def shortened(args: dict[str, Any], fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Let the pass "shortening rollouts" shrink a rollout, and return the rollout's new arguments.

    `args` are the rollout's arguments before. `fails` gets the arguments of a candidate, and
    returns whether the candidate still fails.
    """
    with_rollout = quick_experiment(
        faults=[{"at": "1s", "fault": "rollout", "target": "members(readers)", "args": args}]
    )
    passes = simplifying_passes(base=None)  # None: the experiment was not drawn from a space
    (shortening,) = [
        shrink_pass for shrink_pass in passes if shrink_pass.does == "shortening rollouts"
    ]
    # `steps` is a generator. It yields a candidate, and gets by `send` whether this candidate still
    # fails. Then it yields the next candidate.
    steps = shortening.steps(with_rollout)
    still_fails: bool | None = None  # None before the first candidate
    smallest = with_rollout
    while True:
        try:
            candidate = next(steps) if still_fails is None else steps.send(still_fails)
        except StopIteration:
            return smallest.faults[0].args
        still_fails = fails(candidate.faults[0].args)
        if still_fails:
            smallest = candidate


def test_durations_of_a_rollout_are_shortened_one_by_one() -> None:
    """A range of start-up times becomes one short time, if the run still fails with it.

    `max_unavailable` is no duration, so this pass leaves it as it is.
    """
    args = {"start_up": ["3s", "9s"], "ready_after": "8s", "max_unavailable": "50%"}
    # Every candidate fails.
    assert shortened(args, lambda _: True) == {
        "start_up": "200ms",
        "ready_after": "200ms",
        "max_unavailable": "50%",
    }
    # Here a candidate fails only if its `start_up` is a range. So the range must stay.
    with_range = shortened(args, lambda tried: isinstance(tried["start_up"], list))
    assert with_range["start_up"] == ["3s", "9s"]
