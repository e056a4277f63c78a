"""Planted bugs that only a rollout or a scaling shows: other faults do not reach the wrong code.

A planted bug is a wrong method that we put into our code on purpose. A rollout replaces the members
of a group one after the other. It stops each member in an orderly way: the member closes its
consumer, which commits once more. The bugs of this module change what happens when a consumer is
closed. A crash or a pause never closes a consumer, so it cannot show these bugs.
"""

import msgspec
import pytest

from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS
from chaos.experiment.structs import Experiment
from chaos.exploration.draw.draw import draw
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.faults.processes import ControlledShutdown
from chaos.faults.registry import FAULT_KINDS
from tests.support.builders.packaged_spaces import packaged_space
from tests.support.builders.quick_experiment import quick_experiment

FAILED_COMMIT_COUNTS = "closing_commit_counts_although_it_failed"
FETCHED_RECORDS_COMMITTED = "closing_commit_covers_what_was_fetched"
SUCCESSOR_GOES_ON = "successor_goes_on_where_its_predecessor_was"


def with_bug(name: str, experiment: Experiment, seed: int) -> PlayedRun:
    """Play the experiment with the bug planted."""
    with OPERATION_BUGS[name].planted():
        return play(experiment, seed)


def test_commit_that_counts_although_it_failed_is_found_by_the_first_seed() -> None:
    """Planted bug: a closing member treats a failed last commit as acknowledged.

    The space `operations` is a file from which seeds draw experiments with rollouts and scalings.
    The first seed finds the bug. Without the bug the experiment of this seed passes.
    """
    experiment = draw(packaged_space("operations"), seed=0)
    run = with_bug(FAILED_COMMIT_COUNTS, experiment, seed=0)
    assert run.result is PlayResult.VIOLATED
    assert {finding.signature.check for finding in run.findings} == {"durable_commits"}
    assert play(experiment, seed=0).result is PlayResult.PASS


def busy_members(fault: str, **fields: object) -> Experiment:
    """Return an experiment whose members always have fetched records to process.

    A member processes 10 records per second, and 20 are produced per second.
    """
    made = quick_experiment(
        faults=[{"at": "3s", "fault": fault, **fields}],
        producers=[{"topic": "orders", "records_per_second": 20}],
    )
    # A poll returns one record, so other fetched records wait for the next polls.
    config = msgspec.structs.replace(made.groups["readers"].config, max_poll_records=1)
    group = msgspec.structs.replace(
        made.groups["readers"], process_us=100_000, commit_interval_ms=500, config=config
    )
    return msgspec.structs.replace(made, groups={"readers": group})


@pytest.mark.parametrize("name", [FETCHED_RECORDS_COMMITTED, SUCCESSOR_GOES_ON])
def test_records_skipped_at_close_are_found_by_a_rollout_and_not_by_a_crash(name: str) -> None:
    """Planted bugs: a closing member, or its successor, skips records that were not processed.

    A crashed member does not close its consumer, so the bug has no effect.
    """
    rollout = busy_members("rollout", target="members(readers)", args={"start_up": "1s"})
    run = with_bug(name, rollout, seed=3)
    assert run.result is PlayResult.VIOLATED, run.reasons
    assert {finding.signature.check for finding in run.findings} == {"processing"}
    assert play(rollout, seed=3).result is PlayResult.PASS
    crash = busy_members("crash", target="member(readers, 1)", duration="1s")
    assert with_bug(name, crash, seed=3).result is PlayResult.PASS


def test_no_fault_of_the_standard_space_closes_a_member_that_works() -> None:
    """A search of the standard space cannot find the bugs of this module.

    Three kinds of faults stop a process in an orderly way: rollouts, scalings and controlled
    shutdowns. Rollouts and scalings are gradual faults, and the space has no gradual fault. The
    space has controlled shutdowns, but can aim them at servers only, and not at members.
    """
    kinds = {name: FAULT_KINDS[name] for name in packaged_space("standard").faults.kinds}
    assert len(kinds) >= 10  # with few kinds, it would mean little that both lists below are empty
    assert [name for name, kind in kinds.items() if kind.is_gradual] == []
    aimed_at_members = [
        name
        for name, kind in kinds.items()
        if isinstance(kind, ControlledShutdown)
        and {"member", "members", "leader-member-of"} & set(kind.targets)
    ]
    assert aimed_at_members == []
