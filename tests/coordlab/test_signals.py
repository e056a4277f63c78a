"""SIGTERM, which service managers send, has the effect of Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from coordlab.signals import terminate_as_ctrl_c


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Restore the handlers of signals after each test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_sigterm_cancels_the_main_task_of_a_running_loop(handler: signal.Handlers) -> None:
    """The task must end by its cancellation, so that its clean-up heals the faults of a run.

    If the signal's handler raised an exception instead, the task would go on.

    `handler` is the handler of Ctrl-C that the process had at its start. A shell starts the
    background processes of a script with SIG_IGN. Such processes ignore Ctrl-C, but must still
    react to SIGTERM.
    """
    ended: list[str] = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    signal.signal(signal.SIGINT, handler)
    with terminate_as_ctrl_c(), asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        runner.run(main())

    assert ended == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_sigterm_outside_of_any_loop_is_a_keyboard_interrupt() -> None:
    """While Spark analyses a run, for example, no event loop runs."""
    with terminate_as_ctrl_c(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
