"""Handlers of Ctrl-C and of SIGTERM, which service managers and `timeout` send."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C within this context, so that the cluster is healed and stopped.

    The handler of SIGTERM raises SIGINT. The handler of SIGINT belongs to the runtime at that
    moment, and cancels the main task between two of its steps. An exception raised here instead
    would leave that task alive, and it would continue with the plan while the cluster is healed.

    A shell starts background processes of a script with SIGINT ignored, and a runtime then sets no
    handler. So this context restores Python's own handler first.
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
    """Call `ask` at the first Ctrl-C within this context; a second one gets the previous handler.

    Must be entered in a coroutine of an asyncio.Runner. The previous handler is then the Runner's,
    which cancels the main task. An exception raised here would leave that task alive.
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
    """Yield a function that returns True after a Ctrl-C or SIGTERM, for use between two steps.

    A second signal does not wait for the next step: it raises KeyboardInterrupt at once.
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
