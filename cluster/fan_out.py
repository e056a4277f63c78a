"""Distribution of work to workers: the interface, and a worker in this process.

A search does many runs, each of which is determined by its seed. It divides the seeds, its *items*,
among workers. Every worker calls the same function, the *work*, with some items, and sends back the
bytes that the function returns.

The caller decides which worker gets an item. So the caller can check an answer: it gives the same
item to another worker, and both answers must be equal. If a worker dies, `wait` returns a Died
event, and the caller gives the items to another worker.

A worker may be this process (here), another process of this machine (`cluster.worker_processes`),
or a process of Ray (`cluster.ray.tasks`).
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType, Protocol

WorkerName = NewType("WorkerName", str)
"""The machine and process id of a worker, such as "10.0.0.3:4711"."""
Item = int | tuple[int, ...]
"""The seed of a run, or a lineage.

A lineage is a tuple of seeds. The first seed produces a plan of faults (which faults a run gets,
and when). Each further seed changes the plan that came before it. The last seed is the item's own.
"""
Items = tuple[Item, ...]
Work = Callable[[Items], bytes]
"""A function that does some items, and returns their results as bytes."""


def number_of(item: Item) -> int:
    """Return an item's own seed."""
    return item if isinstance(item, int) else item[-1]


class WorkersFailed(Exception):
    """No further worker can be started; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A worker has done `items`. These may be only some of the items that the worker was given.

    `answer` is what the work returned, `busy_s` the processor time in seconds that it took.
    """

    worker: WorkerName
    items: Items
    answer: bytes
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A worker ended, or was killed because it did not answer. A new worker takes its place."""

    worker: WorkerName
    items: Items
    why: str


class Workers(Protocol):
    """Several workers. A context manager, which ends all of them at its exit."""

    def __enter__(self) -> "Workers":
        """Begin to start the workers."""

    def __exit__(self, *error: object) -> None:
        """End all workers immediately, even busy ones."""

    @property
    def size(self) -> int:
        """Number of workers once all have started."""

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the idle workers, in a stable order."""

    def coming(self) -> int:
        """Return the number of workers that are starting.

        A caller waits for these workers if it needs a second worker, to check the answer of the
        first worker.
        """

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give items to an idle worker. `items` is not empty."""

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Wait for an event, at most for `timeout_s`; return all events since the last call.

        Raises: WorkersFailed.
        """


def name_of_this_process(machine: str | None = None) -> WorkerName:
    """Return this process's name as a worker."""
    return WorkerName(f"{machine or socket.gethostname()}:{os.getpid()}")


def do_timed(work: Work, items: Items) -> tuple[bytes, float]:
    """Do some work; return its answer and the processor time in seconds."""
    began = time.process_time()
    answer = work(items)
    return answer, time.process_time() - began


class ThisProcess:
    """The only worker is this process. Each call of `wait` does one item."""

    size = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._name = name_of_this_process()
        self._given: deque[Item] = deque()

    def __enter__(self) -> "ThisProcess":
        """Return the worker."""
        return self

    def __exit__(self, *error: object) -> None:
        """Drop the items that are not done."""
        self._given.clear()

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the worker if it has no items."""
        return () if self._given else (self._name,)

    def coming(self) -> int:
        """Return 0, because this process has started."""
        return 0

    def give(self, worker: WorkerName, items: Items) -> None:
        """Queue items."""
        self._given.extend(items)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Do one item, even if this takes longer than `timeout_s`.

        Raises: the exception of the work.
        """
        if not self._given:
            return []
        items = (self._given.popleft(),)
        answer, busy_s = do_timed(self._work, items)
        return [Finished(worker=self._name, items=items, answer=answer, busy_s=busy_s)]
