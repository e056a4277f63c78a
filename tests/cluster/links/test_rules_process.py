"""Link rules and resets of connections in NodeProcesses: in one process, over TCP, and at a death.

- A NodeProcess (`p0`, `p1`) is a process that hosts nodes. Here all of them are objects in one
  process of Python.
- `lab.node("p0", SERVER)` starts an echo node, which answers heartbeats, in a process.
- `lab.directory` has the address of each node's process. `lab.push()` sends the directory to all
  processes.
- A rule acts on the frames (messages of connections) from its sources to its destinations. A cut or
  a clog holds frames back until the healing, which is `set_rules(())`.
- `beat(connection, n)` sends a heartbeat and waits for its answer. The generation n, 0 by default,
  is the number of the heartbeat. `served` lists the numbers of the heartbeats that a node has got.
- `settle` waits 50 ms, which is long enough for all frames to arrive.
"""

import asyncio
from pathlib import Path

import pytest

from cluster.host.host import Disconnected
from cluster.links.reset import LinkReset
from cluster.links.rules import Clog, Cut, LinkRule, LoseResponses, Selector, Slow
from cluster.realtime.host import RealHost
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
CUT = (
    LinkRule(rule_id="cut/there", selector=TO_SERVER, effect=Cut()),
    LinkRule(rule_id="cut/back", selector=FROM_SERVER, effect=Cut()),
)
# The server is in process p0. The client is in the same process or in another one, p1.
placements = pytest.mark.parametrize(
    "client_process", ["p0", "p1"], ids=["same-process", "over-tcp"]
)


async def pair(lab: Lab, client_process: str) -> tuple[EchoNode, EchoNode]:
    """Start a server in process p0, and a client in `client_process`, which is p0 or p1."""
    await lab.start_process("p0")
    await lab.start_process("p1")
    return lab.node("p0", SERVER), lab.node(client_process, CLIENT)


@placements
def test_cut_holds_requests_and_opens_until_it_is_healed(
    tmp_path: Path, client_process: str
) -> None:
    """Open connections are silent and new ones hang. At the healing all frames arrive in order."""

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, client_process)
        old = connect(client)
        await beat(old)

        lab.set_rules(CUT)
        new = connect(client)
        waiting = [asyncio.ensure_future(beat(old, n)) for n in (1, 2)]
        waiting.append(asyncio.ensure_future(beat(new, 3)))
        await settle()
        assert server.served == [0]
        assert (old.is_open, new.is_open, new.is_closed) == (True, False, False)

        lab.set_rules(())
        assert await asyncio.gather(*waiting) == [HeartbeatResponse()] * 3
        assert server.served == [0, 1, 2, 3]

    in_lab(tmp_path, body)


def test_cut_one_way_lets_requests_through_and_holds_the_answers(tmp_path: Path) -> None:
    """The server serves the requests, but its answers are held back."""

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, "p1")
        connection = connect(client)
        await beat(connection)
        lab.set_rules(CUT[1:])  # from the server to the client
        waiting = asyncio.ensure_future(beat(connection, 1))
        await settle()
        assert server.served == [0, 1]
        assert not waiting.done()
        lab.set_rules(())
        await waiting

    in_lab(tmp_path, body)


def test_cut_spares_links_that_it_does_not_name(tmp_path: Path) -> None:
    """A cut is between nodes, not between processes, so other nodes of the processes still connect.

    The two processes have one TCP link, which their nodes share.
    """

    async def body(lab: Lab) -> None:
        _, client = await pair(lab, "p1")
        other = lab.node("p1", OTHER)
        lab.set_rules(CUT)
        await beat(connect(other))
        assert not connect(client).is_open

    in_lab(tmp_path, body)


