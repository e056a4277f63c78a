"""Coverage: the numbers of runs that reached each mark, and each pair of marks.

A mark is the name of a situation, such as "two_owners". A pair consists of two marks that the same
run has reached, at any times. A pair can be rare although both of its marks are common.

Some runs have a plan that was made by a change of an earlier plan (mutated runs). These runs are
also counted separately, to see what the changes of plans win.
"""

from collections import Counter
from itertools import combinations

Pair = tuple[str, str]
"""Two marks, in the order of their names."""
RARE_SHARE = 0.01
"""A mark or pair is rare if at most this share of the runs reached it."""


def rare_at_most(runs: int, share: float = RARE_SHARE) -> int:
    """Return the number of runs, out of `runs`, up to which a reached mark or pair is rare.

    The number is at least 1. So even in a small search, a mark that a single run reached is rare.
    """
    return max(1, int(runs * share))


class Coverage:
    """Counts of the runs that reached each mark and each pair.

    There is a count for all runs, and another for the mutated runs alone.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.mutated_runs = 0
        self.marks: Counter[str] = Counter()
        self.pairs: Counter[Pair] = Counter()
        self.mutated_marks: Counter[str] = Counter()
        self.mutated_pairs: Counter[Pair] = Counter()

    def take(self, marks: tuple[str, ...], *, mutated: bool) -> None:
        """Count a run. `marks` are sorted."""
        pairs = tuple(combinations(marks, 2))  # the marks are sorted, also within each pair
        self.runs += 1
        self.marks.update(marks)
        self.pairs.update(pairs)
        if mutated:
            self.mutated_runs += 1
            self.mutated_marks.update(marks)
            self.mutated_pairs.update(pairs)

    def rare_marks(self, share: float = RARE_SHARE) -> list[str]:
        """Return the marks that at most `share` of the runs reached, rarest first."""
        most = rare_at_most(self.runs, share)
        rare = [mark for mark, runs in self.marks.items() if runs <= most]
        return sorted(rare, key=lambda mark: (self.marks[mark], mark))

    def rare_pairs(self) -> list[Pair]:
        """Return the rare pairs of two marks that are not rare themselves, rarest first.

        A pair of two rather rare marks is rare, too, and this is no surprise. So the pairs are not
        sorted by their counts. They are sorted by the count divided by the expected count, which is
        the count that a pair would have if its two marks had nothing to do with each other.

        For example, of 1,000 runs 100 reached mark A, 200 reached mark B, and 2 reached both.
        The expected count is 1,000 * 0.1 * 0.2 = 20, so the quotient is 2 / 20 = 0.1.
        """
        most = rare_at_most(self.runs)
        rare = [
            pair
            for pair, runs in self.pairs.items()
            if runs <= most and all(self.marks[mark] > most for mark in pair)
        ]
        return sorted(rare, key=lambda pair: (self.pairs[pair] / self._expected_count(pair), pair))

    def _expected_count(self, pair: Pair) -> float:
        return self.marks[pair[0]] * self.marks[pair[1]] / self.runs
