"""NodeLives on a fleet of pretended processes: what is left when an act is cut short or fails.

Real processes, real signals and Ray itself are in tests/cluster/ray.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cluster.ray.actors import ActorGone, Machine, ProcessHandle
from cluster.ray.control import FleetProcess
from cluster.ray.fleet import Fleet
from cluster.ray.layout import ProcessPlan, plan_processes
from cluster.ray.lives import ADMIN, NodeLives
from cluster.ray.machine_files import ProcessRef
from cluster.ray.services import ControlState, ListeningProcess, NodeBuilder
from cluster.realtime.clock import RunClock
from cluster.realtime.listeners_file import NoListeners, read_listeners
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStartError, NodeState, UnknownNode
from protocol.ids import Incarnation, NodeName, broker_name
from protocol.trace import TraceEvent
from tests.support.harness.fake_cluster import fake_builder, fake_spec

NODE = broker_name(0)


class PretendedHandle(ProcessHandle):
    """Answers everything at once, but for what `trouble` says of a call by its name."""

    def __init__(self, trouble: dict[str, BaseException | None]) -> None:
        self.trouble = trouble
        """None: the call hangs."""
        self.calls: list[str] = []
        self.is_ended = False

    def end(self) -> None:
        self.is_ended = True

    async def control(self, state: ControlState, timeout_s: float) -> None:
        await self._call("control")

    async def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: NodeBuilder,
        *,
        role: str,
        has_disk: bool,
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
        self.calls.append(name)
        if name in self.trouble:
            error = self.trouble[name]
            if error is None:
                await asyncio.Event().wait()
            else:
                raise error


class PretendedFleet(Fleet):
    """Processes that are only listed; `trouble` is what the calls to the next ones meet."""

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
        self.handles: list[PretendedHandle] = []

    async def start_process(self, plan: ProcessPlan) -> FleetProcess:
        handle = PretendedHandle(self.trouble)
        self.handles.append(handle)
        number = len(self.handles)
        process = FleetProcess(
            process_id=f"{plan.name}#{number}",
            plan=plan,
            machine=Machine(ray_node_id="m", address="127.0.0.1"),
            handle=handle,
            listening=ListeningProcess(
                process=ProcessRef(pid=number, start_ticks=number),
                address=ProcessAddress(process_id=plan.name, host="127.0.0.1", port=number),
            ),
        )
        self.processes.append(process)
        return process

    async def kill(self, process: FleetProcess) -> None:
        process.is_expected_to_end = True
        await asyncio.sleep(0)
        if not process.is_up:
            raise ProcessLookupError("gone")
        process.is_up = False

    async def end(self, process: FleetProcess) -> None:
        await self._stop_nodes(process)
        self.give_up(process)


class Lab:
    """Lives of one broker and its surroundings, started."""

    def __init__(self, run_dir: Path) -> None:
        self.failures: list[str] = []
        self.rows: list[TraceEvent] = []
        cluster = fake_spec(brokers=1, consumers=1)
        self.fleet = PretendedFleet(run_dir, self.failures.append)
        self.lives = NodeLives(
            cluster,
            plan_processes(cluster),
            self.fleet,
            build=fake_builder(),
            trace=self.rows.append,
            on_failure=self.failures.append,
        )

    def state(self) -> NodeState:
        """The broker's state."""
        return self.lives.states()[NODE]

    def processes_of(self, name: str) -> list[FleetProcess]:
        """Return the live processes of a plan."""
        return [p for p in self.fleet.processes if p.is_up and p.plan.name == name]


