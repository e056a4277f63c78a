"""Guidance: decides which seeds of a search mutate an earlier plan, and which plan (the parent).

The choice depends on the results of earlier runs, because a parent has reached something rare. But
it must not depend on which worker was faster, or a search could not be repeated. So seeds are
divided into blocks of 100, and the parents for block N are chosen from the whole blocks up to
N - 2. Not N - 1, so that some workers can begin block N while others still play block N - 1.
"""

from chaos.exploration.guided.corpus import Corpus, RunSeen
from chaos.exploration.guided.lineage import Lineage
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.store import ExplorationRecord, Lost, PlayedSeeds
from cluster.fan_out import Item
from cluster.host.randomness import stream

BLOCK = 100
"""Number of seeds in a block.

With many workers, blocks must be large, so that no worker has to wait. In a short search, blocks
must be small, so that mutations begin early.
"""
LAG = 2
"""The parents for the seeds of block N come from the blocks up to N - LAG."""


class Guidance:
    """Chooses the seeds to mutate in one exploration, which begins with `first_seed`.

    `share`: the share of seeds that mutate a plan, 0 to 1, as soon as there are plans to mutate.
    """

    def __init__(self, share: float, first_seed: int = 0, *, block: int = BLOCK) -> None:
        self._share = share
        self._first_seed = first_seed
        self._block = block
        self._runs: dict[int, RunSeen | None] = {}  # by seed; None for a lost seed
        # Block -> number of its unfinished seeds. If a block is missing, no seed of it is finished.
        self._unfinished: dict[int, int] = {}
        self._corpus = Corpus()
        self._blocks_in_corpus = 0  # number of blocks whose runs are in the corpus
        self._blocks_chosen = 0  # number of blocks whose seeds have their lineages
        self._lineages: dict[int, Lineage] = {}  # of mutated seeds only

    def take(self, record: ExplorationRecord) -> None:
        """Add played runs, in any order."""
        match record:
            case PlayedSeeds():
                for run in record.runs:
                    self._finish_seed(run.seed, _view_of(run))
            case Lost():
                for seed in record.seeds:
                    self._finish_seed(seed, None)
            case _:
                pass  # a second play of a seed adds no run

    def is_ready(self, seed: int) -> bool:
        """Return True if all results are known that determine the plan of `seed`."""
        if not self._share:
            return True  # no seed mutates a plan, so none depends on results
        return all(
            self._unfinished.get(block, self._block) == 0
            # The blocks that are not in the corpus yet, up to the last one that may have parents.
            for block in range(self._blocks_in_corpus, self._block_of(seed) - LAG + 1)
        )

    def item(self, seed: int) -> Item:
        """Return a worker's item for a seed that is ready: the seed, or its lineage."""
        if not self._share:
            return seed
        while self._blocks_chosen <= self._block_of(seed):
            self._choose_lineages(self._blocks_chosen)
            self._blocks_chosen += 1
        return self._lineages.get(seed, seed)

    def lineage(self, seed: int) -> Lineage:
        """Return the lineage of a seed that was given out."""
        return self._lineages.get(seed, (seed,))

    def runs(self) -> list[RunSeen]:
        """Return all runs, in the order of seeds."""
        return [run for _, run in sorted(self._runs.items()) if run is not None]

    def _block_of(self, seed: int) -> int:
        return (seed - self._first_seed) // self._block

    def _seeds_of(self, block: int) -> range:
        first = self._first_seed + block * self._block
        return range(first, first + self._block)

    def _finish_seed(self, seed: int, run: RunSeen | None) -> None:
        """Note the result of a seed; None if it was lost."""
        if seed in self._runs:
            return  # `_unfinished` must count a seed only once
        self._runs[seed] = run
        block = self._block_of(seed)
        self._unfinished[block] = self._unfinished.get(block, self._block) - 1
        if run is not None and run.is_mutated:
            # After a resume the lineages of earlier seeds are known only from the stored records.
            self._lineages[seed] = run.lineage

    def _choose_lineages(self, block: int) -> None:
        """Choose the lineages of a block's seeds. All earlier blocks have their lineages."""
        # All seeds of these blocks are finished, because a caller asks only for ready seeds
        # (`is_ready`).
        while self._blocks_in_corpus <= block - LAG:
            for seed in self._seeds_of(self._blocks_in_corpus):
                run = self._runs[seed]
                if run is not None:
                    self._corpus.take(run)
            self._blocks_in_corpus += 1
        if not self._blocks_in_corpus:
            return  # the first LAG blocks have no parents
        rare = self._corpus.rare()
        for seed in self._seeds_of(block):
            if stream(seed, "mutated").random() < self._share:
                parent = self._corpus.parent_for(seed, rare)
                if parent is not None:
                    self._lineages[seed] = (*parent, seed)


def _view_of(run: PlayedRun) -> RunSeen:
    return RunSeen(
        lineage=run.lineage or (run.seed,),  # PlayedRun has a lineage only for a mutated seed
        marks=run.marks,
        faults=run.faults_hit + run.faults_missed,  # the sum is the size of the plan
        passed=run.result is PlayResult.PASS,
    )
