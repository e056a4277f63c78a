"""Pauses and controlled shutdowns of single nodes in a NodeProcess with several nodes.

- A NodeProcess (`p0`, `p1`) is a process that hosts nodes. Here all of them are objects in one
  process of Python. A paused node stands still while the other nodes of its process run.
- `lab.node("p0", SERVER)` starts an echo node, which answers heartbeats, in a process.
- A frame is one message of a connection.
- `beat(connection, n)` sends a heartbeat and waits for its answer. The generation n, 0 by default,
  is the number of the heartbeat. `served` lists the numbers of the heartbeats that a node has got.
- `settle` waits 50 ms, which is long enough for all frames to arrive.
- The driver is the process that runs the experiment.
"""

import asyncio
from pathlib import Path

import pytest

from cluster.host.host import Disconnected
from cluster.links.rules import Cut, LinkRule, Selector
from protocol.errors import SimulationError
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from protocol.trace import TraceKind
from tests.support.harness.process_lab import (
    CLIENT,
    OTHER,
    SECOND_US,
    SERVER,
    EchoNode,
    Lab,
    beat,
    closed,
    connect,
    in_lab,
    settle,
)

MS = 1_000


def heartbeat() -> HeartbeatRequest:
    """Return a heartbeat of any member."""
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("client_process", ["p0", "p1"], ids=["same-process", "over-tcp"])
def test_paused_node_keeps_its_connections_open_and_silent(
    tmp_path: Path, client_process: str
) -> None:
    """Kafka's clients notice a stopped process only by a timeout.

    Connections that existed before the pause stay open. New ones are neither open nor closed until
    the resume.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node(client_process, CLIENT)
        old = connect(client)
        await beat(old)

        process.pause_node(SERVER)
        new = connect(client)
        waiting = [asyncio.ensure_future(beat(old, 1)), asyncio.ensure_future(beat(new, 2))]
        await settle()
        assert server.served == [0]
        assert (old.is_open, new.is_open, new.is_closed) == (True, False, False)

        process.resume_node(SERVER)
        assert await asyncio.gather(*waiting) == [HeartbeatResponse()] * 2
        assert server.served == [0, 1, 2]

    in_lab(tmp_path, body)


def test_pause_spares_the_other_nodes_of_the_process(tmp_path: Path) -> None:
    """A process may host a hundred consumers. Only the paused one stands still."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        lab.node("p0", SERVER)
        neighbour, client = lab.node("p0", OTHER), lab.node("p0", CLIENT)
        process.pause_node(SERVER)
        await beat(connect(client, OTHER), 3)
        assert neighbour.served == [3]

    in_lab(tmp_path, body)


def test_resumed_node_fires_due_timers_before_it_handles_waiting_frames(tmp_path: Path) -> None:
    """A resumed node first acts on its old state, and only then reads what has arrived.

    So a coordinator in Kafka removes members whose heartbeats have arrived during its pause.

    1. A request arrives during the pause.
    2. Four timers become due during the pause. The timer of 2 ms wakes a sleeping task, the timer
       of 5 ms writes into the story, and the timer of 10 ms cancels the timer of 20 ms.
    3. At the resume the timers fire in the order of their due times, so the timer of 20 ms is
       cancelled before it can fire.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        host = server.host
        connection = connect(client)
        await beat(connection)
        story: list[str] = []

        async def sleeper() -> None:
            await host.sleep(2 * MS)
            story.append("the sleeper woke")

        host.serve(lambda request: story.append(f"served {type(request.envelope.body).__name__}"))
        host.spawn(sleeper(), name="sleeper")
        await asyncio.sleep(0)  # the task begins, and sets its timer

        process.pause_node(SERVER)
        connection.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        cancelled = host.after(20 * MS, story.append, "a cancelled timer fired")
        host.after(10 * MS, cancelled.cancel)
        host.after(5 * MS, story.append, "a timer fired")
        await settle()
        assert story == []

        process.resume_node(SERVER)
        await settle()
        # The timer of the sleeper only makes its task ready, which runs after the other timers.
        assert story == ["a timer fired", "the sleeper woke", "served HeartbeatRequest"]

    in_lab(tmp_path, body)


def test_resumed_node_handles_frames_of_a_cut_after_timers_and_before_later_frames(
    tmp_path: Path,
) -> None:
    """A cut holds a frame back, and ends while the receiver is paused.

    The frame then waits until the due timers of the resumed node have fired. It was sent before the
    frames that arrive during the pause, so the node handles it before them.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        host = server.host

        early, late = connect(client), connect(client)
        await beat(early)
        await beat(late)
        story: list[str] = []

        async def sleeper() -> None:
            await host.sleep(200 * MS)
            story.append("the sleeper woke")

        host.serve(lambda request: story.append(f"served {request.envelope.correlation_id}"))
        host.spawn(sleeper(), name="sleeper")

        selector = Selector(sources=(CLIENT,), destinations=(SERVER,))
        process.set_link_rules([LinkRule(rule_id="cut", selector=selector, effect=Cut())])
        early.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        await settle()  # the request arrives, and the cut holds it back
        process.pause_node(SERVER)
        process.set_link_rules(())
        late.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        await settle()  # the request arrives during the pause
        await asyncio.sleep(0.2)  # the timer of the sleeper becomes due
        assert story == []

        process.resume_node(SERVER)
        await settle()
        # Requests 0 and 1 are the two beats above, 2 is the one of `early`, 3 the one of `late`.
        assert story == ["the sleeper woke", "served 2", "served 3"]

    in_lab(tmp_path, body)


