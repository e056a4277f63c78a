"""Link rules and resets of connections: what the client and the server of a connection see.

The tests disturb the network between a client and a server with link rules. Everything that
travels on a connection is a frame: the open of the connection and its acceptance (opened), a
request, a response, a close and a reset. A rule holds frames back, delays them or loses them:

- `Cut` and `Clog` hold frames back until the link is healed, which is `lab.set_rules()` without any
  rule. They differ if the connection was closed meanwhile. After a cut only the close arrives.
  After a clog everything arrives, even requests for which no client waits any more.
- `Slow` delays each frame.
- `LoseResponses` loses a response together with its connection.

Both nodes run in virtual time. A frame takes LATENCY_US in each direction, so
`run_for(2 * LATENCY_US)` is a round trip. `run_for(0)` carries out what is due at the present
instant. The client sends heartbeats, and a test recognises each one by its group. The server
answers each heartbeat at once, except those of `parked_groups`, whose answers wait until the test
calls `release()`.

`host.reset_links(peers, purposes)` ends the host's connections with these peers, and returns a
CloseFrame for each of them. Without purposes it ends the connections of all purposes.
"""

import pytest

from cluster.host.frames import ResetFrame
from cluster.host.host import Connection, Disconnected, RequestTimedOut
from cluster.links.rules import Clog, Cut, LinkEffect, LinkRule, LoseResponses, Slow
from protocol.api import AnyRequest, AnyResponse
from protocol.ids import NodeName
from protocol.messages.discovery import FindCoordinatorRequest
from protocol.trace import TraceKind
from tests.support.builders.link_frames import rule
from tests.support.harness.virtual_hosts import LATENCY_US, EchoServer, HostLab, heartbeat

SERVER = NodeName("broker-0")
CLIENT = NodeName("client")
SETUP_US = 10_000
"""Timeout for opening a connection."""
TIMEOUT_US = 50_000
"""Timeout of a request."""
QUIET_US = 10 * LATENCY_US
"""After this time all frames that no rule holds back have arrived. No timeout has fired."""


def to_server(effect: LinkEffect, *, apis: tuple[str, ...] = ()) -> LinkRule:
    """Return a rule for frames that the client sends."""
    return rule(effect, sources=(CLIENT,), destinations=(SERVER,), apis=apis, rule_id="there")


def to_client(
    effect: LinkEffect, *, purposes: tuple[str, ...] = (), apis: tuple[str, ...] = ()
) -> LinkRule:
    """Return a rule for frames that the server sends."""
    return rule(
        effect,
        sources=(SERVER,),
        destinations=(CLIENT,),
        purposes=purposes,
        apis=apis,
        rule_id="back",
    )


class Client:
    """A client's host, and the outcomes of the requests on its connections.

    `outcomes` has an entry for each request that is over: its group, and "ok" or the class of the
    failure. Example: `[("a", "ok"), ("b", "Disconnected")]`.
    """

    def __init__(self, lab: HostLab) -> None:
        self.lab = lab
        self.host = lab.host(CLIENT)
        self.outcomes: list[tuple[str, str]] = []

    def connect(self, purpose: str = "coordinator") -> Connection:
        """Open a connection."""
        return self.host.connect(SERVER, purpose, setup_timeout_us=SETUP_US)

    def send(
        self,
        connection: Connection,
        group: str,
        request: AnyRequest | None = None,
        *,
        timeout_us: int = TIMEOUT_US,
    ) -> None:
        """Send a heartbeat of `group`.

        If there is a `request`, send that instead; then `group` is only its name in `outcomes`.
        """

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            failed = isinstance(outcome, Disconnected | RequestTimedOut)
            self.outcomes.append((group, type(outcome).__name__ if failed else "ok"))

        connection.send(request or heartbeat(group), timeout_us=timeout_us, on_response=on_response)


