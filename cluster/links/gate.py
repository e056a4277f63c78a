"""The link gate: what carries out link rules at one host, in both runtimes.

One gate per host incarnation, for both directions. Whatever the node sends goes through `send` to
the network, whatever arrives for it goes through `receive` to its endpoint; what the rules hold
waits here. It must not know what carries frames, nor which runtime it is in: that gives it
`transmit`, `deliver`, `after` and its random streams.

Who uses it, and how:
1. Make it when rules come, and forget it if it is idle once it has them. Without a gate frames go
   straight from the endpoint to the network and back: a host without rules pays one test a frame.
2. Give every frame of the endpoint to `send`, every frame that arrived to `receive`.
3. Where the end of a peer's process is heard without a ResetFrame (a broken TCP link), call
   `peer_lost` instead of the endpoint's: a cut hides a death.
4. `set_rules` replaces all rules at once. What they held and hold no longer leaves one turn later
   (`after(0)`), first what waited to be delivered, then what waited to be sent, each in the order
   in which it came. It does not call the node back before it returns.
5. When the incarnation is over, forget the gate: what it holds dies with it, as the send buffers
   of a killed process do, and `transmit` and `deliver` do nothing any more. `unheard_peers` are
   told of the death even if the endpoint has no connection with them, and `half_open` connections
   end one by one: their clients do not know yet which life of the process accepted them.

A connection is a TCP stream: behind a frame that waits, everything on the same connection and in
the same direction waits, also what no rule selects. A connection that is closed while a cut holds
its frames loses them: only the CloseFrame goes the way of the others. What had left the sender
when the rule came, and waits at the receiver, arrives even if the sender has closed since.
DEVIATION: what `slow` delays waits in the sender's process and is lost if that dies meanwhile; its
death is then heard without the delay. On a slow network the bytes would be on their way.
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
"""A client's timeouts close a silent connection long before so much waits on it."""

After = Callable[[int, Callable[[], None]], object]
"""Calls a function after so many microseconds, never at once: Host.after is one."""


