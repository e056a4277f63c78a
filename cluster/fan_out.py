"""Work that is shared out to workers: what a caller sees, and the worker of this very process.

Work is a list of items, each a number (a seed) or several; its answer is bytes. Who gives it out
knows which worker did it, so that the same can be asked of another. Nothing is retried here. Ray's
workers are in `cluster.ray.tasks`, processes of this machine in `cluster.worker_processes`.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType, Protocol

WorkerName = NewType("WorkerName", str)
"""A worker by its machine and process, e.g. `10.0.0.3:4711`: two lives of a worker are two."""
Item = int | tuple[int, ...]
"""A number, or a number behind those that it comes from: a seed's lineage."""
Items = tuple[Item, ...]
Work = Callable[[Items], bytes]


def number_of(item: Item) -> int:
    """Return an item's own number."""
    return item if isinstance(item, int) else item[-1]


class WorkersFailed(Exception):
    """No worker can be had any more; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A worker did some of what it was given. Units: `busy_s` are seconds of a processor."""

    worker: WorkerName
    items: Items
    answer: bytes
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A worker ended without an answer, or was ended because none came. Another takes its place."""

    worker: WorkerName
    items: Items
    why: str


class Workers(Protocol):
    """Several workers. A context manager: at its end none of them is left."""

    def __enter__(self) -> "Workers":
        """Begin to start them."""

    def __exit__(self, *error: object) -> None:
        """End them all at once, whatever they are doing."""

    @property
    def size(self) -> int:
        """How many there are once all are up."""

    def idle(self) -> tuple[WorkerName, ...]:
        """Return those that wait for work, in an order that stays."""

    def coming(self) -> int:
        """Return how many are being started and may be waited for, if only they can do the work."""

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give work to an idle worker. Shape: `items` is not empty."""

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Return what happened, after `timeout_s` nothing. Raises: WorkersFailed."""


def name_of_this_process(machine: str | None = None) -> WorkerName:
    """Return the name of this process as a worker."""
    return WorkerName(f"{machine or socket.gethostname()}:{os.getpid()}")


def do_timed(work: Work, items: Items) -> tuple[bytes, float]:
    """Do some work; return its answer and the processor's seconds that it took."""
    began = time.process_time()
    answer = work(items)
    return answer, time.process_time() - began


class ThisProcess:
    """The one worker that is this process; it works while it is waited for, an item at a time."""

    size = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._name = name_of_this_process()
        self._given: deque[Item] = deque()

    def __enter__(self) -> "ThisProcess":
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """Forget what was not done."""
        self._given.clear()

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the worker if it has nothing to do."""
        return () if self._given else (self._name,)

    def coming(self) -> int:
        """Return none."""
        return 0

    def give(self, worker: WorkerName, items: Items) -> None:
        """Take work."""
        self._given.extend(items)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Do one item. Raises: what the work raises."""
        if not self._given:
            return []
        items = (self._given.popleft(),)
        answer, busy_s = do_timed(self._work, items)
        return [Finished(worker=self._name, items=items, answer=answer, busy_s=busy_s)]
