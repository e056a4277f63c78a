"""Link rules and resets of connections in real time: in one process, over TCP, and at a death.

In real time the nodes of a cluster are spread over processes, each of which is a NodeProcess. A
link rule disturbs the frames (messages) from some nodes to others, no matter in which processes
these nodes run. A cut or a clog holds the frames back until the healing, which is
`lab.set_rules(())`. A cut also keeps new connections from opening.

In these tests the NodeProcesses `p0`, `p1`, ... are objects in the one Python process of the test.
The nodes are echo nodes, which answer heartbeats:

- `lab.node("p0", SERVER)` starts a node in the process p0.
- `beat(connection, 7)` sends the heartbeat number 7 and waits for its answer. Without a number it
  is heartbeat 0. `node.served` lists the numbers of the heartbeats that a node has got.
- `lab.directory` says in which process each node is. `lab.push()` sends the directory to all
  processes. In a run, the control plane does this whenever nodes start or end.
- `settle` waits 50 ms, which is long enough for all frames to arrive.
"""

import asyncio
from pathlib import Path

import pytest

from cluster.host.host import Disconnected
from cluster.links.reset import LinkReset
from cluster.links.rules import Clog, Cut, LinkRule, LoseResponses, Selector, Slow
from cluster.realtime.host import RealHost
from protocol.ids import NodeName
from protocol.messages.group import HeartbeatResponse
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

TO_SERVER = Selector(sources=(CLIENT,), destinations=(SERVER,))
FROM_SERVER = Selector(sources=(SERVER,), destinations=(CLIENT,))
CUT_TO_SERVER = LinkRule(rule_id="cut/there", selector=TO_SERVER, effect=Cut())
CUT_FROM_SERVER = LinkRule(rule_id="cut/back", selector=FROM_SERVER, effect=Cut())
CUT = (CUT_TO_SERVER, CUT_FROM_SERVER)
# The server is in process p0. The client is in p0, too, or in the process p1.
both_placements = pytest.mark.parametrize(
    "client_process", ["p0", "p1"], ids=["same-process", "over-tcp"]
)


async def server_and_client(lab: Lab, client_process: str) -> tuple[EchoNode, EchoNode]:
    """Start a server in process p0, and a client in `client_process`, which is p0 or p1."""
    await lab.start_process("p0")
    await lab.start_process("p1")
    return lab.node("p0", SERVER), lab.node(client_process, CLIENT)


@both_placements
def test_cut_holds_requests_and_opens_until_it_is_healed(
    tmp_path: Path, client_process: str
) -> None:
    """Open connections are silent and new ones hang. At the healing all frames arrive in order."""

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, client_process)
        old_connection = connect(client)
        await beat(old_connection)

        lab.set_rules(CUT)
        new_connection = connect(client)
        waiting = [
            asyncio.ensure_future(beat(old_connection, 1)),
            asyncio.ensure_future(beat(old_connection, 2)),
            asyncio.ensure_future(beat(new_connection, 3)),
        ]
        await settle()
        assert server.served == [0]
        assert old_connection.is_open
        assert not new_connection.is_open
        assert not new_connection.is_closed

        lab.set_rules(())
        assert await asyncio.gather(*waiting) == [HeartbeatResponse()] * 3
        assert server.served == [0, 1, 2, 3]

    in_lab(tmp_path, body)


def test_cut_one_way_lets_requests_through_and_holds_the_answers(tmp_path: Path) -> None:
    """A cut from the server to the client: the server serves requests, but its answers wait."""

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, "p1")
        connection = connect(client)
        await beat(connection)
        lab.set_rules([CUT_FROM_SERVER])
        waiting = asyncio.ensure_future(beat(connection, 1))
        await settle()
        assert server.served == [0, 1]
        assert not waiting.done()
        lab.set_rules(())
        await waiting

    in_lab(tmp_path, body)


def test_cut_spares_links_that_it_does_not_name(tmp_path: Path) -> None:
    """A cut is between two nodes, and not between their processes.

    All nodes of the two processes share one TCP link. The client is cut off, but another node of
    its process can still connect to the server.
    """

    async def body(lab: Lab) -> None:
        _, client = await server_and_client(lab, "p1")
        other = lab.node("p1", OTHER)
        lab.set_rules(CUT)
        await beat(connect(other))
        assert not connect(client).is_open

    in_lab(tmp_path, body)


