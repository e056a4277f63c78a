"""RayWorkers: distributes work to worker processes on Ray, on this machine or on a cluster.

`cluster.fan_out` describes what workers do. Here each worker is a Ray actor, an object in a process
of its own. (With Ray's tasks the caller would not know which process has done the work, and could
not let another process repeat the work.) If a worker dies, this is reported, and a new worker is
started. Ray itself repeats nothing.
"""

import time
from collections.abc import Callable
from typing import Any

from cluster.fan_out import Died, Finished, Items, Work, WorkerName, WorkersFailed, do_timed
from cluster.fan_out import name_of_this_process as own_name
from cluster.ray.actors import LOCAL, RayUnavailable, connect_ray, disconnect_ray
from cluster.realtime.machine_processes import die_with_parent

# `ray` is imported after `actors`, which first sets the environment variables that Ray reads.
# isort: split

import ray
from ray.exceptions import RayError, RayTaskError

PATIENCE_S = 600.0
"""Seconds after which a worker that has not answered its last call is killed."""
START_S = 60.0
"""Seconds after which `coming` no longer counts a starting worker.

Such a worker probably waits for a free processor of the cluster.
"""
MAX_DEATHS_IN_A_ROW = 4
"""RayWorkers gives up after too many deaths of workers without finished work in between.

The limit is this number multiplied by the number of workers.
"""


def no_check() -> None:
    """Accept every process as a worker."""


class _Worker:
    """The actor in a worker's process.

    The process ends with its raylet, which is Ray's own process on the machine.
    """

    def __init__(self, work: Work, check: Callable[[], None]) -> None:
        die_with_parent()
        self._work = work
        self._check = check

    def name(self) -> str:
        """Return the worker's name, as the answer to the first call, when the worker is up.

        Raises: exceptions of `check`.
        """
        self._check()
        return own_name(ray.util.get_node_ip_address())

    def do(self, items: Items) -> tuple[bytes, float]:
        """Do the work for `items`; return the result and the time that it took."""
        return do_timed(self._work, items)


class _StartedWorker:
    """One actor and its last call. Ray's handles are untyped, so `actor` and `call` are `Any`.

    `name` is None until the worker is up. `call` is None while the worker is idle. `since` is the
    time of the last call.
    """

    def __init__(self, actor: Any, call: Any, *, since: float) -> None:  # noqa: ANN401
        self.actor = actor
        self.call = call
        self.since = since
        self.name: WorkerName | None = None
        self.items: Items = ()


class RayWorkers:
    """Workers on the Ray at `address`.

    `size` is the number of workers; None means one for each processor of the cluster. `work` is
    sent to each worker, so it must be picklable, and can use only packages that every worker has.
    `check` is called in each new worker, and raises an exception if the process is unsuitable.
    """

    def __init__(
        self,
        address: str,
        work: Work,
        *,
        size: int | None = None,
        check: Callable[[], None] = no_check,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._work = work
        self._check = check
        self._wanted = size
        self._clock = clock
        self._connected_here = False
        """True if this object has connected the process to Ray, and must disconnect it."""
        self._workers: list[_StartedWorker] = []
        """All workers, also those that are still starting."""
        self._deaths_in_a_row = 0

    def __enter__(self) -> "RayWorkers":
        """Start or join Ray, and begin to start the workers. Raises: WorkersFailed."""
        try:
            self._connected_here = connect_ray(self._address)
        except RayUnavailable as error:
            raise WorkersFailed(str(error)) from error
        try:
            if self._wanted is None:
                self._wanted = max(1, int(ray.cluster_resources().get("CPU", 1)))
            self._workers = [self._start_worker() for _ in range(self._wanted)]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End every worker, and the Ray that was started for them."""
        for worker in self._workers:
            ray.kill(worker.actor, no_restart=True)
        self._workers = []
        if self._connected_here:
            disconnect_ray()
            self._connected_here = False

    @property
    def size(self) -> int:
        """Intended number of workers."""
        return self._wanted or 1  # the number of processors is known only after `__enter__`

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the names of the workers that are up and have no work."""
        return tuple(
            worker.name
            for worker in self._workers
            if worker.call is None and worker.name is not None
        )

    def coming(self) -> int:
        """Return the number of workers that are starting, and began less than START_S ago."""
        return sum(
            worker.name is None and self._clock() - worker.since < START_S
            for worker in self._workers
        )

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give work to an idle worker."""
        started = next(each for each in self._workers if each.name == worker)
        started.items = items
        started.since = self._clock()
        started.call = started.actor.do.remote(items)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Return the events since the last call: finished work, and deaths of workers.

        If there is no event, wait for the first, for `timeout_s` at most.

        Raises: WorkersFailed.
        """
        calls = [worker.call for worker in self._workers if worker.call is not None]
        if not calls:
            return []
        done, _ = ray.wait(calls, num_returns=1, timeout=timeout_s)
        if done:  # `ray.wait` returned one call; collect the other finished calls, too
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        events: list[Finished | Died] = []
        for index, worker in enumerate(self._workers):
            if worker.call is None:
                continue
            # A worker without a name may still wait for a free processor, which may take any time.
            if worker.call in done:
                event = self._answer(worker)
            elif worker.name is not None and self._clock() - worker.since > PATIENCE_S:
                event = self._died(worker, f"no answer for {PATIENCE_S:g} s")
            else:
                continue
            if isinstance(event, Died):
                self._workers[index] = self._replace(worker, event)
            # If the worker died before its first work, no items were lost, and nothing is reported.
            if event is not None and event.items:
                events.append(event)
        return events

    def _answer(self, worker: _StartedWorker) -> Finished | Died | None:
        """Process the answer to a worker's last call.

        The first answer is the worker's name, and shows that the worker is up. It is no event, so
        None is returned.
        """
        try:
            answer = ray.get(worker.call)
        except RayError as error:
            return self._died(worker, _first_line(error))
        worker.call = None
        if worker.name is None:
            worker.name = WorkerName(answer)
            return None
        self._deaths_in_a_row = 0
        content, busy_s = answer
        return Finished(worker=worker.name, items=worker.items, answer=content, busy_s=busy_s)

    def _died(self, worker: _StartedWorker, why: str) -> Died:
        """Return the event of a worker's death; a worker that was never up has no name."""
        return Died(worker=worker.name or WorkerName("never up"), items=worker.items, why=why)

    def _replace(self, worker: _StartedWorker, death: Died) -> _StartedWorker:
        """Start a worker instead of a dead one.

        Raises: WorkersFailed after too many deaths in a row.
        """
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > MAX_DEATHS_IN_A_ROW * self.size:
            raise WorkersFailed(
                f"{self._deaths_in_a_row} workers died one after another; the last: {death.why}"
            )
        ray.kill(worker.actor, no_restart=True)
        return self._start_worker()

    def _start_worker(self) -> _StartedWorker:
        """Start an actor, and ask for its name as its first work."""
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
        # On a cluster, other programs may run, so each worker reserves a processor. A local Ray
        # runs only what this program starts, so nothing is reserved there.
        options["num_cpus"] = 0 if self._address == LOCAL else 1
        actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **options)
        handle = actor.remote(self._work, self._check)
        return _StartedWorker(handle, handle.name.remote(), since=self._clock())


def _first_line(error: RayError) -> str:
    """Return an error as one line.

    An exception of the work itself is shown as Python shows it. Ray's own errors have many lines,
    of which only the first is kept.
    """
    if isinstance(error, RayTaskError):
        return repr(error.cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Without a message, `rstrip` removes the colon after the name.
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
