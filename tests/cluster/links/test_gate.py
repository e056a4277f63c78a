"""The link gate: what rules make of the frames at one host."""

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
    """One gate of node `a`; `left` is what it let leave, `heard` what it delivered."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.left: list[Frame] = []
        self.heard: list[Frame] = []
        self.order: list[str] = []
        self.purposes: dict[ConnectionEnd, str] = {}
        self.lost: tuple[CloseFrame, ...] = ()
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
        """Return what the test says."""
        return self.purposes.get(end)

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return what the test says."""
        return tuple(close for close in self.lost if close.source == peer)

    def run_for(self, duration_us: int = 0) -> None:
        """Let `duration_us` pass."""
        self.loop.run_until_us(self.loop.now_us() + duration_us)

    def _transmit(self, frame: Frame) -> None:
        self.left.append(frame)
        self.order.append("left")

    def _deliver(self, frame: Frame) -> None:
        self.heard.append(frame)
        self.order.append("heard")


HOLDING = [Cut(), Clog()]


# -- who is selected ------------------------------------------------------------------------------


def test_without_rules_everything_passes_at_once() -> None:
    """A gate is there for all its host's links; most are touched by no fault."""
    lab = GateLab()
    frames: list[Frame] = [open_frame(), request(), close()]
    for frame in frames:
        lab.gate.send(frame)
    lab.gate.receive(response())
    assert (lab.left, lab.heard) == (frames, [response()])
    lab.gate.set_rules([rule(Cut(), sources=(C,), destinations=(B,))])
    assert lab.gate.is_idle


@pytest.mark.parametrize("effect", HOLDING)
def test_a_rule_is_about_its_nodes_and_one_way(effect: LinkEffect) -> None:
    """From `a` to `b`: not to `c`, not from `b`; and a node is never cut from itself."""
    lab = GateLab()
    lab.gate.set_rules([rule(effect, sources=(A, C), destinations=(A, B))])
    assert not lab.gate.is_idle
    lab.gate.send(request(1))
    lab.gate.send(request(2, destination=C))
    lab.gate.send(request(3, destination=A))
    lab.gate.receive(response(4))
    lab.gate.receive(request(5, source=C))  # held here too: it was on its way when the rule came
    lab.run_for(SECOND_US)
    assert lab.left == [request(2, destination=C), request(3, destination=A)]
    assert lab.heard == [response(4)]


def test_a_rule_with_purposes_is_about_connections_of_those_purposes() -> None:
    """An open says what for; of an open connection the endpoint knows, at either end."""
    lab = GateLab()
    lab.purposes = {
        ConnectionEnd(B, 1, True): "coordinator",
        ConnectionEnd(B, 2, True): "fetch",
        ConnectionEnd(B, 1, False): "fetch",  # `b`'s first connection, not `a`'s
    }
    lab.gate.set_rules([both_ways(Cut(), purposes=("coordinator",))])
    passing: list[Frame] = [
        request(1, connection=2),
        open_frame(4, purpose="fetch"),
        response(3, connection=1, source=A, destination=B),
        close(9),  # of a connection that nobody knows
    ]
    for frame in (request(0), open_frame(3), *passing):
        lab.gate.send(frame)
    lab.gate.receive(response(7))
    assert lab.left == passing
    assert lab.heard == []


def test_a_purpose_is_remembered_when_the_rules_change() -> None:
    """The connection is closed and forgotten, its end still waits: a new rule must not free it."""
    lab = GateLab()
    lab.purposes = {ConnectionEnd(B, 1, True): "coordinator"}
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",))])
    lab.gate.send(close())
    lab.purposes.clear()
    lab.gate.set_rules([rule(Cut(), purposes=("coordinator",)), rule(Cut(), destinations=(C,))])
    lab.run_for(SECOND_US)
    assert lab.left == []


