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

from cluster.connections import Endpoint
from cluster.frames import Frame, ResetFrame
from cluster.host import Connection, Host, HostDead, IncomingRequest
from cluster.loop import LoopTimer, VirtualLoop
from cluster.runtime import RowObserver
from cluster.virtual.clock import NodeClock
from cluster.virtual.network import VirtualNetwork
from partition_log.storage import Storage
from protocol.envelope import AnyResponse
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.trace import TraceEvent, stamp

Ts = TypeVarTuple("Ts")

MAX_CLOSE_ATTEMPTS = 100
"""How often a dead coroutine may await in its cleanup before it is given up."""

FailureSink = Callable[["VirtualHost", str, BaseException], None]
"""Takes (host, what died, exception); it raises to stop the run."""
LogSink = Callable[[int, NodeName, str], None]
"""Takes (run time in us, node, line)."""


class HostTimer(LoopTimer):
    """A pending call of VirtualHost.after: it also ends with the incarnation."""

    __slots__ = ("_host",)

    def __init__(
        self, host: "VirtualHost", callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._host = host

    def _run(self) -> None:
        host = self._host
        if host.alive:
            try:
                self._callback(*self._args)
            except Exception as error:
                host.callback_failed(error)


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

    def connect(self, peer: NodeName, purpose: str, *, setup_timeout_us: int) -> Connection:
        """Open a connection to `peer`."""
        if not self.alive:
            raise self._dead()
        return self._endpoint.connect(peer, purpose, setup_timeout_us=setup_timeout_us)

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
        if self.alive:
            try:
                self._endpoint.deliver(frame)
            except Exception as error:
                self.callback_failed(error)

    def _send(self, frame: Frame) -> None:
        """Give a frame to the network: the sender's side of a link."""
        if not self.alive:
            raise self._dead()
        self._network.transmit(frame)

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
        peers = self._endpoint.peers()
        self.retire()
        for peer in peers:
            self._network.transmit(
                ResetFrame(source=self.name, destination=peer, source_incarnation=self.incarnation)
            )

    def retire(self) -> None:
        """End the incarnation without telling anybody. May be called twice."""
        if not self.alive:
            return
        self.alive = False
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
