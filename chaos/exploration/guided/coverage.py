"""Coverage: in how many runs each mark, and each pair of marks, was reached.

A pair is two situations in one run, whatever the time between them. Two situations that are common
each and rare together are what no mark of its own tells.
"""

from collections import Counter
from itertools import combinations

Pair = tuple[str, str]
"""Two marks, the one whose name is smaller first."""
RARE_SHARE = 0.01
"""What so many of the runs reach, or one run, is rare."""


def rare_at_most(runs: int, share: float = RARE_SHARE) -> int:
    """Return in how many of so many runs something may be reached and be rare."""
    return max(1, int(runs * share))


class Coverage:
    """Counts runs by what they reached, and those among them that were mutated."""

    def __init__(self) -> None:
        self.runs = 0
        self.mutated_runs = 0
        self.marks: Counter[str] = Counter()
        self.pairs: Counter[Pair] = Counter()
        self.mutated_marks: Counter[str] = Counter()
        self.mutated_pairs: Counter[Pair] = Counter()

    def take(self, marks: tuple[str, ...], *, mutated: bool) -> None:
        """Count a run in. Shape: `marks` are sorted."""
        pairs = tuple(combinations(marks, 2))
        self.runs += 1
        self.marks.update(marks)
        self.pairs.update(pairs)
        if mutated:
            self.mutated_runs += 1
            self.mutated_marks.update(marks)
            self.mutated_pairs.update(pairs)

    def rare_marks(self, share: float = RARE_SHARE) -> list[str]:
        """Return the marks that `share` of the runs reach at most, the rarest first."""
        most = rare_at_most(self.runs, share)
        rare = [mark for mark, runs in self.marks.items() if runs <= most]
        return sorted(rare, key=lambda mark: (self.marks[mark], mark))

    def rare_pairs(self) -> list[Pair]:
        """Return pairs that are rare though neither of their marks is, the rarest first.

        What is rarest is told by how often both would meet if they had nothing to do with each
        other: a pair that is seldom only because its marks are seldom comes last.
        """
        most = rare_at_most(self.runs)
        rare = [
            pair
            for pair, runs in self.pairs.items()
            if runs <= most and all(self.marks[mark] > most for mark in pair)
        ]
        return sorted(rare, key=lambda pair: (self.pairs[pair] / self._by_chance(pair), pair))

    def _by_chance(self, pair: Pair) -> float:
        return self.marks[pair[0]] * self.marks[pair[1]] / self.runs
