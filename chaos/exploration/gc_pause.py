"""Python's cyclic garbage collector, which waits while a run is played."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
