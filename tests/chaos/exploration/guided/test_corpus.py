"""The corpus of a guided search: the plans that are worth a mutation.

A plan is a list of faults. A run that plays a plan reaches some "marks", which are names of rare
situations such as `two_coordinators`. A guided search looks for rare marks, which few runs have
reached, and for rare pairs: two marks that few runs have reached together. The plans of the runs
that reach them are kept in the corpus of the search. Later the search mutates plans of its corpus,
that is, it plays small variations of them.

A plan is named by its lineage. (301,) is the plan that seed 301 draws. (301, 7, 5) is this plan,
mutated by seed 7 and then by seed 5.
"""

from collections.abc import Iterator

from chaos.exploration.guided.corpus import PLANS_EACH, RAREST_MARKS, Corpus, RunSeen
from chaos.exploration.guided.coverage import Coverage
from chaos.exploration.guided.lineage import MAX_GENERATIONS


def run(*lineage: int, marks: str = "", faults: int = 5, passed: bool = True) -> RunSeen:
    """Return a run with this lineage. Each letter of `marks` is a mark that the run has reached."""
    return RunSeen(lineage=lineage, marks=tuple(sorted(marks)), faults=faults, passed=passed)


def runs_with_common_marks(seeds: range, marks: str = "xy") -> Iterator[RunSeen]:
    """Yield a run for each seed, all with the same marks.

    So these marks are common, and not rare.
    """
    for seed in seeds:
        yield run(seed, marks=marks)


def test_pair_is_rare_if_its_marks_are_common_and_seldom_occur_together() -> None:
    """The pair of a and b is rare, although both marks are common.

    300 runs reach a or b in turn, and only one run reaches both. The pair of a and r is rare, too.
    But it is not listed as a pair, because the mark r is listed as a rare mark.
    """
    coverage = Coverage()
    for index in range(300):
        coverage.take(("a",) if index % 2 else ("b",), mutated=False)
    coverage.take(("a", "b"), mutated=True)
    coverage.take(("a", "r"), mutated=True)

    assert coverage.rare_marks() == ["r"]
    assert coverage.rare_pairs() == [("a", "b")]
    # Of the mutated runs, one reached both a and b, and two reached a.
    assert coverage.mutated_pairs["a", "b"] == 1
    assert coverage.mutated_marks["a"] == 2


def test_smallest_plans_of_a_rare_mark_are_kept() -> None:
    """A small plan is quick to run, and a mutation of it is more likely to matter.

    Of the five plans with the mark r, the three with 2, 4 and 7 faults are kept.
    """
    corpus = Corpus()
    # In comparison with 200 runs without r, the mark r is rare.
    for common_run in runs_with_common_marks(range(200)):
        corpus.take(common_run)
    # Seed -> number of faults in its plan.
    for seed, faults in ((300, 9), (301, 4), (302, 7), (303, 2), (304, 8)):
        corpus.take(run(seed, marks="r", faults=faults))

    assert corpus.plans() == [(301,), (302,), (303,)]
    assert len(corpus.plans()) == PLANS_EACH
    parents = {corpus.parent_for(seed, corpus.rare()) for seed in range(50)}
    assert parents == {(301,), (302,), (303,)}


def test_violating_run_or_one_of_the_last_generation_is_no_parent() -> None:
    """Two kinds of plans are not mutated, although they reach a rare mark.

    - The run of seed 200 violates a promise. So it is a finding, which has a file of its own.
    - The plan of the last run has been mutated MAX_GENERATIONS times already. Without this limit
      plans would become ever longer.
    """
    corpus = Corpus()
    for common_run in runs_with_common_marks(range(100)):
        corpus.take(common_run)
    corpus.take(run(200, marks="r", passed=False))
    # The lineage has the seed that drew the plan, and a seed for each of the mutations.
    mutated_often = range(201, 202 + MAX_GENERATIONS)
    corpus.take(run(*mutated_often, marks="s"))

    assert corpus.rare() == ([], [])
    assert corpus.parent_for(7, corpus.rare()) is None


def test_half_of_the_parents_are_chosen_for_rare_marks_and_half_for_rare_pairs() -> None:
    """`rare()` returns the rarest marks and pairs.

    `parent_for` draws one of them, and one of its plans. Only the run 900 has the rare pair: the
    marks x and y, each of which is common alone. In addition there are five rare marks more than
    RAREST_MARKS, the number of marks that `rare()` returns. One run reaches the mark chr(0), two
    runs reach the mark chr(1), and so on.
    """
    corpus = Corpus()
    for common_run in runs_with_common_marks(range(400), "x"):
        corpus.take(common_run)
    for common_run in runs_with_common_marks(range(400, 800), "y"):
        corpus.take(common_run)
    corpus.take(run(900, marks="xy"))
    for index in range(RAREST_MARKS + 5):
        for repetition in range(1 + index):
            corpus.take(run(1_000 + 100 * index + repetition, marks=chr(index) + "x"))

    marks, pairs = corpus.rare()
    assert len(marks) == RAREST_MARKS
    assert pairs == [("x", "y")]
    chosen = [corpus.parent_for(seed, (marks, pairs)) for seed in range(300)]
    assert 0.3 < chosen.count((900,)) / len(chosen) < 0.7
    # Each of the returned marks has at least one plan of its own, beside the plan of the pair.
    assert len(set(chosen)) > RAREST_MARKS
