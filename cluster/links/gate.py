"""The link gate: applies link rules at one host, in every runtime.

A fault may cut, clog or slow down the link between two nodes. It does so by link rules (`rules`). A
host to which rules apply has a gate. Frames (messages between nodes) that the node sends go through
`send` to the network, and frames that arrive go through `receive` to the host's endpoint, which has
all connections of the node. For each frame, a Judge (`decisions`) says what the rules do with it:
its *verdict*. Frames that must not go on wait in the gate.

How a host uses its gate:
1. It creates a gate when it gets rules, and drops it when no rule concerns the host any more and no
   frame waits. Without a gate, frames go directly from the endpoint to the network and back.
2. It passes every frame of the endpoint to `send`, and every frame that arrived to `receive`.
3. Normally a ResetFrame says that the process of a peer has died. If the host learns it in another
   way (a TCP link broke), it calls `peer_lost` of the gate. It does not call the endpoint, because
   a cut must hide the death.
4. It calls `set_rules` to replace all rules. Frames that need not wait any more leave a little
   later (`after(0)`), so that `set_rules` never calls the node. The frames for the node leave
   first, then the frames for the network.
5. When the node dies, the frames in its gate are lost, like the send buffers of a killed process.
   The host still tells the peers. It sends a ResetFrame also to `peers_with_waiting_frames`, and
   it closes the `half_open` connections. Both methods say why.

A connection behaves like a TCP stream. If one of its frames waits, all later frames in the same
direction wait behind it, even if no rule is about them. If a connection is closed while a cut holds
its frames, these frames are lost, and only the CloseFrame arrives when the cut ends. But a frame
that was already on its way when the cut began waits at the receiver, and does arrive.

DEVIATION: a frame that `slow` delays waits in the sender's process. If the process dies meanwhile,
the frame is lost, and the peer sees the death without the delay. On a slow network the frame would
arrive.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from cluster.host.connections import ConnectionEnd
from cluster.host.frames import (
    CloseFrame,
    Frame,
    OpenedFrame,
    OpenFrame,
    RequestFrame,
    ResetFrame,
    ResponseFrame,
)
from cluster.links.decisions import (
    Deliver,
    Hold,
    Judge,
    Lose,
    Pass,
    RngFor,
    VerdictOfWaiting,
    purpose_named_by,
)
from cluster.links.rules import LinkRule
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName

MAX_HELD_PER_CONNECTION = 100_000
"""Number of frames that may wait on a connection. Timeouts close a silent connection long before
that, so more waiting frames are a bug."""

After = Callable[[int, Callable[[], None]], object]
"""Host.after: calls a function after a number of microseconds; 0 means a later call of the loop."""


class Connections(Protocol):
    """The methods of the endpoint that a gate calls; see `cluster.host.connections.Endpoint`."""

    def purpose_of(self, end: ConnectionEnd) -> str | None:
        """Return a connection's purpose, or None if the endpoint has no such connection."""

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return a close frame for each connection that ends with `peer`'s process."""


class _State(Enum):
    """States of a frame that waits."""

    HELD = "held"  # by a rule; judged again when the rules change
    DELAYED = "delayed"  # until its timer fires
    READY = "ready"  # leaves as soon as it is the first of its stream


class _Waiting:
    """A frame that waits in the stream of its connection.

    `sequence` numbers all frames in one direction of the gate, in the order in which they came.
    """

    __slots__ = ("frame", "purpose", "sequence", "state", "was_cut")

    def __init__(self, frame: Frame, purpose: str | None, sequence: int) -> None:
        self.frame = frame
        self.purpose = purpose
        """The purpose of the connection. It is kept because the endpoint forgets the connection if
        the connection is closed while this frame waits."""
        self.sequence = sequence
        self.state = _State.READY
        self.was_cut = False
        """True if a cut has ever held the frame: it is lost if the connection is closed."""


