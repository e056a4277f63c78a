"""Pauses of Python's cyclic garbage collector while runs are played."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEFT_MAX = 100_000
"""Objects that the runs of a batch may leave before cycles are collected: about 12 MB.

A run of the packaged spaces leaves 15,000 to 20,000.
"""

SELDOM = (LEFT_MAX, 50, 100)
"""Thresholds of Python's three generations; the youngest is collected after LEFT_MAX objects."""


@contextmanager
def collecting_afterwards() -> Iterator[None]:
    """Collect no cycles in the enclosed code, and all of its cycles at its end.

    Earlier objects are frozen meanwhile. Otherwise each collection would scan all modules of the
    process for the few thousand objects that a run leaves. This costs about a tenth of the run's
    time. A run of a minute ends long before memory is short.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # Disabled by somebody else, or this call is nested in another one.
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

    With 400 members Python's own thresholds cost a third of the run, because nearly all scanned
    objects live as long as the run. Earlier objects are frozen, as in `collecting_afterwards`.
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
    if gc.get_count()[0] >= LEFT_MAX:
        gc.collect()
