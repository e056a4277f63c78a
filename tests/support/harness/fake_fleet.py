"""RayLives on a fleet of fake processes: no Ray, no signals; calls fail as a test demands.

RayLives, the code under test, starts, stops, kills and pauses nodes. A fleet has the processes in
which nodes run. The driver (the process that conducts a run) calls a process through its handle. An
agent on the process's machine kills the process or sends it signals.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from cluster.ray.actors import AgentHandle, Machine, ProcessHandle
from cluster.ray.control_plane import FleetProcess
from cluster.ray.fleet import Fleet
from cluster.ray.layout import ProcessPlan, plan_processes
from cluster.ray.lives import RayLives
from cluster.realtime.clock import RunClock
from cluster.realtime.machine_processes import ProcessRef
from cluster.realtime.services import ControlState, HostedNodeBuilder, ListeningProcess
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import NodeState
from cluster.spec import ClusterSpec
from cluster.wire.listener import ListenerBinding
from protocol.ids import Incarnation, NodeName, broker_name
from protocol.trace import TraceEvent
from tests.support.harness.fake_cluster import fake_builder, fake_spec

NODE = broker_name(0)
"""The node of most tests: the cluster's only broker."""
LATE = NodeName("consumer-1")
"""A consumer that does not start with the cluster."""


def spec_with_a_late_consumer() -> ClusterSpec:
    """Return a cluster of one broker and two consumers, of which LATE starts later."""
    spec = fake_spec(brokers=1, consumers=2)
    first, second = spec.consumers
    late = msgspec.structs.replace(second, starts_later=True)
    return msgspec.structs.replace(spec, consumers=(first, late))


class FakeProcessHandle(ProcessHandle):
    """Answers each call immediately, except those that `trouble` names."""

    def __init__(self, trouble: dict[str, BaseException | None]) -> None:
        self.trouble = trouble
        """The error that a call raises, by the name of the call. If it is None, the call hangs."""
        self.calls: list[str] = []
        self.is_ended = False

    def end(self) -> None:
        """Mark the process as ended."""
        self.is_ended = True

    async def control(self, state: ControlState, timeout_s: float) -> None:
        await self._call("control")

    async def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: HostedNodeBuilder,
        *,
        role: str,
        has_disk: bool,
        binding: ListenerBinding | None,
        timeout_s: float,
    ) -> None:
        await self._call("start_node")

    async def pause_node(self, name: NodeName, order: int, timeout_s: float) -> None:
        await self._call("pause_node")

    async def resume_node(self, *_args: object) -> None:
        await self._call("resume_node")

    async def shut_down_node(self, name: NodeName) -> bool:
        await self._call("shut_down_node")
        return True

    async def stop(self, timeout_s: float) -> None:
        await self._call("stop")

    async def _call(self, name: str) -> None:
        """Keep the call, and let it fail or hang as `trouble` demands."""
        self.calls.append(name)
        if name in self.trouble:
            error = self.trouble[name]
            if error is None:
                await asyncio.Event().wait()
            else:
                raise error


class FakeAgent(AgentHandle):
    """Kills a process that is up; killing an ended process fails, as on a real machine."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        # A real call lets the event loop go on before it ends. So does this one.
        await asyncio.sleep(0)
        if not any(
            started.listening.process == process and started.is_up
            for started in self._fleet.processes
        ):
            raise ProcessLookupError("gone")

    async def stop(self, process: ProcessRef, timeout_s: float) -> None:
        await asyncio.sleep(0)

    async def send_signal(self, process: ProcessRef, signal_number: signal.Signals) -> None:
        """Do nothing: a fake process has no signals."""
        await asyncio.sleep(0)


class FakeFleet(Fleet):
    """Fake processes. All their handles share `trouble`, which a test may change at any time."""

    def __init__(self, run_dir: Path, on_failure: Callable[[str], None]) -> None:
        super().__init__(
            run_id="run",
            seed=1,
            run_dir=run_dir,
            clock=RunClock.starting_now(),
            ray_address="local",
            trace_messages=True,
            on_failure=on_failure,
        )
        self.trouble: dict[str, BaseException | None] = {}
        self.handles: list[FakeProcessHandle] = []

    async def start_process(self, plan: ProcessPlan) -> FleetProcess:
        """Add a process to the list; its pid and its port are its number (from 1)."""
        handle = FakeProcessHandle(self.trouble)
        self.handles.append(handle)
        number = len(self.handles)
        process = FleetProcess(
            process_id=f"{plan.name}#{number}",
            plan=plan,
            machine=Machine(ray_node_id="m", address="127.0.0.1"),
            agent=FakeAgent(self),
            handle=handle,
            listening=ListeningProcess(
                process=ProcessRef(pid=number, start_ticks=number),
                address=ProcessAddress(process_id=plan.name, host="127.0.0.1", port=number),
            ),
        )
        self.processes.append(process)
        return process

    async def cut_disk(self, process_name: str, node: NodeName) -> None:
        """Do nothing: no process has a disk."""
        await asyncio.sleep(0)

    async def end(self, process: FleetProcess) -> None:
        """End a process as the real fleet does, but without a signal."""
        await self._stop_nodes(process)
        self.give_up(process)


class LivesLab:
    """A started RayLives of a cluster with one broker and one consumer, with rows and failures."""

    def __init__(self, run_dir: Path, cluster: ClusterSpec | None = None) -> None:
        self.failures: list[str] = []
        self.rows: list[TraceEvent] = []
        cluster = cluster or fake_spec(brokers=1, consumers=1)
        self.fleet = FakeFleet(run_dir, self.failures.append)
        self.lives = RayLives(
            cluster,
            plan_processes(cluster),
            self.fleet,
            build=fake_builder(),
            trace=self.rows.append,
            on_failure=self.failures.append,
        )

    def state(self) -> NodeState:
        """Return the broker's state."""
        return self.lives.states()[NODE]

    def processes_of(self, name: str) -> list[FleetProcess]:
        """Return the live processes that were started for the planned process `name`."""
        return [
            started
            for started in self.fleet.processes
            if started.is_up and started.plan.name == name
        ]
