"""Coverage: the numbers of runs that reached each mark, and each pair of marks.

A pair is two situations in one run, at any distance of time. A pair can be rare although both of
its situations are common, which single marks do not show.
"""

from collections import Counter
from itertools import combinations

Pair = tuple[str, str]
"""Two marks, in the order of their names."""
RARE_SHARE = 0.01
"""Largest share of the runs that may reach something rare; one run always may."""


def rare_at_most(runs: int, share: float = RARE_SHARE) -> int:
    """Return the largest number of runs that may reach something rare, out of `runs`."""
    return max(1, int(runs * share))


class Coverage:
    """Counts of runs by what they reached, for all runs and for mutated ones."""

    def __init__(self) -> None:
        self.runs = 0
        self.mutated_runs = 0
        self.marks: Counter[str] = Counter()
        self.pairs: Counter[Pair] = Counter()
        self.mutated_marks: Counter[str] = Counter()
        self.mutated_pairs: Counter[Pair] = Counter()

    def take(self, marks: tuple[str, ...], *, mutated: bool) -> None:
        """Count a run. Shape: `marks` are sorted."""
        pairs = tuple(combinations(marks, 2))
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
        """Return the rare pairs whose marks are both not rare, rarest first.

        The order compares a pair's count with the count expected if its marks were independent. A
        pair that is rare only because its marks are infrequent comes last.
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
