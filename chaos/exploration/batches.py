"""What a worker process of the search does: it plays a batch of seeds.

A worker gets a space, which says what may vary between experiments, and a batch of items. There are
two kinds of items:

- A seed, such as 7. It draws an experiment from the space, with a plan of faults.
- A lineage, which is a tuple of seeds such as (7, 31, 95). Seed 7 draws a plan of faults, seed 31
  changes this plan, and seed 95 changes the changed plan once more. Then the last plan is played.
  The run belongs to seed 95.

The result of a function depends only on its arguments. So it does not matter in which process, or
in which batch, an item is played.

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

The frequent checks would take too much time in every run. The benchmark `invariants_cost` measures
this time.
"""


class OtherCode(Exception):
    """A worker does not have the same code as its search. The message names both versions."""


def check_code(expected: str) -> None:
    """Check that this process runs the same code as the search, whose version is `expected`.

    Somebody may edit the code while a search is running. A worker that starts after the edit would
    give other results for the same seeds. If a seed is played twice, its two results would differ,
    and the search would report that the simulation is not deterministic.

    Raises: OtherCode.
    """
    if code_version() != expected:
        raise OtherCode(
            f"the code changed while it was searched: it began with {expected}, and is "
            f"{code_version()} now"
        )


def play_seeds(space: Space, items: Items) -> bytes:
    """Play every item and return the encoded runs, in order.

    An item is a seed to draw, or a lineage. An exception in a draw or a run is not raised. It makes
    the run BROKEN.
    """
    runs = []
    with collecting_between_runs() as collect_if_due:
        for item in items:
            runs.append(play_seed(space, item))
            collect_if_due()
    return msgspec.msgpack.encode(runs)


def play_seed(space: Space, item: Item) -> PlayedRun:
    """Play one item; the run is BROKEN if the experiment cannot even be drawn."""
    lineage = (item,) if isinstance(item, int) else item
    seed = lineage[-1]  # the run's own seed
    # The lineage that is written into the PlayedRun. It is () for a single seed, because the
    # PlayedRun has this seed in its field `seed`.
    kept = lineage if len(lineage) > 1 else ()
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
    # `play` has set the network seed as the run's seed. The two differ if the run's plan was
    # changed from an earlier plan, and its network seed was kept from the earlier run. So the run's
    # own seed is set here.
    return msgspec.structs.replace(run, seed=seed, lineage=kept)


def decode_runs(answer: bytes) -> tuple[PlayedRun, ...]:
    """Return the runs of a worker's answer."""
    return msgspec.msgpack.decode(answer, type=tuple[PlayedRun, ...])
