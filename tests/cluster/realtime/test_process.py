"""Nodes that run in real time, in one process and in several, and how they end.

In real time the nodes of a cluster are spread over processes, each of which is a NodeProcess. A
node acts through its host, here a RealHost, which gives it a clock and connections. Nodes of
different processes talk through TCP.

In these tests the NodeProcesses `p0`, `p1`, ... are objects in the one Python process of the test.
The nodes are echo nodes, which answer heartbeats:

- `lab.node("p0", SERVER)` starts a node in the process p0.
- `beat(connection, 7)` sends the heartbeat number 7 and waits for its answer. The default is
  heartbeat 0. `node.served` lists the numbers of the heartbeats that a node has got.
- `lab.directory` says in which process each node is. `lab.push` sends the directory to all
  processes, as the control plane of a run does whenever nodes start or end.
- A node that is restarted has the next incarnation: 0, 1, ...
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
    """It makes no difference whether the other node is in the same process."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node(client_process, CLIENT)
        connection = connect(client)
        answers = await asyncio.gather(*(beat(connection, number) for number in range(50)))
        assert answers == [HeartbeatResponse()] * 50
        assert server.served == list(range(50))
        # An echo node reports its served heartbeats as produced records.
        assert lab.processes["p0"].status().records_produced == 50

    in_lab(tmp_path, body)


@pytest.mark.parametrize(
    "is_in_directory", [False, True], ids=["unknown-name", "process-without-the-node"]
)
def test_connection_to_a_node_that_is_down_is_refused_at_once(
    tmp_path: Path, is_in_directory: bool
) -> None:
    """As with Kafka, a client learns of a dead broker by a refusal, not by a timeout."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        client = lab.node("p0", CLIENT)
        # Without an entry the client knows no process to call. With the entry it calls p1, which
        # runs and has no node SERVER.
        if is_in_directory:
            lab.directory[SERVER] = lab.addresses["p1"]
            lab.push()
        with pytest.raises(Disconnected):
            await beat(connect(client))

        client.host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))  # the client itself is alive
        assert client.host.now_us() < 5 * SECOND_US  # so it was not the timeout of 10 s

    in_lab(tmp_path, body)


def test_connection_to_a_dead_process_ends_although_the_directory_forgot_it(
    tmp_path: Path,
) -> None:
    """The client must learn of a refusal, although the server is no longer in the directory.

    1. The process of the server is killed.
    2. The client connects to its address.
    3. The control plane removes the server from the directory.
    4. The connection is refused, and the client learns of the refusal at once. Otherwise the client
       would wait for its timeout of 10 s. On Ray one member of twelve once missed a failover by
       such a wait.
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


@pytest.mark.parametrize("leaves_directory", [False, True], ids=["moved", "forgotten-meanwhile"])
def test_node_restarted_in_another_process_is_reached_there(
    tmp_path: Path, leaves_directory: bool
) -> None:
    """When the directory says that a node has moved, its old process does not count any more.

    1. A machine loses its power. It sends nothing, so the TCP links to it seem to be open.
    2. Its node is started again in another process. In one case the directory had no entry for the
       node in between, in the other case its entry changes.
    3. Late, the old links end. This must not end connections to the node in its new process.

    In the test the old process lives on until step 3.
    """

    async def body(lab: Lab) -> None:
        for process_id in ("p0", "p1", "p2"):
            await lab.start_process(process_id)
        lab.node("p0", SERVER)
        client = lab.node("p1", CLIENT)
        old_connection = connect(client)
        await beat(old_connection)
        if leaves_directory:
            del lab.directory[SERVER]
            lab.push()

        restarted_server = lab.node("p2", SERVER, incarnation=1)
        # The new directory has ended the connection, although the old TCP link is still open.
        assert old_connection.is_closed
        new_connection = connect(client)
        await beat(new_connection, 7)
        assert restarted_server.served == [7]
        await lab.processes["p0"].stop()  # ends the old links
        await beat(new_connection, 8)

    in_lab(tmp_path, body)


