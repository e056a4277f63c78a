"""The link gate: every frame that a node sends or gets passes it, and rules can stop it there.

A frame is one message of a connection: an open, its acceptance (opened), a request, a response, a
close or a reset. Each node has its own gate. If a fault disturbs the network, the gates get link
rules. A rule selects frames and has an effect: `Cut` and `Clog` hold the frames back, `Slow` delays
them, and `LoseResponses` loses them. The link is healed by `gate.set_rules([])`. Then the frames
that were held back move on.

The gate in these tests is that of node `a`. The frames that `a` sends go into `gate.send`, and the
frames that arrive for `a` go into `gate.receive`. In most tests `a` is the client of a connection
and `b` is the server.

- `request(1)` and `response(1)` are a Heartbeat with the number 1 and its answer. They are on
  connection 1 unless the test passes another `connection`. With `find=True` they are a
  FindCoordinator and its answer.
- `open_frame(2)` and `close(2)` are frames of connection 2. Without a number they are frames of
  connection 1. An open frame names the purpose of its connection, such as "fetch".
- `rule(effect)` selects the frames from `a` to `b`, and `both_ways(effect)` those in both
  directions.
"""

import pytest

from cluster.host.connections import ConnectionEnd
from cluster.host.frames import CloseFrame, Frame, OpenedFrame, ResetFrame, ResponseFrame
from cluster.host.randomness import stream
from cluster.links.decisions import api_of
from cluster.links.gate import MAX_HELD_PER_CONNECTION, LinkGate
from cluster.links.rules import Clog, Cut, LinkEffect, LinkRule, LoseResponses, Slow
from cluster.virtual.loop import VirtualLoop
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from tests.support.builders.link_frames import (
    A,
    B,
    C,
    both_ways,
    close,
    open_frame,
    request,
    response,
    rule,
)

SECOND_US = 1_000_000


class GateLab:
    """The gate of node `a`, on a virtual clock.

    The lab also plays the node's endpoint. An endpoint knows the open connections of a node, and
    the gate asks it for their purposes.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.transmitted: list[Frame] = []
        """Frames of `a` that the gate has let out."""
        self.delivered: list[Frame] = []
        """Arrived frames that the gate has passed on to `a`."""
        self.order: list[str] = []
        """"transmitted" or "delivered" for each frame in one of the two lists, oldest first."""
        self.purposes: dict[ConnectionEnd, str] = {}
        """The purposes of the connections that the endpoint knows. A test sets them."""
        self.closes_at_death: tuple[CloseFrame, ...] = ()
        """The closes that `a` shall see when a peer dies: one for each connection with that peer.

        A test sets them.
        """
        self.lost_responses: list[ResponseFrame] = []
        self.gate = LinkGate(
            A,
            self,
            after=lambda delay_us, fn: self.loop.call_at_us(self.loop.now_us() + delay_us, fn),
            transmit=self._transmit,
            deliver=self._deliver,
            lost=self.lost_responses.append,
            rng_for=lambda rule_id: stream(1, rule_id),
        )

    def purpose_of(self, end: ConnectionEnd) -> str | None:
        """Return the purpose that the test has set for a connection."""
        return self.purposes.get(end)

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return those of `closes_at_death` whose peer is `peer`."""
        return tuple(close for close in self.closes_at_death if close.source == peer)

    def run_for(self, duration_us: int = 0) -> None:
        """Advance the time by `duration_us`."""
        self.loop.run_until_us(self.loop.now_us() + duration_us)

    def _transmit(self, frame: Frame) -> None:
        self.transmitted.append(frame)
        self.order.append("transmitted")

    def _deliver(self, frame: Frame) -> None:
        self.delivered.append(frame)
        self.order.append("delivered")


HOLDING = [Cut(), Clog()]
"""The effects that hold frames back until the rules change."""


# -- selection -----------------------------------------------------------------------------------


def test_without_rules_every_frame_passes_at_once() -> None:
    """A gate without a rule for its node is idle: the host may bypass the gate.

    Even with a rule about two other nodes, `c` and `b`, the gate of `a` stays idle.
    """
    lab = GateLab()
    frames: list[Frame] = [open_frame(), request(), close()]
    for frame in frames:
        lab.gate.send(frame)
    lab.gate.receive(response())
    assert lab.transmitted == frames
    assert lab.delivered == [response()]
    lab.gate.set_rules([rule(Cut(), sources=(C,), destinations=(B,))])
    assert lab.gate.is_idle


