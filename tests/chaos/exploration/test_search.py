"""The search: which seeds its workers get, which results it records, and when it ends.

A search plays a run for each seed of a range. The seed determines the plan of the run, which is a
list of faults. The search gives batches of seeds to workers, and records the results of the runs. A
share of the seeds is "rechecked": another worker plays the seed a second time, to show that a seed
always gives the same run.

The tests have scripted workers, two by default. They play no cluster: a function makes up the
result of a run from its seed. By default every run passes. Each time that the search waits, one
worker answers. Some seeds can be `deadly`: {5: 2} means that seed 5 kills the first two workers
that play this seed.
"""

from collections.abc import Callable

import pytest

from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.running_totals import FindingGroup, Tally, is_chosen
from chaos.exploration.search import MAX_BROKEN, Limits, Search, Stop
from chaos.exploration.store import ExplorationRecord, Lost, PlayedAgain, PlayedSeeds
from cluster.fan_out import Workers
from tests.support.harness.fan_out import (
    ScriptedClock,
    ScriptedWorkers,
    inconclusive,
    passed,
    violated,
)


class Searching:
    """A search over scripted workers, with everything that the search wrote and reported.

    - `written` has the records that the search would write into its file.
    - `reported_groups` has the groups of equal findings that it would show to the user.
    - `before` are the records of an interrupted search, which this search resumes.
    """

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        *,
        recheck_percent: float = 0.0,
        before: list[ExplorationRecord] | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        clock: ScriptedClock | None = None,
    ) -> None:
        self.written: list[ExplorationRecord] = []
        self.reported_groups: list[FindingGroup] = []
        self.tally = Tally(recheck_percent)
        for record in before or []:
            self.tally.take(record)
        self.search = Search(
            self.tally,
            workers,
            limits,
            clock=clock or ScriptedClock(),
            write=self.written.append,
            stop_requested=stop_requested,
            on_group=self.reported_groups.append,
        )

    def played(self) -> list[int]:
        """Return the seeds that were recorded as played, sorted."""
        return sorted(
            run.seed
            for record in self.written
            if isinstance(record, PlayedSeeds)
            for run in record.runs
        )

    def played_again(self) -> list[int]:
        """Return the seeds that were played a second time, sorted."""
        return sorted(
            run.seed
            for record in self.written
            if isinstance(record, PlayedAgain)
            for run in record.runs
        )


def test_every_seed_is_played_once_for_any_batches() -> None:
    """The number of workers and the size of a batch change only the order of the seeds."""
    for workers, batch in ((1, None), (2, 1), (2, 7), (3, 100)):
        searching = Searching(
            ScriptedWorkers(size=workers), Limits(first_seed=10, count=20, batch=batch)
        )
        assert searching.search.run() is Stop.COUNT  # the search ends after 20 seeds
        assert searching.played() == list(range(10, 30))
        assert searching.tally.results == {PlayResult.PASS: 20}


def test_batches_grow_to_a_second_of_a_workers_time() -> None:
    """A batch should take about a second. The first batch has one seed, and its time is measured.

    A scripted run takes 0.25 s, so each later batch has four seeds.
    """
    workers = ScriptedWorkers(size=1)
    Searching(workers, Limits(count=9)).search.run()
    assert [len(items) for _, items in workers.given] == [1, 4, 4]


def test_chosen_seeds_are_rechecked_by_another_worker() -> None:
    """20 % of the 40 seeds are rechecked. Each of these 8 seeds is given to both workers."""
    workers = ScriptedWorkers(size=2)
    searching = Searching(workers, Limits(count=40, batch=3), recheck_percent=20)
    searching.search.run()

    chosen = [seed for seed in range(40) if is_chosen(seed, 20)]
    assert searching.played_again() == chosen
    assert len(chosen) == 8
    for seed in chosen:
        assert sorted(name for name, items in workers.given if seed in items) == [
            "worker:0",
            "worker:1",
        ]
    assert searching.tally.rechecked_elsewhere == 8
    assert searching.tally.differences == []


def test_single_worker_rechecks_its_own_seeds() -> None:
    """If there is no other worker, the only worker rechecks the seeds: here 50 % of 10 seeds."""
    searching = Searching(ScriptedWorkers(size=1), Limits(count=10), recheck_percent=50)
    searching.search.run()
    assert len(searching.played_again()) == 5
    assert searching.tally.rechecked_elsewhere == 0


def test_slow_worker_is_awaited_to_recheck_the_seeds_of_the_first() -> None:
    """The second worker starts late, when the first worker has played all seeds.

    The search waits for the second worker, because a recheck by the same process would prove
    little. With `late=40` the second worker has started when the search has waited 40 times.
    """
    searching = Searching(ScriptedWorkers(size=2, late=40), Limits(count=10), recheck_percent=50)
    assert searching.search.run() is Stop.COUNT
    assert len(searching.played_again()) == 5
    assert searching.tally.rechecked_elsewhere == 5


