"""Host of one incarnation in virtual time: clocks, timers, and the end of the incarnation.

`BaseHost` has the part of a host that is the same in virtual and in real time. An incarnation is
one life of a node. When it has ended, its coroutines take no further step, but they still exist;
`dispose` frees them when the run is over.
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
from cluster.virtual.starts import draw_first_tick_us
from partition_log.storage import Storage
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent

Ts = TypeVarTuple("Ts")

MAX_CLOSE_ATTEMPTS = 100
"""`dispose` gives up a coroutine whose cleanup awaits something more often than this."""

FailureSink = Callable[["VirtualHost", str, BaseException], None]
"""Takes (host, name of the task or callback, exception); raises to stop the run."""
LogSink = Callable[[int, NodeName, str], None]
"""Takes (run time in us, node, line)."""


class HostTimer(LoopTimer):
    """A pending call of VirtualHost.after.

    A paused host keeps the call for later; a dead host never makes the call.
    """

    __slots__ = ("_due_us", "_host")

    def __init__(
        self,
        host: "VirtualHost",
        callback: Callable[..., object],
        args: tuple[object, ...],
        due_us: int,
    ) -> None:
        # The fields of LoopTimer are set here, because super().__init__ would cost time.
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._host = host
        self._due_us = due_us

    @property
    def remaining_us(self) -> int:
        """Microseconds of run time until the call; negative if a paused host keeps the call."""
        return self._due_us - self._host._loop.current_us

    def _run(self) -> None:
        """Make the call at its time; while the host is paused, let the host keep the timer."""
        host = self._host
        if not host.fires_timers:
            host.keep_timer(self)  # does nothing if the host is dead
            return
        try:
            self._callback(*self._args)
        except Exception as error:
            host.callback_failed(error)

    def fire(self) -> None:
        """Make a call that was due while the host was paused, unless it was cancelled meanwhile."""
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
        """Create the host.

        If `has_run_before` is True, the node acts as if it had run for long: each of its periodic
        timers ticks first after a random part of its period. Otherwise the timers of all nodes
        would tick at the same moments, which does not happen in a real cluster.
        """
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
        """The steps for which tasks were ready when the node was paused; they run at `resume`."""

    # -- clocks and timers --------------------------------------------------------------------

    def now_us(self) -> int:
        """Return this node's monotonic clock in microseconds."""
        if not self.alive:
            raise self._dead()
        # Without drift this is the loop's time, which is read directly because nodes ask often.
        return self._clock.now_us() if self._clock.has_drifted else self._loop.current_us

    def wall_us(self) -> int:
        """Return microseconds since the epoch on this node's wall clock."""
        if not self.alive:
            raise self._dead()
        return self._clock.wall_us()

    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> HostTimer:
        """Call `fn(*args)` after `delay_us`, unless it is cancelled or the incarnation ends."""
        if not self.alive:
            raise self._dead()
        loop = self._loop
        due_us = loop.current_us + self._clock.run_delay_us(delay_us)
        timer = HostTimer(self, fn, args, due_us)
        loop.schedule(due_us, timer)
        return timer

    def first_tick_us(self, timer: str, period_us: int) -> int:
        """Return `period_us`, or a random part of it if the node counts as having run before."""
        if not self._has_run_before:
            return period_us
        return draw_first_tick_us(self._seed, self.name, timer, period_us)

    # -- loop: the methods with an underscore are called by BaseHost --------------------------

    def _post(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.post(callback, *args)

    def _report_failure(self, what: str, error: BaseException) -> None:
        self._on_failure(self, what, error)

    def _hold_steps(self) -> None:
        """Take the steps of this host's tasks out of the loop, and keep them."""
        # The loop finds the steps of this host's tasks by their context.
        self._kept_steps += self._loop.withdraw(self._context)

    def _release_steps(self) -> None:
        """Schedule the kept steps for the present time, at the end of a pause."""
        steps, self._kept_steps = self._kept_steps, []
        for step in steps:
            self._loop.schedule(self._loop.current_us, step)

    def reset_links(
        self, peers: Sequence[NodeName], purposes: Sequence[str]
    ) -> tuple[CloseFrame, ...]:
        """Close this host's end of each of its connections with one of `peers`.

        If `purposes` is not empty, only connections with these purposes are closed. Returns one
        close frame for each connection.

        The caller may be a callback of this node. So the connections end only after the present
        callback or, if the node is paused, when the node resumes.
        """
        closes = self.endpoint.close_frames_of_reset(peers, purposes)
        if closes:
            self._loop.post(self.reset, closes)
        return closes

    # -- trace and log ------------------------------------------------------------------------

    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and pass the row to the run's observers.

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

    # -- end ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """End the incarnation as `kill -9` does: the process sends nothing, but its kernel does.

        This may be called inside a callback of this node. If the rest of the callback calls the
        host, the call raises HostDead.
        """
        if not self.alive:
            return
        # The frames that the kernel sends, and the frames that the process has not read.
        sent, unread = self.kernel_frames()
        self.retire()
        for frame in sent:
            self._network.transmit(frame)
        for frame in unread:
            # The host is dead now, so the network answers these frames like all frames to a dead
            # node.
            self._network.arrive(frame)

    def _free_resources(self) -> None:
        """Leave the network, and cancel every step that a task of this host would still take."""
        self._network.detach(self)
        # Cancel the steps that this host's tasks are about to take.
        self._loop.discard(self._context)
        # If the running callback is one of this node, it may still wake tasks. So the steps are
        # cancelled once more when the callback has ended.
        self._loop.post(self._loop.discard, self._context)

    def dispose(self) -> None:
        """Close the coroutines of a dead incarnation, when the run is over.

        Their `finally` blocks run now, and get HostDead from every call of the host. Otherwise the
        garbage collector would run them at some other moment, which differs from run to run.
        """
        for task in self._tasks:
            # Otherwise asyncio would log "Task was destroyed but it is pending" for each task.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close_coroutine(task.get_coro())
        self._tasks.clear()


def _close_coroutine(coroutine: Any) -> None:  # noqa: ANN401  # typeshed: a generator or a coroutine
    """Run the cleanup of a coroutine that will never be resumed."""
    for _ in range(MAX_CLOSE_ATTEMPTS):
        try:
            coroutine.close()
        except RuntimeError:
            # A `finally` block awaits something. The next `close` ends this await.
            continue
        except Exception:  # most often HostDead, raised by the cleanup code of the dead node
            return
        return
