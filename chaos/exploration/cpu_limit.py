"""A limit on the CPU time of one explored run, so that an endless run does not block its worker.

If the simulated time of a run never advances, the event loop notices this itself. But the loop
cannot notice two other kinds of endless runs: a run in which a step never returns, and a run whose
time advances extremely slowly. The limit in this module ends such runs. It is far above the CPU
time that any other run needs.

The limit does not stop compiled code that never calls the interpreter, because Python runs signal
handlers only in the interpreter.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_LIMIT_S = 300.0
"""Limit of the CPU seconds of one run. A run of the standard space needs hundreds of times less."""
_REPEAT_S = 1.0
"""Interval, in CPU seconds, at which the exception is raised again after the limit."""


class RunNeverEnds(BaseException):
    """A run exceeded the limit.

    It is a BaseException, so that no `except Exception` of a node catches it.
    """


@contextmanager
def limited_cpu(limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raise RunNeverEnds in the enclosed code after `limit_s` of CPU time.

    The exception is raised again after every further CPU second. The first exception may be raised
    inside an asyncio task, which stores the exception instead of passing it on to the enclosed
    code.

    Outside the main thread there is no limit, because Python runs signal handlers only in the main
    thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_limit(_signal: int, _frame: FrameType | None) -> None:
        raise RunNeverEnds(f"it has not ended after {limit_s:g} s of CPU")

    # The timer ITIMER_PROF counts the CPU time of the process, and sends SIGPROF when it ends.
    before = signal.signal(signal.SIGPROF, raise_limit)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _REPEAT_S)
    try:
        yield
    finally:
        # The timer stops first, because the earlier handler of SIGPROF may end the process.
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