@pytest.mark.parametrize("effect", HOLDING)
def test_a_rule_selects_its_nodes_in_one_direction(effect: LinkEffect) -> None:
    """The rule is for frames from `a` and `c` to `a` and `b`.

    So frames from `b` and frames to `c` pass. A frame from `a` to itself passes, too, although `a`
    is in both lists.
    """
    lab = GateLab()
    lab.gate.set_rules([rule(effect, sources=(A, C), destinations=(A, B))])
    assert not lab.gate.is_idle
    lab.gate.send(request(1))  # to `b`: held back
    lab.gate.send(request(2, destination=C))
    lab.gate.send(request(3, destination=A))
    lab.gate.receive(response(4))  # from `b`
    # This frame comes from `c` and was on its way when the rule was set. So the gate of its
    # receiver holds it back.
    lab.gate.receive(request(5, source=C))
    lab.run_for(SECOND_US)
    assert lab.transmitted == [request(2, destination=C), request(3, destination=A)]
    assert lab.delivered == [response(4)]


def test_a_rule_with_purposes_selects_connections_of_those_purposes() -> None:
    """An open frame names the purpose. For later frames the gate asks the host's endpoint."""
    lab = GateLab()
    lab.purposes = {
        ConnectionEnd(B, 1, is_client=True): "coordinator",
        ConnectionEnd(B, 2, is_client=True): "fetch",
        # Each side numbers the connections that it opens. This is connection 1 of `b`, in which `a`
        # is the server.
        ConnectionEnd(B, 1, is_client=False): "fetch",
    }
    lab.gate.set_rules([both_ways(Cut(), purposes=("coordinator",))])

    # Held back: frames of the connection 1 that `a` has opened, and an open with the purpose
    # "coordinator", which is the default of `open_frame`.
    lab.gate.send(request(0))
    lab.gate.send(open_frame(3))
    lab.gate.receive(response(7))
    assert lab.transmitted == []
    assert lab.delivered == []

    passing: list[Frame] = [
        request(1, connection=2),
        open_frame(4, purpose="fetch"),
        response(3, connection=1, source=A, destination=B),  # on the connection 1 of `b`
        close(9),  # the endpoint does not know this connection, so it has no purpose
    ]
    for frame in passing:
        lab.gate.send(frame)
    assert lab.transmitted == passing


def test_a_purpose_is_remembered_when_the_rules_change() -> None:
    """The gate must not ask for the purpose of a held frame again when the rules change.

    1. `a` closes a connection, and the rule holds the close back.
    2. The endpoint of `a` forgets the connection, and with it the purpose.
    3. The rules change. The old rule is still among them, so the close must stay held back.
    """
    lab = GateLab()
    lab.purposes = {ConnectionEnd(B, 1, is_client=True): "coordinator"}
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",))])
    lab.gate.send(close())
    lab.purposes.clear()
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",)), rule(Cut(), destinations=(C,))])
    lab.run_for(SECOND_US)
    assert lab.transmitted == []


def test_a_frame_behind_a_held_open_has_the_purpose_of_that_open() -> None:
    """While an open frame is held back, the endpoint of `a` does not know the connection.

    So the gate takes the connection's purpose from the open frame.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), purposes=("coordinator",))])
    lab.gate.receive(open_frame(source=B, destination=A))
    lab.gate.receive(close(source=B, destination=A))
    assert lab.delivered == []


def test_a_rule_with_apis_passes_opens_and_closes_and_delays_later_frames() -> None:
    """The frames of a connection keep their order, so frames wait behind one that is held back."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    opened = OpenedFrame(
        source=A, destination=B, connection_id=7, source_incarnation=Incarnation(0)
    )
    for frame in (open_frame(), opened, request(1, find=True), request(2, connection=2, find=True)):
        lab.gate.send(frame)
    assert len(lab.transmitted) == 4  # there is no Heartbeat among them, so all pass
    lab.gate.send(request(3))  # a Heartbeat, which the rule holds back
    lab.gate.send(request(4, find=True))  # must wait behind request 3
    lab.gate.send(request(5, connection=2, find=True))  # on another connection, so it passes
    lab.gate.send(close(3))  # a rule with apis selects no closes; connection 3 has no held frames
    assert lab.transmitted[4:] == [request(5, connection=2, find=True), close(3)]


