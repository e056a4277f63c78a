"""One incarnation of a node in virtual time, and what its death means.

Owns the border between node code and the run: while the incarnation lives, the node's callbacks
and tasks run and reach the world through here; once it is over, every call raises HostDead, no
timer fires, no frame is taken and no coroutine takes another step (its `finally` blocks do not
run: a process that is killed does not say LeaveGroup).
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVarTuple

from cluster.host.connections import Endpoint
from cluster.host.frames import CloseFrame, Frame, ResetFrame
from cluster.host.host import Connection, Host, HostDead, IncomingRequest
from cluster.links.decisions import RngFor
from cluster.links.gate import LinkGate
from cluster.links.rules import LinkRule
from cluster.runtime import NodeTaskFailed, RowObserver
from cluster.virtual.backlog import Backlog, HostTimer
from cluster.virtual.clock import NodeClock
from cluster.virtual.loop import VirtualLoop
from cluster.virtual.network import VirtualNetwork
from partition_log.storage import Storage
from protocol.api import AnyResponse
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.trace import TraceEvent, stamp

Ts = TypeVarTuple("Ts")

MAX_CLOSE_ATTEMPTS = 100
"""How often a dead coroutine may await in its cleanup before it is given up."""

FailureSink = Callable[["VirtualHost", str, BaseException], None]
"""Takes (host, what died, exception); it raises to stop the run."""
LogSink = Callable[[int, NodeName, str], None]
"""Takes (run time in us, node, line)."""


class VirtualHost(Host):
    """A node's incarnation on the virtual loop."""

    simulates_costs = True

    def __init__(
        self,
        *,
        name: NodeName,
        incarnation: Incarnation,
        run_id: str,
        loop: VirtualLoop,
        network: VirtualNetwork,
        clock: NodeClock,
        rng: random.Random,
        gate_rng_for: RngFor,
        storage: Storage,
        observers: Sequence[RowObserver],
        traces_messages: bool,
        on_failure: FailureSink,
        log: LogSink | None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.rng = rng
        self.storage = storage
        self.traces_messages = traces_messages and len(observers) > 0
        self.alive = True
        """False once the incarnation is over; never True again."""
        self.fires_timers = True
        """False while it is stopped, and once it is over."""
        self._takes_frames = True
        """False until what waited while it was stopped is delivered, and once it is over."""
        self._backlog: Backlog | None = None
        self._gate: LinkGate | None = None
        """None until there are link rules about this node: then every frame goes through it."""
        self._gate_rng_for = gate_rng_for
        self._run_id = run_id
        self._loop = loop
        self._network = network
        self._clock = clock
        self._observers = observers
        self._on_failure = on_failure
        self._log = log
        self._rows = 0
        self._context = contextvars.Context()
        """Context of all this incarnation's tasks, and of nothing else: see VirtualLoop.discard."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Unfinished tasks, in the order of their creation."""
        self._endpoint = Endpoint(self, self._send)

    # -- clocks and timers --------------------------------------------------------------------

    def now_us(self) -> int:
        """Return this node's monotonic clock in microseconds."""
        if not self.alive:
            raise self._dead()
        # The clock would say the same, one call later: nodes ask several times an input.
        return self._clock.now_us() if self._clock.has_drifted else self._loop.current_us

    def wall_us(self) -> int:
        """Return microseconds since the epoch on this node's wall clock."""
        if not self.alive:
            raise self._dead()
        return self._clock.wall_us()

    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> HostTimer:
        """Call `fn(*args)` after `delay_us`, unless cancelled or the incarnation is over."""
        if not self.alive:
            raise self._dead()
        timer = HostTimer(self, fn, args)
        loop = self._loop
        loop.schedule(loop.current_us + self._clock.run_delay_us(delay_us), timer)
        return timer

    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` on this node's clock."""
        future = self.create_future()
        self.after(delay_us, _wake, future)
        await future

    # -- tasks --------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of the virtual loop."""
        if not self.alive:
            raise self._dead()
        return asyncio.Future(loop=self._loop)

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation; it takes its first step after this."""
        if not self.alive:
            coroutine.close()
            raise self._dead()
        task = self._loop.create_task(coroutine, name=name, context=self._context)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def callback_failed(self, error: Exception) -> None:
        """Take an exception that left a callback of this node; one that it died in is nothing."""
        if isinstance(error, NodeTaskFailed):
            raise error
        if self.alive:
            self._on_failure(self, "callback", error)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError("nobody may cancel a node's task")
        else:
            error = task.exception()
        if error is not None and self.alive and not isinstance(error, HostDead):
            self._on_failure(self, task.get_name(), error)

    # -- connections --------------------------------------------------------------------------

    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`."""
        if not self.alive:
            raise self._dead()
        return self._endpoint.connect(
            peer, purpose, setup_timeout_us=setup_timeout_us, client_id=client_id
        )

    def serve(self, handler: Callable[[IncomingRequest], None]) -> None:
        """Accept connections; `handler` gets one request at a time from each."""
        if not self.alive:
            raise self._dead()
        self._endpoint.serve(handler)

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        if not self.alive:
            raise self._dead()
        self._endpoint.reply(request_id, response)

    def receive(self, frame: Frame) -> None:
        """Take a frame from the network: the receiver's side of a link."""
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.frames.append(frame)
        elif self._gate is None:
            self._deliver(frame)
        else:
            self._gate.receive(frame)

    def _deliver(self, frame: Frame) -> None:
        if self._takes_frames:
            try:
                self._endpoint.deliver(frame)
            except Exception as error:
                self.callback_failed(error)
        elif self._backlog is not None:
            self._backlog.released.append(frame)

    def _send(self, frame: Frame) -> None:
        """Give a frame to the network: the sender's side of a link."""
        if not self.alive:
            raise self._dead()
        if self._gate is None:
            self._network.transmit(frame)
        else:
            self._gate.send(frame)

    def _transmit(self, frame: Frame) -> None:
        """Let a frame leave the gate."""
        if self.alive:
            self._network.transmit(frame)

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
                self._endpoint,
                after=self.after,
                transmit=self._transmit,
                deliver=self._deliver,
                rng_for=self._gate_rng_for,
            )
        gate.set_rules(rules)
        self._gate = None if gate.is_idle else gate

    def reset_links(
        self, peers: Sequence[NodeName], purposes: Sequence[str]
    ) -> tuple[CloseFrame, ...]:
        """End this end of all connections, of `purposes` if any are named, with one of `peers`.

        The node hears of it in this instant, or when it goes on. Returns one frame a connection.
        """
        closes = self._endpoint.resets(peers, purposes)
        if closes:
            self._loop.post(self._reset, closes)
        return closes

    def _reset(self, closes: Sequence[CloseFrame]) -> None:
        if not self._takes_frames:
            if self._backlog is not None:
                self._backlog.resets.extend(closes)
        elif self._gate is not None:
            self._gate.reset(closes)
        else:
            for close in closes:
                self._deliver(close)

    # -- a pause ------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped."""
        return self._backlog is not None and not self._backlog.is_resuming

    def pause(self) -> None:
        """Stop as on SIGSTOP: no step, no timer and no frame is taken until `resume`.

        Clocks go on, connections stay open, opens to it hang. Not to be called by node code.
        """
        if self._backlog is None:
            self._backlog = Backlog()
        self._backlog.is_resuming = False
        self._backlog.steps += self._loop.withdraw(self._context)
        self.fires_timers = self._takes_frames = False

    def resume(self) -> None:
        """Go on, at this instant: first the timers that came due, then the frames that waited.

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
        loop = self._loop
        steps, backlog.steps = backlog.steps, []
        for step in steps:
            loop.schedule(loop.current_us, step)
        loop.post(self._fire_kept_timers, backlog)

    def keep_timer(self, timer: HostTimer) -> None:
        """Keep a timer that came due while the node is stopped; a dead node's are forgotten."""
        if self._backlog is not None:
            self._backlog.timers.append(timer)

    def _fire_kept_timers(self, backlog: Backlog) -> None:
        if backlog is not self._backlog or not backlog.is_resuming:
            return
        self.fires_timers = True
        while backlog.timers:
            backlog.timers.popleft().fire_late()
        self._loop.post(self._deliver_kept_frames, backlog)

    def _deliver_kept_frames(self, backlog: Backlog) -> None:
        if backlog is not self._backlog or not backlog.is_resuming:
            return
        self._takes_frames = True
        if backlog.resets:
            self._reset(backlog.resets)
        while backlog.released and self.alive:
            self._deliver(backlog.released.popleft())
        while backlog.frames and self.alive:
            self.receive(backlog.frames.popleft())
        self._backlog = None

    # -- what is seen of it -------------------------------------------------------------------

    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and give it to the run's observers.

        Raises: HostDead, also when an observer ended this incarnation because of the row.
        """
        if not self.alive:
            raise self._dead()
        if not self._observers:
            return
        row = stamp(
            event,
            run=self._run_id,
            time_us=self._loop.current_us,
            node_time_us=self._clock.now_us(),
            seq=self._rows,
            node=self.name,
            incarnation=self.incarnation,
        )
        self._rows += 1
        for observer in self._observers:
            observer(row)
        if not self.alive:
            raise self._dead()

    def log(self, message: str) -> None:
        """Write a line to the run's log."""
        if not self.alive:
            raise self._dead()
        if self._log is not None:
            self._log(self._loop.now_us(), self.name, message)

    # -- its end ------------------------------------------------------------------------------

    def crash(self) -> None:
        """End the incarnation as `kill -9` does: its kernel tells every peer, nobody else does.

        Safe in the middle of a callback of this very node: the rest of it gets HostDead from
        whatever it calls.
        """
        if not self.alive:
            return
        peers = dict.fromkeys(self._endpoint.peers())
        half_open: tuple[CloseFrame, ...] = ()
        if self._gate is not None:
            peers.update((peer, None) for peer in self._gate.unheard_peers())
            half_open = self._gate.half_open()
        backlog = self._backlog
        unread = () if backlog is None else (*backlog.released, *backlog.frames)
        self.retire()
        for peer in peers:
            self._network.transmit(
                ResetFrame(source=self.name, destination=peer, source_incarnation=self.incarnation)
            )
        for close in half_open:
            self._network.transmit(close)
        for frame in unread:
            # Nobody will read it: the kernel answers as it does for what comes from now on.
            self._network.arrive(frame)

    def retire(self) -> None:
        """End the incarnation without telling anybody. May be called twice."""
        if not self.alive:
            return
        self.alive = self.fires_timers = self._takes_frames = False
        self._backlog = None
        self._gate = None
        self._network.detach(self)
        # Tasks that were about to take a step must not; then those that the running callback,
        # if it is this node's own, still wakes before it ends.
        self._loop.discard(self._context)
        self._loop.post(self._loop.discard, self._context)

    def dispose(self) -> None:
        """Free the coroutines of a dead incarnation, when the run is over.

        Their cleanup runs now, against a host that refuses everything, and not whenever the
        collector finds them.
        """
        for task in self._tasks:
            # asyncio would log "Task was destroyed but it is pending" for what a crash left.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._tasks.clear()

    def _dead(self) -> HostDead:
        return HostDead(f"{self.name} incarnation {self.incarnation} is over")


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _close(coroutine: Any) -> None:  # noqa: ANN401  # typeshed: a generator or a coroutine
    for _ in range(MAX_CLOSE_ATTEMPTS):
        try:
            coroutine.close()
        except RuntimeError:
            # It awaited in a `finally` block: close it again from there.
            continue
        except Exception:  # whatever a dead node's cleanup says, nobody hears it
            return
        return
