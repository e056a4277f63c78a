"""A bound on the CPU time of one explored run: one that never ends must not keep its worker.

The loop finds instants that never end; this finds what the loop cannot see, a step that never does,
and time that hardly moves. The bound is far above what any run needs, so that it decides nothing
else. Compiled code that never calls the interpreter is not stopped.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_LIMIT_S = 300.0
"""CPU seconds of one run, hundreds of times what a run of the standard space takes."""
_AGAIN_S = 1.0


class RunNeverEnds(BaseException):
    """A run is over its bound. No `except Exception` of a node may take it for its own failure."""


@contextmanager
def limited_cpu(limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raise RunNeverEnds in what runs inside, once the process has used `limit_s` of CPU more.

    And again every second after: what it hits first may be a task, which keeps it to itself. In
    another thread than the main one, where no signal arrives, nothing is bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise RunNeverEnds(f"it has not ended after {limit_s:g} s of CPU")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
