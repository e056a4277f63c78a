"""Connections: handshake, order, one request at a time, timeouts, and every kind of end.

- A host is what a node sees of its machine: clock, timers, connections, disk, trace.
- A frame is one message of a connection: an open, an opened (the answer to an open), a request, a
  response, a close, or a reset (which a kernel sends for a dead process).
- An incarnation is one life of a node: a restart begins the next one.
- An EchoServer answers heartbeats without delay, except those of the groups in `parked_groups`. It
  answers these at `release()`.
- Each request has a group of its own, by which the test recognizes it.
- The purpose of a connection says what the connection is used for.
- The trace has the recorded events as rows.
- `lab` has the hosts, on a simulated clock and a network with a latency of LATENCY_US.
  `lab.run_for(n)` advances the clock by n microseconds. `lab.lose` selects frames that the network
  drops.
"""

import pytest

from cluster.host.client_connection import ClientConnection
from cluster.host.frames import CloseFrame, OpenFrame, ResponseFrame
from cluster.host.host import Connection, Disconnected, RequestTimedOut
from cluster.virtual.host import VirtualHost
from protocol.api import AnyResponse
from protocol.errors import SimulationError
from protocol.ids import NodeName, RequestId
from protocol.messages.discovery import FindCoordinatorRequest
from protocol.messages.group import HeartbeatResponse
from tests.support.harness.virtual_hosts import LATENCY_US, EchoServer, HostLab, heartbeat

SERVER = NodeName("broker-0")
SETUP_US = 10_000
TIMEOUT_US = 50_000
HANDSHAKE_US = 2 * LATENCY_US
"""The time of an OpenFrame to the server and of an OpenedFrame back."""
ROUND_TRIP_US = 2 * LATENCY_US
QUIET_US = 10 * LATENCY_US
"""After this time all frames have arrived, and no timeout has fired."""


class Outcomes:
    """The outcomes of a client's requests, in the order in which they became known.

    `seen` has pairs: the request's group, and "ok" or the class name of the failure.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.seen: list[tuple[str, str]] = []

    def send(self, group: str, *, timeout_us: int = TIMEOUT_US) -> None:
        """Send a heartbeat of `group`."""

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            name = "ok" if isinstance(outcome, HeartbeatResponse) else type(outcome).__name__
            self.seen.append((group, name))

        self.connection.send(heartbeat(group), timeout_us=timeout_us, on_response=on_response)


def connect(client: VirtualHost) -> Connection:
    """Begin to open a connection to the server."""
    return client.connect(SERVER, "coordinator", setup_timeout_us=SETUP_US)


def test_requests_sent_while_connecting_go_out_in_order_when_it_opens() -> None:
    """A client need not wait for the handshake. Its requests are sent in their order."""
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host("client")
    connection = connect(client)
    outcomes = Outcomes(connection)
    for group in ("a", "b", "c"):
        outcomes.send(group)
    # The handshake is not over: the connection is neither open nor closed.
    assert (connection.is_open, connection.is_closed) == (False, False)
    assert connection.in_flight == 3

    lab.run_for(HANDSHAKE_US)
    assert connection.is_open
    assert server.served == []
    lab.run_for(ROUND_TRIP_US)
    assert server.served_groups == ["a", "b", "c"]
    assert outcomes.seen == [("a", "ok"), ("b", "ok"), ("c", "ok")]
    assert connection.in_flight == 0


def test_call_returns_the_response() -> None:
    """`call` is `send` as a coroutine: it waits for the response and returns it."""
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    connection = connect(lab.host("client"))
    assert lab.run(connection.call(heartbeat(), timeout_us=TIMEOUT_US)) == HeartbeatResponse()
    assert lab.loop.now_us() == HANDSHAKE_US + ROUND_TRIP_US


def test_a_parked_request_delays_later_requests_of_its_connection_only() -> None:
    """Like Kafka, a server reads nothing more from a connection until its request is answered.

    So a JoinGroup that waits delays heartbeats on the same connection.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("join",))
    client = lab.host("client")
    outcomes, others = Outcomes(connect(client)), Outcomes(connect(client))
    for group in ("join", "behind", "last"):
        outcomes.send(group)
    others.send("other")
    lab.run_for(QUIET_US)
    assert server.served_groups == ["join", "other"]

    server.release()
    # The next request is served one turn of the loop later, and not inside of `release`.
    assert server.served_groups == ["join", "other"]
    lab.run_for(LATENCY_US)
    assert server.served_groups == ["join", "other", "behind", "last"]
    assert outcomes.seen == [("join", "ok"), ("behind", "ok"), ("last", "ok")]


