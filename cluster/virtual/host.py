"""One incarnation of a node in virtual time: its clocks and timers, and what its death means here.

`BaseHost` has everything that is the same in real time. A dead incarnation's coroutines take no
other step: those that are left are freed when the run is over.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVarTuple

from cluster.host.base_host import BaseHost
from cluster.host.frames import CloseFrame
from cluster.runtime import RowObserver
from cluster.virtual.clock import NodeClock
from cluster.virtual.loop import LoopHandle, VirtualLoop
from cluster.virtual.loop_timer import LoopTimer
from cluster.virtual.network import VirtualNetwork
from cluster.virtual.starts import drawn_tick_us
from partition_log.storage import Storage
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent

Ts = TypeVarTuple("Ts")

MAX_CLOSE_ATTEMPTS = 100
"""How often a dead coroutine may await in its cleanup before it is given up."""

FailureSink = Callable[["VirtualHost", str, BaseException], None]
"""Takes (host, what died, exception); it raises to stop the run."""
LogSink = Callable[[int, NodeName, str], None]
"""Takes (run time in us, node, line)."""


class HostTimer(LoopTimer):
    """A pending call of VirtualHost.after: it waits for a stopped host, and dies with its host."""

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
        if not host.fires_timers:
            host.keep_timer(self)
            return
        try:
            self._callback(*self._args)
        except Exception as error:
            host.callback_failed(error)

    def fire_late(self) -> None:
        """Make the call that came due while its host was stopped, unless it was cancelled since."""
        if not self._cancelled:
            self._run()


class VirtualHost(BaseHost):
    """A node's incarnation on the virtual loop."""

    simulates_costs = True

    def __init__(
        self,
        *,
        name: NodeName,
        incarnation: Incarnation,
        run_id: str,
        seed: int,
        loop: VirtualLoop,
        network: VirtualNetwork,
        clock: NodeClock,
        storage: Storage,
        observers: Sequence[RowObserver],
        traces_messages: bool,
        on_failure: FailureSink,
        log: LogSink | None,
        has_run_before: bool = False,
    ) -> None:
        """Be a new incarnation; of one that `has_run_before` no timer begins with the run."""
        super().__init__(
            name,
            incarnation,
            run_id=run_id,
            seed=seed,
            loop=loop,
            storage=storage,
            traces_messages=traces_messages and len(observers) > 0,
            carry=network.transmit,
        )
        self._loop = loop
        self._network = network
        self._clock = clock
        self._observers = observers
        self._on_failure = on_failure
        self._log = log
        self._has_run_before = has_run_before
        self._kept_steps: list[LoopHandle] = []
        """Steps of tasks that were about to be taken when the node was stopped."""

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

    def first_tick_us(self, timer: str, period_us: int) -> int:
        """Return a whole period, or a part of it if the node is as if it had run before."""
        if not self._has_run_before:
            return period_us
        return drawn_tick_us(self._seed, self.name, timer, period_us)

    # -- its loop -----------------------------------------------------------------------------

    def _post(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.post(callback, *args)

    def _failed(self, what: str, error: BaseException) -> None:
        self._on_failure(self, what, error)

    def _hold_steps(self) -> None:
        self._kept_steps += self._loop.withdraw(self._context)

    def _release_steps(self) -> None:
        steps, self._kept_steps = self._kept_steps, []
        for step in steps:
            self._loop.schedule(self._loop.current_us, step)

    def reset_links(
        self, peers: Sequence[NodeName], purposes: Sequence[str]
    ) -> tuple[CloseFrame, ...]:
        """End this end of all connections, of `purposes` if any are named, with one of `peers`.

        The node hears of it in this instant, or when it goes on. Returns one frame a connection.
        """
        closes = self.endpoint.resets(peers, purposes)
        if closes:
            self._loop.post(self.reset, closes)
        return closes

    # -- what is seen of it -------------------------------------------------------------------

    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and give it to the run's observers.

        Raises: HostDead, also when an observer ended this incarnation because of the row.
        """
        if not self.alive:
            raise self._dead()
        if not self._observers:
            return
        row = self._stamped(event, time_us=self._loop.current_us, node_time_us=self._clock.now_us())
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
        sent, unread = self.kernels_answers()
        self.retire()
        for frame in sent:
            self._network.transmit(frame)
        for frame in unread:
            # Nobody will read it: the kernel answers as it does for what comes from now on.
            self._network.arrive(frame)

    def _let_go(self) -> None:
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