@pytest.mark.parametrize(
    ("client_process", "death"),
    [
        ("p0", "crash of the node"),
        ("p1", "crash of the node"),
        # With the client in p0, the end of this process would end the client, too.
        ("p1", "end of its process"),
    ],
)
def test_death_behind_a_cut_is_reported_at_healing(
    tmp_path: Path, client_process: str, death: str
) -> None:
    """A server dies behind a cut. Until the healing the client must not learn of the death.

    The client opens three connections: before the cut, during the cut, and after the death. All of
    them end at the healing.
    """

    async def body(lab: Lab) -> None:
        _, client = await server_and_client(lab, client_process)
        before_cut = connect(client)
        await beat(before_cut)
        lab.set_rules(CUT)

        during_cut = connect(client)
        if death == "crash of the node":
            lab.processes["p0"].crash_node(SERVER)
        else:
            await lab.processes["p0"].stop()
        # As in a run, the control plane removes the dead server from the directory.
        del lab.directory[SERVER]
        lab.push()

        after_death = connect(client)
        connections = (before_cut, during_cut, after_death)
        await settle()
        assert not any(connection.is_closed for connection in connections)

        lab.set_rules(())
        for connection in connections:
            await closed(connection)
        # The connections would also end by their timeout, but only after 10 s.
        assert client.host.now_us() < 5 * SECOND_US

    in_lab(tmp_path, body)


def test_server_that_moved_behind_a_cut_is_not_reached_before_healing(tmp_path: Path) -> None:
    """During a cut the server dies, and is started again in another process.

    Until the healing the client learns neither of the death nor of the new start.
    """

    async def body(lab: Lab) -> None:
        _, client = await server_and_client(lab, "p1")
        old_connection = connect(client)
        await beat(old_connection)

        await lab.start_process("p2")
        lab.set_rules(CUT)
        await lab.processes["p0"].stop()
        restarted_server = lab.node("p2", SERVER, incarnation=1)
        new_connection = connect(client)
        await settle()
        assert not old_connection.is_closed
        assert not new_connection.is_open
        assert not new_connection.is_closed

        lab.set_rules(())
        await closed(old_connection)
        await beat(new_connection, 5)
        assert restarted_server.served == [5]

    in_lab(tmp_path, body)


def test_node_started_later_has_the_rules_before_it_runs(tmp_path: Path) -> None:
    """A node that starts during a cut must not reach the other side, not even for a moment."""

    async def body(lab: Lab) -> None:
        await lab.start_process("p0")
        await lab.start_process("p1")
        server = lab.node("p0", SERVER)
        lab.set_rules(CUT)
        client = lab.node("p1", CLIENT)
        waiting = asyncio.ensure_future(beat(connect(client)))
        await settle()
        assert server.served == []
        lab.set_rules(())
        await waiting

    in_lab(tmp_path, body)


@both_placements
def test_clog_delivers_everything_in_order_and_slow_delays(
    tmp_path: Path, client_process: str
) -> None:
    """A clog holds the frames back, and a slow link delays them. Neither loses a frame."""

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, client_process)
        connection = connect(client)
        await beat(connection)
        lab.set_rules([LinkRule(rule_id="clog", selector=TO_SERVER, effect=Clog())])
        waiting = [asyncio.ensure_future(beat(connection, number)) for number in range(1, 5)]
        await settle()
        assert server.served == [0]

        # The slow link replaces the clog. The frames that the clog held need 20 ms from now on.
        slow = Slow(delay_us=20_000)
        started_us = client.host.now_us()
        lab.set_rules([LinkRule(rule_id="slow", selector=TO_SERVER, effect=slow)])
        await asyncio.gather(*waiting)
        assert client.host.now_us() - started_us >= 20_000
        assert server.served == [0, 1, 2, 3, 4]

    in_lab(tmp_path, body)


NO_SILENT_CLIENTS: tuple[NodeName, ...] = ()
"""Argument of `reset_server_ends`: no client is silent, so each has closed its own ends.

`test_reset_of_a_silent_client_is_counted_at_its_server` says what a silent client is.
"""


def reset_client_ends(lab: Lab, reset: LinkReset) -> list[tuple[NodeName, int]]:
    """Let the clients of all processes close their ends. Return the names of the connections.

    The name of a connection has two parts, for example `("client", 0)`: the client, and the number
    that the client has given the connection.
    """
    return [name for process in lab.processes.values() for name in process.reset_client_ends(reset)]


def reset_everywhere(lab: Lab, reset: LinkReset) -> int:
    """Reset connections in all processes, as a run does. Return the number of these connections.

    First the clients close their ends, and return the names of the connections. Then the servers
    close their ends of the connections with these names.
    """
    names = reset_client_ends(lab, reset)
    for process in lab.processes.values():
        # The result counts only connections with silent clients.
        assert process.reset_server_ends(reset, names, NO_SILENT_CLIENTS) == 0
    return len(names)


