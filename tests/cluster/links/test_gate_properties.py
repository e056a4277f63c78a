"""Two link gates under random rules keep the order of frames, and lose frames only after a close.

Every frame (message of a connection) that a node sends or gets passes the node's link gate. A gate
has link rules, and each rule has one of these effects on frames:

- Cut holds frames back until the link is healed. If a connection is closed during the cut, the
  frames that were held back on this connection are lost, and only the close arrives after the cut.
- Clog also holds frames back until the link is healed, but then all of them arrive.
- Slow delays frames.

The link is healed when all rules are withdrawn.

Hypothesis draws a list of steps, for example: A sends a request, a cut begins, B sends a response,
A closes the connection. `play` carries the steps out with a `Pair` of gates, heals the link, and
waits until everything has arrived. Each request is a FindCoordinator or a Heartbeat, and each
connection has a purpose, because a rule may be for one API or one purpose only.
"""

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from cluster.host.connections import ConnectionEnd
from cluster.host.frames import CloseFrame, Frame, ResetFrame
from cluster.links.gate import LinkGate
from cluster.links.rules import Clog, Cut, LinkRule, Slow
from cluster.virtual.loop import VirtualLoop
from protocol.ids import Incarnation, NodeName
from tests.support.builders.link_frames import A, B, close, request, response, rule

SECOND_US = 1_000_000
LATENCY_US = 10
PURPOSES = ("coordinator", "fetch")


@dataclass(frozen=True)
class Send:
    """A node sends a frame on a connection.

    Node A is the client of every connection and sends requests. Node B sends responses.
    """

    sender: NodeName
    connection: int
    is_find_coordinator: bool
    """True for FindCoordinator, False for Heartbeat."""


@dataclass(frozen=True)
class Close:
    """One end closes a connection."""

    sender: NodeName
    connection: int


@dataclass(frozen=True)
class SetRules:
    """Both gates get new rules."""

    rules: tuple[LinkRule, ...]


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    duration_us: int


Step = Send | Close | SetRules | Wait


def other_node(node: NodeName) -> NodeName:
    """Return B for A, and A for B."""
    return B if node == A else A


class Pair:
    """The gates of A and B, and a network between them with a constant latency.

    A gate asks an endpoint of its node about connections, such as about their purposes. The Pair
    stands for these endpoints: it has the two methods that a gate calls.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.sent: dict[tuple[NodeName, int], list[Frame]] = {}
        """The frames given to the gate of the sender, by sender and connection."""
        self.delivered: dict[tuple[NodeName, int], list[Frame]] = {}
        """The frames that the gate of the receiver delivered, by sender and connection."""
        self.closed: set[tuple[NodeName, int]] = set()
        """The node and the connection of each end that is closed."""
        self.lost: list[Frame] = []
        self.gates = {
            node: LinkGate(
                node,
                self,
                after=lambda delay_us, fn: self.loop.call_at_us(self.loop.now_us() + delay_us, fn),
                transmit=self._transmit,
                deliver=self._deliver,
                lost=self.lost.append,
                rng_for=random.Random,
            )
            for node in (A, B)
        }

    def purpose_of(self, end: ConnectionEnd) -> str:
        """Return "fetch" for a connection with an odd id, and "coordinator" for any other."""
        return PURPOSES[end.connection_id % 2]

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return no frames. A gate calls this when a peer dies, but no node dies in these tests."""
        return ()

    def send(
        self, sender: NodeName, connection: int, number: int, is_find_coordinator: bool
    ) -> None:
        """Send a request if the sender is A, or else a response, unless this end is closed.

        The number distinguishes the frame from all others.
        """
        if (sender, connection) in self.closed:
            return
        frame: Frame
        if sender == A:
            frame = request(number, connection=connection, find=is_find_coordinator)
        else:
            frame = response(number, connection=connection, find=is_find_coordinator)
        self._send(sender, connection, frame)

    def close(self, sender: NodeName, connection: int) -> None:
        """Close a connection at one end, unless this end is closed."""
        if (sender, connection) not in self.closed:
            self.closed.add((sender, connection))
            frame = close(
                connection,
                by_client=sender == A,
                source=sender,
                destination=other_node(sender),
            )
            self._send(sender, connection, frame)

    def set_rules(self, rules: tuple[LinkRule, ...]) -> None:
        """Give both gates the same rules."""
        for gate in self.gates.values():
            gate.set_rules(rules)

    def _send(self, sender: NodeName, connection: int, frame: Frame) -> None:
        self.sent.setdefault((sender, connection), []).append(frame)
        self.gates[sender].send(frame)

    def _transmit(self, frame: Frame) -> None:
        gate = self.gates[frame.destination]
        self.loop.post_at(self.loop.now_us() + LATENCY_US, gate.receive, frame)

    def _deliver(self, frame: Frame) -> None:
        # A ResetFrame, which ends all connections with a node, has no connection id.
        if not isinstance(frame, ResetFrame):
            self.delivered.setdefault((frame.source, frame.connection_id), []).append(frame)


