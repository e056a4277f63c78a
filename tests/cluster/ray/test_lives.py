"""RayLives on fake processes: the states of nodes after an act that was cancelled or has failed.

- `lab.lives` starts, kills, pauses and resumes nodes. An act is one of these calls.
- `lab.fleet` has three fake processes: of the controller, of a broker (NODE), and of the clients.
- `lab.fleet.trouble` says which calls of the processes go wrong: an entry has the name of a call
  and the error that the call raises. If the error is None, the call hangs.

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


async def cut_short(act: Coroutine[Any, Any, Any]) -> None:
    """Begin an act, let it run until it hangs, and cancel it, as Ctrl-C does."""
    task = asyncio.ensure_future(act)
    # 20 turns of the event loop are more than any act needs until it hangs.
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("end", ["cut short", "failed"])
def test_process_whose_node_did_not_start_is_ended(tmp_path: Path, end: str) -> None:
    """The process may still get the order to start the node. Then two nodes would use one disk.

    So the process is ended before the next incarnation (life) of the node is started.
    """

    async def body(lab: LivesLab) -> None:
        await lab.lives.crash(NODE)
        if end == "failed":
            lab.fleet.trouble["start_node"] = TimeoutError()
            with pytest.raises(ClusterStartError):
                await lab.lives.restart(NODE, empty_disk=False)
        else:
            lab.fleet.trouble["start_node"] = None  # the call hangs
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


def test_outside_clients_find_the_nodes_until_the_run_stops(tmp_path: Path) -> None:
    """The listeners file has the nodes that are up, and is removed when the run begins to stop."""

    async def body(lab: LivesLab) -> None:
        names = {*lab.lives.states(), ADMIN_NODE}
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


def test_cancelled_pause_can_be_undone(tmp_path: Path) -> None:
    """A pause that was cancelled may have stopped the node's process.

    So the node counts as paused, and a resume brings it up again.
    """

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["pause_node"] = None
        await cut_short(lab.lives.pause(NODE))
        assert lab.state() is NodeState.PAUSED
        lab.fleet.trouble.clear()
        await lab.lives.resume(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


def test_pause_of_a_process_that_died_by_itself_is_refused(tmp_path: Path) -> None:
    """Until the watcher of the process reports its death, the node counts as up.

    ActorGone is the error of Ray for a dead process.
    """

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["pause_node"] = ActorGone("gone")
        with pytest.raises(UnknownNode):
            await lab.lives.pause(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


@pytest.mark.parametrize("call", ["shut_down_node", "control"])
def test_failure_of_a_shutdown_in_the_background_is_reported(tmp_path: Path, call: str) -> None:
    """A shutdown goes on in the background, where no caller waits for it.

    So an error of the shutdown must be reported as a failure of the run. Otherwise the run would
    wait for a node that never becomes down. `call` is the call of the process that fails.
    """

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble[call] = OSError("planted")
        await lab.lives.shut_down(NODE)
        # Let the background task run.
        for _ in range(20):
            await asyncio.sleep(0)
        # There is one failure, and it contains the error.
        assert ["planted" in failure for failure in lab.failures] == [True]
        lab.fleet.trouble.clear()

    in_lab(tmp_path, body)


def test_nodes_that_cannot_be_stopped_are_reported_and_their_process_is_ended(
    tmp_path: Path,
) -> None:
    """A node may fail to stop, for example on a full disk. Its process is ended nevertheless."""

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["stop"] = OSError("planted")
        await lab.lives.shut_down(NODE)
        # Let the background task run.
        for _ in range(20):
            await asyncio.sleep(0)
        assert lab.state() is NodeState.DOWN
        assert ["planted" in failure for failure in lab.failures] == [True]
        await lab.fleet.stop_processes()
        assert [handle.is_ended for handle in lab.fleet.handles] == [True] * 3

    in_lab(tmp_path, body)


def test_kill_of_a_process_that_just_shut_down_succeeds(tmp_path: Path) -> None:
    """A node may end its shutdown just before the kill arrives, which is no failure.

    Without a shutdown, a kill fails if the process has ended already.
    """

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["shut_down_node"] = None  # the shutdown hangs
        await lab.lives.shut_down(NODE)
        lab.processes_of(NODE)[0].is_up = False  # now its process has ended
        await lab.lives.crash(NODE)
        assert lab.state() is NodeState.DOWN

        lab.fleet.trouble.clear()
        await lab.lives.restart(NODE, empty_disk=False)
        lab.processes_of(NODE)[0].is_up = False
        with pytest.raises(ProcessLookupError):
            await lab.lives.crash(NODE)

    in_lab(tmp_path, body)
