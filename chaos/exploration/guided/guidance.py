"""Guidance: decides which seeds of a search mutate (change) an earlier plan of faults.

The Guidance also chooses this earlier plan, which is called the parent. A parent must have reached
something rare, so the choice of parents depends on the results of earlier runs. But the choice must
not depend on the speed of workers, because then a search could not be repeated. So seeds are
divided into blocks of 100, and the parents for a block are chosen only after whole earlier blocks
are finished.

The parents for block N are chosen from the blocks up to N - 2. So some workers can begin block N
while other workers still play block N - 1.
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
"""Distance between blocks: the parents for block N come from the blocks up to N - LAG."""


class Guidance:
    """Chooses the seeds that mutate a plan in one exploration, and their parents.

    - `share`: the share of seeds that mutate a plan, from 0 to 1. The first seeds mutate none,
      because there is no plan yet that could be mutated.
    - `first_seed`: the first seed of the exploration.
    """

    def __init__(self, share: float, first_seed: int = 0, *, block: int = BLOCK) -> None:
        self._share = share
        self._first_seed = first_seed
        self._block = block
        self._runs: dict[int, RunSeen | None] = {}  # by seed; None for a lost seed
        # The number of unfinished seeds of each block. If a block is missing here, none of its
        # seeds is finished.
        self._unfinished: dict[int, int] = {}
        self._corpus = Corpus()
        self._blocks_in_corpus = 0  # number of blocks whose runs are in the corpus
        self._blocks_chosen = 0  # number of blocks whose lineages were chosen
        # The lineage of each seed that mutates a plan: the seeds that together define its plan,
        # which are the lineage of its parent and the seed itself.
        self._lineages: dict[int, Lineage] = {}

    def take(self, record: ExplorationRecord) -> None:
        """Add played runs, in any order."""
        match record:
            case PlayedSeeds():
                for run in record.runs:
                    self._finish_seed(run.seed, _view_of(run))
            case Lost():
                for seed in record.seeds:
                    self._finish_seed(seed, None)  # a lost seed has no run
            case _:
                pass  # the runs of a recheck, whose seeds were taken before

    def is_ready(self, seed: int) -> bool:
        """Return True if all results that determine the plan of `seed` are known."""
        if not self._share:
            return True  # no seed mutates a plan, so no plan depends on results
        return all(
            # If a block is missing in `_unfinished`, all its `_block` seeds are unfinished.
            self._unfinished.get(block, self._block) == 0
            # These are the blocks that are not in the corpus yet, up to the last block from which a
            # parent of `seed` may come.
            for block in range(self._blocks_in_corpus, self._block_of(seed) - LAG + 1)
        )

    def item(self, seed: int) -> Item:
        """Return what a worker gets for a seed that is ready: the seed itself, or its lineage."""
        if not self._share:
            return seed
        # The lineages of all earlier blocks must be chosen first.
        while self._blocks_chosen <= self._block_of(seed):
            self._choose_lineages(self._blocks_chosen)
            self._blocks_chosen += 1
        return self._lineages.get(seed, seed)

    def lineage(self, seed: int) -> Lineage:
        """Return the lineage of a seed for which `item` was called."""
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
        """Note the result of a seed. `run` is None if the seed was lost."""
        if seed in self._runs:
            return  # `_unfinished` must count a seed only once
        self._runs[seed] = run
        block = self._block_of(seed)
        self._unfinished[block] = self._unfinished.get(block, self._block) - 1
        if run is not None and run.is_mutated:
            # If the exploration was resumed, the lineages of earlier seeds are known only from the
            # stored runs.
            self._lineages[seed] = run.lineage

    def _choose_lineages(self, block: int) -> None:
        """Choose the lineages of a block's seeds. All earlier blocks have their lineages."""
        # Add the blocks from which parents may come to the corpus. All their seeds are finished,
        # because callers ask only for seeds that are ready (`is_ready`).
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
    """Return the data of a run that the corpus needs."""
    return RunSeen(
        lineage=run.lineage or (run.seed,),  # a run that drew its plan has the lineage ()
        marks=run.marks,
        faults=run.faults_hit + run.faults_missed,  # the sum is the size of the plan
        passed=run.result is PlayResult.PASS,
    )
