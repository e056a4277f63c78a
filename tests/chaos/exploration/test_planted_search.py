"""Does a search find bugs? We plant bugs in our own code, and search for them.

A planted bug replaces a method of our code by a wrong one, for the time of a `with` block. `hunt`
plays a run for seed after seed with the bug planted, until a check finds something. The plan of a
run is a list of faults, which the seed determines. `hunt` then shrinks the plan of the run with the
finding: it removes faults from the plan as long as the finding stays. The few faults that are left
are what a person would have to look at.

`make soak PART=mutants` hunts all planted bugs. These tests hunt only a few of them. The first of
these is the "canary": the bug that is easiest to find.
"""

from contextlib import ExitStack
from dataclasses import replace as replace_bug

import pytest
from msgspec.structs import replace

from benchmarks.planted_bugs import hunt as hunting
from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.hunt import FAULTS_MAX, ShrunkBug, hunt
from benchmarks.planted_bugs.planted_bug import PlantedBug
from benchmarks.planted_bugs.record import PAGE, is_found, page
from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult, play
from chaos.exploration.shrink.edits import sizes_of
from chaos.exploration.shrink.shrink import ShrinkEnd, Shrinker
from chaos.exploration.signature import Signature
from chaos.exploration.space import Space
from cluster.broker.coordination.appends import CoordinatorAppends
from coordinator.coordinator import GroupCoordinator
from tests.support.builders.packaged_spaces import packaged_space
from tests.support.builders.quick_experiment import failing_experiment
from tests.support.determinism import drawn_schedule

CANARY = "reply_before_high_watermark"
SEEDS = 60
"""Each bug must be found within this number of seeds. At present a few seeds are enough."""


@pytest.fixture(scope="module")
def space() -> Space:
    """Return the space from which the hunts draw their plans."""
    return packaged_space("standard")


@pytest.mark.slow
def test_canary_is_found_and_shrunk(space: Space) -> None:
    """The canary is a coordinator that acknowledges commits before the high watermark passes them.

    Two faults are enough to lose such a commit. So a plan with at most FAULTS_MAX faults must
    remain after the shrinking. Without the bug this plan must pass, which shows that the bug is the
    cause. A hunt may also try the shrunk plan with other seeds, but this hunt does not
    (`other_seeds=0`).
    """
    hunted = hunt(BUGS[CANARY], space, seeds=SEEDS, other_seeds=0)

    assert hunted.seed is not None
    assert {"fencing", "durable_commits"} & set(hunted.checks)
    assert hunted.shrunk is not None
    assert hunted.shrunk.after.faults <= FAULTS_MAX
    assert hunted.shrunk.passes_without_bug
    assert CANARY in page([hunted])
    assert is_found(hunted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "check"),
    [
        ("keeps_lost_partitions", "ownership"),
        ("load_drops_tombstones", "durable_commits"),
        ("unload_without_epoch", "fencing"),
    ],
)
def test_bug_is_found(space: Space, bug: str, check: str) -> None:
    """Each bug is found by the check of the promise that it breaks.

    - `keeps_lost_partitions`: a consumer keeps partitions that it has lost.
    - `load_drops_tombstones`: when a new coordinator loads the log, it skips the tombstones.
    - `unload_without_epoch`: a coordinator drops groups because of an outdated order, although it
      has become their coordinator again since.
    """
    hunted = hunt(BUGS[bug], space, seeds=SEEDS, shrinks=False)

    assert hunted.seed is not None
    assert check in hunted.checks


# - `plan_lengths`: seed -> number of faults in its plan, for the seeds that fail. Other seeds pass.
# - `unshrinkable`: the seeds whose plans stay too long when they are shrunk.
# - `kept_seed`: the seed whose shrunk plan is kept.
# - `tries`: number of plans that are shrunk.
@pytest.mark.parametrize(
    ("plan_lengths", "unshrinkable", "kept_seed", "tries"),
    [
        pytest.param({3: 45, 5: 35, 8: 40, 9: 12}, set(), 9, 1, id="shortest of the first few"),
        pytest.param({3: 40, 5: 8, 8: 1}, set(), 5, 1, id="short enough: the search ends"),
        pytest.param({3: 40, 5: 8, 8: 1}, {5}, 8, 2, id="the next one, if it cannot be shrunk"),
        pytest.param({3: 40, 5: 8, 8: 1}, {3, 5, 8}, 3, 3, id="none can be shrunk"),
        pytest.param({3: 40}, {3}, 3, 1, id="the only one cannot be shrunk"),
    ],
)
def test_shortest_schedules_of_the_first_few_are_shrunk(
    monkeypatch: pytest.MonkeyPatch,
    space: Space,
    plan_lengths: dict[int, int],
    unshrinkable: set[int],
    kept_seed: int,
    tries: int,
) -> None:
    """A short plan is quicker to shrink than a long one.

    So the hunt does not shrink the first failing plan. It plays some more seeds, until a failing
    plan has at most 10 faults (FEW_FAULTS), or until it has seen a few failing plans. Then it
    shrinks the shortest of them. If this plan stays too long, the hunt shrinks the next shortest
    plan.

    The test replaces the functions that draw a plan, play a run, and shrink a plan.
    """
    # Only faults before the finding count for a plan's length. 10**9 us is later than all faults.
    finding = PlayedFinding(
        signature=Signature(check="fencing", claim="?"), summary="", time_us=10**9
    )
    drawn = failing_experiment()
    planted: list[bool] = []  # has an element while the bug is planted

    def drawn_with(_: Space, seed: int) -> Experiment:
        # The plans of the other seeds have 50 faults, which does not matter, because they pass.
        return replace(drawn, faults=drawn.faults[:1] * plan_lengths.get(seed, 50))

    def played(_: Experiment, seed: int, **__: object) -> PlayedRun:
        if seed in plan_lengths and planted:
            return PlayedRun(seed=seed, result=PlayResult.VIOLATED, findings=(finding,))
        return PlayedRun(seed=seed, result=PlayResult.PASS)

    def plant(stack: ExitStack) -> None:
        planted.append(True)
        stack.callback(planted.clear)

    def shrunk_bug(
        _bug: PlantedBug,
        _space: Space,
        _experiment: Experiment,
        seed: int,
        _finding: PlayedFinding,
        **_: object,
    ) -> ShrunkBug:
        sizes = sizes_of(drawn)
        return ShrunkBug(
            before=sizes,
            # The hunt accepts three faults (FAULTS_MAX), but not four.
            after=replace(sizes, faults=4 if seed in unshrinkable else 3),
            faults=(str(seed),),
            runs=1,
            cpu_s=1.0,
            end="",
            robust_fails=0,
            robust_tried=0,
            passes_without_bug=True,
        )

    monkeypatch.setattr(hunting, "draw", drawn_with)
    monkeypatch.setattr(hunting, "play", played)
    monkeypatch.setattr(hunting, "shrink_bug", shrunk_bug)
    hunted = hunt(replace_bug(BUGS[CANARY], plant=plant), space, seeds=20, play_without_bug=played)

    # Seed 3 is the first that fails, so four seeds were tried: 0 to 3.
    assert (hunted.seed, hunted.seeds_tried) == (3, 4)
    assert (hunted.shrunk_seed, hunted.tries) == (kept_seed, tries)
    assert hunted.shrunk is not None
    assert hunted.shrunk.faults == (str(kept_seed),)


