"""A guided search plays variations of interesting plans, and so reaches rare situations sooner.

An ordinary search draws a new plan (a list of faults) for each seed. A guided search draws new
plans for some of its seeds only. For each other seed it takes the plan of an earlier run that has
reached a rare situation (a "mark"), and changes a few things in this plan, which is called a
mutation. A mutated plan is named by its lineage: (1, 7) is the plan of seed 1, mutated by seed 7.

The search gives the seeds to workers, which play the runs at the same time. Which plan a seed plays
must not depend on which worker is quicker. So the seeds are divided into blocks of consecutive
seeds. For example, block 5 begins when all runs of block 3 have ended, even if some runs of block 4
go on. A mutation in block 5 uses only results of the blocks up to 3, which are all known by then.

The tests have scripted workers, which answer in turn. The workers make up their results, without a
cluster.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml

from chaos.experiment.structs import Experiment, microseconds
from chaos.exploration.guided.guidance import BLOCK, Guidance
from chaos.exploration.guided.lineage import grow
from chaos.exploration.guided.report import guided_search
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.running_totals import Tally
from chaos.exploration.search import Limits, Search, Stop
from chaos.exploration.space import Space, load_space
from chaos.exploration.store import ExplorationRecord, Lost, PlayedSeeds
from cluster.fan_out import Item, number_of
from tests.support.harness.fan_out import ScriptedWorkers

SMALL = {
    "version": 1,
    "name": "small",
    "question": "Do faults meet?",
    "experiment": {
        "cluster": {"brokers": 3, "config": {"group.min.session.timeout.ms": 1000}},
        "topics": {"orders": {"partitions": 2, "replication.factor": 3}},
        "groups": {"readers": {"members": 2, "topics": ["orders"]}},
        "producers": [{"topic": "orders", "records_per_second": 2}],
    },
    "settings": {"cluster.brokers": [3, 4]},
    "faults": {
        "kinds": {"crash": 1, "pause": 1, "cut": 1},
        "gaps": ["6s"],
        "durations": ["500ms", "5s"],
    },
}
MEETINGS = {2: "two_meet", 3: "three_meet", 4: "four_meet", 5: "five_meet"}
"""Made-up marks, by the number of faults that begin together.

