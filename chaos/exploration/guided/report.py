"""Figures of the guided part of a search, for results.json and the summary.

They answer one question: is it worth it to mutate earlier plans instead of drawing new ones? So
they compare which rare situations (marks), and which rare pairs of them, the two kinds of runs have
reached.
"""

from itertools import combinations

import msgspec

from chaos.exploration.guided.corpus import Corpus, RunSeen
from chaos.exploration.guided.coverage import Coverage, Pair
from chaos.exploration.guided.guidance import Guidance

MAX_PAIRS = 50
"""Number of rare pairs in results.json, rarest first."""


class RareMark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that few runs reached. `runs` counts these runs, `mutated_runs` the mutated ones."""

    mark: str
    runs: int
    mutated_runs: int


class RarePair(msgspec.Struct, frozen=True, kw_only=True):
    """Two marks that are not rare, but that few runs reached together."""

    marks: tuple[str, str]
    runs: int
    mutated_runs: int


class GuidedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of drawn and mutated runs, and of the marks and pairs that each kind of run reached.

    - `parents`: number of plans that were mutated.
    - `plans`: number of plans that could be mutated next.
    - `pairs_reached`: number of reached pairs of marks.
    - `rare_pairs_in_all`: number of rare pairs; `rare_pairs` lists at most MAX_PAIRS of them.

    The next figures compare the two kinds of runs. Only runs from the first mutated seed on count,
    because before that there were no mutated runs to compare with:
    - `drawn_runs_since` counts drawn runs.
    - `first_by_drawn_runs` and `first_by_mutated_runs` count the marks and pairs that a run of this
      kind was the first to reach, in the order of seeds.
    - `rare_in_drawn_runs` and `rare_in_mutated_runs` count rare marks and pairs, once for each run
      that reached them.
    """

    drawn_runs: int
    mutated_runs: int
    plans: int
    parents: int
    pairs_reached: int
    rare_pairs_in_all: int
    drawn_runs_since: int
    first_by_drawn_runs: int
    first_by_mutated_runs: int
    rare_in_drawn_runs: int
    rare_in_mutated_runs: int
    marks_by_mutation_alone: tuple[str, ...]
    rare_marks: tuple[RareMark, ...]
    rare_pairs: tuple[RarePair, ...]


def guided_search(guidance: Guidance) -> GuidedSearch:
    """Return the figures of an exploration's runs."""
    # In the search, runs ended in any order. `guidance.runs` sorts them by seed. A new corpus takes
    # them in this order, so that the figures do not depend on the speed of workers.
    runs = guidance.runs()
    corpus = Corpus()

    # Count the marks and pairs that each kind of run was the first to reach. Drawn runs count only
    # from the first mutated run on.
    first_mutated = next((index for index, run in enumerate(runs) if run.is_mutated), len(runs))
    first_by_drawn, first_by_mutated = 0, 0
    for index, run in enumerate(runs):
        newly_reached = _take_run(corpus, run)
        if run.is_mutated:
            first_by_mutated += newly_reached
        elif index >= first_mutated:
            first_by_drawn += newly_reached

    coverage = corpus.coverage
    pairs = coverage.rare_pairs()
    rare: set[str | Pair] = {*coverage.rare_marks(), *pairs}
    drawn_since = [run for run in runs[first_mutated:] if not run.is_mutated]

    return GuidedSearch(
        drawn_runs=coverage.runs - coverage.mutated_runs,
        mutated_runs=coverage.mutated_runs,
        plans=len(corpus.plans()),
        # A run's lineage without its last seed, the run's own, is the lineage of its parent.
        parents=len({run.lineage[:-1] for run in runs if run.is_mutated}),
        pairs_reached=len(coverage.pairs),
        rare_pairs_in_all=len(pairs),
        drawn_runs_since=len(drawn_since),
        first_by_drawn_runs=first_by_drawn,
        first_by_mutated_runs=first_by_mutated,
        rare_in_drawn_runs=_count_rare(drawn_since, rare),
        rare_in_mutated_runs=_count_rare([run for run in runs if run.is_mutated], rare),
        marks_by_mutation_alone=_marks_by_mutation_alone(coverage),
        rare_marks=tuple(
            RareMark(
                mark=mark, runs=coverage.marks[mark], mutated_runs=coverage.mutated_marks[mark]
            )
            for mark in coverage.rare_marks()
        ),
        rare_pairs=tuple(
            RarePair(
                marks=pair, runs=coverage.pairs[pair], mutated_runs=coverage.mutated_pairs[pair]
            )
            for pair in pairs[:MAX_PAIRS]
        ),
    )


def _take_run(corpus: Corpus, run: RunSeen) -> int:
    """Add a run to the corpus; return the number of marks and pairs that it was first to reach."""
    before = len(corpus.coverage.marks) + len(corpus.coverage.pairs)
    corpus.take(run)
    return len(corpus.coverage.marks) + len(corpus.coverage.pairs) - before


def _count_rare(runs: list[RunSeen], rare: set[str | Pair]) -> int:
    """Return the number of rare marks and pairs in the runs, counted once per run."""
    number = 0
    for run in runs:
        pairs = combinations(run.marks, 2)  # sorted like a Pair, since `run.marks` are sorted
        number += sum(reached in rare for reached in (*run.marks, *pairs))
    return number


def _marks_by_mutation_alone(coverage: Coverage) -> tuple[str, ...]:
    """Return the marks that only mutated runs reached."""
    return tuple(
        sorted(
            mark for mark, runs in coverage.marks.items() if coverage.mutated_marks[mark] == runs
        )
    )
