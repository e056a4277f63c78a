"""The link gate applies link rules to the frames of one host.

- A frame is one message of a connection: an open, an opened (its answer), a request, a response, a
  close or a reset.
- A rule selects frames between nodes and holds them back (`Cut`, `Clog`), delays them (`Slow`) or
  loses them.
- Healing is the withdrawal of all rules. Then the frames that were held back move on.
- Node `a` has the gate. Its frames leave through `gate.send`, and frames for it arrive at
  `gate.receive`.
- `request(1)` and `response(1)` are frames with the number 1, of connection 1 unless a test names
  another. With `find=True` they are of a FindCoordinator, otherwise of a Heartbeat.
- `open_frame(2)` and `close(2)` are frames of connection 2; without a number, of connection 1.
- `a` is the client and `b` the server of a connection, unless a test says otherwise.
- `rule(effect)` is for frames from `a` to `b`, and `both_ways(effect)` for both directions.
- A connection has a purpose, which its open frame names.
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

    `transmitted` has the frames that left the gate, `delivered` those that the gate passed to `a`.
    `order` has "transmitted" or "delivered" for each of these frames, in order.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.transmitted: list[Frame] = []
        self.delivered: list[Frame] = []
        self.order: list[str] = []
        self.purposes: dict[ConnectionEnd, str] = {}
        self.closes_at_death: tuple[CloseFrame, ...] = ()
        """The close frames that follow from the death of a peer. A test sets them."""
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
    """A gate that no rule concerns is idle.

    The rule of this test is about two other nodes, so the gate of `a` stays idle.
    """
    lab = GateLab()
    frames: list[Frame] = [open_frame(), request(), close()]
    for frame in frames:
        lab.gate.send(frame)
    lab.gate.receive(response())
    assert (lab.transmitted, lab.delivered) == (frames, [response()])
    lab.gate.set_rules([rule(Cut(), sources=(C,), destinations=(B,))])
    assert lab.gate.is_idle


@pytest.mark.parametrize("effect", HOLDING)
def test_a_rule_selects_its_nodes_in_one_direction(effect: LinkEffect) -> None:
    """The rule is from `a` and `c` to `a` and `b`. It selects no frame from `b`, and none to `c`.

    It selects no frame from `a` to itself either, although `a` is in both lists.
    """
    lab = GateLab()
    lab.gate.set_rules([rule(effect, sources=(A, C), destinations=(A, B))])
    assert not lab.gate.is_idle
    lab.gate.send(request(1))
    lab.gate.send(request(2, destination=C))
    lab.gate.send(request(3, destination=A))
    lab.gate.receive(response(4))
    # This frame was on its way when the rule was set, so the receiver's gate holds it back.
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
        # `b` has opened this connection. A connection that `a` has opened has the same id.
        ConnectionEnd(B, 1, is_client=False): "fetch",
    }
    lab.gate.set_rules([both_ways(Cut(), purposes=("coordinator",))])
    passing: list[Frame] = [
        request(1, connection=2),
        open_frame(4, purpose="fetch"),
        response(3, connection=1, source=A, destination=B),
        close(9),  # nobody knows this connection
    ]
    # The request is of connection 1, and the open has the purpose "coordinator" by default, so both
    # are held back.
    for frame in (request(0), open_frame(3), *passing):
        lab.gate.send(frame)
    lab.gate.receive(response(7))  # held back, too, because it arrives on connection 1
    assert lab.transmitted == passing
    assert lab.delivered == []


def test_a_purpose_is_remembered_when_the_rules_change() -> None:
    """A node's endpoint may forget a connection, and its purpose, while the close is held back.

    A change of the rules must not release the close because of that.
    """
    lab = GateLab()
    lab.purposes = {ConnectionEnd(B, 1, is_client=True): "coordinator"}
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",))])
    lab.gate.send(close())
    lab.purposes.clear()
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",)), rule(Cut(), destinations=(C,))])
    lab.run_for(SECOND_US)
    assert lab.transmitted == []


def test_a_frame_behind_a_held_open_has_its_purpose() -> None:
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
    assert len(lab.transmitted) == 4  # the rule does not select them
    lab.gate.send(request(3))  # a Heartbeat, which the rule holds back
    lab.gate.send(request(4, find=True))  # must wait behind request 3
    lab.gate.send(request(5, connection=2, find=True))  # of another connection, so it passes
    lab.gate.send(close(3))  # of connection 3: a rule with apis selects no closes
    assert lab.transmitted[4:] == [request(5, connection=2, find=True), close(3)]


def test_a_response_is_selected_by_the_api_of_its_request() -> None:
    """A response has no API of its own. A rule for Heartbeat must select both directions."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.receive(response(1, find=True))
    lab.gate.receive(response(2, connection=2))
    lab.gate.send(response(3, connection=3, source=A, destination=B))
    assert lab.delivered == [response(1, find=True)]
    assert lab.transmitted == []
    assert (api_of(response()), api_of(response(find=True)), api_of(close())) == (
        "Heartbeat",
        "FindCoordinator",
        None,
    )