def test_an_open_to_a_node_that_does_not_serve_is_refused() -> None:
    """After one round trip, long before any timeout, the client learns that the port is closed."""
    lab = HostLab()
    lab.host(SERVER)  # a host without an EchoServer serves nothing
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("g")
    lab.run_for(HANDSHAKE_US)
    assert connection.is_closed
    assert outcomes.seen == [("g", "Disconnected")]
    assert lab.kinds(SERVER) == ["connection_refused"]


@pytest.mark.parametrize("name", ["broker-0", "no-such-host"])
def test_an_open_to_an_unknown_node_is_refused(name: str) -> None:
    """A client may try any name. The lab has no host with either of these two names."""
    lab = HostLab()
    client = lab.host("client")
    connection = client.connect(NodeName(name), "metadata", setup_timeout_us=SETUP_US)
    with pytest.raises(Disconnected, match="refused"):
        lab.run(connection.call(heartbeat(), timeout_us=TIMEOUT_US))
    assert lab.loop.now_us() == HANDSHAKE_US


def test_a_setup_that_hangs_ends_after_its_timeout() -> None:
    """A cut link is silent, so only socket.connection.setup.timeout.ms ends the attempt."""
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    lab.lose = lambda frame: isinstance(frame, OpenFrame)  # stands for the cut link
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("g")
    lab.run_for(SETUP_US - 1)
    assert not connection.is_closed
    lab.run_for(1)
    assert connection.is_closed
    assert outcomes.seen == [("g", "Disconnected")]


def test_a_request_that_times_out_fails_the_others_of_its_connection() -> None:
    """As in Kafka, the client closes the connection when one request times out.

    The other requests on it fail as disconnected.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("slow", "patient", "also slow"))
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("patient", timeout_us=3 * TIMEOUT_US)
    outcomes.send("slow")
    outcomes.send("also slow")
    closed: list[int] = []
    connection.on_close(lambda: closed.append(lab.loop.now_us()))

    lab.run_for(TIMEOUT_US)
    assert outcomes.seen == [
        ("slow", "RequestTimedOut"),
        ("also slow", "RequestTimedOut"),
        ("patient", "Disconnected"),
    ]
    assert closed == [TIMEOUT_US]
    errors = [row.error for row in lab.rows if row.kind == "request_failed"]
    assert errors == ["TIMED_OUT", "TIMED_OUT", "DISCONNECTED"]

    lab.run_for(LATENCY_US)
    # The close has reached the server, so the server's answers are not sent any more.
    server.release()
    assert not [frame for frame in lab.frames if isinstance(frame, ResponseFrame)]


def test_an_answered_request_never_times_out_and_a_later_one_still_does() -> None:
    """All requests of a connection share one timer, which must go on for the later request."""
    lab = HostLab()
    EchoServer(lab.host(SERVER), parked_groups=("slow",))
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("quick")
    lab.run_for(TIMEOUT_US // 2)
    outcomes.send("slow")
    lab.run_for(TIMEOUT_US - 1)
    assert outcomes.seen == [("quick", "ok")]
    lab.run_for(1)
    assert outcomes.seen == [("quick", "ok"), ("slow", "RequestTimedOut")]
    assert connection.is_closed


def test_a_shorter_timeout_sent_later_fires_first() -> None:
    """A JoinGroup may wait for minutes. A heartbeat behind it has its own, shorter timeout."""
    lab = HostLab()
    # The heartbeat waits behind the parked request, so it gets no answer either.
    EchoServer(lab.host(SERVER), parked_groups=("join",))
    outcomes = Outcomes(connect(lab.host("client")))
    outcomes.send("join", timeout_us=10 * TIMEOUT_US)
    lab.run_for(1_000)
    outcomes.send("heartbeat")
    lab.run_for(TIMEOUT_US)
    assert outcomes.seen == [("heartbeat", "RequestTimedOut"), ("join", "Disconnected")]


def test_close_fails_all_requests_after_it_returns_and_notifies_the_server() -> None:
    """`close` runs no callback itself, so it cannot call back into its caller.

    An answer that the server gives after the close must change nothing.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("g",))
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    closed: list[str] = []
    connection.on_close(lambda: closed.append("closed"))
    outcomes.send("g")
    lab.run_for(4 * LATENCY_US)  # the request is parked at the server

    connection.close()
    connection.close()  # has no effect: only one CloseFrame is sent
    assert (connection.is_closed, outcomes.seen, closed) == (True, [], [])
    lab.run_for(LATENCY_US)
    assert (outcomes.seen, closed) == ([("g", "Disconnected")], ["closed"])

    server.release()
    lab.run_for(LATENCY_US)
    assert outcomes.seen == [("g", "Disconnected")]
    assert sum(isinstance(frame, CloseFrame) for frame in lab.frames) == 1