def test_a_frame_behind_an_open_that_waits_has_its_purpose() -> None:
    """The endpoint has not heard of the connection yet."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), purposes=("coordinator",))])
    lab.gate.receive(open_frame(source=B, destination=A))
    lab.gate.receive(close(source=B, destination=A))
    assert lab.heard == []


def test_a_rule_with_apis_leaves_opening_and_closing_alone_and_holds_what_is_behind() -> None:
    """A connection is a TCP stream: what no rule selects waits behind what one holds."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    opened = OpenedFrame(
        source=A, destination=B, connection_id=7, source_incarnation=Incarnation(0)
    )
    for frame in (open_frame(), opened, request(1, find=True), request(2, connection=2, find=True)):
        lab.gate.send(frame)
    assert len(lab.left) == 4
    lab.gate.send(request(3))
    lab.gate.send(request(4, find=True))  # behind it
    lab.gate.send(request(5, connection=2, find=True))  # on another connection
    lab.gate.send(close(3))
    assert lab.left[4:] == [request(5, connection=2, find=True), close(3)]


def test_a_response_counts_by_the_api_of_its_request() -> None:
    """Otherwise a rule about Heartbeat would be about half of it."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.receive(response(1, find=True))
    lab.gate.receive(response(2, connection=2))
    lab.gate.send(response(3, connection=3, source=A, destination=B))
    assert lab.heard == [response(1, find=True)]
    assert lab.left == []
    assert (api_of(response()), api_of(response(find=True)), api_of(close())) == (
        "Heartbeat",
        "FindCoordinator",
        None,
    )


def test_the_first_rule_that_does_not_pass_wins_at_both_ends() -> None:
    """What a rule has let go slowly is not held by a later one when it arrives."""
    slow, cut = both_ways(Slow(delay_us=100)), both_ways(Cut())
    lab = GateLab()
    lab.gate.set_rules([slow, cut])
    lab.gate.send(request(1))
    lab.gate.receive(response(2))
    assert lab.heard == [response(2)]
    lab.run_for(100)
    assert lab.left == [request(1)]
    lab.gate.set_rules([cut, slow])
    lab.gate.send(request(3))
    lab.gate.receive(response(4))
    lab.run_for(SECOND_US)
    assert (len(lab.left), len(lab.heard)) == (1, 1)


# -- what is held, and healing ---------------------------------------------------------------------


@pytest.mark.parametrize("effect", HOLDING)
def test_at_healing_what_waits_here_is_heard_before_what_waits_here_leaves(
    effect: LinkEffect,
) -> None:
    """Each in the order in which it came, over all connections, once set_rules has returned."""
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
    lab.gate.send(request(6, connection=2))  # in the same instant: behind what waited
    lab.gate.send(request(7, connection=9))  # on a connection where nothing waits
    assert lab.left == [request(7, connection=9)]
    lab.run_for()
    assert lab.heard == [response(3, connection=5), response(5, connection=4)]
    assert lab.left[1:] == [
        request(1, connection=2),
        request(2, connection=1),
        request(4, connection=2),
        request(6, connection=2),
    ]
    assert lab.order == ["left", *["heard"] * 2, *["left"] * 4]
    lab.gate.send(request(8))
    assert lab.left[-1] == request(8)
    assert lab.gate.is_idle


def test_other_rules_keep_what_they_still_hold() -> None:
    """Rules are replaced all at once: a cut that stays in force must not leak in between."""
    lab = GateLab()
    to_b, to_c = rule(Cut()), rule(Cut(), destinations=(C,))
    lab.gate.set_rules([to_b, to_c])
    lab.gate.send(request(1))
    lab.gate.send(request(2, destination=C))
    lab.gate.set_rules([to_b])
    lab.run_for(SECOND_US)
    assert lab.left == [request(2, destination=C)]
    lab.gate.set_rules([rule(Slow(delay_us=100))])
    lab.run_for(99)
    assert len(lab.left) == 1
    lab.run_for(1)
    assert lab.left[1:] == [request(1)]


def test_of_a_connection_that_its_own_end_closed_in_a_cut_only_the_end_leaves() -> None:
    """Timeouts close what is silent; nobody may serve that connection's requests at healing."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    lab.gate.send(open_frame(1))
    lab.gate.send(request(1, connection=2))
    lab.gate.receive(response(2, connection=2))
    lab.gate.send(request(3, connection=3))
    lab.gate.send(close(1))
    lab.gate.send(close(2))
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.left == [request(3, connection=3), close(1), close(2)]
    assert lab.heard == []