def test_a_response_is_selected_by_the_api_of_its_request() -> None:
    """A response frame does not name its API, but a rule for Heartbeat must select its answers."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.receive(response(1, find=True))
    lab.gate.receive(response(2, connection=2))  # the answer to a Heartbeat: held back
    lab.gate.send(response(3, connection=3, source=A, destination=B))  # held back, too
    assert lab.delivered == [response(1, find=True)]
    assert lab.transmitted == []

    assert api_of(response()) == "Heartbeat"
    assert api_of(response(find=True)) == "FindCoordinator"
    assert api_of(close()) is None


def test_the_first_rule_that_holds_or_delays_a_frame_decides_at_both_ends() -> None:
    """If two rules select a frame, the first one counts, and the second one is not applied.

    This holds for frames that `a` sends and for frames that arrive at `a`.
    """
    slow, cut = both_ways(Slow(delay_us=100)), both_ways(Cut())
    lab = GateLab()
    lab.gate.set_rules([slow, cut])
    lab.gate.send(request(1))
    lab.gate.receive(response(2))
    # The slow rule has delayed the response already, in the gate of its sender `b`. Here it passes.
    assert lab.delivered == [response(2)]
    lab.run_for(100)
    assert lab.transmitted == [request(1)]

    lab.gate.set_rules([cut, slow])
    lab.gate.send(request(3))
    lab.gate.receive(response(4))
    lab.run_for(SECOND_US)
    # Frames 1 and 2 have passed. Now the cut comes first, so frames 3 and 4 are held back.
    assert lab.transmitted == [request(1)]
    assert lab.delivered == [response(2)]


# -- frames that are held back, and healing --------------------------------------------------------


@pytest.mark.parametrize("effect", HOLDING)
def test_healing_delivers_held_arrivals_before_it_sends_held_frames(
    effect: LinkEffect,
) -> None:
    """The gate has one queue of frames to send, and one of frames that have arrived.

    Each queue keeps its order, whatever the connections of the frames. The queues begin to move
    only after set_rules has returned.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(effect)])
    lab.gate.send(request(1, connection=2))
    lab.gate.send(request(2, connection=1))
    lab.gate.receive(response(3, connection=5))
    lab.gate.send(request(4, connection=2))
    lab.gate.receive(response(5, connection=4))
    lab.run_for(SECOND_US)
    assert lab.order == []

    lab.gate.set_rules([])
    assert lab.order == []  # nothing has moved yet
    lab.gate.send(request(6, connection=2))  # must wait behind the held frames of connection 2
    lab.gate.send(request(7, connection=9))  # connection 9 has no held frames, so it passes
    assert lab.transmitted == [request(7, connection=9)]

    lab.run_for()
    assert lab.delivered == [response(3, connection=5), response(5, connection=4)]
    assert lab.transmitted[1:] == [
        request(1, connection=2),
        request(2, connection=1),
        request(4, connection=2),
        request(6, connection=2),
    ]
    # First request 7, then the two arrivals, then the other four requests.
    assert lab.order == ["transmitted", *["delivered"] * 2, *["transmitted"] * 4]

    lab.gate.send(request(8))
    assert lab.transmitted[-1] == request(8)
    assert lab.gate.is_idle


def test_new_rules_keep_the_frames_that_they_also_hold() -> None:
    """New rules replace the old ones in one step, so a cut that remains lets no frame through."""
    lab = GateLab()
    cut_to_b, cut_to_c = rule(Cut()), rule(Cut(), destinations=(C,))
    lab.gate.set_rules([cut_to_b, cut_to_c])
    lab.gate.send(request(1))
    lab.gate.send(request(2, destination=C))
    lab.gate.set_rules([cut_to_b])
    lab.run_for(SECOND_US)
    assert lab.transmitted == [request(2, destination=C)]

    # A slow link replaces the cut. Request 1, which the cut has held, now waits for 100 us.
    lab.gate.set_rules([rule(Slow(delay_us=100))])
    lab.run_for(99)
    assert len(lab.transmitted) == 1
    lab.run_for(1)
    assert lab.transmitted[1:] == [request(1)]


