"""Python's cyclic garbage collector, which waits while runs are played, or comes seldom."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEFT_MAX = 100_000
"""Objects that runs of a batch may leave behind before their cycles are collected: about 12 MB.

A run of the packaged spaces leaves 15,000 to 20,000.
"""

SELDOM = (LEFT_MAX, 50, 100)
"""Thresholds of Python's three generations: the youngest at LEFT_MAX objects more."""


@contextmanager
def collecting_afterwards() -> Iterator[None]:
    """Collect no cycles within, and those that were made within at the end.

    What was there before is set aside meanwhile: the collector would look through all modules of
    the process again and again for the few thousand objects that a run leaves behind. It costs
    what a tenth of the run costs; a run of a minute is over long before memory is short.
    """
    if not gc.isenabled() or gc.get_freeze_count() > 0:
        # Somebody has other plans with the collector, or this is within another such stretch.
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
    """Collect cycles once in SELDOM allocations within: for one long run, whose length is open.

    With 400 members Python's own thresholds cost a third of the run: nearly all that is looked at
    lives as long as the run. What was there before is set aside, as in `collecting_afterwards`.
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
    """Collect the cycles of several runs at once, within and at the end.

    Yields: what is to be called after each run; it collects as soon as LEFT_MAX objects are left,
    so that the memory of a batch has a bound, whatever its runs are.
    """
    with collecting_afterwards():
        yield _collect_if_due


def _collect_if_due() -> None:
    if gc.get_count()[0] >= LEFT_MAX:
        gc.collect()