@pytest.mark.parametrize("client_process", ["p0", "p1"], ids=["same-process", "over-tcp"])
def test_node_crashed_alone_resets_its_connections_and_spares_its_neighbours(
    tmp_path: Path, client_process: str
) -> None:
    """A process may host many consumers. One of them can be killed, and the others go on."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        neighbour = lab.node("p0", OTHER)
        lab.node("p0", SERVER)
        client = lab.node(client_process, CLIENT)
        connection, to_neighbour = connect(client), connect(client, OTHER)
        await beat(connection)
        await beat(to_neighbour)

        lab.processes["p0"].crash_node(SERVER)
        await closed(connection)
        await beat(to_neighbour, 5)
        assert neighbour.served == [0, 5]
        with pytest.raises(Disconnected):
            await beat(connect(client))

        restarted_server = lab.node("p0", SERVER, incarnation=1)
        await beat(connect(client), 9)
        assert restarted_server.served == [9]
        # A killed node writes no last row. NODE_STOPPED is only for nodes that stop in order.
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
    """A dead node must not act any more, so each call to its host raises HostDead.

    Otherwise the cleanup code of a killed consumer could send a LeaveGroup, for example.
    """

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        host = client.host
        connection = connect(client)
        await beat(connection, 1)
        acts_after_death: list[str] = []

        async def sleep_and_send_at_the_end() -> None:
            try:
                await host.sleep(100 * SECOND_US)
            finally:
                acts_after_death.append("tried to send")
                await beat(connection, 2)

        host.spawn(sleep_and_send_at_the_end(), name="sleeps")
        await asyncio.sleep(0)  # the task begins to sleep
        # The node dies before this second task begins, and before the timer fires.
        host.spawn(sleep_and_send_at_the_end(), name="never begins")
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
    """A node that raises has a bug, which must end the run. asyncio alone would only print it."""

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        server, client = lab.node("p0", SERVER), lab.node("p0", CLIENT)
        # `known` is the number of failures that the caller knows already.
        next_failures = asyncio.ensure_future(process.next_failures(known=0))

        def fail(*_: object) -> None:
            raise ZeroDivisionError("planted")

        async def failing_task() -> None:
            await server.host.sleep(1)
            fail()

        match where:
            case "task":
                server.host.spawn(failing_task(), name="planted task")
            case "timer":
                server.host.after(1, fail)
            case _:
                server.host.serve(fail)
                connect(client).send(
                    HeartbeatRequest(group_id="g", generation_id=0, member_id="m"),
                    timeout_us=SECOND_US,
                    on_response=lambda _: None,
                )

        (failure,) = await next_failures
        assert failure.text.startswith("broker-0: ")
        assert "ZeroDivisionError: planted" in failure.text
        assert failure.disk_trouble is None  # the disk is not the cause
        await asyncio.sleep(0)  # the process flushes a row in the next turn of the loop
        failed = [row for row in lab.rows(SERVER) if row.kind == TraceKind.TASK_FAILED]
        assert len(failed) == 1
        assert "planted" in (failed[0].detail or "")

    in_lab(tmp_path, body)


def test_node_that_cannot_start_is_an_error_of_the_start(tmp_path: Path) -> None:
    """The run must not begin without the node. Afterwards the node can be started again."""

    class CannotStart(EchoNode):
        def start(self) -> None:
            raise ZeroDivisionError

    async def body(lab: Lab) -> None:
        process = await lab.start_process("p0")
        with pytest.raises(ZeroDivisionError):
            process.start_node(
                SERVER, Incarnation(0), CannotStart, storage=MemoryStorage(), role="broker"
            )
        lab.node("p0", SERVER, incarnation=1)

    in_lab(tmp_path, body)


def test_row_of_a_message_is_in_the_file_before_the_message_arrives(
    tmp_path: Path,
) -> None:
    """Before a node sends a message, it writes the row about the message into its trace file.

    So if the node is killed, the file has a row for each message that another node has got. Here
    the server counts the client's rows in the file whenever a request arrives.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        server, client = lab.node("p0", SERVER), lab.node("p1", CLIENT)
        connection = connect(client)
        await beat(connection)
        row_counts: list[int] = []

        def count_rows(request: IncomingRequest) -> None:
            rows = [row for row in lab.rows(CLIENT) if row.kind == TraceKind.REQUEST_SENT]
            row_counts.append(len(rows))
            server.host.reply(request.request_id, HeartbeatResponse())

        server.host.serve(count_rows)

        for number in range(5):
            await beat(connection, number)
        # There is one row more than counted requests, for the first beat above.
        assert row_counts == [2, 3, 4, 5, 6]

    in_lab(tmp_path, body)


def test_refused_caller_is_logged_and_traced(tmp_path: Path) -> None:
    """A process that does not have the token of the run is refused.

    The refusal is in the trace and in the log. Otherwise a user could not tell a wrong
    configuration from a broken network.
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
        for row in read_frames(frames_path(tmp_path / "trace", SERVER, incarnation=0)).rows
        if row.kind == TraceKind.CONNECTION_REFUSED
    ]
    assert len(rows) == 1
    assert "wrong token" in (rows[0].detail or "")
    assert "wrong token" in (tmp_path / "logs" / "broker-0-0.log").read_text()


def test_trace_of_an_incarnation_is_numbered_and_ends_with_the_stop(tmp_path: Path) -> None:
    """Readers merge the traces of nodes by the times and numbers of their rows.

    So the numbers must have no gap, and the times must not fall.
    """

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        client = lab.node("p0", CLIENT)
        lab.node("p0", SERVER)
        await beat(connect(client))

    in_lab(tmp_path, body)
    rows = read_frames(frames_path(tmp_path / "trace", CLIENT, incarnation=0)).rows
    assert rows[0].kind == TraceKind.NODE_STARTED
    assert rows[-1].kind == TraceKind.NODE_STOPPED
    assert [row.seq for row in rows] == list(range(len(rows)))
    assert [row.time_us for row in rows] == sorted(row.time_us for row in rows)


def test_cancelled_host_timer_does_not_fire_and_sleeps_end_in_order(tmp_path: Path) -> None:
    """The end of a member's session is a timer, so a wrong timer would remove live members."""

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
