"""NodeProcess and RealHost: nodes in one process and in two, and how they end.

- A NodeProcess (`p0`, `p1`) is a process that hosts nodes. Here all of them are objects in one
  process of Python.
- A RealHost gives a node its clock and network.
- `lab.node("p0", SERVER)` starts an echo node, which answers heartbeats, in a process.
- `beat(connection, n)` sends a heartbeat and waits for its answer. The generation n, 0 by default,
  is the number of the heartbeat. `served` lists the numbers of the heartbeats that a node has got.
- `lab.directory` has the address of each node. `lab.push` sends the directory to all processes.
- An incarnation is one life of a node.
- A frame is one message of a connection. The trace of a node has its recorded events as rows.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from cluster.host.host import Connection, Disconnected, HostDead
from cluster.host.incoming_request import IncomingRequest
from cluster.trace.files import frames_path, read_frames
from partition_log.memory_storage import MemoryStorage
from protocol.errors import SimulationError
from protocol.ids import Incarnation
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from protocol.trace import TraceEvent, TraceKind
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
)


@pytest.mark.parametrize("client_process", ["p0", "p1"], ids=["same-process", "over-tcp"])
def test_request_to_another_node_is_answered_in_order(tmp_path: Path, client_process: str) -> None:
    """A node must not notice whether its peer is in the same process."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node(client_process, CLIENT)
        connection = connect(client)
        answers = await asyncio.gather(*(beat(connection, i) for i in range(50)))
        assert answers == [HeartbeatResponse()] * 50
        assert server.served == list(range(50))
        assert lab.processes["p0"].status().records_produced == 50

    in_lab(tmp_path, body)


@pytest.mark.parametrize(
    "is_in_directory", [False, True], ids=["unknown-name", "process-without-the-node"]
)
def test_connection_to_a_node_that_is_down_is_refused_at_once(
    tmp_path: Path, is_in_directory: bool
) -> None:
    """As with Kafka, a client learns of a dead broker by a refusal, and not by a timeout."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        client = lab.node("p0", CLIENT)
        if is_in_directory:
            lab.directory[SERVER] = lab.addresses["p1"]
            lab.push()
        with pytest.raises(Disconnected):
            await beat(connect(client))

        client.host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))  # would raise on a dead host
        # The timeout of 10 s was not needed.
        assert client.host.now_us() < 5 * SECOND_US

    in_lab(tmp_path, body)


def test_connection_to_a_dead_process_ends_although_the_directory_forgot_it(
    tmp_path: Path,
) -> None:
    """A failure to connect must be reported, although no node has the address any more.

    1. A process is killed.
    2. A client connects to its address.
    3. The control plane removes the node from the directory.
    4. The connection is refused. Without a report the client would wait for its setup timeout of
       10 s. On Ray one member of twelve once missed a failover by such a wait.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)

        await lab.processes["p0"].stop()

        started_us = client.host.now_us()
        connection = connect(client)
        del lab.directory[SERVER]
        lab.push()
        await closed(connection)
        assert client.host.now_us() - started_us < 5 * SECOND_US

    in_lab(tmp_path, body)