For example, a plan reaches "three_meet" if three of its faults begin together.
"""
MEETING_US = 300_000
"""Two faults begin "together" if less than this time lies between them."""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    path: Path = tmp_path_factory.mktemp("space") / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return load_space(str(path))


def marks_of(experiment: Experiment) -> tuple[str, ...]:
    """Return made-up marks, which follow from the plan, so that no run is needed.

    For example, a plan of a crash and a cut that begin together reaches a mark of each of the two
    kinds, and the mark "two_meet".
    """
    begins = [microseconds(fault.at) for fault in experiment.faults]
    # For each fault, count the faults that begin with it or less than MEETING_US later. The largest
    # of these counts decides which marks of MEETINGS are reached.
    together = max(
        (sum(0 <= other - begin < MEETING_US for other in begins) for begin in begins), default=0
    )
    marks = [name for count, name in MEETINGS.items() if together >= count]
    kinds = {f"has_{fault.fault}" for fault in experiment.faults}
    return tuple(sorted((*marks, *kinds)))


def player(space: Space) -> Callable[[Item], PlayedRun]:
    """Return a function that makes up the run of an item, without a cluster.

    An item is a seed, or the lineage of a mutated plan.
    """

    @cache
    def play(item: Item) -> PlayedRun:
        lineage = (item,) if isinstance(item, int) else item
        grown = grow(space, lineage)
        return PlayedRun(
            seed=lineage[-1],
            result=PlayResult.PASS,
            marks=marks_of(grown.experiment),
            faults_hit=len(grown.experiment.faults),
            # A digest has 64 digits, and is the same for the same plan. The end of the encoded plan
            # serves as digest. The tests use the digest only to compare the plans of one seed.
            digest=msgspec.json.encode(grown.experiment).hex()[-64:],
            # A drawn plan has a lineage of one seed. Its run leaves the lineage empty, because the
            # field `seed` has this seed already.
            lineage=lineage if len(lineage) > 1 else (),
        )

    return play


class Explored:
    """A whole search over scripted workers.

    10 % of its seeds are played twice, to compare the runs. The parameters are:

    - `share`: the share of seeds whose plans are mutated ones;
    - `block`: number of seeds of a block;
    - `size`: number of workers;
    - `batch`: number of seeds that a worker gets at a time;
    - `before`: records of an interrupted search, which this search resumes;
    - `stop_after_runs`: the search is interrupted after this number of runs;
    - `deadly`: seed -> number of workers that it kills.
    """

    def __init__(
        self,
        space: Space,
        count: int,
        *,
        share: float = 0.5,
        block: int = 20,
        size: int = 2,
        batch: int | None = 3,
        before: tuple[ExplorationRecord, ...] = (),
        stop_after_runs: int | None = None,
        deadly: dict[int, int] | None = None,
    ) -> None:
        self.written: list[ExplorationRecord] = []
        self.tally = Tally(recheck_percent=10)
        self.guidance = Guidance(share, first_seed=0, block=block)
        for record in before:
            self.tally.take(record)
            self.guidance.take(record)
        self.workers = ScriptedWorkers(size=size, play_item=player(space), deadly=deadly)
        search = Search(
            self.tally,
            self.workers,
            Limits(count=count, batch=batch),
            clock=lambda: 0.0,  # the search has no time limit
            write=self.written.append,
            guidance=self.guidance,
            stop_requested=lambda: (
                stop_after_runs is not None and self.tally.runs >= stop_after_runs
            ),
        )
        self.stop = search.run()

    def plans(self) -> dict[int, tuple[tuple[int, ...], str]]:
        """Return the lineage of each played seed, and the digest of its plan."""
        return {
            run.seed: (run.lineage, run.digest)
            for record in self.written
            if isinstance(record, PlayedSeeds)
            for run in record.runs
        }


def test_plans_do_not_depend_on_workers_and_batches(space: Space) -> None:
    """A search with one worker and a search with three workers play the same plans.

    With three workers, two blocks are played at the same time.
    """
    alone = Explored(space, 120, size=1, batch=1)
    together = Explored(space, 120, size=3, batch=7)

    assert alone.plans() == together.plans()
    # Only a mutated plan has a lineage.
    mutated = [seed for seed, (lineage, _) in alone.plans().items() if lineage]
    # The first two blocks of 20 seeds have no earlier results, so the first 40 plans are drawn. Of
    # the other 80 plans about half are mutated.
    assert min(mutated) >= 40
    assert 20 < len(mutated) < 70


def test_resumed_search_plays_the_seeds_of_an_uninterrupted_one(space: Space) -> None:
    """A search is interrupted after 71 of 120 runs, in the middle of a block of 20, and resumed.

    Together the two parts play the same plans as a search that is not interrupted.
    """
    whole = Explored(space, 120)
    interrupted = Explored(space, 120, stop_after_runs=71)
    resumed = Explored(space, 120, before=tuple(interrupted.written))

    assert interrupted.stop is Stop.INTERRUPTED
    assert resumed.stop is Stop.COUNT
    assert {**interrupted.plans(), **resumed.plans()} == whole.plans()
    assert not set(interrupted.plans()) & set(resumed.plans())  # no seed is played twice


def test_longer_search_begins_with_the_same_plans(space: Space) -> None:
    """The plan of a seed does not depend on the number of seeds (`--count` of the command).

    So a user may search 70 seeds, and later resume the search with a larger number.
    """
    short, long = Explored(space, 70).plans(), Explored(space, 120).plans()
    assert {seed: plan for seed, plan in long.items() if seed < 70} == short


def test_seed_that_ends_its_workers_does_not_stop_later_blocks(space: Space) -> None:
    """Seed 7 kills two workers, so the search gives this seed up, and records it as lost.

    Later blocks wait until all seeds of the block of seed 7 are finished. The lost seed counts as
    finished, so the search plays the other 119 seeds.
    """
    explored = Explored(space, 120, deadly={7: 2}, batch=1)
    assert explored.stop is Stop.COUNT
    assert any(isinstance(record, Lost) for record in explored.written)
    assert len(explored.plans()) == 119


def test_mutated_seed_is_rechecked_with_the_same_plan(space: Space) -> None:
    """Every tenth seed (9, 19, ...) is played twice.

    If the plan of such a seed is mutated, the second worker needs the lineage, because the seed
    alone does not determine the plan.
    """
    explored = Explored(space, 120)
    assert explored.tally.rechecked == 12
    assert explored.tally.differences == []
    given_lineages = [
        item
        for _, items in explored.workers.given
        for item in items
        if number_of(item) % 10 == 9 and not isinstance(item, int)
    ]
    # Each lineage is given once for the first play. Some are given once more, for the recheck.
    assert len(given_lineages) > len(set(given_lineages))


def test_without_a_share_every_seed_is_drawn(space: Space) -> None:
    """With a share of 0 no plan is mutated, so workers get seeds, and no lineages."""
    explored = Explored(space, 60, share=0.0)
    assert all(isinstance(item, int) for _, items in explored.workers.given for item in items)
    assert guided_search(explored.guidance).mutated_runs == 0


def test_block_waits_only_for_the_block_before_the_last() -> None:
    """The third block can be played when the first block is complete.

    The third block does not wait for the second block. The seeds begin at 1,000.

    1. All seeds of the first two blocks are played, except for the last seed of the first block.
       The third block is not ready.
    2. The last seed of the first block is played. The third block is ready.
    """
    guidance = Guidance(share=0.5, first_seed=1_000)

    def played(seeds: range) -> PlayedSeeds:
        runs = tuple(PlayedRun(seed=seed, result=PlayResult.PASS) for seed in seeds)
        return PlayedSeeds(worker="w", busy_s=1.0, runs=runs)

    second, third = 1_000 + BLOCK, 1_000 + 2 * BLOCK
    # The last seed of the second block is ready at once, because the first two blocks do not wait
    # for any other block.
    assert guidance.is_ready(third - 1)

    guidance.take(played(range(second, third)))
    guidance.take(played(range(1_000, second - 1)))
    assert not guidance.is_ready(third)

    guidance.take(played(range(second - 1, second)))
    assert guidance.is_ready(third)


@pytest.mark.slow
def test_mutation_reaches_a_rare_situation_sooner_than_drawing(space: Space) -> None:
    """In the rare situation five faults begin together.

    When a guided search has played a plan in which four faults begin together, it keeps this plan.
    One mutation of the plan may be enough to reach the situation. In a drawn plan all five faults
    must begin together by chance. The guided search must need at most half as many seeds as a
    search that only draws plans.
    """
    count = 600

    def first_with(mark: str, share: float) -> int:
        """Return the first seed whose run reached the mark, or `count` if no run did."""
        explored = Explored(space, count, share=share, block=50, batch=10)
        # In `guidance.runs()` each run has a lineage, even the run of a drawn plan. The lineage
        # ends with the seed of the run.
        runs = sorted(explored.guidance.runs(), key=lambda run: run.lineage[-1])
        return next((run.lineage[-1] for run in runs if mark in run.marks), count)

    guided = first_with("five_meet", share=0.5)
    drawn = first_with("five_meet", share=0.0)
    assert guided < count
    assert guided * 2 <= drawn, (guided, drawn)


def test_report_names_the_marks_that_only_mutated_runs_reached(space: Space) -> None:
    """The report says what the mutations have achieved.

    - `marks_by_mutation_alone` has the marks that only runs of mutated plans have reached.
    - `first_by_mutated_runs` counts the marks, and the pairs of marks, that no run had reached
      before a run of a mutated plan did.
    - `parents` is the number of plans that were mutated.
    """
    explored = Explored(space, 600, block=50, batch=10)
    report = guided_search(explored.guidance)

    assert report.drawn_runs + report.mutated_runs == 600
    # About half of the 500 seeds after the first two blocks of 50 are mutated.
    assert 100 < report.mutated_runs < 400
    assert 1 < report.parents < report.mutated_runs
    assert "five_meet" in report.marks_by_mutation_alone
    assert all(mark.mutated_runs <= mark.runs for mark in report.rare_marks)
    assert report.first_by_mutated_runs > 0


def test_report_counts_rare_marks_in_mutated_and_drawn_runs_separately() -> None:
    """The runs of both kinds are counted from the first mutated seed on, which is 301 here.

    Before seed 301 all plans were drawn, and most marks were new. To compare drawn and mutated
    plans fairly, both must be from the same part of the search.
    """

    def run(seed: int, *marks: str, parent: int | None = None) -> PlayedRun:
        lineage = () if parent is None else (parent, seed)
        return PlayedRun(
            seed=seed, result=PlayResult.PASS, marks=tuple(sorted(marks)), lineage=lineage
        )

    # Of 300 runs, half reach mark a and the others mark b, so both marks are common. Only the runs
    # 300 and 302 reach a and b together, so the pair is rare.
    runs = [run(seed, "a" if seed % 2 else "b") for seed in range(300)]
    runs += [
        run(300, "a", "b"),
        run(301, "a", "rare", parent=300),
        run(302, "a", "b", parent=300),
        run(303, "b"),
        run(304, "rare"),
    ]
    guidance = Guidance(0.5)
    guidance.take(PlayedSeeds(worker="w", busy_s=1.0, runs=tuple(runs)))
    report = guided_search(guidance)

    assert [mark.mark for mark in report.rare_marks] == ["rare"]
    assert [pair.marks for pair in report.rare_pairs] == [("a", "b")]
    # Since seed 301 there are two mutated plans: 301 reaches the rare mark, and 302 the rare pair.
    # There are two drawn plans, of which only 304 reaches something rare.
    assert (report.rare_in_mutated_runs, report.mutated_runs) == (2, 2)
    assert (report.rare_in_drawn_runs, report.drawn_runs_since) == (1, 2)
    # There is one parent: the plan of run 300. No drawn run counts as the first to reach something:
    #
    # - Run 300 was the first to reach the pair, but before seed 301.
    # - Run 303 reaches nothing new.
    # - Run 304 reaches only the rare mark, which run 301 has reached before.
    assert (report.parents, report.first_by_drawn_runs) == (1, 0)
