"""A client from outside finds the nodes of a run by the run's listeners file.

- A client from outside (a guest) is a process that the run has not started, such as a command of a
  user.
- The listeners file has the addresses of the nodes that are up, and the run's token: a secret that
  the nodes of the run demand.
- A question is what a guest does in the run: a coroutine function. It gets the guest's host, which
  opens connections to nodes.
- `lab` has node processes (`p0`, `p1`) and echo nodes, which answer heartbeats. An echo node
  produces no records. It reports the number of its answers in the field `records_produced`.
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
Question = Callable[[Host], Coroutine[Any, Any, T]]


def listeners(
    directory: dict[NodeName, ProcessAddress],
    *,
    token: str = "secret",
    link_version: int = LINK_VERSION,
) -> Listeners:
    """Return the content of a listeners file; by default its token and version are right."""
    return Listeners(
        link_version=link_version,
        run_id="run",
        seed=1,
        token=token,
        clock=RunClock.starting_now(),
        trace_messages=True,
        directory=directory,
    )


def beating(count: int = 1) -> Question[list[AnyResponse]]:
    """Return a question that sends `count` heartbeats to the server, all on one connection."""

    async def ask_server(host: Host) -> list[AnyResponse]:
        connection = host.connect(SERVER, "admin", setup_timeout_us=10 * SECOND_US)
        request = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
        return [await connection.call(request, timeout_us=10 * SECOND_US) for _ in range(count)]

    return ask_server


async def ask(lab: Lab, question: Question[T]) -> T:
    """Ask as another process does: on an event loop of its own, in another thread."""
    return await asyncio.to_thread(ask_as_guest, lab.run_dir, question)


async def serve(lab: Lab, process_id: str = "p0", incarnation: int = 0) -> None:
    """Start the server in a new process, and write the listeners file of the run."""
    await lab.start_process(process_id)
    lab.node(process_id, SERVER, incarnation)
    write_listeners(lab.run_dir, listeners(lab.directory))


def test_outside_client_is_answered_by_nodes_whose_directory_lacks_it(tmp_path: Path) -> None:
    """Nodes can answer a guest, because the guest sends its own address with its requests.

    The rows that the guest writes are a file of the run's trace (its recorded events).
    """

    async def body(lab: Lab) -> None:
        await serve(lab)
        assert await ask(lab, beating(3)) == [HeartbeatResponse()] * 3
        assert lab.processes["p0"].status().records_produced == 3
        # A guest has a name that begins with "admin".
        (file,) = (lab.run_dir / "trace").glob("admin-*.frames")
        kinds = [row.kind for row in read_frames(file).rows]
        assert kinds[0] == "node_started"
        assert kinds.count("request_sent") == 3
        assert kinds[-1] == "node_stopped"

    in_lab(tmp_path, body)


def test_outside_client_may_return_and_nodes_continue_without_it(tmp_path: Path) -> None:
    """When the client ends, only its own connections are closed.

    It may come again, and its end is not a failure of the server.
    """

    async def body(lab: Lab) -> None:
        await serve(lab)
        await lab.start_process("p1")
        neighbour = connect(lab.node("p1", CLIENT))  # a connection of a node of the run
        for _ in range(2):
            assert await ask(lab, beating()) == [HeartbeatResponse()]
        await beat(neighbour)
        assert not neighbour.is_closed
        assert lab.processes["p0"].failures == []

    in_lab(tmp_path, body)


def test_outside_client_finds_a_node_that_restarts_elsewhere_meanwhile(tmp_path: Path) -> None:
    """A killed broker starts again in another process, and the file gets its new address.

    1. The client is answered once. Then the server's process stops.
    2. The client is refused until it reads the new address. `until_it_is_back` repeats its
       question until it is answered again, and returns the number of refusals.
    """

    async def body(lab: Lab) -> None:
        await serve(lab)
        # The guest runs in another thread, so the two sides use events of threads.
        answered, restarted = threading.Event(), threading.Event()

        async def until_it_is_back(host: Host) -> int:
            refusals = 0
            while True:
                try:
                    await beating()(host)
                    answered.set()
                    if restarted.is_set() and refusals:
                        return refusals
                except Disconnected:
                    refusals += 1
                await host.sleep(SECOND_US // 100)

        answer = asyncio.ensure_future(ask(lab, until_it_is_back))
        await asyncio.to_thread(answered.wait)
        await lab.processes["p0"].stop()
        await serve(lab, "p1", incarnation=1)

        restarted.set()
        assert await answer > 0
        assert lab.processes["p1"].status().records_produced > 0

    in_lab(tmp_path, body)


def test_outside_client_fails_when_the_run_stops_before_the_answer(tmp_path: Path) -> None:
    """When the run stops, it removes the listeners file. Then the client gives up.

    The question `forever` takes 60 s, and the client does not wait for its end.
    """

    async def body(lab: Lab) -> None:
        await serve(lab)
        began = threading.Event()

        async def forever(host: Host) -> None:
            began.set()
            await host.sleep(60 * SECOND_US)

        answer = asyncio.ensure_future(ask(lab, forever))
        await asyncio.to_thread(began.wait)
        remove_listeners(lab.run_dir)
        with pytest.raises(NotReachable, match="the run stopped before"):
            await answer

    in_lab(tmp_path, body)


def test_outside_client_with_another_token_is_refused(tmp_path: Path) -> None:
    """A client that has read an old file, or the file of another run, must get no access.

    Such a file has another token than the nodes of this run.
    """

    async def body(lab: Lab) -> None:
        await serve(lab)
        write_listeners(lab.run_dir, listeners(lab.directory, token="other"))
        with pytest.raises(Disconnected):
            await ask(lab, beating())
        refused = [row for row in lab.rows(SERVER) if row.kind == "connection_refused"]
        assert "wrong token" in (refused[0].detail or "")

    in_lab(tmp_path, body)


def test_question_that_breaks_a_task_of_the_outside_client_is_our_failure(tmp_path: Path) -> None:
    """If a task of the guest dies, by a bug of ours, the question ends with the error of the task.

    The question `breaks` would otherwise take 60 s.
    """

    async def body(lab: Lab) -> None:
        await serve(lab)

        async def breaks(host: Host) -> None:
            async def dies() -> None:
                raise ValueError("broken")

            host.spawn(dies(), name="dies")
            await host.sleep(60 * SECOND_US)

        with pytest.raises(SimulationError, match="dies died with ValueError: broken"):
            await ask(lab, breaks)

    in_lab(tmp_path, body)


def test_listeners_file_is_readable_only_by_its_owner_from_the_first_moment(tmp_path: Path) -> None:
    """The file has the token, so its mode is 0600 before anything is written.

    If another writer has left a half-written file that others may read, it is replaced.
    """
    # The writer writes into this file, and then gives it the name of the listeners file.
    unfinished = tmp_path / f".{FILE_NAME}.unfinished"
    unfinished.write_text("open to all")
    unfinished.chmod(0o666)

    directory = {SERVER: ProcessAddress(process_id="p", host="127.0.0.1", port=1)}
    written = listeners(directory)
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
)
def test_run_without_a_listeners_file_cannot_be_asked(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """A guest of a run without a readable listeners file gets an error that says why.

    The file is missing before the run has started its nodes, while the run stops, and afterwards.
    """
    if content is not None:
        (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(NoListeners, match=message):
        read_listeners(tmp_path)
    with pytest.raises(NotReachable, match=message):
        ask_as_guest(tmp_path, beating())


def test_run_with_another_version_of_the_links_is_not_called(tmp_path: Path) -> None:
    """Nodes of another version would close a connection without a reason. So the guest opens none.

    The guest gets an error that names the version. If the file names no node, the guest gets
    another error.
    """
    write_listeners(tmp_path, listeners({}, link_version=LINK_VERSION + 1))
    with pytest.raises(NotReachable, match=f"got version {LINK_VERSION + 1}"):
        ask_as_guest(tmp_path, beating())
    write_listeners(tmp_path, listeners({}))
    with pytest.raises(NotReachable, match="none of its nodes is up"):
        ask_as_guest(tmp_path, beating())
