"""BaseHost: everything of a Host that must be equal in every runtime.

Owns one incarnation: the tasks and the connections of its node, the gate of its links, the numbers
of its trace rows, a pause and the order of what waited meanwhile, its end. A runtime adds its
clocks, its timers, what carries frames, and where rows and lines go.

Once the incarnation is over every call raises HostDead, no timer fires, no frame is taken, and no
coroutine of it reaches the world: a process that is killed does not say LeaveGroup.
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
    """A timer that came due while its host was stopped."""

    def fire_late(self) -> None:
        """Make the call, unless it was cancelled since."""


class Backlog:
    """What came for a node while it was stopped, each kind in the order in which it came."""

    __slots__ = ("arrivals", "is_resuming", "released", "resets", "rules", "timers")

    def __init__(self) -> None:
        self.is_resuming = False
        """Whether the node goes on and is catching up."""
        self.timers: deque[KeptTimer] = deque()
        self.resets: list[CloseFrame] = []
        """Connections that were reset: heard before what waits, which is lost on them."""
        self.released: deque[Frame] = deque()
        """What link rules held and hold no longer: it goes before `arrivals`, as it came."""
        self.arrivals: deque[Frame | NodeName] = deque()
        """Frames, and peers whose process was lost."""
        self.rules: Sequence[LinkRule] | None = None
        """Link rules that it gets when it goes on; None if they have not changed."""


class BaseHost(Host):
    """One incarnation of a node on an asyncio loop.

    `carry` takes each frame that leaves, and never calls back at once.
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
        """False while it is stopped, and once it is over."""
        self._takes_frames = True
        """False until what waited while it was stopped is delivered, and once it is over."""
        self._backlog: Backlog | None = None
        self._gate: LinkGate | None = None
        """None until there are link rules about this node: then every frame goes through it."""
        self._seed = seed
        self._run_id = run_id
        self._event_loop = loop
        self._carry = carry
        self._rows = 0
        self._context = contextvars.Context()
        """Context of all this incarnation's tasks, and of nothing else: see VirtualLoop.discard."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Unfinished tasks, in the order of their creation."""
        self.endpoint = Endpoint(self, self._send)

    # -- what a runtime adds ------------------------------------------------------------------

    @abstractmethod
    def _post(self, callback: Callable[..., object], *args: object) -> None:
        """Have the loop call `callback(*args)` after everything that is ready."""

    @abstractmethod
    def _failed(self, what: str, error: BaseException) -> None:
        """Take that a task or a callback of the living node died."""

    @abstractmethod
    def _let_go(self) -> None:
        """End what the runtime holds of an incarnation that is over."""

    def _hold_steps(self) -> None:
        """Keep the steps of tasks that are ready, if the loop lets them be kept, on a pause."""

    def _release_steps(self) -> None:
        """Let the steps that were kept be taken."""

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
        """Run `coroutine` as a task of this incarnation; it takes its first step after this."""
        if not self.alive:
            coroutine.close()
            raise self._dead()
        task = self._event_loop.create_task(coroutine, name=name, context=self._context)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def callback_failed(self, error: Exception, what: str = "callback") -> None:
        """Take an exception that left a callback of this node; one that it died in is nothing."""
        if isinstance(error, NodeTaskFailed):
            raise error
        if self.alive:
            self._failed(what, error)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError("nobody may cancel a node's task")
        else:
            error = task.exception()
        if error is not None and self.alive and not isinstance(error, HostDead):
            self._failed(task.get_name(), error)

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
        """Say something unasked on an accepted connection."""
        if not self.alive:
            raise self._dead()
        self.endpoint.notify(connection, notice)

    def hang_up(self, connection: AcceptedConnection) -> None:
        """End an accepted connection."""
        if not self.alive:
            raise self._dead()
        self.endpoint.hang_up(connection)

    def unanswered(self) -> Iterator[tuple[RequestId, RequestEnvelope]]:
        """Yield the requests that wait for an answer."""
        return self.endpoint.unanswered()

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        if not self.alive:
            raise self._dead()
        self.endpoint.reply(request_id, response)

    def receive(self, frame: Frame) -> None:
        """Take a frame from the network: the receiver's side of a link."""
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.arrivals.append(frame)
        elif self._gate is None:
            self._deliver(frame)
        else:
            self._gate.receive(frame)

    def peer_lost(self, peer: NodeName) -> None:
        """Take the death of the process that hosts `peer`, where no frame tells it."""
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.arrivals.append(peer)
            return
        try:
            (self.endpoint if self._gate is None else self._gate).peer_lost(peer)
        except Exception as error:
            self.callback_failed(error)

    def _deliver(self, frame: Frame) -> None:
        if self._takes_frames:
            try:
                self.endpoint.deliver(frame)
            except Exception as error:
                self.callback_failed(error)
        elif self._backlog is not None:
            self._backlog.released.append(frame)

    def _send(self, frame: Frame) -> None:
        """Give a frame to the network: the sender's side of a link."""
        if not self.alive:
            raise self._dead()
        if self._gate is None:
            self._carry(frame)
        else:
            self._gate.send(frame)

    def _transmit(self, frame: Frame) -> None:
        """Let a frame leave the gate."""
        if self.alive:
            self._carry(frame)

    # -- faults on its links ------------------------------------------------------------------

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules; a node that is stopped has them when it goes on."""
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
                lost=self._response_lost,
                rng_for=self._rng_for_rule,
            )
        gate.set_rules(rules)
        self._gate = None if gate.is_idle else gate

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections whatever the rules say; what is in flight or waits on them is lost.

        Shape: `closes` are Endpoint.resets', one for each connection.
        """
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.resets.extend(closes)
        elif self._gate is not None:
            self._gate.reset(closes)
        else:
            for close in closes:
                self._deliver(close)

    def _response_lost(self, frame: ResponseFrame) -> None:
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
        """Return a new random stream of this incarnation's for `purpose`, apart from `rng`."""
        return stream(self._seed, "node", self.name, self.incarnation, purpose)

    def _rng_for_rule(self, rule_id: str) -> random.Random:
        return stream(self._seed, "slow", rule_id, self.name, self.incarnation)

    # -- a pause ------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the node is stopped."""
        return self._backlog is not None and not self._backlog.is_resuming

    def pause(self) -> None:
        """Stop as on SIGSTOP: no timer and no frame is taken until `resume`; twice does no harm.

        Clocks go on, connections stay open, opens to it hang. Not to be called by node code.
        """
        if self._backlog is None:
            self._backlog = Backlog()
        self._backlog.is_resuming = False
        self._hold_steps()
        self.fires_timers = self._takes_frames = False

    def resume(self) -> None:
        """Go on: first the timers that came due, then the frames that waited.

        What a timer wakes takes its step before the first frame is delivered: whoever slept acts on
        what it believed, and only then hears what happened. That order is Kafka's danger.
        """
        backlog = self._backlog
        if backlog is None or backlog.is_resuming:
            return
        backlog.is_resuming = True
        if backlog.rules is not None:
            self.set_link_rules(backlog.rules)
            backlog.rules = None
        self._release_steps()
        self._post(self._fire_kept_timers, backlog)

    def keep_timer(self, timer: KeptTimer) -> None:
        """Keep a timer that came due while the node is stopped; a dead node's are forgotten."""
        if self._backlog is not None:
            self._backlog.timers.append(timer)

    def _fire_kept_timers(self, backlog: Backlog) -> None:
        if backlog is not self._backlog or not backlog.is_resuming:
            return  # stopped again, or dead
        self.fires_timers = True
        while backlog.timers:
            backlog.timers.popleft().fire_late()
        self._post(self._deliver_kept_frames, backlog)

    def _deliver_kept_frames(self, backlog: Backlog) -> None:
        if backlog is not self._backlog or not backlog.is_resuming:
            return
        self._takes_frames = True
        if backlog.resets:
            self.reset(backlog.resets)
        while backlog.released and self.alive:
            self._deliver(backlog.released.popleft())
        while backlog.arrivals and self.alive:
            arrived = backlog.arrivals.popleft()
            if isinstance(arrived, str):
                self.peer_lost(arrived)
            else:
                self.receive(arrived)
        self._backlog = None

    # -- what is seen of it -------------------------------------------------------------------

    def _stamped(self, event: TraceEvent, *, time_us: int, node_time_us: int) -> TraceRow:
        """Return the next row of this incarnation."""
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

    # -- its end ------------------------------------------------------------------------------

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node that must hear of this incarnation's end."""
        unheard = () if self._gate is None else self._gate.unheard_peers()
        return tuple(dict.fromkeys((*self.endpoint.peers(), *unheard)))

    def kernels_answers(self) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
        """Return what a kernel says of this process if it is killed now, as `kill -9` does.

        First what it sends: a reset for each peer, and the end of each connection whose client has
        not heard yet which life of the process accepted it. Then the frames that nobody will read:
        they are answered as what comes for a dead process.
        """
        resets = tuple(
            ResetFrame(source=self.name, destination=peer, source_incarnation=self.incarnation)
            for peer in self.peers()
        )
        half_open = () if self._gate is None else self._gate.half_open()
        backlog = self._backlog
        if backlog is None:
            return (*resets, *half_open), ()
        arrived = (item for item in backlog.arrivals if not isinstance(item, str))
        return (*resets, *half_open), (*backlog.released, *arrived)

    def retire(self) -> None:
        """End the incarnation without telling anybody. May be called twice."""
        if not self.alive:
            return
        self.alive = self.fires_timers = self._takes_frames = False
        self._backlog = None
        self._gate = None
        self._let_go()

    def _dead(self) -> HostDead:
        return HostDead(f"{self.name} incarnation {self.incarnation} is over")


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
