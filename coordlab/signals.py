"""Three context managers that decide what a command does at a Ctrl-C (SIGINT) or a SIGTERM.

A Ctrl-C comes from the user. A SIGTERM comes from service managers, or from the program `timeout`.
Both signals should end a command in order: a run heals its faults, and stops its cluster.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_as_ctrl_c() -> Iterator[None]:
    """Treat a SIGTERM like a Ctrl-C within this context.

    The handler of SIGTERM raises no exception, but sends a SIGINT to this process. While a cluster
    runs, its runtime handles the SIGINT: it cancels the main task between two steps of this task.
    An exception would leave the main task alive. Then this task would go on to inject faults while
    the cluster is being healed.

    The background processes of a shell script start with SIGINT ignored, and the runtime would not
    change this. That is why an ignored SIGINT first gets Python's own handler here.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        # Despite its name, `raise_signal` raises no exception. It sends the signal.
        signal.raise_signal(signal.SIGINT)

    old_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, interrupt)
    if old_handlers[signal.SIGINT] is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


@contextmanager
def ask_on_first_ctrl_c(ask: Callable[[], object]) -> Iterator[None]:
    """Call `ask` at the first Ctrl-C within this context. A second Ctrl-C calls the old handler.

    This context is meant for a coroutine of an asyncio.Runner. There the old handler belongs to the
    Runner, and cancels the main task. `ask` must raise nothing, because an exception would leave
    the main task alive.
    """
    old_handler = signal.getsignal(signal.SIGINT)

    def on_first_ctrl_c(_signal: int, _frame: FrameType | None) -> None:
        # A Ctrl-C that comes while `ask` runs already counts as the second Ctrl-C.
        signal.signal(signal.SIGINT, old_handler)
        ask()

    signal.signal(signal.SIGINT, on_first_ctrl_c)
    try:
        yield
    finally:
        # After a first Ctrl-C, the old handler has already been restored.
        if signal.getsignal(signal.SIGINT) is on_first_ctrl_c:
            signal.signal(signal.SIGINT, old_handler)


@contextmanager
def stop_on_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a Ctrl-C or a SIGTERM has come.

    A command calls this function after each of its steps, such as a run. If the function returns
    True, the command ends. A second signal does not wait for the end of a step: it raises
    KeyboardInterrupt at once.
    """
    was_signalled = False

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        nonlocal was_signalled
        if was_signalled:
            raise KeyboardInterrupt
        was_signalled = True

    old_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in old_handlers:
        signal.signal(number, on_signal)
    try:
        yield lambda: was_signalled
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
