"""What a worker does with a batch of seeds: draw, play, and send back what is kept.

Data flow: (Space, seeds or lineages) -> PlayedRun of each, as bytes. Everything in here is a
function of its arguments, so that it does not matter which process does it, and in what company.
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

CLOSE_LOOK_EVERY = 32
"""Of so many seeds one has its nodes check themselves closely, for 2 % of the time of all."""


class OtherCode(Exception):
    """A worker has other code than the search that it works for; says which."""


def check_code(expected: str) -> None:
    """Check that this process would play what the search's own would.

    A worker that starts while somebody edits the code would give other runs: they would look as if
    the lab were not deterministic.
    Raises: OtherCode.
    """
    if code_version() != expected:
        raise OtherCode(
            f"the code changed while it was searched: it began with {expected}, and is "
            f"{code_version()} now"
        )


def play_seeds(space: Space, items: Items) -> bytes:
    """Play every seed and return what is kept of the runs, in order.

    Shape: an item is a seed that is drawn, or a lineage, whose last seed is played.
    Raises: nothing that a run or a draw raises: that run is BROKEN.
    """
    runs = []
    with collecting_between_runs() as run_is_over:
        for item in items:
            runs.append(play_seed(space, item))
            run_is_over()
    return msgspec.msgpack.encode(runs)


def play_seed(space: Space, item: Item) -> PlayedRun:
    """Play one seed; if it cannot even be drawn, it is BROKEN."""
    lineage = (item,) if isinstance(item, int) else item
    seed, kept = lineage[-1], lineage if len(lineage) > 1 else ()
    try:
        grown = grow(space, lineage)
    except Exception as error:
        reason = f"the seed could not be drawn: {type(error).__name__}: {error}"
        return PlayedRun(seed=seed, result=PlayResult.BROKEN, reasons=(reason,), lineage=kept)
    looks_closely = seed % CLOSE_LOOK_EVERY == 0
    try:
        with limited_cpu():
            run = play(
                grown.experiment,
                grown.network_seed,
                invariants_every=INVARIANTS_DENSELY if looks_closely else INVARIANTS_EVERY,
            )
    except RunNeverEnds as error:
        reason = f"{type(error).__name__}: {error}"
        run = PlayedRun(seed=seed, result=PlayResult.BROKEN, reasons=(reason,))
    return msgspec.structs.replace(run, seed=seed, lineage=kept)


def decode_runs(answer: bytes) -> tuple[PlayedRun, ...]:
    """Return the runs of a worker's answer."""
    return msgspec.msgpack.decode(answer, type=tuple[PlayedRun, ...])
