"""Pauses of Python's cyclic garbage collector while runs are played.

Each collection takes much time, because the collector scans all living objects, and frees only few.
So it runs rarely during a run, and does not scan objects that existed before (`gc.freeze`).
"""

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

    Objects that exist before the call are frozen during the call, so that the collection does not
    scan them. A scan of all modules of the process would take about a tenth of a run's time, only
    to free the few thousand objects that the run leaves. The enclosed code may run without
    collections, because a run takes at most a minute and so does not fill the memory.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # The collector is disabled, or objects are frozen: an enclosing call, or a caller, has
        # changed the collector already. It is left as it is.
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

    With Python's own thresholds, a run with 400 members spends a third of its time in collections,
    because nearly all scanned objects live as long as the run. Objects that exist before the call
    are frozen, as in `collecting_afterwards`.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # An enclosing call, or a caller, has changed the collector already.
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

    Yields: a function to call after each run. It collects when LEFT_MAX objects are left. So the
    memory of a batch is bounded.
    """
    with collecting_afterwards():
        yield _collect_if_due


def _collect_if_due() -> None:
    # The first count is the number of new objects. It grows even while the collector is disabled.
    if gc.get_count()[0] >= LEFT_MAX:
        gc.collect()
