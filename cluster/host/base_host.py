"""BaseHost: the part of a Host that is the same in every runtime.

`cluster.host.host` says what a host is. A BaseHost serves one incarnation of a node: it owns the
tasks and connections of the node, numbers its trace rows, pauses it and ends it. Each runtime
(virtual or real time) has a subclass that adds clocks and timers, and writes trace rows and log
lines. The runtime also carries the *frames*, which are the messages between two nodes.

A fault may delay or drop frames between two nodes. It does so by *link rules*. As long as a rule
concerns this node, its frames pass through a LinkGate, which applies the rules.

Once the incarnation is over, every call raises HostDead, no timer fires, and no frame is taken.
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
    """A timer that came due while its host was paused. It fires after the pause."""

    def fire(self) -> None:
        """Make the timer's call, unless the timer was cancelled during the pause."""


class Backlog:
    """What reached a node while it was paused; each list is in the order of arrival."""

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
        """Frames that the gate delayed and released during the pause. They reached the gate before
        all frames in `arrivals` did."""
        self.arrivals: deque[Frame | NodeName] = deque()
        """Frames that arrived, and names of peers whose process was lost."""
        self.rules: Sequence[LinkRule] | None = None
        """Link rules that take effect at `resume`; None if they have not changed."""


class BaseHost(Host):
    """One incarnation of a node on an asyncio loop.

    `carry` is called with each frame that leaves the node. It must not call back into this host.
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
        """False from a pause until the frames that waited are delivered, and after the end."""
        self._backlog: Backlog | None = None
        """What arrived during a pause, until `resume` has handled all of it; None otherwise."""
        self._gate: LinkGate | None = None
        """The gate through which all frames pass; None while no link rule concerns this node."""
        self._seed = seed
        self._run_id = run_id
        self._event_loop = loop
        self._carry = carry
        self._rows = 0
        """Number of trace rows so far, which is also the number of the next row."""
        self._context = contextvars.Context()
        """The context in which all tasks of this incarnation run, and nothing else.

        So the event loop of virtual time can recognize the steps of these tasks in its queue, and
        take them out (`VirtualLoop.discard`, `VirtualLoop.withdraw`).
        """
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Unfinished tasks, in the order of their creation. The values mean nothing: a dict keeps
        this order, and a set would not."""
        self.endpoint = Endpoint(self, self._send)

    # -- to be implemented by a runtime -------------------------------------------------------

    @abstractmethod
    def _post(self, callback: Callable[..., object], *args: object) -> None:
        """Make the loop call `callback(*args)` after everything that is in its queue."""

    @abstractmethod
    def _report_failure(self, what: str, error: BaseException) -> None:
        """Record that `error` ended the task or callback named `what`."""

    @abstractmethod
    def _free_resources(self) -> None:
        """Free the runtime's resources of an incarnation that is over."""

    def _hold_steps(self) -> None:
        """Take steps of tasks that are ready to run off the loop, where the loop can do so."""

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
            raise error  # a failure that is recorded already, and that ends the run
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
        """End all connections with `peer`, whose process died without sending a ResetFrame."""
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.arrivals.append(peer)
            return
        try:
            # A gate passes the call on to the endpoint, after the frames of `peer` that it still
            # delays.
            (self.endpoint if self._gate is None else self._gate).peer_lost(peer)
        except Exception as error:
            self.callback_failed(error)

    def _deliver(self, frame: Frame) -> None:
        """Take a frame that no rule delays any more; put it aside if the node is paused."""
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
        """Replace all link rules at this node; if it is paused, when it resumes."""
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
        # Without rules the gate is not needed, unless it still has frames that old rules delayed.
        self._gate = None if gate.is_idle else gate

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections as a TCP reset does; their frames that are still on the way are lost.

        `closes` has one frame for each connection, made by Endpoint.close_frames_of_reset. Link
        rules do not delay these frames.
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
        """Return the random stream from which the rule `rule_id` draws the delays of frames."""
        return stream(self._seed, "slow", rule_id, self.name, self.incarnation)

    # -- pause --------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._backlog is not None and not self._backlog.is_resuming

    def pause(self) -> None:
        """Stop as on SIGSTOP: no timer fires and no frame is taken until `resume`.

        The clocks go on, and open connections stay open, but this node accepts no new connection. A
        second call changes nothing. The runtime calls this, never the node itself.
        """
        # A pause in the middle of a resume keeps the backlog that is not handled yet.
        if self._backlog is None:
            self._backlog = Backlog()
        self._backlog.is_resuming = False
        self._hold_steps()
        self.fires_timers = self._takes_frames = False

    def resume(self) -> None:
        """Continue after `pause`, in the order that is most dangerous for Kafka.

        1. Tasks that were ready to run at the pause take their next step.
        2. The timers that came due during the pause fire, and the tasks that they wake run. A
           member may now still act as if it were in the group, although the group has removed it.
        3. The frames that waited are delivered. Only now does the node learn what it missed.
        """
        backlog = self._backlog
        if backlog is None or backlog.is_resuming:
            return
        # This comes first: as long as it is False, `set_link_rules` puts the rules back into the
        # backlog.
        backlog.is_resuming = True
        if backlog.rules is not None:
            self.set_link_rules(backlog.rules)
            backlog.rules = None
        self._release_steps()
        # This is posted, so that the released steps run before the timers fire.
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
        # This is posted, so that tasks woken by these timers run before the frames are delivered.
        self._post(self._deliver_kept_frames, backlog)

    def _deliver_kept_frames(self, backlog: Backlog) -> None:
        """Deliver the frames that came during the pause: the last part of a resume."""
        if backlog is not self._backlog or not backlog.is_resuming:
            return  # paused again, or dead, since this was posted
        self._takes_frames = True
        # The resets come first, so that the waiting frames of these connections find no connection.
        if backlog.resets:
            self.reset(backlog.resets)
        # `alive` is tested each time, because the handling of a frame may end the incarnation.
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
        """Return every node that must learn that this incarnation has ended."""
        # The endpoint forgets a connection that this node closes. The gate may still delay the
        # close frame, so that the peer does not know of the end yet. Such a peer counts, too.
        unnotified = () if self._gate is None else self._gate.peers_with_waiting_frames()
        return tuple(dict.fromkeys((*self.endpoint.peers(), *unnotified)))

    def kernel_frames(self) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
        """Return two groups of frames that matter if the process is killed now (`kill -9`).

        1. Frames that the machine's kernel sends in place of the process: a reset to each peer. A
           reset names the dead incarnation. A client that does not know yet which incarnation
           accepted its connection would ignore it, so such a client gets a close of this
           connection.
        2. Frames that have reached the process but that it will never read, because it was paused.
           The sender of each must get the same answer as for a frame to a dead process.
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
        """Return the exception that every call raises once the incarnation is over."""
        return HostDead(f"{self.name} incarnation {self.incarnation} is over")


def _wake(future: "asyncio.Future[None]") -> None:
    """End the wait for `future`; it is done already if its waiter was cancelled."""
    if not future.done():
        future.set_result(None)