class _Direction:
    """One direction of a gate: the frames that the node sends, or the frames that arrive.

    The frames of one connection wait in a *stream*. `forward` passes a frame on to the network or
    to the endpoint. `lose` is called with each response that a rule loses.
    """

    def __init__(
        self,
        judge: Judge,
        connections: Connections,
        *,
        after: After,
        forward: Callable[[ConnectionEnd, Frame], None],
        lose: Callable[[ConnectionEnd, Frame], None],
    ) -> None:
        self.judge = judge
        self._connections = connections
        self._after = after
        self._forward = forward
        self._lose = lose
        self._streams: dict[ConnectionEnd, deque[_Waiting]] = {}
        """The stream of each connection that has waiting frames; none is empty."""
        self._next_sequence = 0

    @property
    def is_empty(self) -> bool:
        """True if no frame waits."""
        return not self._streams

    @property
    def is_idle(self) -> bool:
        """True if no frame waits and no rule could hold one."""
        return not self._streams and not self.judge.has_rules

    def offer(self, end: ConnectionEnd, frame: Frame) -> None:
        """Forward `frame`; or let it wait, if earlier frames wait or the rules demand it."""
        stream = self._streams.get(end)
        # When an OpenFrame arrives, the endpoint has no connection yet, but the frame has the
        # purpose.
        purpose = purpose_named_by(frame) or self._connections.purpose_of(end)
        if stream is not None:
            # If the endpoint has forgotten the connection, the frame before this one still has the
            # purpose.
            purpose = purpose or stream[-1].purpose
            # If a connection is closed during a cut, only the CloseFrame arrives.
            if isinstance(frame, CloseFrame):
                self.drop_cut_frames(end)
                stream = self._streams.get(end)  # None if all of its frames were dropped
        verdict = self.judge.verdict(end.peer, purpose, frame)
        if isinstance(verdict, Lose):
            self._lose(end, frame)
            return
        if stream is None:
            if isinstance(verdict, Pass):
                self._forward(end, frame)
                return
            stream = self._streams[end] = deque()
        if len(stream) >= MAX_HELD_PER_CONNECTION:
            raise SimulationError(f"more than {len(stream)} frames wait on {end}")
        waiting = _Waiting(frame, purpose, self._next_sequence)
        self._next_sequence += 1
        stream.append(waiting)
        self._carry_out(verdict, end, waiting)

    def judge_again(self) -> None:
        """Apply new rules to the frames that wait because of old rules. This forwards no frame.

        A frame whose delay has begun keeps this delay.
        """
        for end, stream in self._streams.items():
            for waiting in stream:
                if waiting.state is _State.HELD:
                    verdict = self.judge.verdict_of_waiting(
                        end.peer, waiting.purpose, waiting.frame
                    )
                    self._carry_out(verdict, end, waiting)

    def release(self) -> None:
        """Forward the ready frames at the heads of all streams, in the order of arrival."""
        ready: list[tuple[int, ConnectionEnd]] = []
        for end, stream in self._streams.items():
            for waiting in stream:
                if waiting.state is not _State.READY:
                    break  # the later frames of this connection wait behind it
                ready.append((waiting.sequence, end))
        ready.sort()
        for sequence, end in ready:
            # A frame that was just forwarded may have ended the connection, and with it this
            # stream.
            current_stream = self._streams.get(end)
            if current_stream is not None and current_stream[0].sequence == sequence:
                self._forward_first(end, current_stream)

    def drop_cut_frames(self, end: ConnectionEnd) -> None:
        """Drop the frames of a closed connection, from the first frame that a cut has held.

        All later frames are dropped, too, even if no cut has held them, because a TCP stream
        delivers nothing after a gap.
        """
        stream = self._streams.get(end)
        if stream is None:
            return
        frames_before_cut = next(
            (index for index, waiting in enumerate(stream) if waiting.was_cut), len(stream)
        )
        while len(stream) > frames_before_cut:
            stream.pop()
        if not stream:
            del self._streams[end]

    def forget(self, end: ConnectionEnd) -> None:
        """Drop all frames that wait on a connection."""
        self._streams.pop(end, None)

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node for which a frame waits here."""
        return tuple(dict.fromkeys(end.peer for end in self._streams))  # each name once

    def first_waiting_frames(self) -> tuple[Frame, ...]:
        """Return the first waiting frame of each stream."""
        return tuple(stream[0].frame for stream in self._streams.values())

    def holds_open_of(self, end: ConnectionEnd) -> bool:
        """Return True if a connection's OpenFrame itself waits here."""
        # The OpenFrame is the first frame of a connection, so nothing waits in front of it.
        stream = self._streams.get(end)
        return stream is not None and isinstance(stream[0].frame, OpenFrame)

    def _carry_out(self, verdict: VerdictOfWaiting, end: ConnectionEnd, waiting: _Waiting) -> None:
        """Give a waiting frame the state that its verdict demands; forwards nothing."""
        match verdict:
            case Pass():
                waiting.state = _State.READY
            case Deliver():
                waiting.state = _State.DELAYED
                self._after(verdict.delay_us, partial(self._end_delay, end, waiting))
            case Hold():
                waiting.state = _State.HELD
                waiting.was_cut = waiting.was_cut or verdict.is_cut

    def _end_delay(self, end: ConnectionEnd, waiting: _Waiting) -> None:
        """Make a delayed frame ready, and forward the ready frames at the head of its stream."""
        waiting.state = _State.READY
        # If `waiting` was dropped during the delay, the loop simply does not find it.
        stream = self._streams.get(end)
        while stream is not None and stream[0].state is _State.READY:
            self._forward_first(end, stream)
            stream = self._streams.get(end)

    def _forward_first(self, end: ConnectionEnd, stream: deque[_Waiting]) -> None:
        """Forward the frame at the head of a stream; an empty stream is removed first."""
        waiting = stream.popleft()
        if not stream:
            del self._streams[end]
        self._forward(end, waiting.frame)