def test_the_first_rule_that_holds_or_delays_a_frame_decides_at_both_ends() -> None:
    """The order of the rules counts. A frame that a slow rule delays is not also held by a cut."""
    slow, cut = both_ways(Slow(delay_us=100)), both_ways(Cut())
    lab = GateLab()
    lab.gate.set_rules([slow, cut])
    lab.gate.send(request(1))
    lab.gate.receive(response(2))
    # A slow rule delays a frame in the gate of its sender. In the gate of its receiver it passes.
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
    """The gate has a queue of frames to send, and one of frames that have arrived.

    Both queues keep their order over all connections. They begin to move only after set_rules has
    returned.
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
    assert lab.order == []
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
    # Request 7 was the first frame. The two arrivals and the four frames to send followed.
    assert lab.order == ["transmitted", *["delivered"] * 2, *["transmitted"] * 4]

    lab.gate.send(request(8))
    assert lab.transmitted[-1] == request(8)
    assert lab.gate.is_idle


def test_new_rules_keep_the_frames_that_they_also_hold() -> None:
    """New rules replace the old ones in one step, so a cut that remains lets no frame through."""
    lab = GateLab()
    to_b, to_c = rule(Cut()), rule(Cut(), destinations=(C,))
    lab.gate.set_rules([to_b, to_c])
    lab.gate.send(request(1))
    lab.gate.send(request(2, destination=C))
    lab.gate.set_rules([to_b])
    lab.run_for(SECOND_US)
    assert lab.transmitted == [request(2, destination=C)]

    lab.gate.set_rules([rule(Slow(delay_us=100))])
    lab.run_for(99)
    # Request 1 was held by the cut. Now the slow rule delays it by 100 us.
    assert len(lab.transmitted) == 1
    lab.run_for(1)
    assert lab.transmitted[1:] == [request(1)]


def test_a_connection_closed_by_its_own_end_during_a_cut_sends_only_the_close() -> None:
    """During a cut a client's timeout closes its connection.

    After healing the server must not get the connection's requests, only the close.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    # The cut holds an open of connection 1 back, and a frame in each direction of connection 2.
    lab.gate.send(open_frame(1))
    lab.gate.send(request(1, connection=2))
    lab.gate.receive(response(2, connection=2))
    lab.gate.send(request(3, connection=3))

    lab.gate.send(close(1))
    lab.gate.send(close(2))

    lab.gate.set_rules([])
    lab.run_for()
    # Connection 3 is not closed. The close of connection 1 is sent in place of its open.
    assert lab.transmitted == [request(3, connection=3), close(1), close(2)]
    assert lab.delivered == []


def test_a_connection_closed_by_its_peer_during_a_cut_delivers_only_the_close() -> None:
    """The close drops the held frames of its connection in both directions.

    Request 3 is sent before `a` knows of the close. The gate also drops this request.
    """
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    end = close(by_client=False, source=B, destination=A)
    lab.gate.receive(response(1))
    lab.gate.send(request(2))
    lab.gate.receive(end)
    lab.gate.send(request(3))
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.delivered == [end]
    assert lab.transmitted == []


def test_a_cut_of_one_direction_delivers_the_close_of_the_other() -> None:
    """The rule cuts only from `a` to `b`, so the server's close arrives at `a`.

    This close drops the frames of `a` that are held back on its connection.
    """
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(request(1))
    end = close(by_client=False, source=B, destination=A)
    lab.gate.receive(end)
    assert lab.delivered == [end]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == []


