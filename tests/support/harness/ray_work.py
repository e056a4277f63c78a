"""Work for tests of the workers on Ray: one item kills its worker, and another item fails."""

import os
from collections.abc import Callable
from signal import SIGKILL

from cluster.fan_out import Died, Finished, Items, Workers

DEADLY, FAILING = 13, 14
"""The item that kills its worker, and the item that raises an error."""


def work(items: Items) -> bytes:
    """Return the pid of the worker, unless one of the items is DEADLY or FAILING."""
    if DEADLY in items:
        os.kill(os.getpid(), SIGKILL)
    if FAILING in items:
        raise ValueError(f"no {FAILING}")
    return str(os.getpid()).encode()


def events_of(
    workers: Workers, done: Callable[[list[Finished | Died]], bool]
) -> list[Finished | Died]:
    """Collect events (answers and deaths of workers) until `done(events)` is True; return them."""
    events: list[Finished | Died] = []
    while not done(events):
        events += workers.wait(1.0)
    return events


def wait_idle(workers: Workers, number: int) -> None:
    """Wait until `number` workers are idle."""
    while len(workers.idle()) < number:
        workers.wait(1.0)
