"""RealtimeRuntime: the common part of the runtimes in real time.

A RealtimeRuntime is in the *driver*, the process that conducts the run. It has the run's clock, and
a trace of the run's own events. At the end it merges the traces of all nodes. The subclasses in
`cluster.local` and `cluster.ray` have the nodes, processes and machines.

A RealtimeRuntime also records the *failures of the tool*. Such a failure is a bug of this project,
or the death of a process that no fault has killed. It is never a finding about Kafka.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cluster.realtime.clock import RunClock
from cluster.runtime import DRIVER, ClusterStatus, NodeTaskFailed, RowObserver, Runtime
from cluster.trace.files import FrameReader, FrameTraceWriter, frames_path, merge_rows
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """Report about the trace files at the end of a run.

    If a process was killed while it wrote, the last row of its file may be incomplete. `torn_bytes`
    has the names of these files, each with the length of the incomplete row. `lost` has the
    machines whose files could not be fetched, with the reasons.
    """

    rows: int
    files: int
    torn_bytes: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class RealtimeRuntime(Runtime):
    """A cluster in real time, for one run.

    `run_dir` is the folder that gets `trace/`, `logs/` and, during the run, `disks/`. `time_scale`
    says how many times faster than real time the run's clock passes. `observers` get the merged
    rows at the end.
    """

    def __init__(
        self,
        *,
        run_id: str,
        run_dir: Path,
        time_scale: float = 1.0,
        observers: Sequence[RowObserver] = (),
    ) -> None:
        self.trace_report: TraceReport | None = None
        """Set by stop()."""
        self._run_id = run_id
        # An absolute path, because other processes of the run have other working directories.
        self._run_dir = run_dir.resolve()
        self._observers = tuple(observers)
        self._clock = RunClock.starting_now(time_scale=time_scale)
        self._driver_rows = 0  # number of rows so far, which is the next row's `seq`
        self._driver_trace = FrameTraceWriter(frames_path(self._run_dir / "trace", DRIVER, 0))
        self._failures: list[str] = []
        """Texts of the tool's own failures, the oldest first."""
        self._lost: dict[str, str] = {}
        """Machines whose files could not be fetched, with the reasons."""
        self._is_stopped = False
        self._runner: asyncio.Runner | None = None
        """Has the event loop, from the first `run` until the cluster has stopped."""
        self._main: asyncio.Task[Any] | None = None
        """The task of `run`; None while there is none."""
        self._is_broken = False
        """True once a failure has cancelled `_main`."""
        self._is_ending = False
        """True once `stop` was called: later failures cancel nothing."""

    @property
    def losses(self) -> tuple[str, ...]:
        """Sentences on missing parts of the trace: torn frames, and lost machines."""
        report = self.trace_report
        if report is None:
            return ()
        torn = [f"{name}: the last {size} bytes" for name, size in report.torn_bytes.items()]
        return (*torn, *(f"{machine}: {why}" for machine, why in report.lost.items()))

    def now_us(self) -> int:
        """Return the microseconds since this object was made, by the run's clock."""
        return self._clock.now_us()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        The first failure of the tool, such as the death of a node's task, cancels `main`.
        NodeTaskFailed is raised after the cleanup of `main`.
        Raises: exceptions of `main`; NodeTaskFailed; KeyboardInterrupt after a Ctrl-C.
        """
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._supervise(main))
        finally:
            # After a failure, the caller calls `run` once more, to end all faults and stop the
            # cluster.
            if self._is_stopped:
                self._runner.close()
                self._runner = None

    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` of the run's clock."""
        await asyncio.sleep(self._clock.real_seconds(delay_us))

    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself, and flush it to the page cache."""
        if self._is_stopped:
            return  # `stop` has closed the trace
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
        """Return the texts of the tool's own failures so far, oldest first."""
        return tuple(self._failures)

    async def stop(self) -> None:
        """Stop every node, clients first, collect the traces, and give them to the observers.

        May be called twice, after errors, and again after a Ctrl-C that interrupted it. Nodes that
        cannot be stopped are listed in `failures`; traces that cannot be collected, in
        `trace_report`.
        """
        if self._is_stopped:
            return
        self._is_ending = True
        self._lost |= await self._end_nodes()
        self._is_stopped = True
        self._driver_trace.close()
        self._disconnect()
        self._hand_over()

    @abstractmethod
    async def _end_nodes(self) -> dict[str, str]:
        """End every node, clients first, and collect their files.

        May be called again after a Ctrl-C that interrupted it.
        Returns: the machines whose files are lost, with the reasons.
        """

    def _disconnect(self) -> None:
        """Close the driver's connection to the machines, after the driver's trace is closed.

        The runtime on Ray disconnects from Ray here. Other runtimes have nothing to close.
        """

    # -- failures and the end --------------------------------------------------------------------

    async def _supervise(self, main: Coroutine[Any, Any, T]) -> T:
        """Await `main`. Raises: NodeTaskFailed if a failure of the tool has cancelled it."""
        task = asyncio.ensure_future(main)
        self._main = task
        was_broken = self._is_broken
        try:
            return await task
        except asyncio.CancelledError:
            # `_failed` cancels `main` at most once in a run. If it did so before this call of
            # `run`, then this time Ctrl-C has cancelled `main`.
            if self._is_broken and not was_broken:
                raise NodeTaskFailed("; ".join(self._failures)) from None
            raise
        finally:
            self._main = None

    def _failed(self, failure: str) -> None:
        """Record a failure of the tool; the first failure cancels the task of `run`."""
        self._failures.append(failure)
        if not self._is_broken and not self._is_ending and self._main is not None:
            self._is_broken = True
            self._main.cancel()

    def _hand_over(self) -> None:
        """Give the merged rows to the observers, in order, and set `trace_report`.

        Some failures are only in a trace; they are added to `failures`.
        """
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
        """Record a node's failure, unless its process has reported it.

        If a process has died with the failure, only the trace has it. `row.cause` is the name of
        the task or callback that failed.
        """
        beginning = f"{row.node}: {row.cause} died with "
        if any(failure.startswith(beginning) for failure in self._failures):
            return  # the process reported it before it died
        stack_trace: str = json.loads(row.detail or "{}").get("exception", "")
        exception_line = stack_trace.strip().rpartition("\n")[2]  # "type: message" ends the trace
        self._failures.append(beginning + exception_line)


def merge_status(part: ClusterStatus, *, into: ClusterStatus) -> None:
    """Add to `into` the state that the nodes of one process know."""
    # Only the controller's process knows the controller; the parts of other processes have None.
    into.controller = part.controller or into.controller
    into.brokers_fenced.update(part.brokers_fenced)
    into.partitions.update(part.partitions)
    into.members.update(part.members)
    into.records_produced += part.records_produced
    into.zookeepers.update(part.zookeepers)
    into.refused_clients.update(part.refused_clients)
    for client, connections in part.kafka_clients.items():
        into.kafka_clients[client] = into.kafka_clients.get(client, 0) + connections
    for group_id, groups in part.groups.items():
        into.groups.setdefault(group_id, []).extend(groups)