@pytest.mark.parametrize(
    ("client_process", "death"),
    [("p0", "crash of the node"), ("p1", "crash of the node"), ("p1", "end of its process")],
)
def test_death_behind_a_cut_is_reported_at_healing(
    tmp_path: Path, client_process: str, death: str
) -> None:
    """A cut network does not carry the reset of a dead process, so the client waits.

    The client opens three connections: before the cut, during the cut, and after the death.
    """

    async def body(lab: Lab) -> None:
        _, client = await pair(lab, client_process)
        old = connect(client)
        await beat(old)
        lab.set_rules(CUT)

        new = connect(client)
        if death == "crash of the node":
            lab.processes["p0"].crash_node(SERVER)
        else:
            await lab.processes["p0"].stop()
        # The directory no longer names the dead server, as in a run.
        del lab.directory[SERVER]
        lab.push()

        late = connect(client)
        await settle()
        assert [c.is_closed for c in (old, new, late)] == [False, False, False]

        lab.set_rules(())
        for connection in (old, new, late):
            await closed(connection)
        # The report has ended the connections. Their own timeouts would be 10 s.
        assert client.host.now_us() < 5 * SECOND_US

    in_lab(tmp_path, body)


def test_server_that_moved_behind_a_cut_is_not_reached_before_healing(tmp_path: Path) -> None:
    """The directory names the new process, but the cut is between the nodes, wherever they run."""

    async def body(lab: Lab) -> None:
        _, client = await pair(lab, "p1")
        old = connect(client)
        await beat(old)

        await lab.start_process("p2")
        lab.set_rules(CUT)
        await lab.processes["p0"].stop()
        successor = lab.node("p2", SERVER, incarnation=1)
        new = connect(client)
        await settle()
        assert (old.is_closed, new.is_open, new.is_closed) == (False, False, False)

        lab.set_rules(())
        await closed(old)
        await beat(new, 5)
        assert successor.served == [5]

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


@placements
def test_clog_delivers_everything_in_order_and_slow_delays(
    tmp_path: Path, client_process: str
) -> None:
    """A clog holds the frames back, and a slow link delays them. Neither loses a frame."""

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, client_process)
        connection = connect(client)
        await beat(connection)
        lab.set_rules([LinkRule(rule_id="clog", selector=TO_SERVER, effect=Clog())])
        waiting = [asyncio.ensure_future(beat(connection, n)) for n in range(1, 5)]
        await settle()
        assert server.served == [0]

        slow = Slow(delay_us=20_000)
        # The delay of the held frames begins in `set_rules`, so the time is taken before.
        started_us = client.host.now_us()
        lab.set_rules([LinkRule(rule_id="slow", selector=TO_SERVER, effect=slow)])
        await asyncio.gather(*waiting)
        assert client.host.now_us() - started_us >= 20_000
        assert server.served == [0, 1, 2, 3, 4]

    in_lab(tmp_path, body)


def reset_everywhere(lab: Lab, reset: LinkReset) -> tuple[int, int]:
    """Reset connections in all processes, as a run does.

    First the clients close their ends of the connections, and `reset_client_ends` returns the names
    of these connections. Then the servers close their ends of the same connections.

    A client whose process is stopped cannot close its end; such a client is called silent. The
    third argument of `reset_server_ends` lists the silent clients, of which there are none here.
    A server closes all its connections with a silent client, and counts them. Return the number of
    names, and the number of connections with silent clients.
    """
    processes = list(lab.processes.values())
    names = [name for process in processes for name in process.reset_client_ends(reset)]
    ended_of_silent = sum(process.reset_server_ends(reset, names, ()) for process in processes)
    return len(names), ended_of_silent