def test_process_that_ends_disconnects_its_peers_and_is_refused_afterwards(
    tmp_path: Path,
) -> None:
    """The sockets of a dead process end, and with them each connection to its nodes."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        lab.node("p0", SERVER)
        clients = [lab.node("p1", CLIENT), lab.node("p1", OTHER)]
        connections = [connect(client) for client in clients]
        for connection in connections:
            await beat(connection)
        await lab.processes["p0"].stop()
        for connection in connections:
            await closed(connection)
        with pytest.raises(Disconnected):
            await beat(connect(clients[0]))

    in_lab(tmp_path, body)


@pytest.mark.parametrize("forgotten", [False, True], ids=["moved", "forgotten-meanwhile"])
def test_node_restarted_in_another_process_is_reached_there(
    tmp_path: Path, forgotten: bool
) -> None:
    """After a change of the directory no frame goes to the old process, and none comes from it.

    1. A machine loses power, and sends nothing, so the TCP links to the machine stay open.
    2. The node is up again, in another process.
    3. The old links end, which must not end connections to the new incarnation.
    """

    async def body(lab: Lab) -> None:
        for process_id in ("p0", "p1", "p2"):
            await lab.start_process(process_id)
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)
        old = connect(client)
        await beat(old)
        if forgotten:
            del lab.directory[SERVER]
            lab.push()

        successor = lab.node("p2", SERVER, incarnation=1)
        # The new directory has ended the connection, although the old TCP link is still open.
        assert old.is_closed
        new = connect(client)
        await beat(new, 7)
        assert successor.served == [7]
        await lab.processes["p0"].stop()  # ends the old links late
        await beat(new, 8)

    in_lab(tmp_path, body)


@pytest.mark.parametrize("client_process", ["p0", "p1"], ids=["same-process", "over-tcp"])
def test_node_crashed_alone_resets_its_connections_and_spares_its_neighbours(
    tmp_path: Path, client_process: str
) -> None:
    """A consumer in a process with others can be killed as if it had a process of its own."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        neighbour = lab.node("p0", OTHER)
        lab.node("p0", SERVER)
        client = lab.node(client_process, CLIENT)
        connection, spared = connect(client), connect(client, OTHER)
        await beat(connection)
        await beat(spared)

        lab.processes["p0"].crash_node(SERVER)
        await closed(connection)
        await beat(spared, 5)
        assert neighbour.served == [0, 5]
        with pytest.raises(Disconnected):
            await beat(connect(client))

        successor = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert successor.served == [9]
        assert TraceKind.NODE_STOPPED not in lab.kinds(SERVER)

    in_lab(tmp_path, body)


def test_crash_of_a_node_that_is_not_alive_is_refused(tmp_path: Path) -> None:
    """A crash that would hit nothing is an error, and so is a second start of a live node."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        with pytest.raises(SimulationError, match="broker-0 is not alive"):
            process.crash_node(SERVER)
        lab.node("p0", SERVER)
        with pytest.raises(SimulationError, match="broker-0 is alive"):
            lab.node("p0", SERVER)

    in_lab(tmp_path, body)


def test_host_of_a_crashed_node_refuses_every_call(tmp_path: Path) -> None:
    """A dead node must not act any more. Its cleanup code, for example, could send LeaveGroup.

    Each call to its host raises HostDead.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        host = client.host
        connection = connect(client)
        await beat(connection, 1)
        acts_after_death: list[str] = []

        async def send_at_the_end() -> None:
            try:
                await host.sleep(100 * SECOND_US)
            finally:
                acts_after_death.append("tried to send")
                await beat(connection, 2)

        host.spawn(send_at_the_end(), name="sleeps")
        await asyncio.sleep(0)  # the first task begins to sleep, and the second will not begin
        host.spawn(send_at_the_end(), name="never begins")
        host.after(0, acts_after_death.append, "a timer fired")

        process.crash_node(CLIENT)
        for act in (
            lambda: host.after(0, print),
            lambda: host.trace(TraceEvent(kind=TraceKind.RUN_STAGE)),
            lambda: host.log("x"),
            host.create_future,
            lambda: connect(client),
            lambda: host.spawn(beat_late(connection), name="late"),
        ):
            with pytest.raises(HostDead):
                act()
        with pytest.raises(HostDead):
            await host.sleep(0)

        await beat(connect(lab.node("p0", OTHER)), 3)
        assert server.served == [1, 3]
        # Only the `finally` block of the first task has run. Its request was refused, which is not
        # a failure of the node.
        assert acts_after_death == ["tried to send"]
        assert process.failures == []

    async def beat_late(connection: Connection) -> None:
        await beat(connection)

    in_lab(tmp_path, body)


