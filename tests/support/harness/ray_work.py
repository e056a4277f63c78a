"""A work function for workers on Ray: it kills its worker at one item, and fails at another."""

import os
from collections.abc import Callable
from signal import SIGKILL

from cluster.fan_out import Died, Finished, Items, Workers

DEADLY, FAILING = 13, 14
"""Items at which a worker dies, and at which its work raises an error."""


def work(items: Items) -> bytes:
    """Answer with the pid of the worker; kill the worker or raise an error at some items."""
    if DEADLY in items:
        os.kill(os.getpid(), SIGKILL)
    if FAILING in items:
        raise ValueError(f"no {FAILING}")
    return str(os.getpid()).encode()


def events_of(
    workers: Workers, done: Callable[[list[Finished | Died]], bool]
) -> list[Finished | Died]:
    """Collect events (answers and deaths) until `done` is True for them; return them."""
    events: list[Finished | Died] = []
    while not done(events):
        events += workers.wait(1.0)
    return events


def wait_idle(workers: Workers, number: int) -> None:
    """Wait until `number` workers are idle."""
    while len(workers.idle()) < number:
        workers.wait(1.0)
