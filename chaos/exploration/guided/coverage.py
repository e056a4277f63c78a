"""Coverage: the numbers of runs that reached each mark, and each pair of marks.

A mark is the name of a situation, such as "two_owners". A pair is two marks that the same run has
reached, at any times. A pair can be rare although both of its marks are common. Runs whose plan was
made by changing an earlier plan (mutated runs) are also counted separately, to see what they win.
"""

from collections import Counter
from itertools import combinations

Pair = tuple[str, str]
"""Two marks, in the order of their names."""
RARE_SHARE = 0.01
"""A mark or pair is rare if at most this share of the runs reached it."""


def rare_at_most(runs: int, share: float = RARE_SHARE) -> int:
    """Return the largest number of runs, out of `runs`, that may reach a rare mark or pair.

    The number is at least 1. So even in a small search, a mark that a single run reached is rare.
    """
    return max(1, int(runs * share))


class Coverage:
    """Counts of runs by mark and by pair, for all runs and for the mutated runs alone."""

    def __init__(self) -> None:
        self.runs = 0
        self.mutated_runs = 0
        self.marks: Counter[str] = Counter()
        self.pairs: Counter[Pair] = Counter()
        self.mutated_marks: Counter[str] = Counter()
        self.mutated_pairs: Counter[Pair] = Counter()

    def take(self, marks: tuple[str, ...], *, mutated: bool) -> None:
        """Count a run. `marks` are sorted."""
        pairs = tuple(combinations(marks, 2))  # since marks are sorted, each is a Pair
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

        A pair of two seldom marks is seldom, too, and this is no surprise. So the order is not by
        the count alone, but by the count divided by what would be expected if the two marks had
        nothing to do with each other. Of 1,000 runs let mark A have 100, mark B 200, and both
        together 2: 20 would be expected, so the quotient is 0.1.
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