@pytest.mark.parametrize("where", ["task", "timer", "handler"])
def test_failure_inside_a_node_is_traced_and_reaches_the_process(
    tmp_path: Path, where: str
) -> None:
    """A failure in a node is our bug and must end the run; asyncio alone would only print it."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        waiting = asyncio.ensure_future(process.next_failures(0))  # 0: none is known yet

        def broken(*_: object) -> None:
            raise ZeroDivisionError("planted")

        async def broken_task() -> None:
            await server.host.sleep(1)
            broken()

        match where:
            case "task":
                server.host.spawn(broken_task(), name="planted task")
            case "timer":
                server.host.after(1, broken)
            case _:
                server.host.serve(broken)
                connect(client).send(
                    HeartbeatRequest(group_id="g", generation_id=0, member_id="m"),
                    timeout_us=SECOND_US,
                    on_response=lambda _: None,
                )

        (failure,) = await waiting
        assert failure.text.startswith("broker-0: ")
        assert "ZeroDivisionError: planted" in failure.text
        assert failure.disk_trouble is None
        await asyncio.sleep(0)  # the process flushes a row in the next turn of the loop
        failed = [row for row in lab.rows(SERVER) if row.kind == TraceKind.TASK_FAILED]
        assert len(failed) == 1
        assert "planted" in (failed[0].detail or "")

    in_lab(tmp_path, body)


def test_node_that_cannot_start_is_an_error_of_the_start(tmp_path: Path) -> None:
    """The run must not begin without the node. Its name must be free for another attempt."""

    class Broken(EchoNode):
        def start(self) -> None:
            raise ZeroDivisionError

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        with pytest.raises(ZeroDivisionError):
            process.start_node(
                SERVER, Incarnation(0), Broken, storage=MemoryStorage(), role="broker"
            )
        lab.node("p0", SERVER, incarnation=1)

    in_lab(tmp_path, body)


def test_row_of_a_message_is_in_the_file_before_the_message_arrives(
    tmp_path: Path,
) -> None:
    """A row is flushed before its message is sent.

    So if a node is killed, its trace has a row for each message that another node has received.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        connection = connect(client)
        await beat(connection)
        # At the arrival of each request: the number of rows about sent requests in the file.
        row_counts: list[int] = []

        def count_rows(request: IncomingRequest) -> None:
            sent = [r for r in lab.rows(CLIENT) if r.kind == TraceKind.REQUEST_SENT]
            row_counts.append(len(sent))
            server.host.reply(request.request_id, HeartbeatResponse())

        server.host.serve(count_rows)

        for number in range(5):
            await beat(connection, number)
        # The first row belongs to the beat that was sent before `count_rows` served.
        assert row_counts == [2, 3, 4, 5, 6]

    in_lab(tmp_path, body)


def test_refused_caller_is_logged_and_traced(tmp_path: Path) -> None:
    """A process with a wrong token is refused. The log and the trace have the refusal.

    Otherwise a wrong configuration would look like a broken network.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1", token="of another run")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        with pytest.raises(Disconnected):
            await beat(connect(client))
        # The process still serves other callers.
        neighbour = lab.node("p0", OTHER)
        await beat(connect(neighbour), 4)
        assert server.served == [4]

    in_lab(tmp_path, body)
    rows = [
        row
        for row in read_frames(frames_path(tmp_path / "trace", SERVER, 0)).rows
        if row.kind == TraceKind.CONNECTION_REFUSED
    ]
    assert len(rows) == 1
    assert "wrong token" in (rows[0].detail or "")
    assert "wrong token" in (tmp_path / "logs" / "broker-0-0.log").read_text()


def test_trace_of_an_incarnation_is_numbered_and_ends_with_the_stop(tmp_path: Path) -> None:
    """Readers merge rows by (time, node, incarnation, seq), so these must be complete and grow."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        client = lab.node("p0", CLIENT)
        lab.node("p0", SERVER)
        await beat(connect(client))

    in_lab(tmp_path, body)
    rows = read_frames(frames_path(tmp_path / "trace", CLIENT, 0)).rows
    assert rows[0].kind == TraceKind.NODE_STARTED
    assert rows[-1].kind == TraceKind.NODE_STOPPED
    assert [row.seq for row in rows] == list(range(len(rows)))
    assert [row.time_us for row in rows] == sorted(row.time_us for row in rows)


def test_cancelled_host_timer_does_not_fire_and_sleeps_end_in_order(tmp_path: Path) -> None:
    """Sessions and rebalances are timers. A timer that fires wrongly would remove members."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        host = lab.node("p0", CLIENT).host
        fired: list[str] = []
        host.after(1_000, fired.append, "cancelled").cancel()
        host.after(2_000, fired.append, "second")
        host.after(0, fired.append, "first")

        started_us = host.now_us()
        await host.sleep(5_000)
        assert host.now_us() - started_us >= 5_000
        assert fired == ["first", "second"]
        # A sleep can be cancelled, too.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(host.sleep(60 * SECOND_US), 0.001)

    in_lab(tmp_path, body)