def test_run_that_differs_at_its_recheck_is_not_deterministic() -> None:
    """Of the ten seeds only seed 9 is rechecked. The digests of its two runs differ."""

    def recheck(seed: int) -> PlayedRun:
        return PlayedRun(seed=seed, result=PlayResult.PASS, digest="other", virtual_us=40_000_000)

    workers = ScriptedWorkers(play_again=recheck)
    searching = Searching(workers, Limits(count=10), recheck_percent=10)
    searching.search.run()

    (different,) = searching.tally.differences
    assert (different.seed, different.digest, different.digest_again) == (9, "0009", "other")
    assert different.fields == ("digest",)
    assert different.worker != different.worker_again
    assert searching.tally.broken_runs == 1


def test_first_run_of_a_finding_is_always_rechecked() -> None:
    """A reported finding must be reproducible, so the first seed with a finding is rechecked.

    Here this is seed 3. Seed 4 shows the same finding, and is not rechecked. The share of seeds
    that are rechecked anyway is 0 % here.
    """
    workers = ScriptedWorkers(lambda seed: violated(seed) if seed in {3, 4} else passed(seed))
    searching = Searching(workers, Limits(count=6, batch=1))
    searching.search.run()
    assert searching.played_again() == [3]


def test_search_stops_after_a_number_of_different_findings() -> None:
    """With `stop_after=2` the search stops at its second different finding.

    The seeds 0 to 9 break the claim "one", so they have the same finding. The later seeds break the
    claim "two".
    """

    def play(seed: int) -> PlayedRun:
        return violated(seed, claim="one" if seed < 10 else "two")

    searching = Searching(ScriptedWorkers(play), Limits(count=100, stop_after=2, batch=1))
    assert searching.search.run() is Stop.FINDINGS
    assert [group.name for group in searching.tally.groups.values()] == ["fencing-1", "fencing-2"]
    # Seed 10 shows the second finding. Each of the two workers may have played one more seed.
    assert max(searching.played()) <= 12


def test_search_stops_at_the_time_limit_and_keeps_runs_in_progress() -> None:
    """A run ends every second. At the limit of 5 s the sixth run is in progress, and is kept."""
    clock = ScriptedClock()

    def pass_a_second() -> None:
        clock.now_s += 1.0

    workers = ScriptedWorkers(size=2, on_wait=pass_a_second)
    searching = Searching(workers, Limits(time_limit_s=5.0, batch=1), clock=clock)
    assert searching.search.run() is Stop.TIME_LIMIT
    assert searching.played() == list(range(6))
    assert searching.search.progress().runs_per_minute == pytest.approx(60.0)


def test_time_left_is_the_smaller_of_count_and_limit() -> None:
    """A search ends at its number of runs or at its time limit, whichever comes first.

    After 10 s it has played 20 of 100 runs, so the other 80 will take 40 s. The time limit of 500 s
    is later.
    """
    clock = ScriptedClock()
    searching = Searching(
        ScriptedWorkers(size=1), Limits(count=100, time_limit_s=500.0, batch=10), clock=clock
    )
    assert searching.search.progress().left_s == 500.0
    clock.now_s = 10.0
    searching.tally.take(PlayedSeeds(worker="w", busy_s=1.0, runs=tuple(map(passed, range(20)))))
    assert searching.search.progress().left_s == pytest.approx(40.0)


def test_interrupted_search_returns_at_once_with_the_finished_runs() -> None:
    """The interrupt comes when the search has waited three times, so three runs have ended."""
    waits: list[None] = []

    workers = ScriptedWorkers(size=2, on_wait=lambda: waits.append(None))
    searching = Searching(
        workers, Limits(count=100, batch=1), stop_requested=lambda: len(waits) >= 3
    )
    assert searching.search.run() is Stop.INTERRUPTED
    assert searching.played() == [0, 1, 2]


def test_resumed_search_plays_only_the_missing_seeds() -> None:
    """Seeds 0, 1, 4 and 5 were finished before, so 2, 3, 6 and 7 are missing.

    50 % of the seeds are rechecked: 1, 3, 5 and 7. Seeds 1 and 5 are played only for the recheck,
    because the earlier search has recorded their first run.
    """
    before: list[ExplorationRecord] = [
        PlayedSeeds(worker="earlier:1", busy_s=1.0, runs=tuple(map(passed, (0, 1, 4, 5)))),
    ]
    searching = Searching(
        ScriptedWorkers(), Limits(count=8, batch=2), before=before, recheck_percent=50
    )
    assert searching.search.run() is Stop.COUNT
    assert searching.played() == [2, 3, 6, 7]
    assert searching.played_again() == [1, 3, 5, 7]
    assert searching.tally.runs == 8


