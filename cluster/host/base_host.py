"""BaseHost: everything of a Host that must be equal in every runtime.

A Host is a node's only access to its surroundings; a node is a broker, a client and so on. An
incarnation is one life of a node. A frame is a message on a link between two nodes. A link rule is
the effect of a fault on frames, for example a delay. The gate applies the rules.

A BaseHost owns one incarnation: the tasks and connections of its node, the gate of its links, the
numbers of its trace rows, its pauses and its end. A runtime (virtual or real time) adds clocks,
timers, the transport of frames, and the destinations of trace rows and log lines.

Once the incarnation is over, every call raises HostDead, no timer fires, and no frame is taken. No
coroutine of the node has any effect, as a killed process sends no LeaveGroup.
"""

import asyncio
import contextvars
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from cluster.host.connections import Endpoint
from cluster.host.frames import CloseFrame, Frame, ResetFrame, ResponseFrame
from cluster.host.host import Connection, Host, HostDead
from cluster.host.incoming_request import AcceptedConnection, IncomingRequest
from cluster.host.randomness import stream
from cluster.links.gate import LinkGate
from cluster.links.rules import LinkRule
from cluster.runtime import NodeTaskFailed
from partition_log.storage import Storage
from protocol.api import API_OF_RESPONSE, AnyNotice, AnyResponse, error_of
from protocol.envelope import RequestEnvelope
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp


class KeptTimer(Protocol):
    """A timer that came due while its host was paused."""

    def fire(self) -> None:
        """Make the call, unless it was cancelled since."""


class Backlog:
    """Events that reached a node while it was paused, each kind in the order of arrival."""

    __slots__ = ("arrivals", "is_resuming", "released", "resets", "rules", "timers")

    def __init__(self) -> None:
        self.is_resuming = False
        """True from `resume` until the whole backlog is handled."""
        self.timers: deque[KeptTimer] = deque()
        """Timers that came due during the pause."""
        self.resets: list[CloseFrame] = []
        """A close frame for each connection that was reset; the connection's other frames that wait
        here are lost."""
        self.released: deque[Frame] = deque()
        """Frames that link rules held and have released; they are older than `arrivals`."""
        self.arrivals: deque[Frame | NodeName] = deque()
        """Frames, and names of peers whose process was lost."""
        self.rules: Sequence[LinkRule] | None = None
        """Link rules that take effect at `resume`; None if they have not changed."""