@placements
@pytest.mark.parametrize("paused", [False, True], ids=["running", "server-paused"])
def test_reset_ends_both_ends_and_spares_later_connections(
    tmp_path: Path, client_process: str, paused: bool
) -> None:
    """The client may reconnect before the server gets the reset. The new connection must live.

    So the reset of the servers names the connections that the clients have closed.
    """

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, client_process)
        first, second = connect(client), connect(client)
        await beat(first, 1)
        await beat(second, 2)
        in_flight = asyncio.ensure_future(beat(first, 3))
        if paused:
            lab.processes["p0"].pause_node(SERVER)

        reset = LinkReset(sources=(CLIENT,), destinations=(SERVER,))
        # As in `reset_everywhere`, but the client connects again before the servers are reset.
        processes = list(lab.processes.values())
        names = [name for process in processes for name in process.reset_client_ends(reset)]
        again = connect(client)
        assert (first.is_closed, second.is_closed, len(names)) == (True, True, 2)
        for process in processes:
            assert process.reset_server_ends(reset, names, ()) == 0

        with pytest.raises(Disconnected):
            await in_flight
        if paused:
            lab.processes["p0"].resume_node(SERVER)
        await beat(again, 4)
        # Request 3 may have reached the server before the reset did.
        assert server.served in ([1, 2, 4], [1, 2, 3, 4])
        # Only the connection `again` is still open.
        assert reset_everywhere(lab, reset) == (1, 0)

    in_lab(tmp_path, body)


def test_reset_of_one_purpose_spares_other_connections(tmp_path: Path) -> None:
    """The reset is for two purposes. It ends the connection that has one of these purposes."""

    async def body(lab: Lab) -> None:
        _, client = await pair(lab, "p1")
        spared = connect(client)  # its purpose is "test"
        hit = client.host.connect(SERVER, "coordinator", setup_timeout_us=SECOND_US)
        await beat(spared)
        await beat(hit)
        reset = LinkReset(
            sources=(SERVER,), destinations=(CLIENT,), purposes=("coordinator", "heartbeat")
        )
        assert reset_everywhere(lab, reset) == (1, 0)
        assert (hit.is_closed, spared.is_open) == (True, True)
        await beat(spared, 2)

    in_lab(tmp_path, body)


def test_reset_of_a_silent_client_is_counted_at_its_server(tmp_path: Path) -> None:
    """A client whose process is stopped is silent: it closes its end only when it resumes.

    No process is really stopped here. The third argument of `reset_server_ends` says that the
    client is silent.
    """

    async def body(lab: Lab) -> None:
        _, client = await pair(lab, "p1")
        connection = connect(client)
        await beat(connection)
        reset = LinkReset(sources=(CLIENT,), destinations=(SERVER,))
        assert lab.processes["p0"].reset_server_ends(reset, (), (CLIENT,)) == 1
        # The end of the client is closed when its process runs again. The name of a connection is
        # its client and a number that the client gives it.
        assert lab.processes["p1"].reset_client_ends(reset) == ((CLIENT, 0),)
        assert connection.is_closed

    in_lab(tmp_path, body)


def test_death_of_a_client_whose_close_is_held_is_reported_at_healing(
    tmp_path: Path,
) -> None:
    """The cut holds back the close of a client. Then the kernel reports the death of the client."""

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, "p1")
        lab.node("p1", OTHER)  # keeps process p1 alive after the client's crash
        connection = connect(client)
        await beat(connection)

        lab.set_rules(CUT)
        connection.close()
        lab.processes["p1"].crash_node(CLIENT)
        await settle()
        assert isinstance(server.host, RealHost)
        # The cut holds the close back and hides the death, so the server keeps the connection.
        assert server.host.peers() == (CLIENT,)

        lab.set_rules(())
        await settle()
        assert server.host.peers() == ()

    in_lab(tmp_path, body)


@placements
def test_request_is_served_and_its_response_lost_with_the_connection(
    tmp_path: Path, client_process: str
) -> None:
    """The client sees only the end of its connection. On another connection it gets an answer."""

    async def body(lab: Lab) -> None:
        server, client = await pair(lab, client_process)
        connection = connect(client)
        await beat(connection)
        lab.set_rules((LinkRule(rule_id="lost", selector=FROM_SERVER, effect=LoseResponses()),))
        with pytest.raises(Disconnected):
            await beat(connection, 1)
        assert server.served == [0, 1]
        assert connection.is_closed
        assert await beat(connect(client), 2) == HeartbeatResponse()

    in_lab(tmp_path, body)
