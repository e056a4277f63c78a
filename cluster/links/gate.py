"""The link gate: applies link rules at one host, in every runtime.

Each host incarnation (one life of its node) that has rules has one gate, for both directions.
Frames that the node sends go through `send` to the network. Frames that arrive go through `receive`
to the host's endpoint, which has all connections of the node. A verdict (`decisions`) is the effect
of the rules on one frame; frames that the rules hold wait in the gate. The gate must not know the
runtime, or the transport of frames. The runtime provides `transmit`, `deliver`, `after` and the
random streams.

How a host uses its gate:
1. It makes a gate when it gets rules. It drops the gate again when no rule concerns the host and no
   frame waits. Without a gate, frames go straight between endpoint and network, so a host without
   rules pays only one test per frame.
2. It passes every frame of the endpoint to `send`, and every frame that arrived to `receive`.
3. If a TCP link breaks, the host learns of the death of a peer's process without a ResetFrame. It
   then calls `peer_lost` of the gate, not of the endpoint, because a cut must hide the death.
4. It calls `set_rules` to replace all rules. Frames that the new rules no longer hold leave in a
   later call of the loop (`after(0)`), so the gate calls the node only after `set_rules` has
   returned. The frames to be delivered leave first, then those to be sent, each in the order of
   arrival.
5. When the incarnation is over, the host drops the gate, and the frames in it are lost, like the
   send buffers of a killed process. `transmit` and `deliver` then do nothing. The host also sends a
   ResetFrame to each of `peers_with_waiting_frames`, even if its endpoint has no connection with
   the peer. It ends each of the `half_open` connections separately: their clients do not yet know
   which incarnation of the server accepted them, so the ResetFrame of an incarnation would not end
   them.

A connection is a TCP stream: if a frame waits, all later frames of the same connection and
direction wait, even if no rule selects them. If a connection is closed while a cut holds its
frames, these frames are lost; when the cut ends, only the CloseFrame arrives. A frame that had
already left the sender when the rule came waits at the receiver. It arrives even if the sender has
closed the connection since.

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
"""Limit of waiting frames. A client's timeouts close a silent connection long before that many
frames wait."""

After = Callable[[int, Callable[[], None]], object]
"""Host.after: calls a function after a number of microseconds; 0 means a later call of the loop."""


class Connections(Protocol):
    """The part of the endpoint that a gate uses; see `cluster.host.connections.Endpoint`."""

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

    `sequence` is the number of its arrival at this direction of the gate. Invariant: the numbers
    grow along each stream, and are unique over all streams of a direction.
    """

    __slots__ = ("frame", "purpose", "sequence", "state", "was_cut")

    def __init__(self, frame: Frame, purpose: str | None, sequence: int) -> None:
        self.frame = frame
        self.purpose = purpose
        """Purpose of the connection at the frame's arrival. The connection may be gone when the
        frame is judged again."""
        self.sequence = sequence
        self.state = _State.READY
        self.was_cut = False
        """True if a cut ever held the frame: then a close of its connection drops it."""


class _Direction:
    """One direction of a gate: a stream of waiting frames per connection.

    `forward` carries a frame on: to the network, or to the endpoint. `lose` gets each response that
    a rule loses. A stream exists only while frames wait in it.
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
        """Invariant: no stream is empty."""
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
        """Forward `frame` now, or let it wait if earlier frames wait, or if its verdict says so."""
        stream = self._streams.get(end)
        # An OpenFrame names the purpose itself: the receiver's endpoint has no connection yet.
        purpose = purpose_named_by(frame) or self._connections.purpose_of(end)
        if stream is not None:
            # The endpoint may not know the connection yet, or no longer. Then a waiting frame of
            # the connection has the purpose.
            purpose = purpose or stream[-1].purpose
            # Of a connection that is closed during a cut, only the close arrives.
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
        """Apply the new rules to the frames that the old rules held; forwards nothing yet.

        A delayed frame keeps its delay, because its timer runs already.
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
            # A frame that was forwarded in this loop may have ended this connection. Then its other
            # frames may be gone.
            current_stream = self._streams.get(end)
            if current_stream is not None and current_stream[0].sequence == sequence:
                self._forward_first(end, current_stream)

    def drop_cut_frames(self, end: ConnectionEnd) -> None:
        """Drop the frames of a closed connection, from the first frame that a cut held.

        Later frames that no cut held are dropped, too, because a TCP stream delivers nothing behind
        a gap.
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
        # `waiting` may have been dropped during the delay. This does no harm: the loop looks only
        # at the frames that are in the stream.
        stream = self._streams.get(end)
        while stream is not None and stream[0].state is _State.READY:
            self._forward_first(end, stream)
            stream = self._streams.get(end)

    def _forward_first(self, end: ConnectionEnd, stream: deque[_Waiting]) -> None:
        waiting = stream.popleft()
        if not stream:
            del self._streams[end]
        self._forward(end, waiting.frame)


class LinkGate:
    """Both directions of one host incarnation's links, under the link rules.

    `transmit` puts a frame on the network, `deliver` gives a frame to the endpoint. Both do nothing
    once the incarnation is over. `lost` is called with each response that a rule loses. `rng_for`
    returns the random stream of a rule.
    """

    is_idle: bool
    """True if no rule concerns this host and no frame waits: then frames bypass the gate."""

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
        # `is_idle` is False from the arrival of rules on. It is computed again here, because the
        # rules may be gone and the last waiting frame may have left since. A ResetFrame belongs to
        # no connection, so there is no stream in which it could wait.
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

        Each connection ends separately, behind the frames held on it. A connection whose OpenFrame
        has not left yet does not end: its open hangs, as it would towards a silent machine.
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
        """Return every node for which a sent frame waits here, for instance a CloseFrame.

        The endpoint may have forgotten the connection already. When this process dies, its kernel
        must notify these peers, too.
        """
        return self._sent.peers()

    def half_open(self) -> tuple[CloseFrame, ...]:
        """Return a close for each accepted connection whose OpenedFrame still waits here.

        The client of such a connection ignores the ResetFrame of this process, because it does not
        know yet that this process accepted the connection. The kernel of a dead process resets such
        connections, too.
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

        Frames that wait on the connection are lost, too. The endpoint is in the middle of its
        `reply`, so it learns of the end in a later call of the loop.
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
        self.is_idle = self._sent.is_idle and self._received.is_idle
        return self.is_idle

    def _release(self) -> None:
        self._received.release()
        self._sent.release()

    def _forward_sent(self, _end: ConnectionEnd, frame: Frame) -> None:
        self._transmit(frame)

    def _forward_received(self, end: ConnectionEnd, frame: Frame) -> None:
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
    return isinstance(frame, OpenFrame | RequestFrame) or (
        isinstance(frame, CloseFrame) and frame.by_client
    )