def test_after_a_clog_everything_arrives_also_on_closed_connections() -> None:
    """A clog loses no frame, unlike a cut, which keeps only the close of a closed connection."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Clog())])
    end = close(2, by_client=False, source=B, destination=A)
    lab.gate.send(request(1))
    lab.gate.send(close())
    lab.gate.receive(response(1, connection=2))
    lab.gate.receive(end)
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == [request(1), close()]
    assert lab.delivered == [response(1, connection=2), end]


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
    """The kernel of the dead process is cut off, too, so its reset waits until the healing.

    `b` and `c` die. Only the link to `b` has a rule.
    """
    lab = GateLab()
    lab.closes_at_death = (
        close(1, by_client=False, source=B, destination=A),
        close(2, by_client=True, source=B, destination=A),
        close(3, by_client=False, source=C, destination=A),
    )
    lab.gate.set_rules([both_ways(effect)])
    for peer in (B, C):
        lab.gate.receive(ResetFrame(source=peer, destination=A, source_incarnation=Incarnation(0)))
    assert lab.delivered == [lab.closes_at_death[2]]
    lab.gate.set_rules([])
    lab.run_for()
    # The rule is not about `c`, so its close came first, before the healing.
    assert lab.delivered == [lab.closes_at_death[2], *lab.closes_at_death[:2]]


def test_a_death_is_not_reported_on_a_connection_whose_open_is_held() -> None:
    """The peer does not know the connection yet, because its open waits in the gate of `a`."""
    lab = GateLab()
    lab.closes_at_death = (
        close(1, by_client=False, source=B, destination=A),
        close(2, by_client=False, source=B, destination=A),
    )
    lab.gate.send(open_frame(1))
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(open_frame(2))
    lab.gate.peer_lost(B)
    assert lab.delivered == [lab.closes_at_death[0]]


def test_a_death_without_rules_is_one_frame() -> None:
    """Without rules the gate passes the reset of a dead process on as it is.

    The node's endpoint then ends the connections to that process.
    """
    lab = GateLab()
    death = ResetFrame(source=B, destination=A, source_incarnation=Incarnation(0))
    lab.gate.receive(death)
    assert lab.delivered == [death]


def test_a_reset_ends_a_connection_through_a_cut_and_drops_held_frames() -> None:
    """`gate.reset` is a fault of its own, so no rule holds back the close that it delivers."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    lab.gate.send(request(1))
    lab.gate.send(request(2, connection=2))
    lab.gate.receive(response(3))

    end = close(by_client=False, source=B, destination=A)
    lab.gate.reset([end])
    assert lab.delivered == [end]

    lab.gate.set_rules([])
    lab.run_for()
    assert lab.transmitted == [request(2, connection=2)]
    assert lab.delivered == [end]


