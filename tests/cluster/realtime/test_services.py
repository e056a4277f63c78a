"""Pauses and resumes of nodes that arrive at a process in another sequence than they were sent.

On Ray a process is an actor, and two calls of an actor may arrive in either sequence. So the
runtime numbers its orders to pause or resume a node over the whole run. The orders arrive at a
NodeService, as calls of `pause_node` and `resume_node`. The argument `order` has the number.
"""

import asyncio
from pathlib import Path

import pytest

from cluster.realtime.clock import RunClock
from cluster.realtime.host import RunSettings
from cluster.realtime.services import ControlState, NodeService
from protocol.ids import NodeName, broker_name

BROKER_0, BROKER_1 = broker_name(0), broker_name(1)
OLD_STATE = ControlState(version=-1, directory={}, rules=())
"""An argument of `resume_node`, with the addresses of nodes and the rules of links.

The service ignores OLD_STATE, because it already has a state with a higher version.
"""


class RecordingProcess:
    """Stands for the process in which the nodes run, and records the calls of its methods."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, NodeName]] = []

    def pause_node(self, name: NodeName) -> None:
        self.calls.append(("pause", name))

    def resume_node(self, name: NodeName) -> None:
        self.calls.append(("resume", name))


@pytest.fixture
def process() -> RecordingProcess:
    """Return the process to which `service` passes on the orders that it accepts."""
    return RecordingProcess()


@pytest.fixture
def service(
    tmp_path: Path, process: RecordingProcess, monkeypatch: pytest.MonkeyPatch
) -> NodeService:
    """Return the service that gets the orders."""
    settings = RunSettings(
        run_id="run",
        seed=0,
        token="token",
        clock=RunClock.starting_now(),
        machine_dir=tmp_path,
        trace_messages=False,
    )
    service = NodeService("brokers", settings, bind_address="127.0.0.1")
    monkeypatch.setattr(service, "_process", process)
    return service


def test_pause_that_comes_after_its_resume_is_ignored(
    service: NodeService, process: RecordingProcess
) -> None:
    """The pause has the number 0 and the resume has the number 1, but the resume arrives first.

    If the late pause were carried out, the node would stay paused until the end of the run.
    """

    async def play() -> None:
        await service.resume_node(BROKER_0, order=1, state=OLD_STATE, resets=())
        await service.pause_node(BROKER_0, order=0)

    asyncio.run(play())

    assert process.calls == [("resume", BROKER_0)]


def test_pause_is_carried_out_although_a_later_one_of_another_node_came_first(
    service: NodeService, process: RecordingProcess
) -> None:
    """The numbers of two orders are compared only if both orders are for the same node."""

    async def play() -> None:
        await service.pause_node(BROKER_1, order=1)
        await service.pause_node(BROKER_0, order=0)

    asyncio.run(play())

    assert process.calls == [("pause", BROKER_1), ("pause", BROKER_0)]