def test_a_connection_closed_by_its_own_end_during_a_cut_sends_only_the_close() -> None:
    """During a cut a client's timeout closes its connection.

    After healing the server must not get the connection's requests, only the close.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    # The cut holds back the open of connection 1, and frames of connections 2 and 3.
    lab.gate.send(open_frame(1))
    lab.gate.send(request(1, connection=2))
    lab.gate.receive(response(2, connection=2))
    lab.gate.send(request(3, connection=3))

    lab.gate.send(close(1))
    lab.gate.send(close(2))

    lab.gate.set_rules([])
    lab.run_for()
    # Only connection 3 still has its frame. Each close comes in place of what it has dropped.
    assert lab.transmitted == [request(3, connection=3), close(1), close(2)]
    assert lab.delivered == []


def test_a_connection_closed_by_its_peer_during_a_cut_delivers_only_the_close() -> None:
    """The close drops the held frames of its connection in both directions.

    The gate also holds the close itself back. So `a` does not know of the close, and sends
    request 3. The gate drops this request, too.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    close_by_server = close(by_client=False, source=B, destination=A)
    lab.gate.receive(response(1))
    lab.gate.send(request(2))
    lab.gate.receive(close_by_server)
    lab.gate.send(request(3))
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.delivered == [close_by_server]
    assert lab.transmitted == []


def test_a_cut_of_one_direction_delivers_the_close_of_the_other() -> None:
    """The rule cuts only from `a` to `b`, so the server's close arrives at `a`.

    This close drops the frames of `a` that are held back on its connection.
    """
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(request(1))
    close_by_server = close(by_client=False, source=B, destination=A)
    lab.gate.receive(close_by_server)
    assert lab.delivered == [close_by_server]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == []


def test_after_a_clog_everything_arrives_also_on_closed_connections() -> None:
    """A clog loses no frame, unlike a cut, which keeps only the close of a closed connection."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Clog())])
    close_by_server = close(2, by_client=False, source=B, destination=A)
    lab.gate.send(request(1))
    lab.gate.send(close())
    lab.gate.receive(response(1, connection=2))
    lab.gate.receive(close_by_server)
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == [request(1), close()]
    assert lab.delivered == [response(1, connection=2), close_by_server]


def test_the_close_of_a_connection_passes_a_rule_that_cuts_one_api() -> None:
    """A rule with apis lets a close pass. The close drops the frames that the rule holds back."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut(), apis=("Heartbeat",))])
    lab.gate.send(request(1))
    lab.gate.send(close())
    assert lab.transmitted == [close()]


# -- deaths and resets -----------------------------------------------------------------------------


@pytest.mark.parametrize("effect", HOLDING)
def test_a_death_behind_a_cut_is_hidden_until_healing(effect: LinkEffect) -> None:
    """The machine of a dead process reports the death with a reset. A cut holds this reset back.

    Here `b` and `c` die, and the rule is only for the link to `b`. At a death the node `a` gets a
    close of each connection with the dead peer: of two with `b`, and of one with `c`.
    """
    closes_of_b = (
        close(1, by_client=False, source=B, destination=A),
        close(2, by_client=True, source=B, destination=A),
    )
    close_of_c = close(3, by_client=False, source=C, destination=A)
    lab = GateLab()
    lab.closes_at_death = (*closes_of_b, close_of_c)
    lab.gate.set_rules([both_ways(effect)])
    for peer in (B, C):
        lab.gate.receive(ResetFrame(source=peer, destination=A, source_incarnation=Incarnation(0)))
    assert lab.delivered == [close_of_c]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.delivered == [close_of_c, *closes_of_b]


def test_a_death_is_not_reported_on_a_connection_whose_open_is_held() -> None:
    """The dead peer did not know connection 2: its open still waits in the gate of `a`.

    So only connection 1 ends with the peer.
    """
    lab = GateLab()
    close_1 = close(1, by_client=False, source=B, destination=A)
    close_2 = close(2, by_client=False, source=B, destination=A)
    lab.closes_at_death = (close_1, close_2)
    lab.gate.send(open_frame(1))
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(open_frame(2))
    lab.gate.peer_lost(B)
    assert lab.delivered == [close_1]


