"""Figures of the guided part of a search, for results.json and the summary.

A guided search has two kinds of runs: runs whose plan was drawn, and runs whose plan was made by a
mutation of an earlier plan. The figures show whether the mutations are worth it. They compare which
rare situations (marks), and which rare pairs of two marks, each kind of run has reached.
"""

from itertools import combinations

import msgspec

from chaos.exploration.guided.corpus import Corpus, RunSeen
from chaos.exploration.guided.coverage import Coverage, Pair
from chaos.exploration.guided.guidance import Guidance

MAX_PAIRS = 50
"""Maximum number of rare pairs in results.json. The rarest pairs come first."""


class RareMark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that few runs reached.

    `runs` is the number of these runs, and `mutated_runs` the number of mutated runs among them.
    """

    mark: str
    runs: int
    mutated_runs: int


class RarePair(msgspec.Struct, frozen=True, kw_only=True):
    """Two marks that few runs reached together, although neither of them is rare."""

    marks: tuple[str, str]
    runs: int
    mutated_runs: int


class GuidedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of drawn and mutated runs, and of the marks and pairs that each kind of run reached.

    - `parents`: number of plans that were mutated.
    - `plans`: number of plans that could be mutated next.
    - `pairs_reached`: number of pairs of marks that a run has reached.
    - `rare_pairs_in_all`: number of rare pairs. `rare_pairs` lists at most MAX_PAIRS of them.
    - `marks_by_mutation_alone`: the marks that only mutated runs reached.

    The next figures compare the two kinds of runs. They count only runs from the first mutated run
    on, because there were no mutated runs before it:

    - `drawn_runs_since`: number of drawn runs.
    - `first_by_drawn_runs`, `first_by_mutated_runs`: number of marks and pairs that a run of this
      kind reached before all other runs, in the order of seeds.
    - `rare_in_drawn_runs`, `rare_in_mutated_runs`: number of rare marks and pairs in runs of this
      kind. A mark or pair counts once for each run that reached it.
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
    # the runs in this order. So the figures do not depend on the speed of workers.
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
        # The last seed of a lineage is the run's own seed. The seeds before it are the lineage of
        # the run's parent.
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
    """Return the number of rare marks and pairs, counted once for each run that reached them."""
    number = 0
    for run in runs:
        pairs = combinations(run.marks, 2)  # each is a Pair, because `run.marks` are sorted
        number += sum(reached in rare for reached in (*run.marks, *pairs))
    return number


def _marks_by_mutation_alone(coverage: Coverage) -> tuple[str, ...]:
    """Return the marks that only mutated runs reached."""
    return tuple(
        sorted(
            mark for mark, runs in coverage.marks.items() if coverage.mutated_marks[mark] == runs
        )
    )
