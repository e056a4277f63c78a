"""What a search knows at any time: how many runs passed, which findings there are, and so on.

A search plays one run for each seed. The Tally of the search adds up the results as they come in.
At the end `results_of` makes the summary of the search from its Tally.

Many seeds show the same bug, so findings are put into groups. The findings of a group are of the
same check, and have the same claim, which is the sentence of a finding without names and numbers.
`fencing-1` is the first group of the check `fencing`.

A share of the seeds is played twice ("rechecked"), to see that the same seed gives the same run.
"""

from pathlib import Path

import pytest

from chaos.exploration.marks.registry import MARKS, expected_marks
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.results import results_of
from chaos.exploration.running_totals import Tally, is_chosen
from chaos.exploration.search import Stop
from chaos.exploration.store import Lost, PlayedAgain, PlayedSeeds
from tests.support.harness.fan_out import inconclusive, passed, violated

MARK = next(iter(MARKS))
"""A mark is the name of a rare situation. It does not matter which mark the tests use."""


def tally_of(*runs: PlayedRun, again: tuple[PlayedRun, ...] = (), percent: float = 0.0) -> Tally:
    """Return the Tally of a search in which one worker plays `runs`, and another worker `again`.

    `again` are second runs of the same seeds. `percent` is the share of the seeds that are to be
    played twice.
    """
    tally = Tally(percent)
    tally.take(PlayedSeeds(worker="here:1", busy_s=1.0, runs=runs))
    if again:
        tally.take(PlayedAgain(worker="here:2", busy_s=1.0, runs=again))
    return tally


@pytest.mark.parametrize("percent", [0, 1, 5, 12.5, 33, 50, 100])
def test_rechecked_seeds_are_a_constant_share_from_any_start(percent: float) -> None:
    """For example, with 5 % there are 50 chosen seeds among any 1,000 consecutive seeds.

    So it does not matter with which seed a search begins. The number may be wrong by 1.
    """
    for first in (0, 5_000, 999_999):
        chosen = sum(is_chosen(seed, percent) for seed in range(first, first + 1_000))
        assert chosen == pytest.approx(percent / 100 * 1_000, abs=1)


def test_findings_are_grouped_by_check_and_claim_and_numbered_by_check() -> None:
    """By default a finding is of the check `fencing`, and its claim is "it broke".

    Seeds 1 and 4 have the same check and claim, and so probably the same bug.
    """
    tally = tally_of(
        violated(1),
        violated(2, check="liveness"),
        violated(3, claim="it broke otherwise"),
        violated(4),
    )
    assert {group.name: group.seeds for group in tally.groups.values()} == {
        "fencing-1": [1, 4],
        "liveness-1": [2],
        "fencing-2": [3],
    }


def test_example_is_the_run_with_the_fewest_faults_then_the_soonest() -> None:
    """The example of a group is the run that a person should look at first.

    This is the run with the fewest faults. If several runs have equally few faults, the earliest
    violation decides, and then the smallest seed. The workers may report in any order.

    Here the seeds 2, 3 and 4 have the fewest faults. Of these, 3 and 4 have the earlier violation.
    """
    runs = (
        violated(1, faults=9, time_us=1),
        violated(2, faults=3, time_us=8),
        violated(3, faults=3, time_us=5),
        violated(4, faults=3, time_us=5),
    )
    for order in (runs, runs[::-1]):
        (group,) = tally_of(*order).groups.values()
        assert group.example.seed == 3


def test_seed_that_is_reported_twice_is_counted_once() -> None:
    """A batch may be played again after its worker seemed to be lost."""
    tally = tally_of(passed(1), passed(1))
    assert tally.runs == 1
    assert tally.results == {PlayResult.PASS: 1}


def test_inconclusive_runs_are_listed_by_their_reasons() -> None:
    """In the reasons, numbers and names of nodes are replaced, so equal reasons are one entry."""
    tally = tally_of(
        inconclusive(1, PlayResult.UNKNOWN, "no steady state within 60s: broker-1 is fenced"),
        inconclusive(2, PlayResult.UNKNOWN, "no steady state within 30s: broker-2 is fenced"),
        inconclusive(3, PlayResult.BROKEN, "KeyError: 3"),
    )
    assert tally.unknown == {"no steady state within Ns: BROKER is fenced": [1, 2]}
    assert tally.broken == {"KeyError: N": [3]}
    assert tally.groups == {}