def test_a_death_without_rules_is_one_frame() -> None:
    """Without rules the gate passes the reset of a dead process on as it is.

    The node's endpoint then ends the connections to that process.
    """
    lab = GateLab()
    death = ResetFrame(source=B, destination=A, source_incarnation=Incarnation(0))
    lab.gate.receive(death)
    assert lab.delivered == [death]


def test_a_reset_ends_a_connection_through_a_cut_and_drops_held_frames() -> None:
    """A reset of connections is a fault of its own. `a` sees it even during a cut."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    lab.gate.send(request(1))
    lab.gate.send(request(2, connection=2))
    lab.gate.receive(response(3))

    close_1 = close(1, by_client=False, source=B, destination=A)
    lab.gate.reset([close_1])
    assert lab.delivered == [close_1]

    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == [request(2, connection=2)]
    assert lab.delivered == [close_1]


def test_too_many_held_frames_of_one_connection_raise() -> None:
    """A client closes a silent connection after its timeout, so only a bug can fill the queue."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    frame = request()
    for _ in range(MAX_HELD_PER_CONNECTION):
        lab.gate.send(frame)
    with pytest.raises(SimulationError, match="wait on"):
        lab.gate.send(frame)


# -- slow links ------------------------------------------------------------------------------------


def departures_us(rules: list[LinkRule], frames: list[Frame], every_us: int) -> list[int]:
    """Send a frame every `every_us`, and return the times at which the frames left the gate."""
    lab = GateLab()
    lab.gate.set_rules(rules)
    for number, frame in enumerate(frames):
        lab.loop.call_at_us(number * every_us, lab.gate.send, frame)

    lab.run_for()
    # Advance by one microsecond at a time. The frames that are new in `transmitted` have left at
    # the present time.
    times_us: list[int] = []
    while len(times_us) < len(frames):
        number_left_now = len(lab.transmitted) - len(times_us)
        times_us += [lab.loop.now_us()] * number_left_now
        lab.run_for(1)
    assert lab.transmitted == frames
    return times_us


def test_a_slow_link_delays_within_its_bounds_and_keeps_the_order() -> None:
    """Each frame has a delay of 20 us and a random jitter of 0 to 100 us.

    A frame with a short delay waits for the frames before it on its connection.
    """
    # Every third frame is a FindCoordinator, which the rule does not select.
    frames: list[Frame] = [request(number, find=number % 3 == 0) for number in range(60)]
    slow = rule(Slow(delay_us=20, jitter_us=100), apis=("Heartbeat",))
    # The gate draws the jitters from the random stream of the rule. This is an equal stream, so the
    # test draws the same numbers.
    rng = stream(1, "r")
    expected_us: list[int] = []
    for number in range(60):
        sent_at_us = number * 5
        delay_us = 0
        if number % 3 != 0:  # a Heartbeat, which the rule delays
            delay_us = 20 + int(rng.random() * 101)
        # A frame never leaves before an earlier one.
        expected_us.append(max([sent_at_us + delay_us, *expected_us]))
    assert departures_us([slow], frames, every_us=5) == expected_us
    delays_us = [left_at_us - number * 5 for number, left_at_us in enumerate(expected_us)]
    assert 20 < max(delays_us) <= 120


def test_a_slow_link_draws_once_a_frame_from_the_stream_of_its_rule() -> None:
    """Each rule has its own random stream, so a fault on one link changes no delays on another.

    The frames to `b` are sent twice: first alone, and then between frames to `c`, which another
    rule delays. Both times they must have the same delays.
    """
    frames: list[Frame] = [request(number, connection=number) for number in range(20)]
    slow = rule(Slow(delay_us=20, jitter_us=100))
    slow_to_c = rule(Slow(delay_us=1, jitter_us=9), destinations=(C,), rule_id="other")
    departures_alone_us = departures_us([slow], frames, every_us=1_000)

    lab = GateLab()
    lab.gate.set_rules([slow_to_c, slow])
    rng = stream(1, "r")
    for number, (frame, left_at_us) in enumerate(zip(frames, departures_alone_us, strict=True)):
        lab.gate.send(request(destination=C))
        lab.gate.send(frame)

        delay_us = 20 + int(rng.random() * 101)
        assert left_at_us == number * 1_000 + delay_us
        lab.run_for(delay_us - 1)
        assert frame not in lab.transmitted
        lab.run_for(1)
        assert frame in lab.transmitted


