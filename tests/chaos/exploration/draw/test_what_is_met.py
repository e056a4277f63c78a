"""Each pattern of faults really brings runs into the situation for which it was made.

Some rare situations need a combination of faults, such as two crashes of the same broker in quick
succession. So a space (a file from which seeds draw experiments) has patterns. A pattern is a named
combination of faults, which is drawn like a single fault. These tests play each pattern alone, and
look at the marks of the runs. A mark is the name of a rare situation that a run has reached.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from chaos.exploration.draw.draw import draw
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.exploration.space import Space
from tests.support.builders.packaged_spaces import packaged_space

pytestmark = pytest.mark.slow

SEEDS = 10
"""Number of runs of each pattern."""


@cache
def standard() -> Space:
    return packaged_space("standard")


def played_with(pattern: str) -> Iterator[PlayedRun]:
    """Yield the runs of SEEDS plans, in each of which the pattern is repeated every 5 s."""
    faults = msgspec.structs.replace(
        standard().faults,
        kinds={},
        patterns={pattern: 1},
        kept=1.0,  # no seed leaves the pattern out
        gaps=("5s",),
        lost=0.0,  # no node is lost for good
    )
    space = replace(standard(), faults=faults)
    yield from (play(draw(space, seed), seed) for seed in range(SEEDS))


@pytest.mark.parametrize(
    ("pattern", "marks"),
    [
        ("quick_restart", ("restarted_before_fenced",)),
        ("twice_on_one_role", ("leader_came_back",)),
        ("static_restart_in_a_rebalance", ("static_member_replaced_in_sync_phase",)),
        ("slow_follower", ("living_follower_left_the_isr", "lost_AlterPartition")),
        ("fenced_while_it_serves", ("coordinator_fenced_while_running",)),
        (
            "response_lost_in_a_rebalance",
            ("lost_JoinGroup", "lost_JoinGroup_MEMBER_ID_REQUIRED", "lost_SyncGroup"),
        ),
        ("response_lost_in_a_failover", ("lost_AlterPartition",)),
        ("expired_group", ("offsets_expired",)),
    ],
)
def test_pattern_brings_runs_into_the_situation_of_its_name(
    pattern: str, marks: tuple[str, ...]
) -> None:
    """Each mark is reached by at least one of ten runs. The test ends when all marks were reached.

    The test does not check whether the runs keep Kafka's promises. `test_standard_space` does this:
    it plays 120 seeds, whose plans have the patterns, too.
    """
    not_reached = set(marks)
    for run in played_with(pattern):
        # BROKEN means that the lab itself has failed.
        assert run.result is not PlayResult.BROKEN, run.reasons
        not_reached -= set(run.marks)
        if not not_reached:
            break
    assert not_reached == set()


def test_runs_that_lose_nodes_are_live_with_the_remaining_ones() -> None:
    """At its end a run waits until the remaining nodes work. It does not wait for the lost nodes.

    One of the ten runs may take longer, because one of its groups may still be rebalancing.
    """
    # Each seed may lose nodes (`lost=1.0`). The other faults are leadership moves, which end no
    # node.
    faults = msgspec.structs.replace(
        standard().faults, kinds={"leadership_move": 1}, patterns={}, kept=1.0, lost=1.0
    )
    space = replace(standard(), faults=faults)
    runs = [play(draw(space, seed), seed) for seed in range(SEEDS)]
    steady_s = [(run.steady_us or 0) / 1e6 for run in runs]
    ends_s = [run.virtual_us / 1e6 for run in runs]

    assert [run.result for run in runs] == [PlayResult.PASS] * SEEDS, [
        (run.seed, run.findings or run.reasons) for run in runs
    ]
    # Faults begin within 30 s. If a run waited for lost nodes after the faults, it would wait for
    # the whole liveness_timeout of 120 s. So a run that needs at most 90 s has not waited for them.
    faults_s, recovery_s = 30, 90
    late_seeds = [
        run.seed
        for run, steady, end in zip(runs, steady_s, ends_s, strict=True)
        if end - steady > faults_s + recovery_s
    ]
    assert len(late_seeds) <= 1, late_seeds
