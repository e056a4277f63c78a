"""Connections: handshake, order, one request at a time, timeouts, and every kind of end.

The tests connect a client with a server, without real nodes. Each of the two has a host, which is
what a node sees of its machine: clock, timers, connections, disk and trace. The hosts belong to a
`HostLab`, with a simulated clock and a network. A frame (a message between two hosts) takes
LATENCY_US, and `lab.run_for(n)` advances the clock by n microseconds.

The server is an EchoServer, which answers each heartbeat at once. Only the heartbeats of
`parked_groups` wait for their answers until the test calls `release()`. A test gives each heartbeat
another group, by which it recognises the heartbeat.
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
"""Timeout for opening a connection."""
TIMEOUT_US = 50_000
"""Timeout of a request."""
HANDSHAKE_US = 2 * LATENCY_US
"""How long it takes to open a connection: one frame to the server, and its answer."""
ROUND_TRIP_US = 2 * LATENCY_US
"""How long it takes until a request is answered."""
QUIET_US = 10 * LATENCY_US
"""After this time all frames have arrived, and no timeout has fired."""


class Outcomes:
    """Sends requests on a connection, and records their outcomes in `seen`.

    An outcome is the request's group, and "ok" or the class of the failure. Example:
    `[("a", "ok"), ("b", "RequestTimedOut")]`.
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
    """Begin to open a connection to the server, with the purpose "coordinator"."""
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
    assert not connection.is_open
    assert not connection.is_closed
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
    outcomes = Outcomes(connect(client))
    on_another_connection = Outcomes(connect(client))
    for group in ("join", "behind", "last"):
        outcomes.send(group)
    on_another_connection.send("other")
    lab.run_for(QUIET_US)
    assert server.served_groups == ["join", "other"]

    server.release()
    # `release` itself serves no request. The next one is served in the next turn of the loop.
    assert server.served_groups == ["join", "other"]
    lab.run_for(LATENCY_US)
    assert server.served_groups == ["join", "other", "behind", "last"]
    assert outcomes.seen == [("join", "ok"), ("behind", "ok"), ("last", "ok")]


def test_an_open_to_a_node_that_does_not_serve_is_refused() -> None:
    """The client learns of the refusal after one round trip, long before any timeout."""
    lab = HostLab()
    lab.host(SERVER)  # a host without an EchoServer serves nothing
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("g")
    lab.run_for(HANDSHAKE_US)
    assert connection.is_closed
    assert outcomes.seen == [("g", "Disconnected")]
    assert lab.kinds(SERVER) == ["connection_refused"]  # the only row that the server has written


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
    """If the network loses the open, no answer comes, and the client waits until its own timeout.

    In Kafka this is socket.connection.setup.timeout.ms, here it is SETUP_US.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    lab.lose = lambda frame: isinstance(frame, OpenFrame)
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

    The other requests of the connection fail as disconnected.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("slow", "patient", "also slow"))
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    outcomes.send("patient", timeout_us=3 * TIMEOUT_US)
    outcomes.send("slow")
    outcomes.send("also slow")
    closed_at_us: list[int] = []
    connection.on_close(lambda: closed_at_us.append(lab.loop.now_us()))

    lab.run_for(TIMEOUT_US)
    assert outcomes.seen == [
        ("slow", "RequestTimedOut"),
        ("also slow", "RequestTimedOut"),
        ("patient", "Disconnected"),
    ]
    assert closed_at_us == [TIMEOUT_US]
    errors = [row.error for row in lab.rows if row.kind == "request_failed"]
    assert errors == ["TIMED_OUT", "TIMED_OUT", "DISCONNECTED"]

    # The close reaches the server. Afterwards the server sends no answers on this connection.
    lab.run_for(LATENCY_US)
    server.release()
    assert not [frame for frame in lab.frames if isinstance(frame, ResponseFrame)]


def test_an_answered_request_never_times_out_and_a_later_one_still_does() -> None:
    """All requests of a connection share one timer.

    When the first request is answered, the timer must go on for the second one.
    """
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
    """A JoinGroup may wait for minutes. A heartbeat behind it has its own, shorter timeout.

    The server parks the JoinGroup, so it does not serve the heartbeat behind it either.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER), parked_groups=("join",))
    outcomes = Outcomes(connect(lab.host("client")))
    outcomes.send("join", timeout_us=10 * TIMEOUT_US)
    lab.run_for(1_000)
    outcomes.send("heartbeat")
    lab.run_for(TIMEOUT_US)
    assert outcomes.seen == [("heartbeat", "RequestTimedOut"), ("join", "Disconnected")]


def test_close_fails_all_requests_after_it_returns_and_notifies_the_server() -> None:
    """`close` itself calls no callback, because its caller may not be ready for one.

    The callbacks follow in the next turn of the loop. An answer that the server gives after the
    close must change nothing.
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
    connection.close()  # has no effect
    assert connection.is_closed
    assert outcomes.seen == []
    assert closed == []
    lab.run_for(LATENCY_US)
    assert outcomes.seen == [("g", "Disconnected")]
    assert closed == ["closed"]

    server.release()
    lab.run_for(LATENCY_US)
    assert outcomes.seen == [("g", "Disconnected")]
    assert sum(isinstance(frame, CloseFrame) for frame in lab.frames) == 1


def test_a_closed_connection_fails_each_later_request() -> None:
    """A closed connection never opens again. A request fails after `send` has returned.

    But a callback that is given to `on_close` after the close is called at once.
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
    assert closed == ["closed"]
    outcomes.send("late")
    assert outcomes.seen == []
    with pytest.raises(Disconnected):
        lab.run(connection.call(heartbeat(), timeout_us=TIMEOUT_US))
    assert outcomes.seen == [("late", "Disconnected")]


