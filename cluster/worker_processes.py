"""Workers that are processes of this machine: the Workers of `fan_out` without Ray.

Each is started afresh (spawn), so that it shares nothing with this process but the work. It is in a
session of its own: a Ctrl-C on the terminal is for this process, which hands it on by `interrupt`.
Nothing is retried; a worker that dies is told, and a new one is started in its place.
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
"""A killed process that is not gone after so long is left to the system."""
_Answer = tuple[bytes, float]


@dataclass(slots=True, kw_only=True)
class _Hired:
    """One process. `items` is what it was given last, None while it is idle."""

    process: SpawnProcess
    connection: "Connection[Items, _Answer]"
    name: WorkerName
    items: Items | None = field(default=None)


class WorkerProcesses:
    """`size` processes that do `work`, which must be picklable.

    A work that raises ends its worker, as a crash does.
    """

    def __init__(self, work: Work, *, size: int) -> None:
        self.size = size
        self._work = work
        self._hired: list[_Hired] = []

    def __enter__(self) -> "WorkerProcesses":
        """Begin to start them; each takes its first work when it is up."""
        try:
            self._hired = [self._hire() for _ in range(self.size)]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End them all at once, whatever they are doing."""
        for each in self._hired:
            each.process.kill()
        for each in self._hired:
            each.process.join(_END_S)
            each.connection.close()
        self._hired = []

    def idle(self) -> tuple[WorkerName, ...]:
        """Return those that wait for work."""
        return tuple(each.name for each in self._hired if each.items is None)

    def coming(self) -> int:
        """Return none: work is given to a process while it starts."""
        return 0

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give work to an idle worker."""
        hired = next(each for each in self._hired if each.name == worker)
        hired.items = items
        try:
            hired.connection.send(items)
        except OSError:  # it died meanwhile: `wait` tells of it
            return

    def interrupt(self) -> None:
        """Hand a Ctrl-C on to those that work: what they do then is the work's own affair."""
        for each in self._hired:
            if each.items is not None and each.process.pid is not None and each.process.is_alive():
                os.kill(each.process.pid, signal.SIGINT)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Return what happened, after `timeout_s` nothing."""
        working = [each for each in self._hired if each.items is not None]
        ready = wait(_handles(working), timeout_s)
        return [
            self._outcome(each)
            for each in working
            if each.connection in ready or each.process.sentinel in ready
        ]

    def _outcome(self, hired: _Hired) -> Finished | Died:
        items = hired.items or ()
        try:
            # A process may have answered before it died.
            answer, busy_s = hired.connection.recv()
        except (EOFError, OSError):
            return self._replace(hired, items)
        hired.items = None
        return Finished(worker=hired.name, items=items, answer=answer, busy_s=busy_s)

    def _replace(self, hired: _Hired, items: Items) -> Died:
        hired.process.join(_END_S)
        hired.connection.close()
        self._hired[self._hired.index(hired)] = self._hire()
        return Died(worker=hired.name, items=items, why=_ending(hired.process.exitcode))

    def _hire(self) -> _Hired:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, self._work), daemon=True)
        # Ignored signals stay ignored in a new program: a Ctrl-C while it imports its modules
        # would otherwise end it with a traceback on this process's terminal.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        there.close()
        name = WorkerName(f"{name_of_this_process()}:{process.pid}")
        return _Hired(process=process, connection=here, name=name)


def _handles(hired: Iterable[_Hired]) -> list[Connection | int]:
    return [handle for each in hired for handle in (each.connection, each.process.sentinel)]


def _ending(exitcode: int | None) -> str:
    if exitcode is None:
        return "it does not answer"
    if exitcode < 0:
        return f"it was ended by signal {-exitcode} ({signal.Signals(-exitcode).name})"
    return f"it ended with exit code {exitcode}"


def _serve(connection: "Connection[_Answer, Items]", work: Work) -> None:
    """Do what comes, until the other side is gone. A Ctrl-C reaches the work and nothing else."""
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
        except KeyboardInterrupt:  # the work did not answer it
            return
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        connection.send(answer)