def in_lab(tmp_path: Path, body: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
    """Run `body` in a lab whose nodes are up."""

    async def main() -> None:
        lab = Lab(tmp_path)
        await lab.lives.start_all()
        async with asyncio.timeout(10):
            await body(lab)

    asyncio.run(main())


async def cut_short(act: Coroutine[Any, Any, Any]) -> None:
    """Begin an act and cancel it, as a Ctrl-C does."""
    task = asyncio.ensure_future(act)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("end", ["cut short", "failed"])
def test_process_whose_node_did_not_come_up_is_ended(tmp_path: Path, end: str) -> None:
    """The order may still arrive there, and the next attempt is another incarnation on its disk."""

    async def body(lab: Lab) -> None:
        await lab.lives.crash(NODE)
        lab.fleet.trouble["start_node"] = TimeoutError() if end == "failed" else None
        if end == "failed":
            with pytest.raises(ClusterStartError):
                await lab.lives.restart(NODE, empty_disk=False)
        else:
            await cut_short(lab.lives.restart(NODE, empty_disk=False))
        assert lab.state() is NodeState.DOWN
        assert lab.processes_of(NODE) == []
        assert lab.fleet.handles[-1].is_ended
        lab.fleet.trouble.clear()
        await lab.lives.restart(NODE, empty_disk=False)
        assert lab.state() is NodeState.UP
        assert len(lab.processes_of(NODE)) == 1
        assert lab.failures == []

    in_lab(tmp_path, body)


def test_guests_are_told_where_the_nodes_are_until_the_run_stops(tmp_path: Path) -> None:
    """Whoever asks from outside finds those that are up, and nobody once they are about to go."""

    async def body(lab: Lab) -> None:
        names = {*lab.lives.states(), ADMIN}
        assert set(read_listeners(tmp_path).directory) == names
        await lab.lives.crash(NODE)
        assert set(read_listeners(tmp_path).directory) == names - {NODE}
        await lab.lives.restart(NODE, empty_disk=False)
        (process,) = lab.processes_of(NODE)
        assert read_listeners(tmp_path).directory[NODE] == process.listening.address
        await lab.fleet.stop_processes()
        with pytest.raises(NoListeners):
            read_listeners(tmp_path)
        assert lab.failures == []

    in_lab(tmp_path, body)


def test_pause_that_was_cut_short_can_be_undone(tmp_path: Path) -> None:
    """Nobody knows whether the process stands still: it is taken to, until it was resumed."""

    async def body(lab: Lab) -> None:
        lab.fleet.trouble["pause_node"] = None
        await cut_short(lab.lives.pause(NODE))
        assert lab.state() is NodeState.PAUSED
        lab.fleet.trouble.clear()
        await lab.lives.resume(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


def test_pause_of_a_process_that_died_by_itself_is_refused(tmp_path: Path) -> None:
    """Its watcher tells the death; the node must not count as paused."""

    async def body(lab: Lab) -> None:
        lab.fleet.trouble["pause_node"] = ActorGone("gone")
        with pytest.raises(UnknownNode):
            await lab.lives.pause(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


@pytest.mark.parametrize("call", ["shut_down_node", "control"])
def test_failure_of_a_shutdown_in_the_background_is_reported(tmp_path: Path, call: str) -> None:
    """Nobody awaits it: what it meets would be lost, and the node never down."""

    async def body(lab: Lab) -> None:
        lab.fleet.trouble[call] = OSError("planted")
        await lab.lives.shut_down(NODE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert ["planted" in failure for failure in lab.failures] == [True]
        lab.fleet.trouble.clear()

    in_lab(tmp_path, body)


def test_nodes_that_cannot_be_stopped_are_reported_and_their_process_is_ended(
    tmp_path: Path,
) -> None:
    """A full disk, say: the shutdown of the others, and of the process, goes on."""

    async def body(lab: Lab) -> None:
        lab.fleet.trouble["stop"] = OSError("planted")
        await lab.lives.shut_down(NODE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert lab.state() is NodeState.DOWN
        assert ["planted" in failure for failure in lab.failures] == [True]
        await lab.fleet.stop_processes()
        assert [handle.is_ended for handle in lab.fleet.handles] == [True] * 3

    in_lab(tmp_path, body)


def test_kill_of_a_process_that_shut_down_a_moment_before_has_what_it_wants(
    tmp_path: Path,
) -> None:
    """A race that is lost is no failure; of a node that nobody asked to stop it is one."""

    async def body(lab: Lab) -> None:
        lab.fleet.trouble["shut_down_node"] = None
        await lab.lives.shut_down(NODE)
        lab.processes_of(NODE)[0].is_up = False
        await lab.lives.crash(NODE)
        assert lab.state() is NodeState.DOWN
        lab.fleet.trouble.clear()
        await lab.lives.restart(NODE, empty_disk=False)
        lab.processes_of(NODE)[0].is_up = False
        with pytest.raises(ProcessLookupError):
            await lab.lives.crash(NODE)

    in_lab(tmp_path, body)
