"""Pauses of Python's cyclic garbage collector while runs are played."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEFT_MAX = 100_000
"""Objects that the runs of a batch may leave before cycles are collected: about 12 MB.

A run of the packaged spaces leaves 15,000 to 20,000.
"""

SELDOM = (LEFT_MAX, 50, 100)
"""Thresholds of Python's three generations, for `gc.set_threshold`.

The youngest generation is collected after LEFT_MAX new objects, the middle one at every 50th of
those collections, and the oldest at every 100th collection of the middle one.
"""


@contextmanager
def collecting_afterwards() -> Iterator[None]:
    """Collect no cycles while the enclosed code runs, and then all cycles that it has left.

    Objects from before the call are frozen during the call, so that the collection does not scan
    them. To scan all modules of the process, for the few thousand objects that a run leaves, would
    take about a tenth of the run's time. Memory does not run short without a collection, because a
    run lasts a minute at most.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # A caller has disabled the collector, or this call is nested in another one.
        yield
        return
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Collect cycles rarely (see SELDOM) in the enclosed code: for one run of unknown length.

    In a run with 400 members, Python's own thresholds cost a third of the time, because nearly all
    scanned objects live as long as the run. Objects from before the call are frozen, as in
    `collecting_afterwards`.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def collecting_between_runs() -> Iterator[Callable[[], None]]:
    """Collect the cycles of several runs together, during the enclosed code and at its end.

    Yields: a function to call after each run. It collects once LEFT_MAX objects are left, which
    bounds the memory of a batch.
    """
    with collecting_afterwards():
        yield _collect_if_due


def _collect_if_due() -> None:
    # The first count is that of the youngest generation. It grows while the collector is disabled.
    if gc.get_count()[0] >= LEFT_MAX:
        gc.collect()