@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.name)
def test_bug_is_planted_within_the_block_and_removed_after_it(bug: PlantedBug) -> None:
    """A bug that stays would spoil every later run of this process.

    The test looks only at two of the methods that bugs replace: after the block they must be the
    original ones again.
    """
    methods_before = (GroupCoordinator.unload, CoordinatorAppends._await)
    with bug.planted():
        pass
    assert (GroupCoordinator.unload, CoordinatorAppends._await) == methods_before


@pytest.mark.slow
def test_run_after_a_planted_bug_has_the_digest_of_the_run_before() -> None:
    """After the block the original code is restored.

    A digest is made from all rows of a run's trace. So equal digests mean equal runs.
    """
    experiment = drawn_schedule("three_groups_through_cuts_pauses_and_shutdowns")
    before = play(experiment, seed=3).digest
    with BUGS[CANARY].planted():
        with_bug = play(experiment, seed=3).digest
    assert play(experiment, seed=3).digest == before
    assert with_bug != before


@pytest.mark.slow
def test_a_group_that_never_recovers_in_a_long_plan_is_shrunk_in_few_runs() -> None:
    """The finding is that a group never recovers after the faults.

    To find this, a run of the whole plan of 74 faults waits for the group for two minutes
    (`liveness_timeout`). The shrinker plays smaller plans with a shorter wait. After only 60 runs
    at most 5 faults must be left. The plan was drawn with seed 614, so the runs have this seed.
    """
    experiment = drawn_schedule("seventy_four_faults")
    bug = BUGS["unfence_elects_nobody"]
    runs: list[PlayedRun] = []

    def play_with_bug(candidate: Experiment, seed: int, signature: Signature) -> PlayedRun:
        with bug.planted():
            runs.append(play(candidate, seed, stop_at=signature, invariants_every=None))
        return runs[-1]

    # No finding has this signature, so the first run is not stopped at a finding.
    of_no_finding = Signature(check="liveness", claim="")
    findings = play_with_bug(experiment, 614, of_no_finding).findings
    first_finding = min(findings, key=lambda finding: finding.time_us)
    # The clock stands still at 0, so the shrinker never reaches a time limit. Only `max_runs` ends
    # the shrinking.
    shrinker = Shrinker(play_with_bug, now_s=lambda: 0.0, deadline_s=1.0, last_s=1.0, max_runs=60)
    shrunk = shrinker.shrink(experiment, 614, first_finding.signature)

    assert (shrunk.before.faults, shrunk.end) == (74, ShrinkEnd.RUNS)
    assert shrunk.after.faults <= 5
    # The shrunk experiment still has the full wait of the file.
    assert shrunk.experiment.run == experiment.run
    # If every run had the full wait, a run would take 110 s of virtual time on average.
    assert sum(run.virtual_us for run in runs) < 80_000_000 * len(runs)


def test_list_of_bugs_is_the_preregistered_one() -> None:
    """The README listed the bugs before the first search. So no bug was chosen by its result.

    Twelve bugs are hunted in the standard space, seven in the space of groups on ZooKeeper.
    """
    readme = (PAGE.parents[1] / "benchmarks" / "planted_bugs" / "README.md").read_text()
    rows = [line.split("|") for line in readme.splitlines() if line.startswith("| `")]
    listed = [(row[1].strip(" `"), row[2].strip(), row[3].strip()) for row in rows]
    assert listed == [(bug.name, bug.where, bug.what) for bug in BUGS.values()]
    standard = [bug for bug in BUGS.values() if bug.space == "standard"]
    on_zookeeper = [bug for bug in BUGS.values() if bug.space == "zookeeper"]
    assert (len(standard), len(on_zookeeper), len(BUGS)) == (12, 7, 19)
    assert {bug.where for bug in standard} == {"coordinator", "log", "controller", "consumer"}