class Connections(Protocol):
    """What a gate asks of the endpoint behind it; `cluster.host.connections.Endpoint` has it."""

    def purpose_of(self, end: ConnectionEnd) -> str | None:
        """Return what a connection is for, None if there is no such connection."""

    def lost_with(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return the ends of all connections with `peer` that its process's death ends."""


class _State(Enum):
    """States of a frame that waits."""

    HELD = "held"  # by a rule: judged again when the rules change
    DELAYED = "delayed"  # its timer runs
    READY = "ready"  # goes on as soon as it is the first on its connection


class _Waiting:
    """A frame that waits. Invariant: sequences grow along a stream and over all of them."""

    __slots__ = ("frame", "purpose", "sequence", "state", "was_cut")

    def __init__(self, frame: Frame, purpose: str | None, sequence: int) -> None:
        self.frame = frame
        self.purpose = purpose
        """As it was when the frame came: the connection may be gone when it is judged again."""
        self.sequence = sequence
        self.state = _State.READY
        self.was_cut = False
        """Whether a cut has ever held it: then the end of its connection drops it."""


class _Direction:
    """One direction of a gate: a stream of waiting frames for each connection that has any."""

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
        """Whether nothing waits."""
        return not self._streams

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no rule could make anything wait."""
        return not self._streams and not self.judge.has_rules

    def offer(self, end: ConnectionEnd, frame: Frame) -> None:
        """Forward `frame` now, or let it wait behind what waits or for what its verdict says."""
        stream = self._streams.get(end)
        purpose = purpose_named_by(frame) or self._connections.purpose_of(end)
        if stream is not None:
            purpose = purpose or stream[-1].purpose
            if isinstance(frame, CloseFrame):
                self.closed(end)
                stream = self._streams.get(end)
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
        """Ask the new rules about what the old ones held; nothing is forwarded yet."""
        for end, stream in self._streams.items():
            for waiting in stream:
                if waiting.state is _State.HELD:
                    verdict = self.judge.verdict_of_waiting(
                        end.peer, waiting.purpose, waiting.frame
                    )
                    self._carry_out(verdict, end, waiting)

    def release(self) -> None:
        """Forward everything that is ready and behind nothing, in the order in which it came."""
        ready: list[tuple[int, ConnectionEnd]] = []
        for end, stream in self._streams.items():
            for waiting in stream:
                if waiting.state is not _State.READY:
                    break
                ready.append((waiting.sequence, end))
        ready.sort()
        for sequence, end in ready:
            # What was forwarded before may have ended this connection.
            waiting_there = self._streams.get(end)
            if waiting_there is not None and waiting_there[0].sequence == sequence:
                self._forward_first(end, waiting_there)

    def closed(self, end: ConnectionEnd) -> None:
        """Forget what a cut holds on a connection that is closed, and what is behind it."""
        stream = self._streams.get(end)
        if stream is None:
            return
        kept = next((i for i, waiting in enumerate(stream) if waiting.was_cut), len(stream))
        while len(stream) > kept:
            stream.pop()
        if not stream:
            del self._streams[end]

    def forget(self, end: ConnectionEnd) -> None:
        """Forget everything that waits on a connection."""
        self._streams.pop(end, None)

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node with which a connection has something waiting here."""
        return tuple(dict.fromkeys(end.peer for end in self._streams))

    def waiting_first(self) -> tuple[Frame, ...]:
        """Return the first frame that waits on each connection that has any."""
        return tuple(stream[0].frame for stream in self._streams.values())

    def holds_open_of(self, end: ConnectionEnd) -> bool:
        """Whether a connection's OpenFrame itself waits here."""
        stream = self._streams.get(end)
        return stream is not None and isinstance(stream[0].frame, OpenFrame)

    def _carry_out(self, verdict: VerdictOfWaiting, end: ConnectionEnd, waiting: _Waiting) -> None:
        match verdict:
            case Pass():
                waiting.state = _State.READY
            case Deliver():
                waiting.state = _State.DELAYED
                self._after(verdict.delay_us, partial(self._delay_over, end, waiting))
            case Hold():
                waiting.state = _State.HELD
                waiting.was_cut = waiting.was_cut or verdict.is_cut

    def _delay_over(self, end: ConnectionEnd, waiting: _Waiting) -> None:
        waiting.state = _State.READY
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

    `transmit` puts a frame on the network, `deliver` gives one to the endpoint; both do nothing
    once the incarnation is over. `lost` hears of each response that a rule has lost. `rng_for`
    gives the random stream of a rule.
    """

    is_idle: bool
    """Whether it is known that no rule is in force here and nothing waits: frames go past it."""

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
            lose=self._lose_response,
        )
        self.is_idle = True

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all rules, of which those about other nodes are ignored.

        Effects: what is held no longer goes on one turn later, see the module.
        """
        for direction in (self._received, self._sent):
            direction.judge.set_rules(rules)
            direction.judge_again()
        if self._becomes_idle():
            return
        if not (self._received.is_empty and self._sent.is_empty):
            self._after(0, self._release)

    def send(self, frame: Frame) -> None:
        """Take a frame that the node sends."""
        if self.is_idle or self._becomes_idle() or isinstance(frame, ResetFrame):
            self._transmit(frame)
            return
        end = ConnectionEnd(frame.destination, frame.connection_id, _is_from_client(frame))
        if isinstance(frame, CloseFrame):
            self._received.closed(end)
        self._sent.offer(end, frame)

    def receive(self, frame: Frame) -> None:
        """Take a frame that arrived for the node."""
        if self.is_idle or self._becomes_idle():
            self._deliver(frame)
        elif isinstance(frame, ResetFrame):
            self.peer_lost(frame.source, frame.source_incarnation)
        else:
            self._received.offer(_receiving_end(frame), frame)

    def peer_lost(self, peer: NodeName, incarnation: Incarnation | None = None) -> None:
        """Take the death of a peer's process, as Endpoint.peer_lost does, unless a cut hides it.

        It is heard on each connection by itself, behind what is held there; a connection whose
        OpenFrame has not left yet goes on hanging.
        """
        for close in self._connections.lost_with(peer, incarnation):
            if not self._sent.holds_open_of(_receiving_end(close)):
                self.receive(close)

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections whatever the rules say; what waits on them is lost.

        Shape: `closes` are Endpoint.resets', one for each connection.
        """
        for close in closes:
            end = _receiving_end(close)
            self._sent.forget(end)
            self._received.forget(end)
            self._deliver(close)

    def unheard_peers(self) -> tuple[NodeName, ...]:
        """Return every node for which something waits to be sent: the end of a connection, perhaps.

        The endpoint has forgotten such a connection. When this process dies, its kernel must tell
        those peers too.
        """
        return self._sent.peers()

    def half_open(self) -> tuple[CloseFrame, ...]:
        """Return the end of each connection that this node accepted and whose client has not heard.

        A client takes the death of a process for its own connection's only if it knows that this
        process accepted it; a kernel resets what it had accepted all the same.
        """
        return tuple(
            CloseFrame(
                source=frame.source,
                destination=frame.destination,
                connection_id=frame.connection_id,
                by_client=False,
                reason="its process is gone",
            )
            for frame in self._sent.waiting_first()
            if isinstance(frame, OpenedFrame)
        )

    def _lose_response(self, end: ConnectionEnd, frame: Frame) -> None:
        """Reset the connection of a response that leaves; what waits on it is lost as well.

        The endpoint is in the middle of its reply: it hears of the end one turn later.
        """
        if not isinstance(frame, ResponseFrame):
            raise SimulationError(f"only responses are lost, got {type(frame).__name__}")
        self._sent.forget(end)
        self._received.forget(end)
        self._lost(frame)
        reason = "the connection was reset"
        client_hears = CloseFrame(
            source=frame.source,
            destination=frame.destination,
            connection_id=frame.connection_id,
            by_client=False,
            reason=reason,
        )
        server_hears = CloseFrame(
            source=frame.destination,
            destination=frame.source,
            connection_id=frame.connection_id,
            by_client=True,
            reason=reason,
        )
        self._transmit(client_hears)
        self._after(0, partial(self._deliver, server_hears))

    def _becomes_idle(self) -> bool:
        self.is_idle = self._sent.is_idle and self._received.is_idle
        return self.is_idle

    def _release(self) -> None:
        self._received.release()
        self._sent.release()

    def _forward_sent(self, _end: ConnectionEnd, frame: Frame) -> None:
        self._transmit(frame)

    def _forward_received(self, end: ConnectionEnd, frame: Frame) -> None:
        if isinstance(frame, CloseFrame):
            self._sent.closed(end)
        self._deliver(frame)


def _receiving_end(frame: Frame) -> ConnectionEnd:
    """Return the end at which a frame that is no ResetFrame arrives."""
    if isinstance(frame, ResetFrame):
        raise SimulationError("a ResetFrame is about a process, not about one connection")
    return ConnectionEnd(frame.source, frame.connection_id, not _is_from_client(frame))


def _is_from_client(frame: Frame) -> bool:
    return isinstance(frame, OpenFrame | RequestFrame) or (
        isinstance(frame, CloseFrame) and frame.by_client
    )
