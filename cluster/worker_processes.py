"""Workers for `fan_out` as processes of this machine, without Ray.

A search divides its runs among workers. Each worker is a process that calls the same function, the
`Work`, with some items (seeds of runs), and sends back the bytes that the function returns. If a
worker dies, this is reported, and a new worker takes its place. The items of the dead worker are
not tried again here.

A worker is in a session of its own, so that a Ctrl-C on the terminal reaches only this process,
which may pass it on by `interrupt`.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from cluster.fan_out import (
    Died,
    Finished,
    Items,
    Work,
    WorkerName,
    do_timed,
    name_of_this_process,
)
from cluster.realtime.machine_processes import die_with_parent

_END_S = 10.0
"""Longest wait for the end of a process that was killed."""
_Answer = tuple[bytes, float]
"""The bytes that the work returned, and the processor time in seconds that it took."""


@dataclass(slots=True, kw_only=True)
class _Worker:
    """One process. `items` is what it works on; None while it is idle."""

    process: SpawnProcess
    connection: "Connection[Items, _Answer]"
    name: WorkerName
    items: Items | None = field(default=None)


class WorkerProcesses:
    """`size` processes that do `work`, a picklable function. If `work` raises, its process ends."""

    def __init__(self, work: Work, *, size: int) -> None:
        self.size = size
        self._work = work
        self._workers: list[_Worker] = []

    def __enter__(self) -> "WorkerProcesses":
        """Begin to start the processes; each may get its first items while it starts."""
        try:
            self._workers = [self._start_worker() for _ in range(self.size)]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes immediately, even busy ones."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join(_END_S)
            worker.connection.close()
        self._workers = []

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the idle workers."""
        return tuple(worker.name for worker in self._workers if worker.items is None)

    def coming(self) -> int:
        """Return the number of workers that cannot take items yet.

        It is 0, because a process gets items even while it starts.
        """
        return 0

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give items to an idle worker."""
        worker_process = next(each for each in self._workers if each.name == worker)
        worker_process.items = items
        try:
            worker_process.connection.send(items)
        except OSError:  # it died meanwhile; `wait` reports the death
            return

    def interrupt(self) -> None:
        """Send SIGINT to the busy workers. The work decides how it reacts."""
        for worker in self._workers:
            if (
                worker.items is not None
                and worker.process.pid is not None  # only for mypy: the process was started
                # The operating system may have given a dead worker's number to another process.
                and worker.process.is_alive()
            ):
                os.kill(worker.process.pid, signal.SIGINT)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Return the answers and deaths of busy workers; wait for the first, `timeout_s` at most.

        A worker that has answered is idle again; a dead one is replaced.
        """
        working = [worker for worker in self._workers if worker.items is not None]
        ready = wait(_handles(working), timeout_s)
        return [
            self._take_outcome(worker)
            for worker in working
            if worker.connection in ready or worker.process.sentinel in ready
        ]

    def _take_outcome(self, worker_process: _Worker) -> Finished | Died:
        """Return the outcome of a worker's items; a dead worker is replaced."""
        items = worker_process.items or ()  # only for mypy: a busy worker has items
        try:
            # The answer is read first, because a process may have answered and died afterwards.
            answer, busy_s = worker_process.connection.recv()
        except (EOFError, OSError):
            return self._replace(worker_process, items)
        worker_process.items = None
        return Finished(worker=worker_process.name, items=items, answer=answer, busy_s=busy_s)

    def _replace(self, worker_process: _Worker, items: Items) -> Died:
        """Start a worker instead of a dead one; return the death as an event."""
        # The connection may end before the process. The exit code is known after the process ends.
        worker_process.process.join(_END_S)
        worker_process.connection.close()
        self._workers[self._workers.index(worker_process)] = self._start_worker()
        return Died(
            worker=worker_process.name,
            items=items,
            why=_describe_end(worker_process.process.exitcode),
        )

    def _start_worker(self) -> _Worker:
        """Spawn a process that ignores Ctrl-C until it has work."""
        context = multiprocessing.get_context("spawn")
        own_end, worker_end = context.Pipe()
        process = context.Process(target=_serve, args=(worker_end, self._work), daemon=True)
        # The new process inherits that SIGINT is ignored. Otherwise a Ctrl-C during its imports,
        # before its `setsid`, would end it with a traceback on the terminal.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        # Now only the new process has this end open, so that `recv` fails when the process dies.
        worker_end.close()
        name = WorkerName(f"{name_of_this_process()}:{process.pid}")
        return _Worker(process=process, connection=own_end, name=name)


def _handles(worker_process: Iterable[_Worker]) -> list[Connection | int]:
    """Return the handles that become ready when a worker answers, and when it dies."""
    return [
        handle for each in worker_process for handle in (each.connection, each.process.sentinel)
    ]


def _describe_end(exitcode: int | None) -> str:
    if exitcode is None:
        return "it does not answer"
    if exitcode < 0:
        return f"it was ended by signal {-exitcode} ({signal.Signals(-exitcode).name})"
    return f"it ended with exit code {exitcode}"


def _serve(connection: "Connection[_Answer, Items]", work: Work) -> None:
    """Do work until the connection is closed.

    SIGINT interrupts the work; between two pieces of work it is ignored.
    """
    os.setsid()
    die_with_parent()
    while True:
        try:
            items = connection.recv()
        except EOFError:
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            answer = do_timed(work, items)
        except KeyboardInterrupt:  # the work did not handle it
            return
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        connection.send(answer)
