"""Pauses and controlled shutdowns of single nodes that share a process with others.

In real time the nodes of a cluster are spread over processes, each of which is a NodeProcess. If a
single node is paused, it stands still while the other nodes of its process run: its timers do not
fire, and the frames (messages) for it wait.

In these tests the NodeProcesses `p0` and `p1` are objects in the one Python process of the test.
The nodes are echo nodes, which answer heartbeats:

- `lab.node("p0", SERVER)` starts a node in the process p0.
- `beat(connection, 7)` sends the heartbeat number 7 and waits for its answer. The default is
  heartbeat 0. `node.served` lists the numbers of the heartbeats that a node has got.
- `settle` waits 50 ms, which is long enough for all frames to arrive.
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
    """As with Kafka, a client notices a stopped process only by its own timeouts.

    Connections that existed before the pause stay open. A new connection does not open until the
    resume, but it is not refused either.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node(client_process, CLIENT)
        old_connection = connect(client)
        await beat(old_connection)

        process.pause_node(SERVER)
        new_connection = connect(client)
        waiting = [
            asyncio.ensure_future(beat(old_connection, 1)),
            asyncio.ensure_future(beat(new_connection, 2)),
        ]
        await settle()
        assert server.served == [0]
        assert old_connection.is_open
        assert not new_connection.is_open
        assert not new_connection.is_closed

        process.resume_node(SERVER)
        assert await asyncio.gather(*waiting) == [HeartbeatResponse()] * 2
        assert server.served == [0, 1, 2]

    in_lab(tmp_path, body)


def test_pause_spares_the_other_nodes_of_the_process(tmp_path: Path) -> None:
    """A process may host a hundred consumers. A pause of one of them must not stop the others."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        lab.node("p0", SERVER)
        neighbour, client = lab.node("p0", OTHER), lab.node("p0", CLIENT)
        process.pause_node(SERVER)
        await beat(connect(client, OTHER), 3)
        assert neighbour.served == [3]

    in_lab(tmp_path, body)


def test_resumed_node_fires_due_timers_before_it_handles_waiting_frames(tmp_path: Path) -> None:
    """A resumed coordinator may remove a member whose heartbeat has arrived during the pause.

    Kafka's brokers do the same.

    1. During the pause a request arrives, and four timers become due:

       - The timer of 2 ms wakes a sleeping task.
       - The timer of 5 ms writes a line into the story.
       - The timer of 10 ms cancels the timer of 20 ms.
       - The timer of 20 ms would write another line.

    2. At the resume the timers fire in the order of their times. So the timer of 20 ms is cancelled
       before it can fire.
    3. After the timers, the node handles the request.
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
        await asyncio.sleep(0)  # the task begins to sleep, which sets its timer

        process.pause_node(SERVER)
        connection.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        cancelled = host.after(20 * MS, story.append, "a cancelled timer fired")
        host.after(10 * MS, cancelled.cancel)
        host.after(5 * MS, story.append, "a timer fired")
        await settle()
        assert story == []

        process.resume_node(SERVER)
        await settle()
        # The timer of the sleeper fires first, but its task runs only after the other timers.
        assert story == ["a timer fired", "the sleeper woke", "served HeartbeatRequest"]

    in_lab(tmp_path, body)