@pytest.mark.parametrize(
    ("tally", "stop", "verdict", "outcome", "code"),
    [
        (tally_of(passed(1)), Stop.COUNT, "pass", "completed", 0),
        (tally_of(passed(1), violated(2)), Stop.COUNT, "violated", "completed", 1),
        (tally_of(), Stop.TIME_LIMIT, "unknown", "completed", 2),
        (
            tally_of(inconclusive(1, PlayResult.UNKNOWN, "no steady state")),
            Stop.COUNT,
            "unknown",
            "completed",
            2,
        ),
        (
            tally_of(passed(1), inconclusive(2, PlayResult.UNKNOWN, "no steady state")),
            Stop.COUNT,
            "unknown",
            "completed",
            2,
        ),
        (tally_of(passed(1), violated(2)), Stop.INTERRUPTED, "violated", "interrupted", 130),
        (
            tally_of(passed(1), inconclusive(2, PlayResult.BROKEN, "boom")),
            Stop.COUNT,
            "pass",
            "internal_error",
            255,
        ),
        (
            # Seed 1 passes, and violates a promise when it is played again.
            tally_of(passed(1), again=(violated(1),), percent=100),
            Stop.COUNT,
            "pass",
            "internal_error",
            255,
        ),
    ],
    ids=[
        "all pass",
        "one violated",
        "nothing played",
        "only unknown",
        "some unknown",
        "interrupted",
        "one broken",
        "not deterministic",
    ],
)
def test_verdict_outcome_and_exit_code(
    tally: Tally, stop: Stop, verdict: str, outcome: str, code: int
) -> None:
    """`outcome` says how the search ended, and `verdict` what it says about Kafka.

    If the lab itself has failed, the exit code is 255, whatever the verdict is. The lab has failed
    if a run is broken, or if a seed gives two different runs.
    """
    results = results_of(tally, stop, Path("x"), elapsed_s=1.0, runs_per_minute=1.0, workers=1)
    assert (results.verdict, results.outcome, results.exit_code) == (verdict, outcome, code)


def test_results_have_the_file_of_each_finding_and_the_count_of_each_mark() -> None:
    """The results name the file of each finding, and say which marks the search has reached.

    Seed 9 is lost, because it killed its worker. A lost seed counts as a broken run.
    """
    reached = PlayedRun(seed=2, result=PlayResult.PASS, marks=(MARK,))
    tally = tally_of(violated(1), reached)
    tally.take(Lost(seeds=(9,), why="killed"))
    results = results_of(
        tally, Stop.COUNT, Path("runs/x"), elapsed_s=1.0, runs_per_minute=1.0, workers=1
    )
    (finding,) = results.findings
    assert finding.file == "findings/fencing-1.yaml"
    assert finding.replay == "python -m coordlab replay runs/x/findings/fencing-1.yaml"
    assert finding.shrink == "python -m coordlab shrink runs/x/findings/fencing-1.yaml"

    assert {mark.mark: mark.runs for mark in results.marks}[MARK] == 1
    assert MARK not in results.marks_unreached
    # `expected_marks` has all marks that this search should reach.
    assert set(results.marks_unreached) == set(expected_marks([MARK])) - {MARK}

    assert results.runs == {"pass": 1, "violated": 1, "unknown": 0, "broken": 1}
    assert results.lost == {"9": "killed"}
    assert results.seeds == 3


def test_excuses_are_counted_by_the_runs_in_which_they_applied() -> None:
    """An excuse is a reason for which a check does not judge something.

    In the run of seed 1 the same excuse applied three times, but this run is counted once.
    """
    never_stored = "liveness: member id that was never stored"
    all_dead = "liveness: all members are dead"
    tally = tally_of(
        PlayedRun(seed=1, result=PlayResult.PASS, excused={never_stored: 3}),
        PlayedRun(seed=2, result=PlayResult.PASS, excused={never_stored: 1, all_dead: 1}),
        passed(3),
    )
    results = results_of(
        tally, Stop.COUNT, Path("x"), elapsed_s=1.0, runs_per_minute=1.0, workers=1
    )
    assert results.excused == {all_dead: 1, never_stored: 2}


@pytest.mark.parametrize(
    ("allowed", "verdict", "code"),
    [
        ((), "unknown", 2),
        (("no steady state within Ns",), "pass", 0),
        (("no steady state within Ns: BROKER has no", "another"), "unknown", 2),
    ],
)
def test_inconclusive_run_passes_only_where_the_space_allows_its_reason(
    allowed: tuple[str, ...], verdict: str, code: int
) -> None:
    """A space lists the reasons for which its runs may be inconclusive (`may_be_unknown`).

    The reason of a run is compared without names and numbers. Here it is "no steady state within
    Ns: BROKER is fenced". It is allowed if it begins with a text of the list.

    - In the first case the list is empty.
    - In the second case the reason begins with a text of the list.
    - In the last case the list has a similar text, but the reason does not begin with it.
    """
    reason = "no steady state within 60s: broker-1 is fenced"
    results = results_of(
        tally_of(passed(1), inconclusive(2, PlayResult.UNKNOWN, reason)),
        Stop.COUNT,
        Path("x"),
        elapsed_s=1.0,
        runs_per_minute=1.0,
        workers=1,
        may_be_unknown=allowed,
    )
    assert (results.verdict, results.exit_code) == (verdict, code)
    (unknown,) = results.unknown
    assert unknown.allowed == (verdict == "pass")


def test_violation_outweighs_an_inconclusive_run() -> None:
    """The verdict is that of the violation. The results still list the inconclusive run."""
    tally = tally_of(violated(1), inconclusive(2, PlayResult.UNKNOWN, "no steady state"))
    results = results_of(
        tally, Stop.COUNT, Path("x"), elapsed_s=1.0, runs_per_minute=1.0, workers=1
    )
    assert (results.verdict, results.exit_code) == ("violated", 1)
    assert len(results.unknown) == 1
