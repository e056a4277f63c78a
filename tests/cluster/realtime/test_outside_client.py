"""A client from outside finds the nodes of a run by the run's listeners file.

While a cluster runs in real time, a user can ask its nodes something with a command. The command is
a process that the run has not started: a guest of the run. The guest reads the listeners file in
the directory of the run. The file has the addresses of the nodes that are up, and the token of the
run, a secret that the nodes demand of everyone who calls them.

A guest has a question: a coroutine function that does what the user wants. Its argument is the host
of the guest, with which it can open connections and sleep.

In these tests the run is a `lab` with the node processes `p0` and `p1`, which are objects in the
one Python process of the test. Their nodes are echo nodes, which answer heartbeats. An echo node
reports the number of its answers as `records_produced`.
"""

import asyncio
import stat
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cluster.host.host import Disconnected, Host
from cluster.realtime.clock import RunClock
from cluster.realtime.listeners_file import (
    FILE_NAME,
    Listeners,
    NoListeners,
    read_listeners,
    remove_listeners,
    write_listeners,
)
from cluster.realtime.outside_client import NotReachable, ask_as_guest
from cluster.realtime.tcp import LINK_VERSION, ProcessAddress
from cluster.trace.files import read_frames
from protocol.api import AnyResponse
from protocol.errors import SimulationError
from protocol.ids import NodeName
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from tests.support.harness.process_lab import (
    CLIENT,
    SECOND_US,
    SERVER,
    Lab,
    beat,
    connect,
    in_lab,
)

T = TypeVar("T")
"""What a question returns."""
Question = Callable[[Host], Coroutine[Any, Any, T]]


def listeners(
    directory: dict[NodeName, ProcessAddress],
    *,
    token: str = "secret",
    link_version: int = LINK_VERSION,
) -> Listeners:
    """Return the content of a listeners file, by default with the token and version of the lab."""
    return Listeners(
        link_version=link_version,
        run_id="run",
        seed=1,
        token=token,
        clock=RunClock.starting_now(),
        trace_messages=True,
        directory=directory,
    )


def send_heartbeats(count: int = 1) -> Question[list[AnyResponse]]:
    """Return a question that sends `count` heartbeats to the server, all on one connection."""

    async def ask_server(host: Host) -> list[AnyResponse]:
        connection = host.connect(SERVER, "admin", setup_timeout_us=10 * SECOND_US)
        request = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
        return [await connection.call(request, timeout_us=10 * SECOND_US) for _ in range(count)]

    return ask_server


async def ask(lab: Lab, question: Question[T]) -> T:
    """Ask a question as a guest. In place of its process, the guest has a thread of the test."""
    return await asyncio.to_thread(ask_as_guest, lab.run_dir, question)


async def start_server(lab: Lab, process_id: str = "p0", incarnation: int = 0) -> None:
    """Start the server in a new process, and write the listeners file of the run."""
    await lab.start_process(process_id)
    lab.node(process_id, SERVER, incarnation)
    write_listeners(lab.run_dir, listeners(lab.directory))


def test_outside_client_is_answered_by_nodes_that_do_not_know_it(tmp_path: Path) -> None:
    """Nodes can answer a guest, because the guest tells them its own address.

    What the guest does is recorded in a file of its own, next to the trace files of the nodes.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)
        assert await ask(lab, send_heartbeats(3)) == [HeartbeatResponse()] * 3
        assert lab.processes["p0"].status().records_produced == 3
        # The name of a guest begins with "admin".
        (file,) = (lab.run_dir / "trace").glob("admin-*.frames")
        kinds = [row.kind for row in read_frames(file).rows]
        assert kinds[0] == "node_started"
        assert kinds.count("request_sent") == 3
        assert kinds[-1] == "node_stopped"

    in_lab(tmp_path, body)


def test_outside_client_may_return_and_nodes_continue_without_it(tmp_path: Path) -> None:
    """When a guest ends, only its own connections are closed, and another guest may come.

    The end of a guest is not a failure of the server.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)
        await lab.start_process("p1")
        connection_of_the_run = connect(lab.node("p1", CLIENT))
        for _ in range(2):
            assert await ask(lab, send_heartbeats()) == [HeartbeatResponse()]
        await beat(connection_of_the_run)
        assert not connection_of_the_run.is_closed
        assert lab.processes["p0"].failures == []

    in_lab(tmp_path, body)


