"""A limit on the CPU time of one explored run, so that an endless run does not block its worker.

The virtual loop itself detects an instant of virtual time that never ends. This limit ends two runs
that the loop cannot detect: one with a step that never returns, and one whose time hardly advances.
The limit is far above the need of any other run. It does not stop compiled code that never calls
the interpreter, because Python runs signal handlers in the interpreter only.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_LIMIT_S = 300.0
"""CPU seconds of one run: hundreds of times the need of a run of the standard space."""
_REPEAT_S = 1.0
"""CPU seconds until the exception is raised again."""


class RunNeverEnds(BaseException):
    """A run exceeded the limit.

    It is a BaseException, so that no `except Exception` of a node catches it.
    """


@contextmanager
def limited_cpu(limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raise RunNeverEnds in the enclosed code once the process has used `limit_s` more of CPU.

    The exception is raised again every second after that. The first one may be raised inside an
    asyncio task, which stores it instead of passing it on to the enclosed code. Outside the main
    thread there is no limit, because Python runs signal handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_limit(_signal: int, _frame: FrameType | None) -> None:
        raise RunNeverEnds(f"it has not ended after {limit_s:g} s of CPU")

    before = signal.signal(signal.SIGPROF, raise_limit)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