class BaseHost(Host):
    """One incarnation of a node on an asyncio loop.

    `carry` takes each frame that leaves. It must not call a method of this host before it returns.
    """

    def __init__(
        self,
        name: NodeName,
        incarnation: Incarnation,
        *,
        run_id: str,
        seed: int,
        loop: asyncio.AbstractEventLoop,
        storage: Storage,
        traces_messages: bool,
        carry: Callable[[Frame], None],
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.rng = stream(seed, "node", name, incarnation)
        self.storage = storage
        self.traces_messages = traces_messages
        self.alive = True
        """False once the incarnation is over; never True again."""
        self.fires_timers = True
        """False while the node is paused, and once the incarnation is over."""
        self._takes_frames = True
        """False from a pause until its backlog is delivered, and once the incarnation is over."""
        self._backlog: Backlog | None = None
        """Events of a pause, until the resume has handled all of them; None otherwise."""
        self._gate: LinkGate | None = None
        """None while no link rule concerns this node; otherwise all frames pass through it."""
        self._seed = seed
        self._run_id = run_id
        self._event_loop = loop
        self._carry = carry
        self._rows = 0
        """Number of trace rows so far."""
        self._context = contextvars.Context()
        """Context of all tasks of this incarnation and of no others.

        VirtualLoop is the event loop of virtual time. Its methods `discard` and `withdraw` find the
        steps of these tasks by their context.
        """
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Unfinished tasks, in the order of their creation: an ordered set."""
        self.endpoint = Endpoint(self, self._send)

    # -- to be implemented by a runtime -------------------------------------------------------

    @abstractmethod
    def _post(self, callback: Callable[..., object], *args: object) -> None:
        """Make the loop call `callback(*args)` after all callbacks that are ready."""

    @abstractmethod
    def _report_failure(self, what: str, error: BaseException) -> None:
        """Record that the task or callback `what` of the live node died of `error`."""

    @abstractmethod
    def _free_resources(self) -> None:
        """Free the runtime's resources of an incarnation that is over."""

    def _hold_steps(self) -> None:
        """Take the ready steps of tasks off the loop at a pause, if the loop supports that."""

    def _release_steps(self) -> None:
        """Give the steps that `_hold_steps` took back to the loop."""

    # -- timers and tasks ---------------------------------------------------------------------

    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` on this node's clock."""
        future = self.create_future()
        self.after(delay_us, _wake, future)
        await future

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of the host's loop."""
        if not self.alive:
            raise self._dead()
        return asyncio.Future(loop=self._event_loop)

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation; it takes no step before this returns."""
        if not self.alive:
            coroutine.close()  # else Python warns that the coroutine was never awaited
            raise self._dead()
        task = self._event_loop.create_task(coroutine, name=name, context=self._context)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def callback_failed(self, error: Exception, what: str = "callback") -> None:
        """Record an exception that left a callback, unless the node died in the callback."""
        if isinstance(error, NodeTaskFailed):
            raise error  # recorded already; it must reach the caller of the loop
        if self.alive:
            self._report_failure(what, error)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        """Forget a task that has ended, and report an exception that ended it."""
        self._tasks.pop(task, None)
        if task.cancelled():
            # Not even the end of an incarnation cancels its tasks, so this is a failure.
            error: BaseException | None = asyncio.CancelledError("a node's task was cancelled")
        else:
            error = task.exception()
        if error is not None and self.alive and not isinstance(error, HostDead):
            self._report_failure(task.get_name(), error)

    # -- connections --------------------------------------------------------------------------

    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`."""
        if not self.alive:
            raise self._dead()
        return self.endpoint.connect(
            peer, purpose, setup_timeout_us=setup_timeout_us, client_id=client_id
        )

    def serve(
        self,
        handler: Callable[[IncomingRequest], None],
        *,
        on_end: Callable[[AcceptedConnection], None] | None = None,
    ) -> None:
        """Accept connections; `handler` gets one request at a time from each."""
        if not self.alive:
            raise self._dead()
        self.endpoint.serve(handler, on_end)

    def notify(self, connection: AcceptedConnection, notice: AnyNotice) -> None:
        """Send an unrequested message on an accepted connection."""
        if not self.alive:
            raise self._dead()
        self.endpoint.notify(connection, notice)

    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection."""
        if not self.alive:
            raise self._dead()
        self.endpoint.hang_up(connection)

    def unanswered(self) -> Iterator[tuple[RequestId, RequestEnvelope, bool]]:
        """Yield the requests without an answer; the bool is True if the connection is alive."""
        return self.endpoint.unanswered()

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        if not self.alive:
            raise self._dead()
        self.endpoint.reply(request_id, response)

    def receive(self, frame: Frame) -> None:
        """Take a frame from the network: the receiver's side of a link."""
        if not self._takes_frames:
            # Without a backlog the incarnation is over, and the frame is lost.
            if self._backlog is not None:
                self._backlog.arrivals.append(frame)
        elif self._gate is None:
            self._deliver(frame)
        else:
            self._gate.receive(frame)

    def peer_lost(self, peer: NodeName) -> None:
        """Handle the death of the process that hosts `peer`, if no ResetFrame announces it."""
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.arrivals.append(peer)
            return
        try:
            # If there is a gate, it tells the endpoint, perhaps later.
            (self.endpoint if self._gate is None else self._gate).peer_lost(peer)
        except Exception as error:
            self.callback_failed(error)

    def _deliver(self, frame: Frame) -> None:
        """Pass a frame to the node once no rule holds it; keep it if the node is paused."""
        if self._takes_frames:
            try:
                self.endpoint.deliver(frame)
            except Exception as error:
                self.callback_failed(error)
        elif self._backlog is not None:
            self._backlog.released.append(frame)

    def _send(self, frame: Frame) -> None:
        """Pass a frame to the network: the sender's side of a link."""
        if not self.alive:
            raise self._dead()
        if self._gate is None:
            self._carry(frame)
        else:
            self._gate.send(frame)

    def _transmit(self, frame: Frame) -> None:
        """Carry a frame that the gate has let through."""
        if self.alive:
            self._carry(frame)

    # -- link rules ---------------------------------------------------------------------------

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules: immediately or, if the node is paused, when it resumes."""
        if self._backlog is not None and not self._backlog.is_resuming:
            self._backlog.rules = rules
            return
        gate = self._gate
        if gate is None:
            gate = LinkGate(
                self.name,
                self.endpoint,
                after=self.after,
                transmit=self._transmit,
                deliver=self._deliver,
                lost=self._trace_lost_response,
                rng_for=self._rng_for_rule,
            )
        gate.set_rules(rules)
        # Frames that an old rule held may still wait in the gate: then the gate must stay.
        self._gate = None if gate.is_idle else gate

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections regardless of link rules; frames in flight or held on them are lost.

        `closes` come from Endpoint.close_frames_of_reset, one for each connection.
        """
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.resets.extend(closes)
        elif self._gate is not None:
            self._gate.reset(closes)
        else:
            for close in closes:
                self._deliver(close)

    def _trace_lost_response(self, frame: ResponseFrame) -> None:
        """Trace an answer that a link rule has dropped instead of sending it."""
        envelope = frame.envelope
        self.trace(
            TraceEvent(
                kind=TraceKind.RESPONSE_LOST,
                peer=frame.destination,
                api=API_OF_RESPONSE[type(envelope.body)].label,
                correlation_id=envelope.correlation_id,
                error=error_of(envelope.body),
            )
        )

    def stream(self, purpose: str) -> random.Random:
        """Return a new random stream for `purpose`, which is independent of `rng`."""
        return stream(self._seed, "node", self.name, self.incarnation, purpose)

    def _rng_for_rule(self, rule_id: str) -> random.Random:
        """Return a rule's random stream. Only rules that slow frames down draw numbers."""
        return stream(self._seed, "slow", rule_id, self.name, self.incarnation)

    # -- pause --------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._backlog is not None and not self._backlog.is_resuming

    def pause(self) -> None:
        """Stop as on SIGSTOP: no timer fires and no frame is taken until `resume`.

        Clocks go on and connections stay open; new connections to this node do not open. The call
        has no further effect if the node is paused already. A node must not call this itself.
        """
        # A pause in the middle of a resume keeps the backlog that is not handled yet.
        if self._backlog is None:
            self._backlog = Backlog()
        self._backlog.is_resuming = False
        self._hold_steps()
        self.fires_timers = self._takes_frames = False

    def resume(self) -> None:
        """Continue after `pause`, in the order that is most dangerous for Kafka.

        1. Tasks whose next step was ready take it. Then timers that came due fire.
        2. Tasks that these timers wake take their step. Here a member still acts on its old
           beliefs, for example that it is in the group.
        3. The frames that waited are delivered: only then does the node learn what it missed.
        """
        backlog = self._backlog
        if backlog is None or backlog.is_resuming:
            return
        # Set first, because otherwise `set_link_rules` would put the rules into the backlog.
        backlog.is_resuming = True
        if backlog.rules is not None:
            self.set_link_rules(backlog.rules)
            backlog.rules = None
        self._release_steps()
        # Posted, so that the released steps run before the timers fire.
        self._post(self._fire_kept_timers, backlog)

    def keep_timer(self, timer: KeptTimer) -> None:
        """Keep a timer that came due during a pause; a dead node's timers are dropped."""
        if self._backlog is not None:
            self._backlog.timers.append(timer)

    def _fire_kept_timers(self, backlog: Backlog) -> None:
        """Fire the timers that came due during the pause: the second part of a resume."""
        if backlog is not self._backlog or not backlog.is_resuming:
            return  # paused again, or dead, since this was posted
        self.fires_timers = True
        while backlog.timers:
            backlog.timers.popleft().fire()
        # Posted, so that tasks woken by these timers run before the frames are delivered.
        self._post(self._deliver_kept_frames, backlog)

    def _deliver_kept_frames(self, backlog: Backlog) -> None:
        """Deliver the frames that came during the pause: the last part of a resume."""
        if backlog is not self._backlog or not backlog.is_resuming:
            return  # paused again, or dead, since this was posted
        self._takes_frames = True
        # The resets come first, because frames that wait on these connections are lost.
        if backlog.resets:
            self.reset(backlog.resets)
        # `alive`: the handling of a frame may end the incarnation.
        while backlog.released and self.alive:
            self._deliver(backlog.released.popleft())
        while backlog.arrivals and self.alive:
            arrived = backlog.arrivals.popleft()
            if isinstance(arrived, str):  # the name of a peer
                self.peer_lost(arrived)
            else:
                self.receive(arrived)
        self._backlog = None

    # -- trace --------------------------------------------------------------------------------

    def _stamped(self, event: TraceEvent, *, time_us: int, node_time_us: int) -> TraceRow:
        """Return the next row of this incarnation, and count it."""
        row = stamp(
            event,
            run=self._run_id,
            time_us=time_us,
            node_time_us=node_time_us,
            seq=self._rows,
            node=self.name,
            incarnation=self.incarnation,
        )
        self._rows += 1
        return row

    # -- end ----------------------------------------------------------------------------------

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node that must be notified of this incarnation's end."""
        # The endpoint no longer knows a connection that was closed here. If the gate still holds
        # the frame that tells the peer, the peer must be notified, too.
        unnotified = () if self._gate is None else self._gate.peers_with_waiting_frames()
        return tuple(dict.fromkeys((*self.endpoint.peers(), *unnotified)))

    def kernel_frames(self) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
        """Return two groups of frames for the case that the process is killed now (`kill -9`).

        1. Frames that the kernel sends for the dead process: a reset to each peer, and a close for
           each accepted connection whose client does not yet know which incarnation accepted it.
        2. Frames that have reached the process, which will never read them. They must be answered
           like frames to a dead process.
        """
        resets = tuple(
            ResetFrame(source=self.name, destination=peer, source_incarnation=self.incarnation)
            for peer in self.peers()
        )
        half_open = () if self._gate is None else self._gate.half_open()
        backlog = self._backlog
        if backlog is None:
            return (*resets, *half_open), ()
        arrived_frames = (item for item in backlog.arrivals if not isinstance(item, str))
        return (*resets, *half_open), (*backlog.released, *arrived_frames)

    def retire(self) -> None:
        """End the incarnation without notifying any peer. May be called twice."""
        if not self.alive:
            return
        self.alive = self.fires_timers = self._takes_frames = False
        self._backlog = None
        self._gate = None
        self._free_resources()

    def _dead(self) -> HostDead:
        return HostDead(f"{self.name} incarnation {self.incarnation} is over")


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