def test_the_death_of_the_server_ends_its_connections_one_latency_later() -> None:
    """The kernel of the dead process resets its connections. Connections to other servers stay."""
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


def test_a_restarted_server_resets_the_connections_of_its_former_life() -> None:
    """If the report of the death was lost, the client learns of the death at its next request.

    The restarted server does not know the connection, and answers with a reset.
    """
    lab = HostLab()
    first_life = lab.host(SERVER)
    EchoServer(first_life)
    connection = connect(lab.host("client"))
    outcomes = Outcomes(connection)
    lab.run_for(QUIET_US)
    first_life.retire()  # ends the first life without a frame to its peers
    second_life = EchoServer(lab.host(SERVER, incarnation=1))

    outcomes.send("g")
    lab.run_for(2 * LATENCY_US)
    assert outcomes.seen == [("g", "Disconnected")]
    assert connection.is_closed
    assert second_life.served == []


def test_a_report_of_a_death_spares_a_connection_to_the_restarted_server() -> None:
    """The report of the death reaches the client while it opens a connection to the next life."""
    lab = HostLab()
    first_life = lab.host(SERVER)
    EchoServer(first_life)
    client = lab.host("client")
    connect(client)
    lab.run_for(QUIET_US)
    first_life.crash()
    EchoServer(lab.host(SERVER, incarnation=1))

    on_new_connection = Outcomes(connect(client))
    on_new_connection.send("g")
    lab.run_for(QUIET_US)
    assert on_new_connection.seen == [("g", "ok")]


def test_a_restarted_client_gets_no_answers_for_its_former_life() -> None:
    """The id of a connection contains the incarnation of the client: 0, and 1 after a restart.

    So a late answer for incarnation 0 does not belong to any connection of incarnation 1.
    """
    lab = HostLab()
    server = EchoServer(lab.host(SERVER), parked_groups=("old",))
    first_life = lab.host("client")
    Outcomes(connect(first_life)).send("old")
    lab.run_for(QUIET_US)
    first_life.retire()  # ends the first life without a frame to its peers

    outcomes = Outcomes(connect(lab.host("client", incarnation=1)))
    outcomes.send("new")
    server.release()
    lab.run_for(QUIET_US)
    assert outcomes.seen == [("new", "ok")]
    assert lab.failures == []


def test_a_second_reply_and_a_reply_to_an_unknown_request_raise() -> None:
    """A broker that answers a request twice has a bug."""
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
    """At an orderly stop a node ends its connections to servers and its connections from clients.

    `middle` is both: a client of the server, and a server for the client.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVER), parked_groups=("out",))
    middle = lab.host("middle")
    EchoServer(middle, parked_groups=("in",))
    client = lab.host("client")
    outgoing = Outcomes(connect(middle))
    to_middle = client.connect(NodeName("middle"), "coordinator", setup_timeout_us=SETUP_US)
    incoming = Outcomes(to_middle)
    outgoing.send("out")
    incoming.send("in")
    lab.run_for(QUIET_US)

    middle.endpoint.close_all()
    lab.run_for(LATENCY_US)
    assert outgoing.seen == [("out", "Disconnected")]
    assert incoming.seen == [("in", "Disconnected")]
    assert lab.failures == []


def test_a_broken_transport_link_also_ends_opening_connections() -> None:
    """In real time nodes talk through TCP. If TCP loses the peer, `peer_lost` is called.

    A connection that is not open yet must end then, too.
    """
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
    """A request and its response give four rows of the trace, two of each node.

    Only the client's rows have the group, the member and the generation of the heartbeat. Every
    heartbeat of this lab has the member "m" and the generation 3. Only the client's rows also have
    the purpose of the connection, "coordinator", as `cause`.
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
        assert row.node == "client"
        assert row.peer == SERVER
        assert row.cause == "coordinator"
        assert row.group == "orders"
        assert row.member == "m"
        assert row.generation == 3
    for row in (request_received, response_sent):
        assert row.node == SERVER
        assert row.peer == "client"

    assert {(row.api, row.correlation_id) for row in lab.rows} == {("Heartbeat", 0)}
    assert [row.error for row in lab.rows] == [None, None, "NONE", "NONE"]


def test_without_message_tracing_only_failures_are_traced() -> None:
    """The rows about messages take much time to write, so they can be switched off.

    REQUEST_FAILED is always written, because the checkers of a run read these rows.
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
    """A FindCoordinator asks for a key, which is the id of a group here."""
    lab = HostLab()
    EchoServer(lab.host(SERVER))
    connect(lab.host("client")).send(
        FindCoordinatorRequest(coordinator_keys=("orders",)),
        timeout_us=TIMEOUT_US,
        on_response=lambda _outcome: None,
    )
    assert lab.rows[0].api == "FindCoordinator"
    assert lab.rows[0].group == "orders"