SENDERS = st.sampled_from((A, B))
CONNECTIONS = st.integers(0, 3)
EFFECTS = st.sampled_from((Cut(), Clog(), Slow(delay_us=7, jitter_us=20)))
FROM_A_TO_B, FROM_B_TO_A, BOTH_WAYS = ((A,), (B,)), ((B,), (A,)), ((A, B), (A, B))
"""Directions of frames to which a rule can apply. Each is a pair of sources and destinations."""
RULES = st.builds(
    lambda effect, direction, purposes, apis: rule(
        effect, sources=direction[0], destinations=direction[1], purposes=purposes, apis=apis
    ),
    EFFECTS,
    st.sampled_from((FROM_A_TO_B, FROM_B_TO_A, BOTH_WAYS)),
    # Without purposes, a rule is for connections of all purposes. Without APIs, it is for all APIs.
    st.sampled_from(((), ("coordinator",))),
    st.sampled_from(((), ("Heartbeat",))),
)
SENDS = st.builds(Send, SENDERS, CONNECTIONS, st.booleans())
STEPS = st.lists(
    st.one_of(
        SENDS,
        SENDS,  # it stands here twice, so that it is drawn twice as often as each other step
        st.builds(Close, SENDERS, CONNECTIONS),
        st.builds(SetRules, st.lists(RULES, max_size=2).map(tuple)),
        st.builds(Wait, st.integers(1, 30)),
    ),
    max_size=40,
)


def play(pair: Pair, steps: list[Step]) -> None:
    """Carry out the steps, withdraw all rules, and wait until all frames are delivered."""
    for number, step in enumerate(steps):
        match step:
            case Send():
                pair.send(step.sender, step.connection, number, step.is_find_coordinator)
            case Close():
                pair.close(step.sender, step.connection)
            case SetRules():
                pair.set_rules(step.rules)
            case Wait():
                pair.loop.run_until_us(pair.loop.now_us() + step.duration_us)
    pair.set_rules(())
    pair.loop.run_until_us(pair.loop.now_us() + SECOND_US)


def is_subsequence(part: list[Frame], whole: list[Frame]) -> bool:
    """Return True if `part` is `whole` with some items left out."""
    rest = iter(whole)
    # `in` takes items from `rest` up to and including the one that it finds.
    return all(frame in rest for frame in part)


@given(STEPS)
def test_under_any_rules_order_is_kept_and_all_frames_of_open_connections_arrive(
    steps: list[Step],
) -> None:
    """Each direction of each connection keeps its order, and loses frames only after a close.

    1. An open connection, which neither end has closed: all frames arrive.
    2. A connection that only the sender has closed: the close is the last frame that was sent, and
       it arrives. Other frames of the sender may be lost.
    3. A connection that the receiver has closed: any frames of the sender may be lost.
    """
    pair = Pair()
    play(pair, steps)
    for (sender, connection), sent in pair.sent.items():
        delivered = pair.delivered.get((sender, connection), [])
        assert is_subsequence(delivered, sent)

        sender_has_closed = (sender, connection) in pair.closed
        receiver_has_closed = (other_node(sender), connection) in pair.closed
        if not sender_has_closed and not receiver_has_closed:
            assert delivered == sent
        elif sender_has_closed and not receiver_has_closed:
            assert delivered[-1] == sent[-1]


@given(STEPS)
def test_without_a_cut_every_frame_arrives(steps: list[Step]) -> None:
    """Clogged and slow links deliver late, in order and completely, even after a close."""

    def without_cuts(step: Step) -> Step:
        if not isinstance(step, SetRules):
            return step
        rules = [link_rule for link_rule in step.rules if not isinstance(link_rule.effect, Cut)]
        return SetRules(tuple(rules))

    pair = Pair()
    play(pair, [without_cuts(step) for step in steps])
    assert pair.delivered == pair.sent