def test_resumed_node_handles_frames_of_a_cut_after_timers_and_before_later_frames(
    tmp_path: Path,
) -> None:
    """A cut holds a frame back, and is healed while the receiver is paused.

    1. The client sends a request. The cut holds it back at the server.
    2. The server is paused, and the cut is healed.
    3. The client sends a second request, which arrives during the pause. A timer becomes due, too.
    4. The server is resumed. First its timer fires. Then the server handles the first request, and
       then the second request.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        host = server.host

        connection_1, connection_2 = connect(client), connect(client)
        await beat(connection_1)
        await beat(connection_2)
        story: list[str] = []

        async def sleeper() -> None:
            await host.sleep(200 * MS)
            story.append("the sleeper woke")

        host.serve(lambda request: story.append(f"served {request.envelope.correlation_id}"))
        host.spawn(sleeper(), name="sleeper")

        selector = Selector(sources=(CLIENT,), destinations=(SERVER,))
        process.set_link_rules([LinkRule(rule_id="cut", selector=selector, effect=Cut())])
        connection_1.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        await settle()  # the request arrives, and the cut holds it back
        process.pause_node(SERVER)
        process.set_link_rules(())
        connection_2.send(heartbeat(), timeout_us=SECOND_US, on_response=lambda _: None)
        await settle()  # the request arrives during the pause
        await asyncio.sleep(0.2)  # the timer of the sleeper becomes due
        assert story == []

        process.resume_node(SERVER)
        await settle()
        # The client numbers its requests from 0. The two beats above were the requests 0 and 1.
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
    """The frames that have waited since the first pause must go on waiting in the second one."""

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
    """The kernel of the client's machine knows at once that the connection has ended.

    But the paused client itself learns of it only when it is resumed.
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
    """A paused node crashes. All its connections end, even those that it has not accepted yet."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)
        accepted = connect(client)
        await beat(accepted)
        process.pause_node(SERVER)
        not_accepted = connect(client)
        await settle()

        process.crash_node(SERVER)
        await closed(accepted)
        await closed(not_accepted)
        # The connections would also end by their timeout, but only after 10 s.
        assert client.host.now_us() < 5 * SECOND_US

        with pytest.raises(SimulationError, match="broker-0 is not alive"):
            process.resume_node(SERVER)
        restarted_server = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert restarted_server.served == [9]

    in_lab(tmp_path, body)


def test_paused_node_has_flushed_its_trace_and_writes_no_row(tmp_path: Path) -> None:
    """Before a node stands still, the rows that it has buffered are written into its trace file.

    Others read this file while the run goes on, and must find all rows of the paused node.
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
        rows_at_pause = lab.rows(CLIENT)
        assert rows_at_pause[-1].kind == TraceKind.REQUEST_SENT
        await settle()
        assert lab.rows(CLIENT) == rows_at_pause
        process.resume_node(CLIENT)
        await waiting

    in_lab(tmp_path, body)


async def until_asked_to_stop(node: EchoNode) -> None:
    """Wait until the node's shutdown has begun."""
    while node.on_done is None:
        await asyncio.sleep(0)


def finish_shutdown(node: EchoNode) -> None:
    """End the shutdown of a node, as a broker does when its leaderships have moved."""
    assert node.on_done is not None
    node.on_done()


def test_node_in_shutdown_serves_until_it_has_finished_and_then_disconnects(
    tmp_path: Path,
) -> None:
    """A broker that gets SIGTERM still answers while its leaderships move to other brokers.

    When the leaderships have moved, the broker stops, and its connections are closed. After that it
    can be started again. In this test an echo node takes the place of the broker.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        connection = connect(client)
        stopping = asyncio.ensure_future(process.shut_down_node(SERVER))
        await until_asked_to_stop(server)
        await beat(connection)
        with pytest.raises(SimulationError, match="shutting down already"):
            await process.shut_down_node(SERVER)

        finish_shutdown(server)
        assert await stopping is True
        await closed(connection)
        with pytest.raises(Disconnected):
            await beat(connect(client))
        assert lab.kinds(SERVER)[-1] == TraceKind.NODE_STOPPED

        restarted_server = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert restarted_server.served == [9]

    in_lab(tmp_path, body)


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_shutdown_returns_although_the_node_ends_before_it_is_finished(
    tmp_path: Path, end: str
) -> None:
    """The experiment waits for the end of a shutdown, and must not wait for a dead node.

    So `shut_down_node` also returns if the node crashes, or if its whole process stops. This must
    be so even for a node that is paused, as in this test.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server = lab.node("p0", SERVER)
        stopping = asyncio.ensure_future(process.shut_down_node(SERVER))
        await until_asked_to_stop(server)
        process.pause_node(SERVER)

        if end == "crash":
            process.crash_node(SERVER)
        else:
            await process.stop()

        # The result is True if the node was stopped in order, and False if it crashed.
        assert await stopping is (end == "stop")
        finish_shutdown(server)  # the late end of the shutdown changes nothing
        await settle()
        # A killed node writes no last row. NODE_STOPPED is only for nodes that stop in order.
        assert lab.kinds(SERVER).count(TraceKind.NODE_STOPPED) == (1 if end == "stop" else 0)
        assert process.failures == []

    in_lab(tmp_path, body)
