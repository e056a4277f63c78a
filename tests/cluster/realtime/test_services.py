"""Pauses and resumes that reach a process in another order than the runtime gave them.

Ray may deliver two calls of one actor (a process on Ray) in either order. So the runtime numbers
the pauses and resumes of a run, and the process uses these numbers. The second argument of
`pause_node` and `resume_node` is the number.
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
"""A state that is not newer than the present one, so the service must not apply it."""


class RecordingProcess:
    """Stands for a NodeProcess, and records which nodes are paused and resumed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, NodeName]] = []

    def pause_node(self, name: NodeName) -> None:
        self.calls.append(("pause", name))

    def resume_node(self, name: NodeName) -> None:
        self.calls.append(("resume", name))


@pytest.fixture
def process() -> RecordingProcess:
    """Return the process that records the calls of `service`."""
    return RecordingProcess()


@pytest.fixture
def service(
    tmp_path: Path, process: RecordingProcess, monkeypatch: pytest.MonkeyPatch
) -> NodeService:
    """Return the service of a process; the process records the calls that it gets."""
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
    """The pause has number 0 and the resume number 1, and the resume arrives first.

    If the late pause were carried out, the node would stay paused until the end of the run.
    """

    async def play() -> None:
        await service.resume_node(BROKER_0, 1, OLD_STATE, ())
        await service.pause_node(BROKER_0, 0)

    asyncio.run(play())

    assert process.calls == [("resume", BROKER_0)]


def test_pause_is_carried_out_although_a_later_one_of_another_node_came_first(
    service: NodeService, process: RecordingProcess
) -> None:
    """Two nodes of one process are paused independently of each other."""

    async def play() -> None:
        await service.pause_node(BROKER_1, 1)
        await service.pause_node(BROKER_0, 0)

    asyncio.run(play())

    assert process.calls == [("pause", BROKER_1), ("pause", BROKER_0)]