def test_outside_client_finds_a_node_that_restarts_elsewhere_meanwhile(tmp_path: Path) -> None:
    """The guest asks the server again and again, and counts how often it is refused.

    1. The guest is answered once. Then the server's process stops.
    2. The guest is refused. Meanwhile the server starts again in another process, and the
       listeners file gets its new address.
    3. The guest has read the new address. It is answered again, and returns the number of refusals.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)
        # The guest runs in another thread, so the two sides use events of threads.
        answered_once, restarted = threading.Event(), threading.Event()

        async def ask_until_server_is_back(host: Host) -> int:
            refusals = 0
            while True:
                try:
                    await send_heartbeats()(host)
                    answered_once.set()
                    if restarted.is_set() and refusals > 0:
                        return refusals
                except Disconnected:
                    refusals += 1
                await host.sleep(SECOND_US // 100)

        answer = asyncio.ensure_future(ask(lab, ask_until_server_is_back))
        await asyncio.to_thread(answered_once.wait)
        await lab.processes["p0"].stop()
        await start_server(lab, "p1", incarnation=1)

        restarted.set()
        assert await answer > 0
        assert lab.processes["p1"].status().records_produced > 0

    in_lab(tmp_path, body)


def test_outside_client_fails_when_the_run_stops_before_the_answer(tmp_path: Path) -> None:
    """When the run stops, it removes the listeners file. Then the guest gives up at once.

    It does not wait for the end of its question, which takes 60 s.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)
        began = threading.Event()

        async def wait_for_a_minute(host: Host) -> None:
            began.set()
            await host.sleep(60 * SECOND_US)

        answer = asyncio.ensure_future(ask(lab, wait_for_a_minute))
        await asyncio.to_thread(began.wait)
        remove_listeners(lab.run_dir)
        with pytest.raises(NotReachable, match="the run stopped before"):
            await answer

    in_lab(tmp_path, body)


def test_outside_client_with_another_token_is_refused(tmp_path: Path) -> None:
    """A guest that has read an old listeners file, or that of another run, must get no access.

    Such a file has another token than the nodes of this run.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)
        write_listeners(lab.run_dir, listeners(lab.directory, token="other"))
        with pytest.raises(Disconnected):
            await ask(lab, send_heartbeats())
        refused = [row for row in lab.rows(SERVER) if row.kind == "connection_refused"]
        assert "wrong token" in (refused[0].detail or "")

    in_lab(tmp_path, body)


def test_exception_in_a_task_of_the_outside_client_ends_its_question(tmp_path: Path) -> None:
    """If a task of the guest dies of an exception, this is a bug. The guest reports it at once.

    The guest does not wait for the end of its question, which takes 60 s.
    """

    async def body(lab: Lab) -> None:
        await start_server(lab)

        async def spawn_failing_task_and_wait(host: Host) -> None:
            async def fail() -> None:
                raise ValueError("broken")

            host.spawn(fail(), name="dies")
            await host.sleep(60 * SECOND_US)

        with pytest.raises(SimulationError, match="dies died with ValueError: broken"):
            await ask(lab, spawn_failing_task_and_wait)

    in_lab(tmp_path, body)


def test_listeners_file_is_readable_only_by_its_owner_from_the_first_moment(tmp_path: Path) -> None:
    """The file has the token, so it must have the mode 0600 before anything is written.

    The file is written under another name, and gets its own name when it is complete. Here an
    earlier writer has left an unfinished file of mode 0666. Other users can read this file, so the
    new token must not be written into it.
    """
    unfinished = tmp_path / f".{FILE_NAME}.unfinished"
    unfinished.write_text("open to all")
    unfinished.chmod(0o666)

    written = listeners({SERVER: ProcessAddress(process_id="p", host="127.0.0.1", port=1)})
    write_listeners(tmp_path, written)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert read_listeners(tmp_path) == written
    remove_listeners(tmp_path)
    remove_listeners(tmp_path)  # a second removal must do nothing
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no"), (b"{", "cannot be read")],
    ids=["no-file", "broken-file"],
)
def test_run_without_a_listeners_file_cannot_be_asked(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """The guest gets an error that says why it cannot ask.

    A run has no listeners file before it has started its nodes and after it has stopped.
    """
    if content is not None:
        (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(NoListeners, match=message):
        read_listeners(tmp_path)
    with pytest.raises(NotReachable, match=message):
        ask_as_guest(tmp_path, send_heartbeats())


def test_run_with_another_version_of_the_links_is_not_called(tmp_path: Path) -> None:
    """Nodes with another version of the links would refuse the guest without telling it why.

    So the guest does not call these nodes, and its error names the version. If the version is right
    but the file names no node, the guest gets another error.
    """
    write_listeners(tmp_path, listeners({}, link_version=LINK_VERSION + 1))
    with pytest.raises(NotReachable, match=f"got version {LINK_VERSION + 1}"):
        ask_as_guest(tmp_path, send_heartbeats())
    write_listeners(tmp_path, listeners({}))
    with pytest.raises(NotReachable, match="none of its nodes is up"):
        ask_as_guest(tmp_path, send_heartbeats())