def test_a_closed_connection_fails_requests_and_calls_on_close_at_once() -> None:
    """A closed connection never opens again. Each request fails once, after `send` has returned.

    A callback that `on_close` gets after the close is called immediately.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    connection.close()
    lab.run_for(QUIET_US)
    assert connection.is_closed

    closed: list[str] = []
    connection.on_close(lambda: closed.append("closed"))
    outcomes.send("late")
    assert (outcomes.seen, closed) == ([], ["closed"])
    with pytest.raises(Disconnected):
        lab.run(connection.call(heartbeat(), timeout_us=TIMEOUT_US))
    assert outcomes.seen == [("late", "Disconnected")]


def test_the_death_of_the_server_ends_its_connections_one_latency_later() -> None:
    """The kernel resets connections of its dead process. Connections to other servers stay open."""
    lab = HostLab()
    host = lab.host(SERVER)
    EchoServer(host, parked_groups=("g",))
    EchoServer(lab.host("broker-1"))
    client = lab.host("client")
    connection = connect(client)
    outcomes = Outcomes(connection)
    other = client.connect(NodeName("broker-1"), "fetch", setup_timeout_us=SETUP_US)
    outcomes.send("g")
    lab.run_for(QUIET_US)

    host.crash()
    lab.run_for(LATENCY_US - 1)
    assert not connection.is_closed
    lab.run_for(1)
    assert connection.is_closed
    assert outcomes.seen == [("g", "Disconnected")]
    assert other.is_open


def test_the_death_of_the_client_makes_the_server_forget_its_requests() -> None:
    """The answer to a request of a dead client is dropped. That is no error of the server."""
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("g",))
    client = lab.host("client")
    outcomes = Outcomes(connect(client))
    outcomes.send("g")
    outcomes.send("behind")
    lab.run_for(QUIET_US)

    client.crash()
    lab.run_for(LATENCY_US)
    frames_before = len(lab.frames)
    server.release()
    lab.run_for(LATENCY_US)
    # The second request waited behind the first, and is never served.
    assert server.served_groups == ["g"]
    assert len(lab.frames) == frames_before
    assert outcomes.seen == []
    assert lab.failures == []


def test_a_restarted_server_resets_connections_of_its_former_incarnation() -> None:
    """If the report of the death was lost, the client learns of it at its next request.

    The new incarnation does not know the connection, and answers with a reset.
    """
    lab = HostLab()
    first = lab.host(SERVER)
    EchoServer(first)
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    lab.run_for(QUIET_US)
    first.retire()  # end this incarnation without a frame to its peers
    second = EchoServer(lab.host(SERVER, incarnation=1))

    outcomes.send("g")
    lab.run_for(2 * LATENCY_US)
    assert outcomes.seen == [("g", "Disconnected")]
    assert connection.is_closed
    assert second.served == []


def test_a_report_of_a_death_spares_a_connection_to_the_next_incarnation() -> None:
    """A report that arrives late must not end a connection to the restarted server."""
    lab = HostLab()
    first = lab.host(SERVER)
    EchoServer(first)
    client = lab.host("client")
    connect(client)
    lab.run_for(QUIET_US)
    first.crash()  # its report reaches the client while the new connection is opening
    EchoServer(lab.host(SERVER, incarnation=1))

    fresh = Outcomes(connect(client))
    fresh.send("g")
    lab.run_for(QUIET_US)
    assert fresh.seen == [("g", "ok")]


def test_a_restarted_client_is_distinguished_from_its_former_incarnation() -> None:
    """Ids of connections contain the incarnation of the client.

    So a late answer to the dead incarnation finds no connection.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("old",))
    first = lab.host("client")
    Outcomes(connect(first)).send("old")
    lab.run_for(QUIET_US)
    first.retire()  # end this incarnation without a frame to its peers

    outcomes = Outcomes(connect(lab.host("client", incarnation=1)))
    outcomes.send("new")
    server.release()
    lab.run_for(QUIET_US)
    assert outcomes.seen == [("new", "ok")]
    assert lab.failures == []


