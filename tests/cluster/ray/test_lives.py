"""RayLives on a fleet of fake processes: the state after a cancelled or failed act.

- `lab.lives` starts, kills, pauses and resumes nodes; an act is one of these calls.
- `lab.fleet` has a fake process for each of three plans: controller, broker (NODE) and clients.
- `lab.fleet.trouble[call]` is an error that the processes' call of that name raises, or None: then
  the call hangs.

Real processes, real signals and Ray itself are in the other modules of tests/cluster/ray.
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
    """Run `body` in a lab whose nodes are up."""

    async def main() -> None:
        lab = LivesLab(tmp_path)
        await lab.lives.start_all()
        async with asyncio.timeout(10):
            await body(lab)

    asyncio.run(main())


async def cut_short(act: Coroutine[Any, Any, Any]) -> None:
    """Begin an act, let it run up to the call that hangs, and cancel it, as a Ctrl-C does."""
    task = asyncio.ensure_future(act)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("end", ["cut short", "failed"])
def test_process_whose_node_did_not_start_is_ended(tmp_path: Path, end: str) -> None:
    """The order to start may still arrive at this process: two nodes would then use one disk.

    So the process is ended before another incarnation is started.
    """

    async def body(lab: LivesLab) -> None:
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


def test_outside_clients_find_the_nodes_until_the_run_stops(tmp_path: Path) -> None:
    """The file lists the nodes that are up, and no node once the run begins to stop."""

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
    """After a cancelled pause the process may be stopped, so it counts as paused until a resume."""

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["pause_node"] = None
        await cut_short(lab.lives.pause(NODE))
        assert lab.state() is NodeState.PAUSED
        lab.fleet.trouble.clear()
        await lab.lives.resume(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


def test_pause_of_a_process_that_died_by_itself_is_refused(tmp_path: Path) -> None:
    """The watcher of the process reports its death; until then the node counts as up.

    ActorGone is what Ray raises for a dead process.
    """

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["pause_node"] = ActorGone("gone")
        with pytest.raises(UnknownNode):
            await lab.lives.pause(NODE)
        assert lab.state() is NodeState.UP

    in_lab(tmp_path, body)


@pytest.mark.parametrize("call", ["shut_down_node", "control"])
def test_failure_of_a_shutdown_in_the_background_is_reported(tmp_path: Path, call: str) -> None:
    """A shutdown continues in the background, where no caller awaits it.

    Its error must become a failure of the run, or the node would never be down.
    """

    async def body(lab: LivesLab) -> None:
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
    """A node may fail to stop, for example on a full disk; its process is ended all the same."""

    async def body(lab: LivesLab) -> None:
        lab.fleet.trouble["stop"] = OSError("planted")
        await lab.lives.shut_down(NODE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert lab.state() is NodeState.DOWN
        assert ["planted" in failure for failure in lab.failures] == [True]
        await lab.fleet.stop_processes()
        assert [handle.is_ended for handle in lab.fleet.handles] == [True] * 3

    in_lab(tmp_path, body)


def test_kill_of_a_process_that_just_shut_down_succeeds(
    tmp_path: Path,
) -> None:
    """A node in its shutdown may end before the kill arrives, which is no failure.

    Without a shutdown, the kill of a process that has ended already is a failure.
    """

    async def body(lab: LivesLab) -> None:
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
