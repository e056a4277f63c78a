"""RayLives on fake processes: the states of nodes after an act that was cancelled or has failed.

An act starts, kills, pauses or resumes a node. Each act is a method of `lab.lives`, and this method
calls the node's process. Here three fakes take the place of the processes of the controller, of a
broker (NODE), and of the clients. `fail(lab, "pause_node", error)` makes the call `pause_node` of
each process raise an error. `hang(lab, "pause_node")` makes this call never return.

The other modules of tests/cluster/ray test real processes, real signals and Ray itself.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cluster.lives import ADMIN_NODE
from cluster.ray.actors import ActorGone
from cluster.realtime.listeners_file import NoListeners, read_listeners
from cluster.runtime import ClusterStartError, NodeState, UnknownNode
from tests.support.harness.fake_fleet import NODE, LivesLab


def in_lab(tmp_path: Path, body: Callable[[LivesLab], Coroutine[Any, Any, None]]) -> None:
    """Run `body` in a lab in which all nodes are up."""

    async def main() -> None:
        lab = LivesLab(tmp_path)
        await lab.lives.start_all()
        async with asyncio.timeout(10):
            await body(lab)

    asyncio.run(main())


def fail(lab: LivesLab, call: str, error: Exception) -> None:
    """Make a call of the processes raise an error."""
    lab.fleet.trouble[call] = error


def hang(lab: LivesLab, call: str) -> None:
    """Make a call of the processes never return."""
    lab.fleet.trouble[call] = None


async def let_tasks_run() -> None:
    """Let all other tasks run until they wait: 20 turns of the event loop are more than enough."""
    for _ in range(20):
        await asyncio.sleep(0)


async def begin_and_cancel(act: Coroutine[Any, Any, Any]) -> None:
    """Begin an act, let it run until it hangs, and cancel it, as Ctrl-C does."""
    task = asyncio.ensure_future(act)
    await let_tasks_run()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "failed"])
def test_process_whose_node_did_not_start_is_ended(tmp_path: Path, is_cancelled: bool) -> None:
    """A restart of a node begins a process, which is then asked to start the node.

    If the node does not start, the process must end. Otherwise the process could start the node
    later, when another process has started it already, and two nodes would use one disk.
    """

    async def body(lab: LivesLab) -> None:
        await lab.lives.crash(NODE)
        if is_cancelled:
            hang(lab, "start_node")
            await begin_and_cancel(lab.lives.restart(NODE, empty_disk=False))
        else:
            fail(lab, "start_node", TimeoutError())
            with pytest.raises(ClusterStartError):
                await lab.lives.restart(NODE, empty_disk=False)

        assert lab.state() is NodeState.DOWN
        assert lab.processes_of(NODE) == []
        assert lab.fleet.handles[-1].is_ended

        lab.fleet.trouble.clear()
        await lab.lives.restart(NODE, empty_disk=False)
        assert lab.state() is NodeState.UP
        assert len(lab.processes_of(NODE)) == 1
        assert lab.failures == []

    in_lab(tmp_path, body)


def test_outside_clients_find_the_nodes_until_the_run_stops(tmp_path: Path) -> None:
    """A file has the addresses of the nodes that are up. It is removed when the run stops."""

    async def body(lab: LivesLab) -> None:
        all_nodes = {*lab.lives.states(), ADMIN_NODE}
        assert set(read_listeners(tmp_path).directory) == all_nodes
        await lab.lives.crash(NODE)
        assert set(read_listeners(tmp_path).directory) == all_nodes - {NODE}
        await lab.lives.restart(NODE, empty_disk=False)
        (process,) = lab.processes_of(NODE)
        assert read_listeners(tmp_path).directory[NODE] == process.listening.address
        await lab.fleet.stop_processes()
        with pytest.raises(NoListeners):
            read_listeners(tmp_path)
        assert lab.failures == []

    in_lab(tmp_path, body)


def test_cancelled_pause_can_be_undone(tmp_path: Path) -> None:
    """A pause that was cancelled may have stopped the node's process already.

    So the node counts as paused, and a resume brings it up again.
    """

    async def body(lab: LivesLab) -> None:
        hang(lab, "pause_node")
        await begin_and_cancel(lab.lives.pause(NODE))
        assert lab.state() is NodeState.PAUSED
        lab.fleet.trouble.clear()
        await lab.lives.resume(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


def test_pause_of_a_process_that_died_by_itself_is_refused(tmp_path: Path) -> None:
    """The call `pause_node` raises ActorGone, because the process is dead.

    The node still counts as up. RayRuntime watches its processes, and will report the death.
    """

    async def body(lab: LivesLab) -> None:
        fail(lab, "pause_node", ActorGone("gone"))
        with pytest.raises(UnknownNode):
            await lab.lives.pause(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


@pytest.mark.parametrize("call", ["shut_down_node", "control"])
def test_failure_of_a_shutdown_in_the_background_is_reported(tmp_path: Path, call: str) -> None:
    """A shutdown goes on in the background, where no caller waits for it.

    So its error must be reported as a failure of the run. Otherwise the run would wait for ever
    until the node is down. `call` is the call that raises the error.
    """

    async def body(lab: LivesLab) -> None:
        fail(lab, call, OSError("planted"))
        await lab.lives.shut_down(NODE)
        await let_tasks_run()
        (failure,) = lab.failures
        assert "planted" in failure
        lab.fleet.trouble.clear()

    in_lab(tmp_path, body)


def test_nodes_that_cannot_be_stopped_are_reported_and_their_process_is_ended(
    tmp_path: Path,
) -> None:
    """A node may fail to stop, for example on a full disk. Its process is ended nevertheless."""

    async def body(lab: LivesLab) -> None:
        fail(lab, "stop", OSError("planted"))
        await lab.lives.shut_down(NODE)
        await let_tasks_run()
        assert lab.state() is NodeState.DOWN
        (failure,) = lab.failures
        assert "planted" in failure
        await lab.fleet.stop_processes()
        assert [handle.is_ended for handle in lab.fleet.handles] == [True] * 3

    in_lab(tmp_path, body)


def test_kill_of_a_process_that_just_shut_down_succeeds(tmp_path: Path) -> None:
    """A node may end its shutdown just before the kill arrives. Then the kill succeeds.

    If a process has ended without a shutdown, a kill of this process fails.
    """

    async def body(lab: LivesLab) -> None:
        hang(lab, "shut_down_node")
        await lab.lives.shut_down(NODE)
        lab.processes_of(NODE)[0].is_up = False  # now the node's process has ended
        await lab.lives.crash(NODE)
        assert lab.state() is NodeState.DOWN

        lab.fleet.trouble.clear()
        await lab.lives.restart(NODE, empty_disk=False)
        lab.processes_of(NODE)[0].is_up = False
        with pytest.raises(ProcessLookupError):
            await lab.lives.crash(NODE)

    in_lab(tmp_path, body)