# -- lost responses -------------------------------------------------------------------------------


def test_a_lost_response_resets_its_connection_once() -> None:
    """A response that is lost takes its connection with it.

    In this test `a` is the server. At the loss its client `b` gets a close frame. One turn of the
    loop later, `a` gets a close frame, too. By default the rule loses a single response, so the
    next one passes.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(LoseResponses())])
    lost = response(1, source=A, destination=B)
    lab.gate.send(lost)
    assert lab.lost_responses == [lost]
    assert lab.transmitted == [
        CloseFrame(
            source=A,
            destination=B,
            connection_id=1,
            by_client=False,
            reason="the connection was reset",
        )
    ]
    assert lab.delivered == []

    lab.run_for()
    (close_at_server,) = lab.delivered
    assert isinstance(close_at_server, CloseFrame)
    # The server gets the close as if the client had closed the connection.
    assert close_at_server.source == B
    assert close_at_server.by_client
    assert close_at_server.connection_id == 1

    second = response(2, connection=2, source=A, destination=B)
    lab.gate.send(second)
    assert lab.transmitted[1:] == [second]


def test_only_departing_responses_of_the_named_apis_and_errors_are_lost() -> None:
    """A rule can name the APIs and the errors of the responses that it loses.

    All other frames pass: requests, arriving responses, and responses with another API or error.
    All responses of this test have the error NONE.
    """
    lab = GateLab()
    lab.gate.set_rules(
        [both_ways(LoseResponses(errors=("UNKNOWN_MEMBER_ID",)), apis=("Heartbeat",))]
    )
    passing: list[Frame] = [
        request(1),
        response(2, source=A, destination=B),
        response(3, source=A, destination=B, find=True),
    ]
    for frame in passing:
        lab.gate.send(frame)
    lab.gate.receive(response(4))
    assert lab.transmitted == passing
    assert lab.delivered == [response(4)]
    assert lab.lost_responses == []

    lab.gate.set_rules([both_ways(LoseResponses(errors=("NONE",)), apis=("Heartbeat",))])
    lab.gate.send(response(5, source=A, destination=B))
    assert len(lab.lost_responses) == 1


def test_new_rules_do_not_restart_the_count_of_lost_responses() -> None:
    """Whenever a fault begins or ends, a run sets all rules again. The counts must not restart.

    Here a rule loses two responses: one before the new rules, and one after them. The third one
    passes.
    """
    lab = GateLab()
    losing = both_ways(LoseResponses(count=2))
    lab.gate.set_rules([losing])
    lab.gate.send(response(1, source=A, destination=B))
    lab.gate.set_rules([rule(Slow(delay_us=5), sources=(A,), destinations=(C,)), losing])
    lab.gate.send(response(2, connection=2, source=A, destination=B))
    lab.gate.send(response(3, connection=3, source=A, destination=B))
    assert len(lab.lost_responses) == 2


def test_a_response_is_lost_only_when_it_is_sent() -> None:
    """A response that a cut has held back is not lost at the healing.

    The rules that are in force at the healing would lose it if the server sent it then.
    """
    lab = GateLab()
    held = response(1, source=A, destination=B)
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.send(held)

    lab.gate.set_rules([both_ways(LoseResponses())])
    lab.run_for()
    assert lab.transmitted == [held]
    assert lab.lost_responses == []


def test_a_lost_response_also_drops_the_held_frames_of_its_connection() -> None:
    """The cut holds response 2 back. Response 3, on the same connection, is lost.

    The loss ends the connection, so at the healing response 2 is not sent either. Only the close
    frame has been sent.
    """
    lab = GateLab()
    lab.gate.set_rules(
        [
            both_ways(Cut(), apis=("FindCoordinator",)),
            both_ways(LoseResponses(), apis=("Heartbeat",)),
        ]
    )
    lab.gate.send(response(2, source=A, destination=B, find=True))
    lab.gate.send(response(3, source=A, destination=B))
    lab.gate.set_rules([])
    lab.run_for(SECOND_US)
    assert [type(frame) for frame in lab.transmitted] == [CloseFrame]
