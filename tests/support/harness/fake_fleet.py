"""Fake processes for tests of RayLives, which starts, stops, kills and pauses the nodes of a run.

In a real run on Ray, the nodes are in processes on several machines. All these processes together
are called the fleet. RayLives calls a process through the handle of the process. To kill a process
or to send it a signal, RayLives calls an agent on the machine of the process. Here handles and
agents are fakes that answer at once, without Ray and without signals. A test says which calls shall
fail or hang.
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
    """Return a cluster of a broker and two consumers. One of them, LATE, starts later."""
    spec = fake_spec(brokers=1, consumers=2)
    first, second = spec.consumers
    late = msgspec.structs.replace(second, starts_later=True)
    return msgspec.structs.replace(spec, consumers=(first, late))


class FakeProcessHandle(ProcessHandle):
    """Answers each call at once, except the calls that `trouble` names.

    With `{"start_node": OSError()}` the call `start_node` raises this error. With
    `{"start_node": None}` this call hangs.
    """

    def __init__(self, trouble: dict[str, BaseException | None]) -> None:
        self.trouble = trouble
        # The names of all calls so far.
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
        """Note the call, and let it fail or hang if `trouble` says so."""
        self.calls.append(name)
        if name in self.trouble:
            error = self.trouble[name]
            if error is not None:
                raise error
            # Hang: nobody ever sets this event.
            await asyncio.Event().wait()


class FakeAgent(AgentHandle):
    """Kills processes. To kill a process that has already ended fails, as on a real machine."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        # While a real call waits for its answer, other tasks run. `sleep(0)` lets them run here.
        await asyncio.sleep(0)
        is_up = any(
            started.listening.process == process and started.is_up
            for started in self._fleet.processes
        )
        if not is_up:
            raise ProcessLookupError("gone")

    async def stop(self, process: ProcessRef, timeout_s: float) -> None:
        await asyncio.sleep(0)

    async def send_signal(self, process: ProcessRef, signal_number: signal.Signals) -> None:
        """Do nothing, because a fake process gets no signals."""
        await asyncio.sleep(0)


class FakeFleet(Fleet):
    """The fake processes of a run. They share `trouble`, which a test may change at any time."""

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
        """Add a process, whose pid and port are its number: 1, 2 and so on."""
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
        """Do nothing, because fake processes have no disks."""
        await asyncio.sleep(0)

    async def end(self, process: FleetProcess) -> None:
        """End a process as the real fleet does, but without a signal."""
        await self._stop_nodes(process)
        self.give_up(process)


class LivesLab:
    """RayLives on a fake fleet, by default for a cluster of one broker and one consumer.

    `rows` has the events that RayLives has traced, and `failures` has the failures that it has
    reported.
    """

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
        """Return the state of the broker."""
        return self.lives.states()[NODE]

    def processes_of(self, name: str) -> list[FleetProcess]:
        """Return the processes that were started by the plan `name` and that are still up."""
        return [
            started
            for started in self.fleet.processes
            if started.is_up and started.plan.name == name
        ]