def test_frames_that_arrived_during_a_pause_precede_later_ones(tmp_path: Path) -> None:
    """Frames that arrive after the resume must not overtake those that arrived during the pause."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        connection = connect(client)
        await beat(connection)
        process.pause_node(SERVER)
        waiting = [asyncio.ensure_future(beat(connection, number)) for number in (1, 2)]
        await settle()
        process.resume_node(SERVER)
        waiting += [asyncio.ensure_future(beat(connection, number)) for number in (3, 4)]
        await asyncio.gather(*waiting)
        assert server.served == [0, 1, 2, 3, 4]

    in_lab(tmp_path, body)


def test_node_paused_twice_stands_still_until_it_is_resumed_again(tmp_path: Path) -> None:
    """A pause right after a resume must keep the frames that wait since the first pause."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        connection = connect(client)
        await beat(connection)

        process.pause_node(SERVER)
        waiting = asyncio.ensure_future(beat(connection, 1))
        await settle()
        process.resume_node(SERVER)
        process.pause_node(SERVER)
        await settle()
        assert server.served == [0]

        process.resume_node(SERVER)
        process.resume_node(SERVER)  # does nothing, because the node is not paused
        await waiting
        assert server.served == [0, 1]

    in_lab(tmp_path, body)


def test_paused_client_learns_after_the_pause_that_its_server_died(tmp_path: Path) -> None:
    """A paused client handles the end of a connection only at its resume.

    The client's kernel knows the end long before.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        clients = await lab.start_process("p1")
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)
        connection = connect(client)
        await beat(connection)

        clients.pause_node(CLIENT)
        await lab.processes["p0"].stop()
        await settle()
        assert connection.is_open
        clients.resume_node(CLIENT)
        await closed(connection)

    in_lab(tmp_path, body)


def test_crash_of_a_paused_node_ends_every_connection_to_it(tmp_path: Path) -> None:
    """The kernel also resets connections that the node has not accepted yet."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)
        old = connect(client)
        await beat(old)
        process.pause_node(SERVER)
        new = connect(client)
        await settle()

        process.crash_node(SERVER)
        await closed(old)
        await closed(new)
        assert client.host.now_us() < 5 * SECOND_US  # so it was not the timeout of 10 s

        with pytest.raises(SimulationError, match="broker-0 is not alive"):
            process.resume_node(SERVER)
        successor = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert successor.served == [9]

    in_lab(tmp_path, body)


def test_paused_node_has_flushed_its_trace_and_writes_no_row(tmp_path: Path) -> None:
    """A pause writes the rows that the node has buffered into the files of the run.

    Others read these files while the run goes on, so they must find all rows of a stopped process.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        lab.node("p0", SERVER)
        client = lab.node("p0", CLIENT)
        connection = connect(client)
        await beat(connection)

        waiting = asyncio.ensure_future(beat(connection, 1))
        await asyncio.sleep(0)  # lets the client send the request

        process.pause_node(CLIENT)
        rows = lab.rows(CLIENT)
        assert rows[-1].kind == TraceKind.REQUEST_SENT
        await settle()
        assert lab.rows(CLIENT) == rows
        process.resume_node(CLIENT)
        await waiting

    in_lab(tmp_path, body)


async def asked_to_stop(node: EchoNode) -> None:
    """Wait until the node's shutdown has begun."""
    while node.on_done is None:
        await asyncio.sleep(0)


def finish(node: EchoNode) -> None:
    """End the shutdown of a node, as a broker does when its leaderships have moved."""
    assert node.on_done is not None
    node.on_done()


def test_node_in_shutdown_serves_until_it_has_finished_and_then_disconnects(
    tmp_path: Path,
) -> None:
    """As after SIGTERM, a broker still answers while its leaderships move to other brokers.

    Then it stops, which closes its connections. A node of the next incarnation can start.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        connection = connect(client)
        stopping = asyncio.ensure_future(process.shut_down_node(SERVER))
        await asked_to_stop(server)
        await beat(connection)
        with pytest.raises(SimulationError, match="shutting down already"):
            await process.shut_down_node(SERVER)

        finish(server)
        assert await stopping is True
        await closed(connection)
        with pytest.raises(Disconnected):
            await beat(connect(client))
        assert lab.kinds(SERVER)[-1] == TraceKind.NODE_STOPPED

        successor = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert successor.served == [9]

    in_lab(tmp_path, body)


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_node_killed_during_its_shutdown_is_reported_to_the_driver(
    tmp_path: Path, end: str
) -> None:
    """The driver waits for the end of a shutdown, and must not wait for a dead node.

    So `shut_down_node` also returns when the node is killed. `end` says how it is killed.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server = lab.node("p0", SERVER)
        stopping = asyncio.ensure_future(process.shut_down_node(SERVER))
        await asked_to_stop(server)
        # The node is also paused. A crash or a stop must end it nevertheless.
        process.pause_node(SERVER)

        if end == "crash":
            process.crash_node(SERVER)
        else:
            await process.stop()

        # The result is True if the node was stopped in order, and False if it crashed.
        assert await stopping is (end == "stop")
        finish(server)  # the late end of the shutdown changes nothing
        await settle()
        assert lab.kinds(SERVER).count(TraceKind.NODE_STOPPED) == (1 if end == "stop" else 0)
        assert process.failures == []

    in_lab(tmp_path, body)
