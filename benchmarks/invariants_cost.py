"""The share of an explored run's time that the checks of its nodes take.

These checks are part of an explored run:

- The nodes check their invariants every 500 events, and in each 32nd run every 25 events
  (`chaos.exploration.batches`). After each change of a leader or an ISR, the nodes are also
  compared with one another.
- Each answer is checked before it leaves its node. Some rows of the trace are checked, too.

This benchmark plays seeds of the standard space, and adds up the time that passes inside of these
checks. It does not compare runs with and without checks, because the times of two runs differ by
more than the checks take.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from benchmarks.measurement import Measurement
from chaos.exploration.batches import DENSE_CHECKS_EVERY, play_seed
from chaos.exploration.space import load_space
from cluster.virtual.runtime import VirtualRuntime

SPACE = "standard"
SEEDS = range(4 * DENSE_CHECKS_EVERY)
"""Four of these runs check their invariants every 25 events, the same share as in a search."""
GOAL = 0.05
"""Goal: the invariants take at most this share of the time."""
OF_NODES = ("_check_what_is_due", "_check_invariants_once", "_before_exit")
"""Methods of `VirtualRuntime` that check the nodes' invariants, and compare the nodes."""
OF_MESSAGES = ("_check_answer", "_check_row")
"""Methods of `VirtualRuntime` that check an answer or a row of the trace."""
P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """Adds the time that passes inside of some functions, in seconds.

    If one of the functions calls another of them, the time of the inner call counts once.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self._is_running = False

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that does the same, and whose time is added."""

        def timed_function(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._is_running:
                return function(*args, **kwargs)
            self._is_running = True
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.total_s += time.perf_counter() - began
                self._is_running = False

        return timed_function


@contextmanager
def stopwatch(names: tuple[str, ...]) -> Iterator[Stopwatch]:
    """Time these methods of every VirtualRuntime, until the context ends."""
    watch = Stopwatch()
    methods = {name: getattr(VirtualRuntime, name) for name in names}
    for name, method in methods.items():
        setattr(VirtualRuntime, name, watch.timed(method))
    try:
        yield watch
    finally:
        for name, method in methods.items():
            setattr(VirtualRuntime, name, method)


def run() -> tuple[Measurement, ...]:
    """Play the seeds, and measure the checks of nodes and those of messages."""
    space = load_space(SPACE)
    play_seed(space, 0)  # fills caches
    with stopwatch(OF_NODES) as of_nodes, stopwatch(OF_MESSAGES) as of_messages:
        began = time.perf_counter()
        for seed in SEEDS:
            play_seed(space, seed)
        whole_s = time.perf_counter() - began
    share = of_nodes.total_s / whole_s
    return (
        Measurement(
            name=f"invariants of the nodes, {len(SEEDS)} explored seeds",
            value=of_nodes.total_s,
            baseline=whole_s,
            unit="s",
            baseline_name="all of these runs",
            ratio=share,
            goal=f"at most {GOAL:g}",
            met=share <= GOAL,
        ),
        Measurement(
            name="checks of answers and rows",
            value=of_messages.total_s,
            baseline=whole_s,
            unit="s",
            baseline_name="all of these runs",
            ratio=of_messages.total_s / whole_s,
        ),
    )
