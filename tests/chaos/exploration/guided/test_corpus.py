"""The corpus of a guided search: kept plans, and the rarity of the coverage marks they reached.

A coverage mark names a rare situation; a run reaches some marks. A pair is two marks that one run
reached. Plans that reached a rare mark or a rare pair are kept: they become parents of mutated
plans. A plan is named by its lineage: the seed that drew it, then the seed of each mutation.
`rare()` returns the rare marks and the rare pairs for which parents are chosen.
"""

from collections.abc import Iterator

from chaos.exploration.guided.corpus import PLANS_EACH, RAREST_MARKS, Corpus, RunSeen
from chaos.exploration.guided.coverage import Coverage
from chaos.exploration.guided.lineage import MAX_GENERATIONS


def run(*lineage: int, marks: str = "", faults: int = 5, passed: bool = True) -> RunSeen:
    """Return a run that reached the marks, named by letters."""
    return RunSeen(lineage=lineage, marks=tuple(sorted(marks)), faults=faults, passed=passed)


def runs_with_common_marks(seeds: range, marks: str = "xy") -> Iterator[RunSeen]:
    """Yield a run for each seed, all with the same marks, so that these are the common marks."""
    for seed in seeds:
        yield run(seed, marks=marks)


def test_pair_is_rare_if_its_marks_are_common_and_seldom_occur_together() -> None:
    """The pair of a and b is rare, although both marks are common.

    A pair with a rare mark is rare, too, but is not listed, because its mark is listed.
    """
    coverage = Coverage()
    for index in range(300):
        coverage.take(("a",) if index % 2 else ("b",), mutated=False)
    coverage.take(("a", "b"), mutated=True)
    coverage.take(("a", "r"), mutated=True)

    assert coverage.rare_marks() == ["r"]
    assert coverage.rare_pairs() == [("a", "b")]
    assert (coverage.mutated_pairs["a", "b"], coverage.mutated_marks["a"]) == (1, 2)


def test_smallest_plans_of_a_rare_mark_are_kept() -> None:
    """A small plan is quick to run, and a mutation of it is more likely to matter.

    Of the five plans with the mark r, the three with 2, 4 and 7 faults are kept.
    """
    corpus = Corpus()
    for common_run in runs_with_common_marks(range(200)):
        corpus.take(common_run)
    for seed, faults in ((300, 9), (301, 4), (302, 7), (303, 2), (304, 8)):
        corpus.take(run(seed, marks="r", faults=faults))

    assert corpus.plans() == [(301,), (302,), (303,)]
    assert len(corpus.plans()) == PLANS_EACH
    parents = {corpus.parent_for(seed, corpus.rare()) for seed in range(50)}
    assert parents == {(301,), (302,), (303,)}


def test_violating_run_or_one_of_the_last_generation_is_no_parent() -> None:
    """A violating run is a finding, and has a file of its own.

    A plan of the last generation has been mutated MAX_GENERATIONS times. Without a limit plans
    would become ever longer.
    """
    corpus = Corpus()
    for common_run in runs_with_common_marks(range(100)):
        corpus.take(common_run)
    corpus.take(run(200, marks="r", passed=False))
    # A lineage is the seed that drew the plan, and a seed for each mutation.
    corpus.take(run(*range(201, 202 + MAX_GENERATIONS), marks="s"))

    assert corpus.rare() == ([], [])
    assert corpus.parent_for(7, corpus.rare()) is None


def test_half_of_the_parents_are_chosen_for_rare_marks_and_half_for_rare_pairs() -> None:
    """Only run 900 has the rare pair: the marks x and y, which are common alone.

    In addition there are rare marks, more of them than RAREST_MARKS. They are named chr(0), chr(1),
    and so on; chr(index) is reached by 1 + index runs.
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
    assert len(set(chosen)) > RAREST_MARKS
