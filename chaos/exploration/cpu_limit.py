"""A limit on the CPU time of one explored run, so that an endless run does not block its worker.

The virtual loop detects instants that never end. This limit ends what the loop cannot detect: a
step that never ends, or time that hardly advances. It is far above the need of any run, so that it
affects no other run. Compiled code that never calls the interpreter is not stopped.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_LIMIT_S = 300.0
"""CPU seconds of one run: hundreds of times the need of a run of the standard space."""
_REPEAT_S = 1.0


class RunNeverEnds(BaseException):
    """A run exceeded the limit. A BaseException: a node's `except Exception` must not catch it."""


@contextmanager
def limited_cpu(limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raise RunNeverEnds in the enclosed code once the process has used `limit_s` more of CPU.

    It is raised again every second after that, because the first one may hit a task, which keeps
    the exception. Outside the main thread, where no signal arrives, there is no limit.
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
