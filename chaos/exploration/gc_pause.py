"""Pauses of Python's cyclic garbage collector while runs are played.

Each collection takes much time, because the collector scans all living objects, and frees only few.
So the functions of this module let the collector run rarely during a run. They also call
`gc.freeze`, so that the collector does not scan objects that existed before the run.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEFT_MAX = 100_000
"""Number of objects that the runs of a batch may leave before cycles are collected.

These objects take about 12 MB. One run of a packaged space leaves 15,000 to 20,000 objects.
"""

SELDOM = (LEFT_MAX, 50, 100)
"""Thresholds of Python's three generations, for `gc.set_threshold`.

The youngest generation is collected after LEFT_MAX new objects. At every 50th of these collections
the middle generation is collected, too. The oldest generation is collected at every 100th
collection of the middle generation.
"""


@contextmanager
def collecting_afterwards() -> Iterator[None]:
    """Collect no cycles while the enclosed code runs; at its end, collect all of them.

    Objects that exist before the call are frozen during the call, so that the collection at the end
    does not scan them. Most of these objects belong to the modules of the process, and never die.
    To scan them would take about a tenth of a run's time.

    The enclosed code is one run, which takes at most a minute. So it does not fill the memory, even
    if nothing is collected meanwhile.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # The collector is disabled, or objects are frozen. So an enclosing call, or the caller, has
        # changed the settings of the collector already. These settings stay as they are.
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
    """Collect cycles rarely in the enclosed code, with the thresholds SELDOM.

    This is for a run of unknown length, which could fill the memory without any collection. But
    with Python's own thresholds, a run with 400 members spends a third of its time in collections,
    because nearly all scanned objects live as long as the run.

    Objects that exist before the call are frozen, as in `collecting_afterwards`.
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

    Yields: a function to call after each run. The function collects cycles if the runs have left
    LEFT_MAX objects or more. So the memory of a batch is bounded.
    """
    # In a run of the batch, `play` calls `collecting_afterwards` again. This inner call does
    # nothing, because the collector is disabled already.
    with collecting_afterwards():
        yield _collect_if_due


def _collect_if_due() -> None:
    # The first count is the number of new objects in Python's youngest generation. This count grows
    # even while the collector is disabled.
    if gc.get_count()[0] >= LEFT_MAX:
        gc.collect()