def test_a_connection_with_too_many_held_frames_is_misuse() -> None:
    """The timeouts of a client close a silent connection long before, so this is a bug of ours."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    frame = request()
    for _ in range(MAX_HELD_PER_CONNECTION):
        lab.gate.send(frame)
    with pytest.raises(SimulationError, match="wait on"):
        lab.gate.send(frame)


# -- slow links ------------------------------------------------------------------------------------


def departures(rules: list[LinkRule], frames: list[Frame], every_us: int) -> list[int]:
    """Send a frame every `every_us`, and return the times at which the frames left the gate."""
    lab = GateLab()
    lab.gate.set_rules(rules)
    for number, frame in enumerate(frames):
        lab.loop.call_at_us(number * every_us, lab.gate.send, frame)

    lab.run_for()
    # Go on by one microsecond at a time, and note when each frame has left.
    left_at: list[int] = []
    while len(left_at) < len(frames):
        left_now = len(lab.transmitted) - len(left_at)
        left_at += [lab.loop.now_us()] * left_now
        lab.run_for(1)
    assert lab.transmitted == frames
    return left_at


def test_a_slow_link_delays_within_its_bounds_and_keeps_the_order() -> None:
    """A frame with a short delay waits for the frames before it on its connection."""
    frames: list[Frame] = [request(number, find=number % 3 == 0) for number in range(60)]
    slow = rule(Slow(delay_us=20, jitter_us=100), apis=("Heartbeat",))
    # The gate draws a jitter of 0 to 100 us for each frame, in addition to the delay of 20 us.
    # `stream(1, "r")` is the random stream of this rule, so the test draws the same numbers.
    rng = stream(1, "r")
    expected: list[int] = []
    for number in range(60):
        sent_at = number * 5
        # Every third frame is a FindCoordinator: the rule does not select it, and makes no draw.
        delay_us = 0 if number % 3 == 0 else 20 + int(rng.random() * 101)
        # A frame never leaves before an earlier one.
        expected.append(max([sent_at + delay_us, *expected]))
    assert departures([slow], frames, every_us=5) == expected
    delays_us = [left_at - number * 5 for number, left_at in enumerate(expected)]
    assert 20 < max(delays_us) <= 120


def test_a_slow_link_draws_once_a_frame_from_the_stream_of_its_rule() -> None:
    """Each rule has its own random stream, so a fault on one link changes no delays on another."""
    frames: list[Frame] = [request(number, connection=number) for number in range(20)]
    slow = rule(Slow(delay_us=20, jitter_us=100))
    other = rule(Slow(delay_us=1, jitter_us=9), destinations=(C,), rule_id="other")
    alone = departures([slow], frames, every_us=1_000)

    lab = GateLab()
    lab.gate.set_rules([other, slow])
    rng = stream(1, "r")
    # Before each frame another one goes to `c`, which the other rule delays.
    for number, (frame, left_at) in enumerate(zip(frames, alone, strict=True)):
        lab.gate.send(request(destination=C))
        lab.gate.send(frame)

        delay_us = 20 + int(rng.random() * 101)
        assert left_at == number * 1_000 + delay_us
        lab.run_for(delay_us - 1)
        assert frame not in lab.transmitted
        lab.run_for(1)
        assert frame in lab.transmitted


# -- lost responses -------------------------------------------------------------------------------


def test_a_lost_response_resets_its_connection_once() -> None:
    """Both the client and the server see a reset of the connection.

    By default the rule loses a single response, so the next one passes. The server, here `a`, sees
    the reset one turn of the loop after its reply.
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
    # For the server it looks as if the client had closed the connection.
    assert (close_at_server.source, close_at_server.by_client) == (B, True)
    assert close_at_server.connection_id == 1

    second = response(2, connection=2, source=A, destination=B)
    lab.gate.send(second)
    assert lab.transmitted[1:] == [second]


def test_only_departing_responses_of_the_named_apis_and_errors_are_lost() -> None:
    """A rule can name the APIs and the errors of the responses that it loses.

    All other frames pass: requests, arriving responses, and responses with another API or error.
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
    assert (lab.transmitted, lab.delivered, lab.lost_responses) == (passing, [response(4)], [])
    lab.gate.set_rules([both_ways(LoseResponses(errors=("NONE",)), apis=("Heartbeat",))])
    lab.gate.send(response(5, source=A, destination=B))
    assert len(lab.lost_responses) == 1


def test_new_rules_do_not_restart_the_count_of_lost_responses() -> None:
    """A run sets all rules again whenever a fault begins or ends, and must not lose its counts.

    The rule loses two responses. One is lost before the new rules, and one after.
    """
    lab = GateLab()
    losing = both_ways(LoseResponses(count=2))
    lab.gate.set_rules([losing])
    lab.gate.send(response(1, source=A, destination=B))
    lab.gate.set_rules([rule(Slow(delay_us=5), sources=(A,), destinations=(C,)), losing])
    lab.gate.send(response(2, connection=2, source=A, destination=B))
    lab.gate.send(response(3, connection=3, source=A, destination=B))
    assert len(lab.lost_responses) == 2


def test_a_held_response_is_not_lost_and_frames_before_a_lost_one_are() -> None:
    """A response is lost when the server sends it, and not when healing releases it.

    The loss resets the connection, which also drops the frames that the gate holds back on it.
    """
    lab = GateLab()
    held = response(1, source=A, destination=B)
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.send(held)

    lab.gate.set_rules([both_ways(LoseResponses())])
    lab.run_for()
    assert (lab.transmitted, lab.lost_responses) == ([held], [])
    lab.gate.set_rules(
        [
            both_ways(Cut(), apis=("FindCoordinator",)),
            both_ways(LoseResponses(), apis=("Heartbeat",)),
        ]
    )
    # Response 2 is held back by the cut. Response 3, on the same connection, is lost, and the reset
    # drops both.
    lab.gate.send(response(2, source=A, destination=B, find=True))
    lab.gate.send(response(3, source=A, destination=B))
    lab.gate.set_rules([])
    lab.run_for(SECOND_US)
    assert [type(frame) for frame in lab.transmitted[1:]] == [CloseFrame]
