"""Ctrl-C, and SIGTERM, which service managers and `timeout` send: both end a run alike."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: the cluster is healed and stopped before the process ends.

    It is handed to whoever waits for Ctrl-C at that moment. Both runtimes do while they run: they
    end their main task between two of its steps. An exception raised here would leave that task
    alive, and it would go on with the plan beside the healing.
    A script's background process ignores Ctrl-C, and then no runtime waits for it: within this
    context it does not.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
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
    """Call `ask` at the first Ctrl-C within; the second does what it did before.

    To be entered in the coroutine of an asyncio.Runner: what the second one meets is the Runner's
    handler, which cancels the main task. An exception raised here would leave that task alive.
    """
    before = signal.getsignal(signal.SIGINT)

    def first(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        ask()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is first:
            signal.signal(signal.SIGINT, before)


@contextmanager
def stop_on_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield whether a Ctrl-C, or a SIGTERM, came: to be asked between two steps of long work.

    The second one does not wait for the next step: it raises KeyboardInterrupt wherever it is.
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