class LinkGate:
    """Applies the link rules to all frames of one host, in both directions.

    `transmit` puts a frame on the network, and `deliver` gives a frame to the endpoint; both do
    nothing when the node is dead. `lost` is called with each response that a rule loses. `rng_for`
    returns the random stream of a rule.
    """

    is_idle: bool
    """True if no rule concerns this host and no frame waits, so that the gate is not needed."""

    def __init__(
        self,
        node: NodeName,
        connections: Connections,
        *,
        after: After,
        transmit: Callable[[Frame], None],
        deliver: Callable[[Frame], None],
        lost: Callable[[ResponseFrame], None],
        rng_for: RngFor,
    ) -> None:
        self._connections = connections
        self._after = after
        self._transmit = transmit
        self._deliver = deliver
        self._lost = lost
        self._sent = _Direction(
            Judge(node, is_sender=True, rng_for=rng_for),
            connections,
            after=after,
            forward=self._forward_sent,
            lose=self._lose_response,
        )
        self._received = _Direction(
            Judge(node, is_sender=False, rng_for=rng_for),
            connections,
            after=after,
            forward=self._forward_received,
            lose=self._lose_response,  # never called: only the judge of a sender loses responses
        )
        self.is_idle = True

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all rules; rules about other nodes are ignored.

        Frames that are no longer held leave in a later call of the loop, so this method never calls
        the node.
        """
        for direction in (self._received, self._sent):
            direction.judge.set_rules(rules)
            direction.judge_again()
        if self._refresh_idle():
            return  # no frame waits, so there is none to release
        if not (self._received.is_empty and self._sent.is_empty):
            self._after(0, self._release)

    def send(self, frame: Frame) -> None:
        """Take a frame that the node sends."""
        # The last waiting frame may have left since `is_idle` was computed. A ResetFrame is not
        # about one connection, so it cannot wait in a stream.
        if self.is_idle or self._refresh_idle() or isinstance(frame, ResetFrame):
            self._transmit(frame)
            return
        end = ConnectionEnd(frame.destination, frame.connection_id, _is_from_client(frame))
        if isinstance(frame, CloseFrame):
            # This end is closed, so the frames that a cut holds for it are lost.
            self._received.drop_cut_frames(end)
        self._sent.offer(end, frame)

    def receive(self, frame: Frame) -> None:
        """Take a frame that arrived for the node."""
        if self.is_idle or self._refresh_idle():
            self._deliver(frame)
        elif isinstance(frame, ResetFrame):
            self.peer_lost(frame.source, frame.source_incarnation)
        else:
            self._received.offer(_receiving_end(frame), frame)

    def peer_lost(self, peer: NodeName, incarnation: Incarnation | None = None) -> None:
        """End the connections with a peer whose process died. A cut hides the death.

        Each connection ends separately, after the frames that wait on it. A connection whose
        OpenFrame still waits here does not end: the peer has never heard of it.
        """
        for close in self._connections.close_frames_of_lost_peer(peer, incarnation):
            if not self._sent.holds_open_of(_receiving_end(close)):
                self.receive(close)

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections regardless of link rules; frames that wait on them are lost.

        `closes` come from Endpoint.close_frames_of_reset, one for each connection.
        """
        for close in closes:
            end = _receiving_end(close)
            self._sent.forget(end)
            self._received.forget(end)
            self._deliver(close)

    def peers_with_waiting_frames(self) -> tuple[NodeName, ...]:
        """Return every node for which a frame of this node waits here, for instance a CloseFrame.

        The endpoint may have forgotten the connection, but the peer does not know of its end yet.
        If this process dies, the peer must be told.
        """
        return self._sent.peers()

    def half_open(self) -> tuple[CloseFrame, ...]:
        """Return a close for each accepted connection whose OpenedFrame still waits here.

        If this process dies, it sends ResetFrames. But the client of such a connection does not
        know yet that this process has accepted it, so it would ignore the ResetFrame.
        """
        return tuple(
            CloseFrame(
                source=frame.source,
                destination=frame.destination,
                connection_id=frame.connection_id,
                by_client=False,
                reason="its process is gone",
            )
            # An OpenedFrame is the first frame that a server sends on a connection.
            for frame in self._sent.first_waiting_frames()
            if isinstance(frame, OpenedFrame)
        )

    def _lose_response(self, end: ConnectionEnd, frame: Frame) -> None:
        """Reset the connection of a response instead of sending it.

        Frames that wait on the connection are lost, too. The endpoint is told a little later,
        because it is just sending the response.
        """
        if not isinstance(frame, ResponseFrame):
            raise SimulationError(f"only responses are lost, got {type(frame).__name__}")
        self._sent.forget(end)
        self._received.forget(end)
        self._lost(frame)
        reason = "the connection was reset"
        close_for_client = CloseFrame(
            source=frame.source,
            destination=frame.destination,
            connection_id=frame.connection_id,
            by_client=False,
            reason=reason,
        )
        close_for_server = CloseFrame(
            source=frame.destination,
            destination=frame.source,
            connection_id=frame.connection_id,
            by_client=True,
            reason=reason,
        )
        self._transmit(close_for_client)
        self._after(0, partial(self._deliver, close_for_server))

    def _refresh_idle(self) -> bool:
        """Compute `is_idle` anew, and return it."""
        self.is_idle = self._sent.is_idle and self._received.is_idle
        return self.is_idle

    def _release(self) -> None:
        """Forward the ready frames: first the frames for the node, then those for the network."""
        self._received.release()
        self._sent.release()

    def _forward_sent(self, _end: ConnectionEnd, frame: Frame) -> None:
        """Put a frame of the node on the network."""
        self._transmit(frame)

    def _forward_received(self, end: ConnectionEnd, frame: Frame) -> None:
        """Give a frame that arrived to the endpoint."""
        if isinstance(frame, CloseFrame):
            # The peer's end is closed, so the frames that a cut holds for it are lost.
            self._sent.drop_cut_frames(end)
        self._deliver(frame)


def _receiving_end(frame: Frame) -> ConnectionEnd:
    """Return the end at which a frame, other than a ResetFrame, arrives."""
    if isinstance(frame, ResetFrame):
        raise SimulationError("a ResetFrame is about a process, not about one connection")
    return ConnectionEnd(frame.source, frame.connection_id, not _is_from_client(frame))


def _is_from_client(frame: Frame) -> bool:
    """Return True if the client's end of a connection sent the frame."""
    return isinstance(frame, OpenFrame | RequestFrame) or (
        isinstance(frame, CloseFrame) and frame.by_client
    )