class World:
    """A server and a client with one open connection, `connection`."""

    def __init__(self, *parked_groups: str) -> None:
        self.lab = HostLab()
        self.server = EchoServer(self.lab.host(SERVER), parked_groups=parked_groups)
        self.client = Client(self.lab)
        self.connection = self.client.connect()
        self.lab.run_for(2 * LATENCY_US)  # the handshake

    def cut(self, *, both_ways: bool = True) -> None:
        """Cut the frames to the server, and by default also those back to the client."""
        rules = [to_server(Cut())]
        if both_ways:
            rules.append(to_client(Cut()))
        self.lab.set_rules(*rules)


def test_a_cut_is_silent_and_at_healing_all_frames_arrive_in_order() -> None:
    """Neither end of a connection learns of a cut. Only a timeout would show the cut.

    When the cut begins, the request "parked" waits at the server, and "in flight" is on its way.
    The client sends "a" and "b" during the cut.
    """
    world = World("parked")
    lab, client = world.lab, world.client
    parked = client.connect("other")
    client.send(parked, "parked")
    lab.run_for(4 * LATENCY_US)  # enough to open the connection and to send "parked"
    client.send(world.connection, "in flight")
    world.cut()
    for group in ("a", "b"):
        client.send(world.connection, group)
    world.server.release()  # the server answers "parked", but the cut holds the answer back
    lab.run_for(TIMEOUT_US // 2)

    assert world.server.served_groups == ["parked"]
    assert client.outcomes == []
    assert world.connection.is_open

    lab.set_rules()
    lab.run_for(0)
    # "in flight" had arrived at the server's host during the cut, and was held back there. So the
    # server gets it at once.
    assert world.server.served_groups == ["parked", "in flight"]
    lab.run_for(LATENCY_US)
    assert world.server.served_groups == ["parked", "in flight", "a", "b"]
    # The answers to "parked" and "in flight" left at the healing, one latency ago. The answers to
    # "a" and "b" leave only now.
    assert sorted(client.outcomes) == [("in flight", "ok"), ("parked", "ok")]
    lab.run_for(LATENCY_US)
    assert client.outcomes[2:] == [("a", "ok"), ("b", "ok")]


def test_requests_of_a_connection_that_timed_out_in_a_cut_are_never_served() -> None:
    """At the healing only the close of the connection arrives, not its request.

    The client's next request uses a new connection.
    """
    world = World()
    lab, client = world.lab, world.client
    world.cut()
    client.send(world.connection, "lost", timeout_us=1_000)
    lab.run_for(1_000)
    assert client.outcomes == [("lost", "RequestTimedOut")]

    second_connection = client.connect()
    client.send(second_connection, "after")
    lab.set_rules()
    lab.run_for(4 * LATENCY_US)  # open, opened, request, response
    assert world.server.served_groups == ["after"]
    assert client.outcomes[1:] == [("after", "ok")]
    # `reset_links` returns the connections that the server still has. That is only the client's
    # second connection, because connection 0 was closed.
    (still_open,) = world.server.host.reset_links((CLIENT,), ())
    assert still_open.connection_id == 1


def test_a_new_connection_hangs_in_a_cut_until_its_setup_timeout() -> None:
    """The cut lets no refusal through, so the client waits until its own timeout for an open.

    In Kafka this is socket.connection.setup.timeout.ms, here it is SETUP_US.
    """
    world = World()
    world.cut()
    connection = world.client.connect()
    world.client.send(connection, "g")
    world.lab.run_for(SETUP_US - 1)
    assert not connection.is_closed
    world.lab.run_for(1)
    assert connection.is_closed
    assert world.client.outcomes == [("g", "Disconnected")]

    world.lab.set_rules()
    world.lab.run_for(QUIET_US)
    assert world.server.served == []


def test_a_cut_of_the_way_back_holds_the_answers_of_served_requests() -> None:
    """Requests still arrive and are served, but the client gets no answer before the healing."""
    world = World()
    lab, client = world.lab, world.client
    lab.set_rules(to_client(Cut()))
    client.send(world.connection, "a")
    second_connection = client.connect()
    lab.run_for(5 * LATENCY_US)
    assert world.server.served_groups == ["a"]
    # The cut holds back the answer to "a", and the acceptance of the second connection.
    assert client.outcomes == []
    assert not second_connection.is_open

    lab.set_rules()
    lab.run_for(LATENCY_US)
    assert client.outcomes == [("a", "ok")]
    assert second_connection.is_open


def test_a_cut_of_one_direction_does_not_touch_the_other() -> None:
    """The client's requests wait, and the server's answers to earlier requests arrive."""
    world = World("parked")
    lab, client = world.lab, world.client
    parked = client.connect("other")
    client.send(parked, "parked")
    lab.run_for(4 * LATENCY_US)  # "parked" has arrived at the server

    world.cut(both_ways=False)
    client.send(world.connection, "a")
    world.server.release()
    lab.run_for(LATENCY_US)
    assert client.outcomes == [("parked", "ok")]
    lab.run_for(QUIET_US)
    assert world.server.served_groups == ["parked"]


def test_a_cut_hides_a_death_until_healing() -> None:
    """The kernel of a killed process resets its connections. The cut holds this reset back."""
    world = World()
    lab, client = world.lab, world.client
    world.cut()
    client.send(world.connection, "g")
    world.server.host.crash()
    lab.run_for(QUIET_US)
    assert client.outcomes == []
    assert world.connection.is_open
    lab.set_rules()
    lab.run_for(0)
    assert client.outcomes == [("g", "Disconnected")]
    assert world.connection.is_closed


def test_a_restarted_server_never_gets_the_held_frames_of_its_former_life() -> None:
    """The server is killed and restarted before the healing, so its clients must connect again."""
    world = World()
    lab, client = world.lab, world.client
    world.cut()
    client.send(world.connection, "old")
    world.server.host.crash()
    lab.run_for(2 * LATENCY_US)
    restarted_server = EchoServer(lab.host(SERVER, incarnation=1))
    world.cut()  # once more, because the restarted server's host does not have the rules yet
    lab.set_rules()
    lab.run_for(0)

    connection = client.connect()
    client.send(connection, "new")
    lab.run_for(4 * LATENCY_US)
    assert restarted_server.served_groups == ["new"]
    assert client.outcomes == [("old", "Disconnected"), ("new", "ok")]


def test_a_request_to_a_process_whose_death_was_not_reported_is_answered_by_a_reset() -> None:
    """A client that has not learned of the death still uses the connection.

    The machine of the dead process knows no such connection, and answers with a reset.
    """
    world = World()
    # The kernel reports the death with a reset. The network loses this frame.
    world.lab.lose = lambda frame: isinstance(frame, ResetFrame)
    world.server.host.crash()
    world.client.send(world.connection, "g")
    world.lab.run_for(2 * LATENCY_US)
    assert world.client.outcomes == [("g", "Disconnected")]


def test_the_answer_to_a_client_whose_death_was_not_reported_ends_the_connection() -> None:
    """The client's machine replies with a reset, after which the server drops the connection.

    Otherwise a server would keep the connections of dead clients for ever.
    """
    world = World("p")
    world.client.send(world.connection, "p")
    world.lab.run_for(LATENCY_US)
    # The client dies while its request waits at the server. The reset that reports its death is
    # lost.
    world.lab.lose = lambda frame: isinstance(frame, ResetFrame)
    world.client.host.crash()
    world.server.release()
    world.lab.run_for(2 * LATENCY_US)
    # `reset_links` finds no connection at the server, so the answer to "p" has ended it.
    assert world.server.host.reset_links((CLIENT,), ()) == ()


def test_after_a_clog_even_a_request_that_has_timed_out_is_served() -> None:
    """A clog loses no frame, so the request arrives although its client has given up."""
    world = World()
    world.lab.set_rules(to_server(Clog()), to_client(Clog()))
    world.client.send(world.connection, "late", timeout_us=1_000)
    world.lab.run_for(2_000)
    assert world.client.outcomes == [("late", "RequestTimedOut")]
    world.lab.set_rules()
    world.lab.run_for(LATENCY_US)
    assert world.server.served_groups == ["late"]


def test_a_slow_link_adds_its_delay_to_each_frame() -> None:
    """The rule is for one direction only, so the answer is as fast as before."""
    world = World()
    world.lab.set_rules(to_server(Slow(delay_us=700)))
    world.client.send(world.connection, "g")
    world.lab.run_for(700 + 2 * LATENCY_US - 1)
    assert world.client.outcomes == []
    world.lab.run_for(1)
    assert world.client.outcomes == [("g", "ok")]


def test_a_rule_for_an_api_holds_its_requests_and_all_that_follow_on_their_connection() -> None:
    """The rule is for Heartbeats only, so it lets opens and other requests pass.

    But the frames of a connection must stay in order. So behind a Heartbeat that is held back, the
    other requests of the same connection wait, too.
    """
    world = World()
    lab, client = world.lab, world.client
    lab.set_rules(to_server(Cut(), apis=("Heartbeat",)))
    find = FindCoordinatorRequest(coordinator_keys=("g",))
    other_connection = client.connect("other")
    client.send(world.connection, "find 0", find)
    client.send(world.connection, "heartbeat 0")  # held back by the rule
    client.send(world.connection, "behind", find)  # waits behind the heartbeat
    client.send(other_connection, "find 1", find)
    lab.run_for(QUIET_US)
    assert client.outcomes == [("find 0", "ok"), ("find 1", "ok")]

    lab.set_rules()
    lab.run_for(2 * LATENCY_US)
    assert client.outcomes[2:] == [("heartbeat 0", "ok"), ("behind", "ok")]


def test_a_rule_for_an_api_selects_its_answers_on_the_way_back() -> None:
    """The rule is for Heartbeats that the server sends, so it holds the answers back."""
    world = World()
    world.lab.set_rules(to_client(Cut(), apis=("Heartbeat",)))
    world.client.send(world.connection, "g")
    world.lab.run_for(QUIET_US)
    assert world.server.served_groups == ["g"]
    assert world.client.outcomes == []


def test_a_rule_for_a_purpose_spares_other_connections() -> None:
    """A connection is opened for a purpose, such as fetching. Both ends know the purpose."""
    world = World()
    lab, client = world.lab, world.client
    fetch = client.connect("fetch")
    lab.run_for(2 * LATENCY_US)
    lab.set_rules(to_client(Cut(), purposes=("coordinator",)))
    client.send(world.connection, "coordinator")
    client.send(fetch, "fetch")
    lab.run_for(QUIET_US)
    assert sorted(world.server.served_groups) == ["coordinator", "fetch"]
    assert client.outcomes == [("fetch", "ok")]


def test_a_reset_is_seen_at_both_ends_and_loses_frames_in_flight() -> None:
    """Frames that are on their way are dropped on arrival, because their connection is gone.

    Only the connection of the purpose "coordinator" is reset, at the host of each end. The one of
    the purpose "fetch" stays open.
    """
    world = World("parked")
    lab, client = world.lab, world.client
    other = client.connect("fetch")
    client.send(world.connection, "parked")
    lab.run_for(2 * LATENCY_US)
    client.send(world.connection, "in flight")

    assert len(client.host.reset_links((SERVER,), ("coordinator",))) == 1
    assert len(world.server.host.reset_links((CLIENT,), ("coordinator",))) == 1
    lab.run_for(0)
    assert client.outcomes == [("parked", "Disconnected"), ("in flight", "Disconnected")]

    world.server.release()  # the answer to "parked" has no connection any more; that is no error
    lab.run_for(QUIET_US)
    assert world.server.served_groups == ["parked"]
    assert world.connection.is_closed
    assert other.is_open
    assert lab.failures == []


def test_a_reset_passes_a_cut_and_drops_its_held_frames() -> None:
    """A reset acts during a cut. The healing then delivers no frame of the ended connection."""
    world = World()
    lab, client = world.lab, world.client
    world.cut()
    client.send(world.connection, "held")
    client.host.reset_links((SERVER,), ())
    world.server.host.reset_links((CLIENT,), ())
    lab.run_for(0)
    assert client.outcomes == [("held", "Disconnected")]

    lab.set_rules()
    frames_before = len(lab.frames)
    lab.run_for(QUIET_US)
    assert world.server.served == []
    assert len(lab.frames) == frames_before  # the healing has sent nothing


@pytest.mark.parametrize("effect", [Cut(), Clog(), Slow(delay_us=10)])
def test_a_host_that_dies_drops_the_frames_that_a_rule_holds_back(effect: LinkEffect) -> None:
    """A killed process loses the frames that it has not sent yet. Its peers learn of its death."""
    world = World()
    lab, client = world.lab, world.client
    lab.set_rules(to_server(effect))
    client.send(world.connection, "g")
    client.host.crash()
    lab.set_rules()
    lab.run_for(1_000)
    assert world.server.served == []
    # `reset_links` finds no connection at the server, because the server has learnt of the death.
    assert world.server.host.reset_links((CLIENT,), ()) == ()
    assert lab.failures == []


@pytest.mark.parametrize("effect", [Cut(), Clog()])
def test_a_death_ends_connections_whose_acceptance_is_held(effect: LinkEffect) -> None:
    """The server accepts a connection, a rule holds the acceptance back, and the server dies.

    At the healing the client learns that the connection is closed. Otherwise it would wait until
    its timeout for opening a connection.
    """
    world = World()
    lab, client = world.lab, world.client
    lab.set_rules(to_client(effect))
    half_open = client.connect("other")
    lab.run_for(2 * LATENCY_US)  # the server has accepted, and the acceptance is held back

    world.server.host.crash()
    lab.run_for(2 * LATENCY_US)
    assert not half_open.is_closed

    lab.set_rules()
    lab.run_for(0)
    assert half_open.is_closed
    assert world.connection.is_closed


def test_a_callback_that_raises_during_the_healing_is_reported_once() -> None:
    """The healing delivers the response, and the client's callback raises."""
    world = World()
    lab = world.lab

    def fail(_outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
        raise LookupError("a bug")

    lab.set_rules(to_client(Cut()))
    world.connection.send(heartbeat(), timeout_us=TIMEOUT_US, on_response=fail)
    lab.run_for(TIMEOUT_US // 2)
    lab.set_rules()
    lab.run_for(LATENCY_US)
    failures = [(what, str(error)) for what, error in lab.failures]
    assert failures == [("client: callback", "a bug")]
    # The trace row TASK_FAILED is written by the runtime, which this lab does not have.
    assert not [row for row in lab.rows if row.kind == TraceKind.TASK_FAILED]


def test_a_lost_response_ends_its_connection_although_its_request_was_served() -> None:
    """The client must connect again, and cannot know whether the server has acted on its request.

    By default LoseResponses loses only the first response, so the second connection works.
    """
    world = World()
    lab, client = world.lab, world.client
    lab.set_rules(to_client(LoseResponses(), apis=("Heartbeat",)))
    client.send(world.connection, "a")
    lab.run_for(2 * LATENCY_US)
    assert world.server.served_groups == ["a"]
    assert client.outcomes == [("a", "Disconnected")]
    assert world.connection.is_closed
    (lost,) = [row for row in lab.rows if row.kind == TraceKind.RESPONSE_LOST]
    assert lost.node == SERVER
    assert lost.peer == CLIENT
    assert lost.api == "Heartbeat"
    assert lost.error == "NONE"

    again = client.connect()
    client.send(again, "b")
    lab.run_for(4 * LATENCY_US)
    assert client.outcomes[1:] == [("b", "ok")]
    assert lab.failures == []