def test_a_reply_to_an_unknown_request_or_a_second_reply_is_misuse() -> None:
    """A broker that answers a request twice has a bug, so the second reply raises."""
    lab = HostLab()
    host = lab.host(SERVER)
    server = EchoServer(host)
    Outcomes(connect(lab.host("client"))).send("g")
    lab.run_for(QUIET_US)
    with pytest.raises(SimulationError, match="replied twice"):
        host.reply(server.served[0].request_id, HeartbeatResponse())
    with pytest.raises(SimulationError):
        host.reply(RequestId(77), HeartbeatResponse())  # no request has this id


def test_close_all_ends_both_directions() -> None:
    """After an orderly stop both ends of each connection of the node fail with Disconnected."""
    lab = HostLab()
    EchoServer(lab.host(SERVER), parked_groups=("out",))
    middle = lab.host("middle")
    EchoServer(middle, parked_groups=("in",))
    client = lab.host("client")
    outgoing = Outcomes(connect(middle))
    # The purpose of the connection, "x", has no effect here.
    incoming = Outcomes(client.connect(NodeName("middle"), "x", setup_timeout_us=SETUP_US))
    outgoing.send("out")
    incoming.send("in")
    lab.run_for(QUIET_US)

    middle.endpoint.close_all()
    lab.run_for(LATENCY_US)
    assert outgoing.seen == [("out", "Disconnected")]
    assert incoming.seen == [("in", "Disconnected")]
    assert lab.failures == []


def test_a_broken_transport_link_also_ends_opening_connections() -> None:
    """The TCP transport calls `peer_lost` when its stream to another process ends."""
    lab = HostLab()
    lab.lose = lambda frame: isinstance(frame, OpenFrame)  # so the connection never opens
    client = lab.host("client")
    connection = connect(client)
    outcomes = Outcomes(connection)
    outcomes.send("g")
    client.endpoint.peer_lost(SERVER)
    assert isinstance(connection, ClientConnection)
    assert connection.is_closed
    assert outcomes.seen == [("g", "Disconnected")]


def test_messages_are_traced_on_both_sides_with_the_columns_of_their_api() -> None:
    """Only the rows of the client have group, member and generation, and the purpose as `cause`.

    Every heartbeat of this lab has the member "m" and the generation 3. The client's connection has
    the purpose "coordinator".
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    client = lab.host("client")
    Outcomes(connect(client)).send("orders")
    lab.run_for(QUIET_US)
    request_sent, request_received, response_sent, response_received = lab.rows
    assert [row.kind for row in lab.rows] == [
        "request_sent",
        "request_received",
        "response_sent",
        "response_received",
    ]

    for row in (request_sent, response_received):
        assert (row.node, row.peer, row.cause) == ("client", SERVER, "coordinator")
        assert (row.group, row.member, row.generation) == ("orders", "m", 3)
    for row in (request_received, response_sent):
        assert (row.node, row.peer) == (SERVER, "client")

    assert {(row.api, row.correlation_id) for row in lab.rows} == {("Heartbeat", 0)}
    assert [row.error for row in lab.rows] == [None, None, "NONE", "NONE"]


def test_without_message_tracing_only_failures_are_traced() -> None:
    """The checkers of a run need REQUEST_FAILED, so these rows are always written.

    The other rows about messages take much time, so they can be switched off.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER, traced=False), parked_groups=("g",))
    connection = connect(lab.host("client", traced=False))
    outcomes = Outcomes(connection)
    outcomes.send("ok")
    outcomes.send("g")
    lab.run_for(QUIET_US)
    connection.close()
    lab.run_for(1)
    assert [(row.kind, row.error, row.group) for row in lab.rows] == [
        ("request_failed", "DISCONNECTED", "g")
    ]


def test_a_coordinator_lookup_is_traced_with_its_group() -> None:
    """The key of a FindCoordinator is the group that the client looks up."""
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    connect(lab.host("client")).send(
        FindCoordinatorRequest(coordinator_keys=("orders",)),
        timeout_us=TIMEOUT_US,
        on_response=lambda _outcome: None,
    )
    assert (lab.rows[0].api, lab.rows[0].group) == ("FindCoordinator", "orders")
