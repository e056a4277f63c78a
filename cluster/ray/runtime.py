"""RayRuntime: the cluster as real processes, in real time, that can really be killed.

Owns the run: its clock, its own trace, the tool's failures, and the merging of all traces at the
end. The acts on nodes are `RayLives`', processes and machines the `Fleet`'s. What a fault, a plan
or a verdict is, it does not know.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from cluster.host.host import Host
from cluster.links.reset import LinkReset
from cluster.links.rules import LinkRule
from cluster.lives import ADMIN_NODE, NodeBuilder
from cluster.node_factory import build_node
from cluster.ray import actors
from cluster.ray.fleet import Fleet
from cluster.ray.layout import plan_processes
from cluster.ray.lives import RayLives
from cluster.realtime.clock import RunClock
from cluster.runtime import (
    DRIVER,
    ClusterStartError,
    ClusterStatus,
    NodeTaskFailed,
    RowObserver,
    Runtime,
)
from cluster.spec import ClusterSpec
from cluster.trace.files import FrameReader, FrameTraceWriter, frames_path, merge_rows
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """What became of the trace files.

    Shape: `torn_bytes` has an entry for each file that a kill cut short; `lost` names the machines
    whose files could not be fetched, with the reason.
    """

    rows: int
    files: int
    torn_bytes: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class RayRuntime(RayLives, Runtime):
    """A cluster on Ray. One object is one run.

    `run_dir` gets `trace/`, `logs/` and, while the run lasts, `disks/`. `ray_address` "local" is a
    Ray of the run's own; anything else is joined. `time_scale` makes run time pass faster than
    real time. Rows go to the observers at the end, merged.
    """

    name = "ray"

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        seed: int,
        run_id: str,
        run_dir: Path,
        ray_address: str = actors.LOCAL,
        time_scale: float = 1.0,
        observers: Sequence[RowObserver] = (),
        trace_messages: bool = True,
        build: NodeBuilder = build_node,
    ) -> None:
        self.trace_report: TraceReport | None = None
        """Set by stop()."""
        self._run_id = run_id
        self._run_dir = run_dir.resolve()
        self._observers = tuple(observers)
        self._clock = RunClock.starting_now(time_scale=time_scale)
        self._driver_rows = 0
        self._driver_trace = FrameTraceWriter(frames_path(self._run_dir / "trace", DRIVER, 0))
        plans = plan_processes(spec)
        fleet = Fleet(
            run_id=run_id,
            seed=seed,
            run_dir=self._run_dir,
            clock=self._clock,
            ray_address=ray_address,
            trace_messages=trace_messages,
            on_failure=self._failed,
        )
        super().__init__(spec, plans, fleet, build=build, trace=self.trace, on_failure=self._failed)
        self._failures: list[str] = []
        self._lost: dict[str, str] = {}
        self._is_stopped = False
        self._runner: asyncio.Runner | None = None
        self._main: asyncio.Task[Any] | None = None
        self._is_broken = False
        self._is_ending = False

    # -- the run ---------------------------------------------------------------------------------

    @property
    def clock_bounds_us(self) -> dict[str, int]:
        """Clock error of each machine against the driver, in microseconds of run time."""
        return {
            state.machine.address: round(state.clock.bound_ns * self._clock.time_scale / 1000)
            for state in self._fleet.machines.values()
        }

    @property
    def clock_error_us(self) -> int:
        """Return how far apart the clocks of two nodes may be at most."""
        bounds = sorted(self.clock_bounds_us.values(), reverse=True)
        return sum(bounds[:2]) if len(bounds) > 1 else 0

    @property
    def losses(self) -> tuple[str, ...]:
        """Return what of the trace is missing: torn frames, and machines that were lost."""
        report = self.trace_report
        if report is None:
            return ()
        torn = [f"{name}: the last {size} bytes" for name, size in report.torn_bytes.items()]
        return (*torn, *(f"{machine}: {why}" for machine, why in report.lost.items()))

    @property
    def disk_trouble(self) -> str | None:
        """Return the first write that a disk refused to a node, in words; None if there is none."""
        return self._fleet.disk_trouble

    def pids(self) -> tuple[int, ...]:
        """Return the pids of the node processes that are up, each on its own machine."""
        return tuple(p.listening.process.pid for p in self._fleet.processes if p.is_up)

    def now_us(self) -> int:
        """Return the run's clock: microseconds since this object was made."""
        return self._clock.now_us()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        When a node's task dies, or a process without having been killed, `main` is cancelled and
        its cleanup runs before this raises; that happens once in a run.
        Raises: what `main` raises; NodeTaskFailed; KeyboardInterrupt after a Ctrl-C.
        """
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._supervise(main))
        finally:
            if self._is_stopped:
                self._runner.close()
                self._runner = None

    async def sleep(self, delay_us: int) -> None:
        """Wait on the run's clock."""
        await asyncio.sleep(self._clock.real_seconds(delay_us))

    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself, to the page cache at once."""
        if self._is_stopped:
            return
        now_us = self._clock.now_us()
        self._driver_trace.write(
            stamp(
                event,
                run=self._run_id,
                time_us=now_us,
                node_time_us=now_us,
                seq=self._driver_rows,
                node=DRIVER,
                incarnation=0,
            )
        )
        self._driver_rows += 1
        self._driver_trace.flush()

    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far."""
        return tuple(self._failures)

    # -- lives -----------------------------------------------------------------------------------

    async def start(self, *, apart: bool = False) -> None:
        """Start Ray or join it, then every process, then every node in order.

        Raises: ClusterStartError; whatever was started is stopped.
        """
        try:
            await self._fleet.connect(self._plans)
            await self.start_all()
        except Exception as error:
            await self.stop()
            if isinstance(error, ClusterStartError):
                raise
            raise ClusterStartError(f"the cluster could not be started: {error!r}") from error

    async def status(self) -> ClusterStatus:
        """Look at the cluster; a process that does not answer within 2 s is missing."""
        status = self._status()
        for part in await self._fleet.control.status():
            _merge(part, into=status)
        return status

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules; returns when every live process that is not stopped has them."""
        await self._fleet.control.set_rules(tuple(rules))

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections between the two sets of nodes; return how many there were."""
        reset = LinkReset(
            sources=tuple(sources), destinations=tuple(destinations), purposes=tuple(purposes)
        )
        return await self._fleet.control.reset_links(reset)

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Ask or order something as the client admin-0, in its process; see Runtime."""
        handle = self._admin_process().handle
        return await handle.ask_as_admin(ADMIN_NODE, question, self._cluster, *args, **kwargs)

    async def stop(self) -> None:
        """Stop every node, clients first, collect the traces and hand them to the observers.

        May be called twice, after errors, and again after a Ctrl-C that cut it short. What cannot
        be stopped or collected is in `failures` and `trace_report`.
        """
        if self._is_stopped:
            return
        self._is_ending = True
        self._cancel_shutdowns()
        await self._fleet.stop_processes()
        self._forget_all()
        self._lost |= await self._fleet.collect()
        self._is_stopped = True
        self._driver_trace.close()
        self._fleet.disconnect()
        self._hand_over()

    # -- failures and the end --------------------------------------------------------------------

    async def _supervise(self, main: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(main)
        self._main = task
        was_broken = self._is_broken
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_broken and not was_broken:
                raise NodeTaskFailed("; ".join(self._failures)) from None
            raise
        finally:
            self._main = None

    def _failed(self, failure: str) -> None:
        """Take a failure of the tool: the first one ends the experiment, but no cleanup."""
        self._failures.append(failure)
        if not self._is_broken and not self._is_ending and self._main is not None:
            self._is_broken = True
            self._main.cancel()

    def _hand_over(self) -> None:
        """Give the merged rows to the observers, in order, once."""
        paths = sorted((self._run_dir / "trace").glob("*.frames"))
        readers = [FrameReader(path) for path in paths]
        rows = 0
        for row in merge_rows(readers):
            rows += 1
            if row.kind == TraceKind.TASK_FAILED:
                self._take_traced_failure(row)
            for observer in self._observers:
                observer(row)
        self.trace_report = TraceReport(
            rows=rows,
            files=len(readers),
            torn_bytes={r.path.name: r.torn_bytes for r in readers if r.torn_bytes},
            lost=self._lost,
        )

    def _take_traced_failure(self, row: TraceRow) -> None:
        """Take a node's failure that only its trace tells: its process ended a moment later."""
        what = f"{row.node}: {row.cause} died with "
        if any(failure.startswith(what) for failure in self._failures):
            return
        story: str = json.loads(row.detail or "{}").get("exception", "")
        self._failures.append(what + story.strip().rpartition("\n")[2])


def _merge(part: ClusterStatus, *, into: ClusterStatus) -> None:
    into.controller = part.controller or into.controller
    into.brokers_fenced.update(part.brokers_fenced)
    into.partitions.update(part.partitions)
    into.members.update(part.members)
    into.records_produced += part.records_produced
    into.zookeepers.update(part.zookeepers)
    for group_id, found in part.groups.items():
        into.groups.setdefault(group_id, []).extend(found)