def test_of_a_connection_that_its_peer_closed_in_a_cut_only_the_end_is_heard() -> None:
    """And what this end had to say on it is not said any more."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    end = close(by_client=False, source=B, destination=A)
    lab.gate.receive(response(1))
    lab.gate.send(request(2))
    lab.gate.receive(end)
    lab.gate.send(request(3))
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.heard == [end]
    assert lab.left == []


def test_a_cut_one_way_hears_the_end_that_comes_the_other_way() -> None:
    """What was held for a server that closed the connection has nowhere to go."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(request(1))
    end = close(by_client=False, source=B, destination=A)
    lab.gate.receive(end)
    assert lab.heard == [end]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.left == []


def test_after_a_clog_everything_arrives_also_on_closed_connections() -> None:
    """A clog is a queue that stood still."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Clog())])
    end = close(2, by_client=False, source=B, destination=A)
    lab.gate.send(request(1))
    lab.gate.send(close())
    lab.gate.receive(response(1, connection=2))
    lab.gate.receive(end)
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.left == [request(1), close()]
    assert lab.heard == [response(1, connection=2), end]


def test_the_end_of_a_cut_connection_passes_where_only_an_api_is_cut() -> None:
    """Closing is untouched by a rule with apis, and it frees what that rule held."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut(), apis=("Heartbeat",))])
    lab.gate.send(request(1))
    lab.gate.send(close())
    assert lab.left == [close()]


# -- deaths and resets -----------------------------------------------------------------------------


@pytest.mark.parametrize("effect", HOLDING)
def test_a_death_is_hidden_until_healing(effect: LinkEffect) -> None:
    """Nobody hears the kernel of the dead either; at healing each connection ends by itself."""
    lab = GateLab()
    lab.lost = (
        close(1, by_client=False, source=B, destination=A),
        close(2, by_client=True, source=B, destination=A),
        close(3, by_client=False, source=C, destination=A),
    )
    lab.gate.set_rules([both_ways(effect)])
    for peer in (B, C):
        lab.gate.receive(ResetFrame(source=peer, destination=A, source_incarnation=Incarnation(0)))
    assert lab.heard == [lab.lost[2]]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.heard == [lab.lost[2], *lab.lost[:2]]


def test_a_death_is_not_heard_on_a_connection_that_was_never_asked_for() -> None:
    """Its open still waits here: nobody at the other end ever knew of it."""
    lab = GateLab()
    lab.lost = (
        close(1, by_client=False, source=B, destination=A),
        close(2, by_client=False, source=B, destination=A),
    )
    lab.gate.send(open_frame(1))
    lab.gate.set_rules([rule(Cut())])
    lab.gate.send(open_frame(2))
    lab.gate.peer_lost(B)
    assert lab.heard == [lab.lost[0]]


def test_a_death_without_rules_is_one_frame() -> None:
    """The endpoint itself knows what it means."""
    lab = GateLab()
    death = ResetFrame(source=B, destination=A, source_incarnation=Incarnation(0))
    lab.gate.receive(death)
    assert lab.heard == [death]