@both_placements
@pytest.mark.parametrize("paused", [False, True], ids=["running", "server-paused"])
def test_reset_ends_both_ends_and_spares_later_connections(
    tmp_path: Path, client_process: str, paused: bool
) -> None:
    """A reset closes the first two connections at both ends.

    The client opens a third connection before the server has closed its ends of the first two. The
    third connection must live. So the server closes only the connections whose names it gets.
    """

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, client_process)
        first, second = connect(client), connect(client)
        await beat(first, 1)
        await beat(second, 2)
        in_flight = asyncio.ensure_future(beat(first, 3))
        if paused:
            lab.processes["p0"].pause_node(SERVER)

        reset = LinkReset(sources=(CLIENT,), destinations=(SERVER,))
        names = reset_client_ends(lab, reset)
        third = connect(client)
        assert first.is_closed
        assert second.is_closed
        assert len(names) == 2
        for process in lab.processes.values():
            assert process.reset_server_ends(reset, names, NO_SILENT_CLIENTS) == 0

        with pytest.raises(Disconnected):
            await in_flight
        if paused:
            lab.processes["p0"].resume_node(SERVER)
        await beat(third, 4)
        # Request 3 may have reached the server before the reset did.
        assert server.served in ([1, 2, 4], [1, 2, 3, 4])
        assert reset_everywhere(lab, reset) == 1  # only the third connection is still open

    in_lab(tmp_path, body)


def test_reset_of_one_purpose_spares_other_connections(tmp_path: Path) -> None:
    """The reset is for the purposes "coordinator" and "heartbeat".

    A connection with the purpose "test" stays open.
    """

    async def body(lab: Lab) -> None:
        _, client = await server_and_client(lab, "p1")
        for_test = connect(client)  # its purpose is "test"
        for_coordinator = client.host.connect(SERVER, "coordinator", setup_timeout_us=SECOND_US)
        await beat(for_test)
        await beat(for_coordinator)
        reset = LinkReset(
            sources=(SERVER,), destinations=(CLIENT,), purposes=("coordinator", "heartbeat")
        )
        assert reset_everywhere(lab, reset) == 1
        assert for_coordinator.is_closed
        assert for_test.is_open
        await beat(for_test, 2)

    in_lab(tmp_path, body)


def test_reset_of_a_silent_client_is_counted_at_its_server(tmp_path: Path) -> None:
    """A client whose process is stopped is silent: it closes its end only when it resumes.

    A silent client cannot give the names of its connections. So the server closes all its
    connections with this client, and returns how many there were. In this test no process is really
    stopped: the server is only told that the client is silent.
    """

    async def body(lab: Lab) -> None:
        _, client = await server_and_client(lab, "p1")
        connection = connect(client)
        await beat(connection)
        reset = LinkReset(sources=(CLIENT,), destinations=(SERVER,))
        silent_clients = (CLIENT,)
        assert lab.processes["p0"].reset_server_ends(reset, (), silent_clients) == 1
        # Later the client's process runs again, and the client closes its end.
        assert lab.processes["p1"].reset_client_ends(reset) == ((CLIENT, 0),)
        assert connection.is_closed

    in_lab(tmp_path, body)


def test_death_of_a_client_whose_close_is_held_is_reported_at_healing(
    tmp_path: Path,
) -> None:
    """During a cut, a client closes its connection, and then dies.

    The server gets neither the close nor the report of the death, so it keeps the connection until
    the healing.
    """

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, "p1")
        lab.node("p1", OTHER)  # keeps process p1 alive after the client's crash
        connection = connect(client)
        await beat(connection)

        lab.set_rules(CUT)
        connection.close()
        lab.processes["p1"].crash_node(CLIENT)
        await settle()
        assert isinstance(server.host, RealHost)
        assert server.host.peers() == (CLIENT,)

        lab.set_rules(())
        await settle()
        assert server.host.peers() == ()

    in_lab(tmp_path, body)


@both_placements
def test_request_is_served_and_its_response_lost_with_the_connection(
    tmp_path: Path, client_process: str
) -> None:
    """LoseResponses lets a request through. In place of the response, the connection ends.

    By default only one response is lost. So the client's next request, on another connection, is
    answered.
    """

    async def body(lab: Lab) -> None:
        server, client = await server_and_client(lab, client_process)
        connection = connect(client)
        await beat(connection)
        lab.set_rules((LinkRule(rule_id="lost", selector=FROM_SERVER, effect=LoseResponses()),))
        with pytest.raises(Disconnected):
            await beat(connection, 1)
        assert server.served == [0, 1]
        assert connection.is_closed
        assert await beat(connect(client), 2) == HeartbeatResponse()

    in_lab(tmp_path, body)
