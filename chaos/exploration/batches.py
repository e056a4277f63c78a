"""What a worker process of the search does: it plays a batch of seeds.

A worker gets items. Most items are a seed, which draws an experiment from the space. Other items
are a lineage, a tuple of seeds such as (7, 31, 95): seed 7 draws a plan of faults, seed 31 changes
it, and seed 95 changes the result once more and is played.

The result of a function depends only on its arguments. So it does not matter in which process, or
in which batch, a seed is played.

Data flow: (Space, items) -> PlayedRun of each item, as bytes.
"""

import msgspec

from chaos.exploration.cpu_limit import RunNeverEnds, limited_cpu
from chaos.exploration.gc_pause import collecting_between_runs
from chaos.exploration.guided.lineage import grow
from chaos.exploration.play import (
    INVARIANTS_DENSELY,
    INVARIANTS_EVERY,
    PlayedRun,
    PlayResult,
    play,
)
from chaos.exploration.space import Space
from chaos.results.replay_stamp import code_version
from cluster.fan_out import Item, Items

DENSE_CHECKS_EVERY = 32
"""In the run of every 32nd seed the nodes check their invariants more often than in other runs.

The benchmark `invariants_cost` measures how much time the checks of all runs take.
"""


class OtherCode(Exception):
    """A worker's code differs from its search's; the message names both versions."""


def check_code(expected: str) -> None:
    """Check that this process has the same code as the search.

    If the code is edited while a search goes on, a worker that starts later plays other runs. Seeds
    that are played twice would then have two results, as if the simulation were not deterministic.
    Raises: OtherCode.
    """
    if code_version() != expected:
        raise OtherCode(
            f"the code changed while it was searched: it began with {expected}, and is "
            f"{code_version()} now"
        )


def play_seeds(space: Space, items: Items) -> bytes:
    """Play every item and return the encoded runs, in order.

    An item is a seed to draw, or a lineage, whose last seed is played.
    Raises: no exception of a run or a draw. Such an exception makes its run BROKEN.
    """
    runs = []
    with collecting_between_runs() as collect_if_due:
        for item in items:
            runs.append(play_seed(space, item))
            collect_if_due()
    return msgspec.msgpack.encode(runs)


def play_seed(space: Space, item: Item) -> PlayedRun:
    """Play one seed; the run is BROKEN if the seed cannot even be drawn."""
    lineage = (item,) if isinstance(item, int) else item
    # The run's own seed is the last of its lineage. In a PlayedRun the lineage is () if the plan
    # was drawn, so that the lineage would be only the seed itself.
    seed, kept = lineage[-1], lineage if len(lineage) > 1 else ()
    try:
        grown = grow(space, lineage)
    except Exception as error:  # one bad seed must not end the batch
        reason = f"the seed could not be drawn: {type(error).__name__}: {error}"
        return PlayedRun(seed=seed, result=PlayResult.BROKEN, reasons=(reason,), lineage=kept)
    checks_densely = seed % DENSE_CHECKS_EVERY == 0
    try:
        with limited_cpu():
            run = play(
                grown.experiment,
                grown.network_seed,
                invariants_every=INVARIANTS_DENSELY if checks_densely else INVARIANTS_EVERY,
            )
    except RunNeverEnds as error:
        reason = f"{type(error).__name__}: {error}"
        run = PlayedRun(seed=seed, result=PlayResult.BROKEN, reasons=(reason,))
    # `play` knows only the network seed, and a mutated run may have that of its parent. So the
    # run's own seed is set here.
    return msgspec.structs.replace(run, seed=seed, lineage=kept)


def decode_runs(answer: bytes) -> tuple[PlayedRun, ...]:
    """Return the runs of a worker's answer."""
    return msgspec.msgpack.decode(answer, type=tuple[PlayedRun, ...])