def test_a_reset_ends_a_connection_through_a_cut_and_loses_what_waits() -> None:
    """It is a fault of its own, not something that travels the link."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(Cut())])
    lab.gate.send(request(1))
    lab.gate.send(request(2, connection=2))
    lab.gate.receive(response(3))
    end = close(by_client=False, source=B, destination=A)
    lab.gate.reset([end])
    assert lab.heard == [end]
    lab.gate.set_rules([])
    lab.run_for()
    assert lab.left == [request(2, connection=2)]
    assert lab.heard == [end]


def test_a_connection_on_which_too_much_waits_is_misuse() -> None:
    """Everything has a limit: timeouts end a silent connection long before."""
    lab = GateLab()
    lab.gate.set_rules([rule(Cut())])
    frame = request()
    for _ in range(MAX_HELD_PER_CONNECTION):
        lab.gate.send(frame)
    with pytest.raises(SimulationError, match="wait on"):
        lab.gate.send(frame)


# -- slow links ------------------------------------------------------------------------------------


def departures(rules: list[LinkRule], frames: list[Frame], every_us: int) -> list[int]:
    """Send a frame every `every_us`; return when each left."""
    lab = GateLab()
    lab.gate.set_rules(rules)
    left_at: list[int] = []
    for number, frame in enumerate([*frames, None]):
        if frame is not None:
            lab.gate.send(frame)
        while len(left_at) < len(frames):
            left_at += [lab.loop.now_us()] * (len(lab.left) - len(left_at))
            if frame is not None and lab.loop.now_us() == (number + 1) * every_us:
                break
            lab.run_for(1)
    assert lab.left == frames
    return left_at


def test_a_slow_link_delays_within_its_bounds_and_keeps_the_order() -> None:
    """A frame with a short delay waits for the one before it on its connection."""
    frames: list[Frame] = [request(number, find=number % 3 == 0) for number in range(60)]
    slow = rule(Slow(delay_us=20, jitter_us=100), apis=("Heartbeat",))
    rng = stream(1, "r")
    expected: list[int] = []
    for number in range(60):
        delay_us = 0 if number % 3 == 0 else 20 + int(rng.random() * 101)
        expected.append(max([number * 5 + delay_us, *expected]))
    assert departures([slow], frames, every_us=5) == expected
    assert 20 < max(e - number * 5 for number, e in enumerate(expected)) <= 120


def test_a_slow_link_draws_once_a_frame_from_a_stream_of_its_rule() -> None:
    """Another fault on another link shifts nothing on this one."""
    frames: list[Frame] = [request(number, connection=number) for number in range(20)]
    slow = rule(Slow(delay_us=20, jitter_us=100))
    other = rule(Slow(delay_us=1, jitter_us=9), destinations=(C,), rule_id="other")
    alone = departures([slow], frames, every_us=1_000)
    lab = GateLab()
    lab.gate.set_rules([other, slow])
    rng = stream(1, "r")
    for number, (frame, left_at) in enumerate(zip(frames, alone, strict=True)):
        lab.gate.send(request(destination=C))
        lab.gate.send(frame)
        delay_us = 20 + int(rng.random() * 101)
        assert left_at == number * 1_000 + delay_us
        lab.run_for(delay_us - 1)
        assert frame not in lab.left
        lab.run_for(1)
        assert frame in lab.left


# -- responses that are lost -----------------------------------------------------------------------


def test_response_is_lost_with_its_connection_once() -> None:
    """Both ends hear of a reset, the server one turn after its reply; the next one passes."""
    lab = GateLab()
    lab.gate.set_rules([both_ways(LoseResponses())])
    lost = response(1, source=A, destination=B)
    lab.gate.send(lost)
    assert lab.lost_responses == [lost]
    assert lab.left == [
        CloseFrame(
            source=A,
            destination=B,
            connection_id=1,
            by_client=False,
            reason="the connection was reset",
        )
    ]
    assert lab.heard == []
    lab.run_for()
    (heard,) = lab.heard
    assert isinstance(heard, CloseFrame)
    assert (heard.source, heard.connection_id, heard.by_client) == (B, 1, True)
    second = response(2, connection=2, source=A, destination=B)
    lab.gate.send(second)
    assert lab.left[1:] == [second]


def test_only_responses_of_the_named_apis_and_errors_are_lost_and_only_where_they_leave() -> None:
    """A request, a response that arrives, and another error are no such responses."""
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
    assert (lab.left, lab.heard, lab.lost_responses) == (passing, [response(4)], [])
    lab.gate.set_rules([both_ways(LoseResponses(errors=("NONE",)), apis=("Heartbeat",))])
    lab.gate.send(response(5, source=A, destination=B))
    assert len(lab.lost_responses) == 1


def test_other_rules_do_not_make_a_lost_response_count_anew() -> None:
    """Every fault that begins or ends tells all rules again."""
    lab = GateLab()
    losing = both_ways(LoseResponses(count=2))
    lab.gate.set_rules([losing])
    lab.gate.send(response(1, source=A, destination=B))
    lab.gate.set_rules([rule(Slow(delay_us=5), sources=(A,), destinations=(C,)), losing])
    lab.gate.send(response(2, connection=2, source=A, destination=B))
    lab.gate.send(response(3, connection=3, source=A, destination=B))
    assert len(lab.lost_responses) == 2


def test_response_that_was_held_is_not_lost_and_what_waits_before_a_lost_one_is() -> None:
    """A response is lost as it leaves the server; a reset takes the whole stream with it."""
    lab = GateLab()
    held = response(1, source=A, destination=B)
    lab.gate.set_rules([both_ways(Cut(), apis=("Heartbeat",))])
    lab.gate.send(held)
    lab.gate.set_rules([both_ways(LoseResponses())])
    lab.run_for()
    assert (lab.left, lab.lost_responses) == ([held], [])
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
    assert [type(frame) for frame in lab.left[1:]] == [CloseFrame]