def test_resumed_search_has_the_results_of_an_uninterrupted_one() -> None:
    """The same search is played as a whole, and in two parts: interrupted, then resumed.

    The seeds 3, 10, 17 and 24 violate a promise. The run of seed 10 has the fewest faults, so it is
    the example of this finding.
    """

    def play(seed: int) -> PlayedRun:
        return violated(seed, faults=seed % 5) if seed % 7 == 3 else passed(seed)

    whole = Searching(ScriptedWorkers(play), Limits(count=30), recheck_percent=10)
    whole.search.run()

    waits: list[None] = []
    interrupted = Searching(
        ScriptedWorkers(play, on_wait=lambda: waits.append(None)),
        Limits(count=30),
        recheck_percent=10,
        stop_requested=lambda: len(waits) >= 5,
    )
    assert interrupted.search.run() is Stop.INTERRUPTED
    resumed = Searching(
        ScriptedWorkers(play), Limits(count=30), recheck_percent=10, before=interrupted.written
    )
    assert resumed.search.run() is Stop.COUNT

    for tally in (whole.tally, resumed.tally):
        (group,) = tally.groups.values()
        assert sorted(group.seeds) == [3, 10, 17, 24]
        assert group.example.seed == 10
        assert tally.results == {PlayResult.PASS: 26, PlayResult.VIOLATED: 4}
    assert whole.tally.rechecked == resumed.tally.rechecked


def test_seeds_of_a_dead_worker_are_played_once_more_one_by_one() -> None:
    """Seed 5 kills its worker, which had the batch of the seeds 4 to 7.

    The search cannot know which of these four seeds was deadly, so each of them is then played
    alone. This time seed 5 kills nobody.
    """
    workers = ScriptedWorkers(deadly={5: 1})
    searching = Searching(workers, Limits(count=12, batch=4))
    assert searching.search.run() is Stop.COUNT
    assert searching.played() == list(range(12))
    assert searching.tally.lost == {}
    played_alone = [items for _, items in workers.given if len(items) == 1]
    assert sorted(played_alone) == [(4,), (5,), (6,), (7,)]


def test_seed_that_ends_two_workers_is_reported_and_the_others_are_played() -> None:
    """Seed 5 ends the worker of its batch, and then the worker that plays this seed alone.

    Then the search gives seed 5 up. The seed would kill nine workers, which is more than the search
    ever tries.
    """
    searching = Searching(ScriptedWorkers(deadly={5: 9}), Limits(count=12, batch=4))
    assert searching.search.run() is Stop.COUNT
    assert searching.played() == [seed for seed in range(12) if seed != 5]
    assert searching.tally.lost == {5: "killed"}
    assert [record for record in searching.written if isinstance(record, Lost)] == [
        Lost(seeds=(5,), why="killed")
    ]
    assert searching.tally.broken_runs == 1


def test_worker_that_dies_of_ctrl_c_is_no_failure_of_its_seeds() -> None:
    """A terminal sends Ctrl-C to the workers, too, so their deaths say nothing about the seeds.

    The search must not record the seeds of these workers as lost.
    """
    waits: list[None] = []
    workers = ScriptedWorkers(deadly={0: 9, 1: 9}, size=1, on_wait=lambda: waits.append(None))
    searching = Searching(workers, Limits(count=4, batch=2), stop_requested=lambda: bool(waits))
    assert searching.search.run() is Stop.INTERRUPTED
    assert searching.written == []


def test_interrupted_run_is_not_recorded() -> None:
    """An interrupted run has no result, so a resumed search must play its seed again."""
    workers = ScriptedWorkers(
        lambda seed: inconclusive(seed, PlayResult.INTERRUPTED, "") if seed == 1 else passed(seed)
    )
    searching = Searching(workers, Limits(count=3, batch=3))
    searching.search.run()
    assert searching.played() == [0, 2]


def test_lab_that_fails_repeatedly_ends_the_search() -> None:
    """The search ends after MAX_BROKEN broken runs. Runs that are in progress still count."""
    workers = ScriptedWorkers(lambda seed: inconclusive(seed, PlayResult.BROKEN, f"boom {seed}"))
    searching = Searching(workers, Limits(batch=1))
    assert searching.search.run() is Stop.TOOL_FAILED
    # One more run may be in progress on each of the two workers.
    assert MAX_BROKEN <= searching.tally.broken_runs <= MAX_BROKEN + 2


def test_finding_is_reported_when_new_and_when_its_example_gets_shorter() -> None:
    """The plans of seeds 0 to 3 have 9, 9, 4 and 7 faults.

    All four runs have the same finding. This finding is reported at seed 0, and again at seed 2,
    whose plan is shorter.
    """

    def play(seed: int) -> PlayedRun:
        return violated(seed, faults=[9, 9, 4, 7][seed])

    searching = Searching(ScriptedWorkers(play, size=1), Limits(count=4, batch=1))
    searching.search.run()
    assert len(searching.reported_groups) == 2
    (group,) = searching.tally.groups.values()
    assert (group.example.seed, group.seeds) == (2, [0, 1, 2, 3])
