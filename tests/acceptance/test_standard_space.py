"""A search of 120 runs, in which Kafka must keep every promise.

The standard space is a file that describes many experiments. Each run has a seed, a number that
decides which experiment and which faults are drawn from this file. All of Kafka's safety rules are
on, so a broken promise would be our mistake: a bug of coordlab, a check that demands more than
Kafka promises, or a fault that Kafka does not survive.

Some seeds are played a second time in another process, and must give the same run there.
`make soak PART=explore` plays 20,000 seeds.
"""

from functools import partial

import pytest

from chaos.exploration.batches import check_code, play_seeds
from chaos.exploration.play import PlayResult
from chaos.exploration.running_totals import Tally
from chaos.exploration.search import Limits, Search, Stop
from chaos.results.replay_stamp import code_version
from cluster.compiled import SWITCH
from cluster.ray.actors import LOCAL
from cluster.ray.tasks import RayWorkers
from tests.support.builders.packaged_spaces import packaged_space

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # The test starts its own Ray with two workers. In a group of its own, it runs last.
    pytest.mark.xdist_group("standard space"),
]

SEEDS = 120
RECHECK_PERCENT = 5
"""The share of the seeds that are played a second time."""
LEAST_SHARES = {
    "commit_failed_COORDINATOR_LOAD_IN_PROGRESS": 0.05,
    "restarted_before_fenced": 0.15,
    "living_follower_left_the_isr": 0.04,
    "first_generation_among_faults": 0.03,
    "lost_JoinGroup_MEMBER_ID_REQUIRED": 0.01,
    "lost_AlterPartition": 0.01,
}
"""Rare situations (coverage marks), each with the smallest share of the runs that must reach it.

A search that does not reach these situations proves little.
"""


def test_no_seed_breaks_a_promise_and_rechecks_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No run breaks a promise. Up to 2 % of the runs may prove nothing.

    The workers run compiled modules if `make fast` compiled them, as in a user's search.
    """
    monkeypatch.setenv(SWITCH, "1")
    tally = Tally(RECHECK_PERCENT)  # counts the results of the runs
    workers = RayWorkers(
        LOCAL,
        partial(play_seeds, packaged_space("standard")),
        size=2,
        check=partial(check_code, code_version()),
    )
    with workers:
        # The search has no time limit, so its clock may stand still. `write` keeps no records.
        search = Search(
            tally, workers, Limits(count=SEEDS), clock=lambda: 0.0, write=lambda record: None
        )
        stop = search.run()

    findings = [
        f"{group.name}, seeds {group.seeds}: {group.finding.summary}"
        for group in tally.groups.values()
    ]
    # All findings are printed, because a developer will replay one of them next.
    assert findings == [], "\n".join(findings)
    assert (tally.broken, tally.lost, tally.differences) == ({}, {}, [])
    assert (stop, tally.runs) == (Stop.COUNT, SEEDS)
    # Each of these seeds was played the second time in another process.
    assert tally.rechecked == tally.rechecked_elsewhere == SEEDS * RECHECK_PERCENT // 100
    assert tally.results[PlayResult.PASS] >= 0.98 * SEEDS, tally.unknown
    shares = {mark: tally.marks[mark] / SEEDS for mark in LEAST_SHARES}
    assert all(shares[mark] >= least for mark, least in LEAST_SHARES.items()), shares
