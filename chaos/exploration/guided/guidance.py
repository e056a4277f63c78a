"""Guidance: which seeds are mutated, and from which plan.

Seeds come in blocks. What a block's seeds change is chosen from the corpus of all blocks up to the
one before the last: while the last one is being played, the next can be given out. So the choice
hangs on whole blocks only, not on what happens to be finished.
"""

from chaos.exploration.guided.corpus import Corpus, RunSeen
from chaos.exploration.guided.lineage import Lineage
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.store import ExplorationRecord, Lost, PlayedSeeds
from cluster.fan_out import Item
from cluster.host.randomness import stream

BLOCK = 100
"""Seeds of a block: many workers want it large, a search of a thousand seeds wants it small."""
LAG = 2
"""A block's seeds know the blocks up to so many before their own."""


class Guidance:
    """Chooses the seeds to mutate of one exploration that begins with `first_seed`.

    Shape: `share` is how many of the runs are mutated, 0 to 1, once there is something to mutate.
    """

    def __init__(self, share: float, first_seed: int = 0, *, block: int = BLOCK) -> None:
        self._share = share
        self._first_seed = first_seed
        self._block = block
        self._runs: dict[int, RunSeen | None] = {}  # None: the seed has no run to learn from
        self._left: dict[int, int] = {}  # block -> seeds of it that are not done; else all
        self._corpus = Corpus()
        self._folded = 0  # blocks that the corpus knows
        self._chosen = 0  # blocks whose seeds have their lineages
        self._lineages: dict[int, Lineage] = {}  # of mutated seeds

    def take(self, record: ExplorationRecord) -> None:
        """Take in what was played, in any order."""
        match record:
            case PlayedSeeds():
                for run in record.runs:
                    self._done(run.seed, _seen(run))
            case Lost():
                for seed in record.seeds:
                    self._done(seed, None)
            case _:
                pass

    def is_ready(self, seed: int) -> bool:
        """Return whether all is known that decides what `seed` plays."""
        if not self._share:
            return True
        return all(
            self._left.get(block, self._block) == 0
            for block in range(self._folded, self._block_of(seed) - LAG + 1)
        )

    def item(self, seed: int) -> Item:
        """Return what a worker is given for a seed that is ready: the seed, or its lineage."""
        if not self._share:
            return seed
        while self._chosen <= self._block_of(seed):
            self._choose(self._chosen)
            self._chosen += 1
        return self._lineages.get(seed, seed)

    def lineage(self, seed: int) -> Lineage:
        """Return the lineage of a seed that was given out."""
        return self._lineages.get(seed, (seed,))

    def runs(self) -> list[RunSeen]:
        """Return every run, in the order of seeds."""
        return [run for _, run in sorted(self._runs.items()) if run is not None]

    def _block_of(self, seed: int) -> int:
        return (seed - self._first_seed) // self._block

    def _seeds_of(self, block: int) -> range:
        first = self._first_seed + block * self._block
        return range(first, first + self._block)

    def _done(self, seed: int, run: RunSeen | None) -> None:
        if seed in self._runs:
            return
        self._runs[seed] = run
        block = self._block_of(seed)
        self._left[block] = self._left.get(block, self._block) - 1
        if run is not None and run.is_mutated:
            self._lineages[seed] = run.lineage

    def _choose(self, block: int) -> None:
        """Choose the lineages of a block's seeds; all blocks before it have theirs."""
        while self._folded <= block - LAG:
            for seed in self._seeds_of(self._folded):
                run = self._runs[seed]
                if run is not None:
                    self._corpus.take(run)
            self._folded += 1
        if not self._folded:
            return
        rare = self._corpus.rare()
        for seed in self._seeds_of(block):
            if stream(seed, "mutated").random() < self._share:
                parent = self._corpus.parent_for(seed, rare)
                if parent is not None:
                    self._lineages[seed] = (*parent, seed)


def _seen(run: PlayedRun) -> RunSeen:
    return RunSeen(
        lineage=run.lineage or (run.seed,),
        marks=run.marks,
        faults=run.faults_hit + run.faults_missed,
        passed=run.result is PlayResult.PASS,
    )
