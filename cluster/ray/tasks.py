"""Work fanned out over Ray: one process a worker, on this machine or over a cluster.

Workers are actors rather than anonymous tasks: so it is known which process did what, and the same
work can be given to another one, which is what a check of determinism needs. Ray restarts and
retries nothing; a worker that dies is told, and a new one is started in its place.
"""

import time
from collections.abc import Callable
from typing import Any

from cluster.fan_out import Died, Finished, Items, Work, WorkerName, WorkersFailed, do_timed
from cluster.fan_out import name_of_this_process as own_name
from cluster.ray.actors import LOCAL, RayUnavailable, connect_ray, disconnect_ray
from cluster.realtime.machine_processes import die_with_parent

# isort: split

import ray
from ray.exceptions import RayError, RayTaskError

PATIENCE_S = 600.0
"""A worker that has not answered for so long is ended: it is as good as dead."""
START_S = 60.0
"""A worker that is not up after so long has no place on a busy cluster: not waited for."""
MAX_DEATHS_IN_A_ROW = 4
"""For each worker: so many deaths without any work done in between, and no worker can be had."""


def no_check() -> None:
    """Let every process be a worker."""


class _Worker:
    """What runs in a worker's process; it never outlives its raylet."""

    def __init__(self, work: Work, check: Callable[[], None]) -> None:
        die_with_parent()
        self._work = work
        self._check = check

    def name(self) -> str:
        """Say who it is; the first answer of a worker that is up. Raises: what `check` raises."""
        self._check()
        return own_name(ray.util.get_node_ip_address())

    def do(self, items: Items) -> tuple[bytes, float]:
        """Do some work."""
        return do_timed(self._work, items)


class _Hired:
    """One actor and the call that it was given last. Ray's handles are untyped: `Any` stays here.

    `name` is None until it is up; `call` is None while it is idle.
    """

    def __init__(self, actor: Any, call: Any, *, since: float) -> None:  # noqa: ANN401
        self.actor = actor
        self.call = call
        self.since = since
        self.name: WorkerName | None = None
        self.items: Items = ()


class RayWorkers:
    """Workers on the Ray at `address`; `size` None takes as many as it has processors.

    `work` is sent to each worker: it must be picklable, and made of our own packages, which every
    worker has. `check` raises in a process that cannot be a worker. A worker that waits for a place
    on a busy cluster is simply not idle yet.
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
        self._workers: list[_Hired] = []
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
            self._workers = [self._hire() for _ in range(self._wanted)]
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
        """How many workers there are to be."""
        return self._wanted or 1

    def idle(self) -> tuple[WorkerName, ...]:
        """Return those that wait for work."""
        return tuple(
            worker.name
            for worker in self._workers
            if worker.call is None and worker.name is not None
        )

    def coming(self) -> int:
        """Return how many are being started, for not too long."""
        return sum(
            worker.name is None and self._clock() - worker.since < START_S
            for worker in self._workers
        )

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give work to an idle worker."""
        hired = next(each for each in self._workers if each.name == worker)
        hired.items = items
        hired.since = self._clock()
        hired.call = hired.actor.do.remote(items)

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Return what happened, after `timeout_s` nothing. Raises: WorkersFailed."""
        calls = [worker.call for worker in self._workers if worker.call is not None]
        if not calls:
            return []
        done, _ = ray.wait(calls, num_returns=1, timeout=timeout_s)
        if done:  # and whatever else is there already
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        events: list[Finished | Died] = []
        for place, worker in enumerate(self._workers):
            if worker.call is None:
                continue
            if worker.call in done:
                event = self._answer(worker)
            elif worker.name is not None and self._clock() - worker.since > PATIENCE_S:
                event = self._died(worker, f"no answer for {PATIENCE_S:g} s")
            else:
                continue
            if isinstance(event, Died):
                self._workers[place] = self._replace(worker, event)
            if event is not None and event.items:
                events.append(event)
        return events

    def _answer(self, worker: _Hired) -> Finished | Died | None:
        """Take the answer to its last call; None: it is up."""
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

    def _died(self, worker: _Hired, why: str) -> Died:
        return Died(worker=worker.name or WorkerName("never up"), items=worker.items, why=why)

    def _replace(self, worker: _Hired, death: Died) -> _Hired:
        """Start another in the place of a dead worker. Raises: WorkersFailed if that is in vain."""
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > MAX_DEATHS_IN_A_ROW * self.size:
            raise WorkersFailed(
                f"{self._deaths_in_a_row} workers died one after another; the last: {death.why}"
            )
        ray.kill(worker.actor, no_restart=True)
        return self._hire()

    def _hire(self) -> _Hired:
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
        # A processor each on a cluster, where others may be at work; here they share what there is.
        options["num_cpus"] = 0 if self._address == LOCAL else 1
        actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **options)
        handle = actor.remote(self._work, self._check)
        return _Hired(handle, handle.name.remote(), since=self._clock())


def _first_line(error: RayError) -> str:
    """Return what an error says first; Ray's go on for pages."""
    if isinstance(error, RayTaskError):
        return repr(error.cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
