"""Handlers of two signals: SIGINT, which Ctrl-C sends, and SIGTERM.

Service managers and the program `timeout` send SIGTERM to end a process.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C within this context, so that the cluster is healed and stopped.

    The handler of SIGTERM sends SIGINT to this process. While a cluster runs, the runtime handles
    SIGINT: it cancels the main task between two of the task's steps. If the handler of SIGTERM
    raised an exception instead, the main task would stay alive, and would go on with the plan of
    faults while the cluster is being healed.

    A shell starts the background processes of a script with SIGINT ignored, and a runtime leaves an
    ignored signal ignored. So this context first sets Python's own handler of SIGINT.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        # Despite its name, `raise_signal` raises no exception: it sends the signal to this process.
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, interrupt)
    if before[signal.SIGINT] is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ask_on_first_ctrl_c(ask: Callable[[], object]) -> Iterator[None]:
    """Call `ask` at the first Ctrl-C within this context; a second Ctrl-C is for the old handler.

    The context must be entered in a coroutine of an asyncio.Runner. Then the old handler is that of
    the Runner, which cancels the main task. `ask` must not raise, because an exception would leave
    the main task alive.
    """
    before = signal.getsignal(signal.SIGINT)

    def first(_signal: int, _frame: FrameType | None) -> None:
        # Before `ask`, so that a Ctrl-C during `ask` already counts as the second one.
        signal.signal(signal.SIGINT, before)
        ask()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        # After a Ctrl-C, `first` has restored the old handler already.
        if signal.getsignal(signal.SIGINT) is first:
            signal.signal(signal.SIGINT, before)


@contextmanager
def stop_on_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after a Ctrl-C or SIGTERM.

    A command calls this function between two of its steps. A second signal does not wait for the
    end of a step: it raises KeyboardInterrupt immediately.
    """
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
