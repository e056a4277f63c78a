"""VirtualLoop: an asyncio event loop whose clock jumps to the next event.

Time is a number of microseconds. When nothing is left to do, the clock jumps to the time of the
next timer. Callbacks with the same time run in the order in which they were scheduled: first the
timers that were set for this time, then what was scheduled at this time. So a run with the same
callbacks is always the same.

Tasks and futures of asyncio use asyncio's methods, such as `call_soon` and `call_later`. Messages
and timers of nodes use cheaper methods, such as `post` and `call_at_us`. There are no sockets,
threads and subprocesses: these methods raise NotImplementedError.

An exception in a callback is never logged and forgotten, as asyncio does; it ends the run.

We tried a subclass of asyncio.BaseEventLoop instead. It has only 0.3 of the speed, and does not
keep the order of callbacks with the same time.
"""

import asyncio
import contextvars
import logging
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from cluster.virtual.loop_timer import LoopTimer

if TYPE_CHECKING:
    # Type checkers treat the methods that raise NotImplementedError as abstract and refuse to
    # create the loop. BaseEventLoop declares these methods. Nothing is inherited from it.
    from asyncio import BaseEventLoop as _LoopInterface
else:
    from asyncio import AbstractEventLoop as _LoopInterface

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_EVENTS_PER_INSTANT = 1_000_000
"""If more callbacks than this run while the time stands still, the run has an endless loop."""
NEVER = 2**62
"""A number of events that no run reaches."""
COMPACT_ABOVE = 1_000
"""When the heap has more entries than this, cancelled timers are removed from it.

Afterwards the limit is twice the number of entries that are left, but at least COMPACT_ABOVE.
"""


class Deadlock(RuntimeError):
    """The awaited future is not done, but there is no callback or timer that could complete it."""


class InstantNeverEnds(RuntimeError):
    """Too many callbacks have run while the time stood still."""


class LoopHandle(asyncio.TimerHandle):
    """asyncio's handle, except that `_run` does not catch the callback's exceptions."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context | None,
        when_us: int,
    ) -> None:
        # super().__init__ is not called, because it would take as long again.
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._when = when_us / 1e6

    def __repr__(self) -> str:
        return f"<LoopHandle {self._callback!r} at {self._when} s>"

    def cancel(self) -> None:
        """Cancel the call."""
        self._cancelled = True
        self._args = ()

    def _run(self) -> None:
        self._context.run(self._callback, *self._args)


_Entry = tuple[Callable[..., object], tuple[object, ...]] | tuple[LoopTimer | LoopHandle, None]
"""A callback and its arguments; or a handle, which may be cancelled, and None."""


class VirtualLoop(_LoopInterface):
    """An event loop in virtual time: one thread, no input or output, first in first out.

    Timers for later times are in `_heap`. Callbacks for the present time are in `_ready`.
    """

    def __init__(self, *, max_events_per_instant: int = MAX_EVENTS_PER_INSTANT) -> None:
        self.current_us = 0
        """The present time; cheaper to read than by `now_us`. Only the loop writes it."""
        self._sequence = 0
        self._ready: deque[Any] = deque()
        """Entries (_Entry) that are to run at the present time."""
        self._heap: list[tuple[int, int, Any, Any]] = []
        """(when_us, sequence, *_Entry). The sequence number keeps the order of equal times."""
        self._compact_above = COMPACT_ABOVE
        self._max_events_per_instant = max_events_per_instant
        self._stopping = False
        self._awaited: asyncio.Future[Any] | None = None
        """The future for which `run_until_complete` runs; None otherwise."""
        self._interrupted = False
        """True from `interrupt` until `run_*` raises KeyboardInterrupt."""
        self._running = False
        self._closed = False
        self.events_run = 0
        """Number of callbacks so far."""
        self._check: Callable[[], object] | None = None
        self._check_every = 0
        self._next_check_at = NEVER
        """Value of `events_run` at which the next check is due."""

    # -- the interface for frames and timers --------------------------------------------------

    def now_us(self) -> int:
        """Return microseconds of virtual time since the loop was made."""
        return self.current_us

    def post(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call `callback(*args)` at this instant, after everything that is ready."""
        self._ready.append((callback, args))

    def post_at(self, when_us: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call `callback(*args)` at `when_us`, or at this instant if `when_us` has passed."""
        if when_us <= self.current_us:
            self._ready.append((callback, args))
        else:
            self._sequence += 1
            heappush(self._heap, (when_us, self._sequence, callback, args))

    def call_at_us(self, when_us: int, callback: Callable[[*Ts], object], *args: *Ts) -> LoopTimer:
        """Call `callback(*args)` at `when_us` as `post_at` does, unless cancelled before."""
        timer = LoopTimer(callback, args)
        self.schedule(when_us, timer)
        return timer

    def schedule(self, when_us: int, handle: LoopTimer | LoopHandle) -> None:
        """Run `handle` at `when_us`, or at this instant if `when_us` has passed."""
        if when_us <= self.current_us:
            self._ready.append((handle, None))
        else:
            self._sequence += 1
            heappush(self._heap, (when_us, self._sequence, handle, None))
            if len(self._heap) > self._compact_above:
                self._compact()

    def check_every(self, events: int, check: Callable[[], object]) -> None:
        """Call `check` after every `events` callbacks, or a little later.

        The check is only made when all callbacks that are ready have run. If the check raises an
        exception, the run ends with this exception.
        """
        self._check, self._check_every = check, events
        self._next_check_at = self.events_run + events

    def check_soon(self) -> None:
        """Call the check of `check_every` as soon as the callbacks that are ready now have run."""
        if self._check is not None:
            self._next_check_at = self.events_run

    def discard(self, context: contextvars.Context) -> None:
        """Cancel every ready callback that would run in `context`.

        All tasks of a node share one context. When the node dies, this prevents the steps that its
        tasks would still take.
        """
        for handle, args in self._ready:
            if args is None and isinstance(handle, LoopHandle) and handle._context is context:
                handle.cancel()

    def withdraw(self, context: contextvars.Context) -> list[LoopHandle]:
        """Remove every ready callback that would run in `context`, and return them in order.

        When a node is paused, its tasks must not take the steps for which they are ready. When it
        resumes, these callbacks are given to `schedule`.
        """
        taken: list[LoopHandle] = []
        for handle, args in self._ready:
            if args is None and isinstance(handle, LoopHandle) and handle._context is context:
                if not handle._cancelled:
                    # A new handle, because `cancel` below clears the arguments of this handle.
                    arguments = tuple(handle._args)
                    taken.append(LoopHandle(handle._callback, arguments, context, self.current_us))
                # The old entry stays in the queue, because `_turn` has counted the entries already.
                handle.cancel()
        return taken

    # -- asyncio's interface ----------------------------------------------------------------

    def time(self) -> float:
        """Return seconds of virtual time since the loop was made."""
        return self.current_us / 1e6

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call `callback(*args)` at this instant, after everything that is ready."""
        handle = LoopHandle(callback, args, context, self.current_us)
        self._ready.append((handle, None))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback(*args)` after `delay` seconds, rounded to a microsecond."""
        when_us = self.current_us + round(delay * 1e6)
        handle = LoopHandle(callback, args, context, when_us)
        self.schedule(when_us, handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback(*args)` at `when` seconds, rounded to a microsecond."""
        when_us = round(when * 1e6)
        handle = LoopHandle(callback, args, context, when_us)
        self.schedule(when_us, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        """Run a coroutine as a task.

        The default name is `task`. The default name of asyncio has a number, which counts the tasks
        of all loops of the process and so differs from run to run.
        """
        return asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)

    # -- running ----------------------------------------------------------------------------

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until `future` is done and return its result.

        Raises: exceptions of the future or of a callback; Deadlock; InstantNeverEnds;
            KeyboardInterrupt. The loop may be run again after any of them: all scheduled callbacks
            are kept.
        """
        # typeshed's ensure_future does not accept generators, although typeshed's loops do.
        task = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        self._awaited = task
        task.add_done_callback(self._stop_when_done)
        try:
            self._run(until_us=None)
        except BaseException:
            if task.done() and not task.cancelled():
                # The call marks the task's exception as seen; asyncio would log an unseen one.
                task.exception()
            raise
        finally:
            task.remove_done_callback(self._stop_when_done)
            self._awaited = None
        if not task.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return task.result()

    def run_until_us(self, until_us: int) -> None:
        """Run all callbacks due at or before `until_us`, and leave the clock at `until_us`.

        Raises: exceptions of a callback, InstantNeverEnds; never Deadlock.
        """
        self._run(until_us=until_us)

    def run_forever(self) -> None:
        """Run until `stop` is called.

        Raises: exceptions of a callback; Deadlock; InstantNeverEnds; KeyboardInterrupt.
        """
        self._run(until_us=None)

    def stop(self) -> None:
        """Leave the running `run_*` once what is ready now has run."""
        self._stopping = True

    def interrupt(self) -> None:
        """Make the running `run_*` raise KeyboardInterrupt between two callbacks.

        A signal handler calls this. Python's own KeyboardInterrupt could come in the middle of a
        callback, and leave a node half changed. A second call, before the first has had an effect,
        does raise at once, because the running callback may never end.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        self._stopping = True

    def is_running(self) -> bool:
        """Return True while some `run_*` is active."""
        return self._running

    def is_closed(self) -> bool:
        """Return True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Forget all scheduled callbacks."""
        if self._running:
            raise RuntimeError("a running loop cannot be closed")
        self._ready.clear()
        self._heap.clear()
        self._closed = True

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode reads the real clock."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: the loop does not track asynchronous generators."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: the loop has no executor."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what asyncio reports when an object with an unseen exception is collected."""
        logging.getLogger("asyncio").error(
            "%s", context.get("message"), exc_info=context.get("exception")
        )

    def _stop_when_done(self, future: "asyncio.Future[Any]") -> None:
        # If an exception has ended the run, this call may come only in the next run, which waits
        # for another future.
        if future is self._awaited:
            self._stopping = True

    def _run(self, *, until_us: int | None) -> None:
        """Run callbacks as this thread's running loop; None means without a time limit."""
        if self._closed:
            raise RuntimeError("the loop is closed")
        if events._get_running_loop() is not None:
            raise RuntimeError("another event loop is running in this thread")
        self._running = True
        self._stopping = False
        events._set_running_loop(self)
        try:
            self._turn(until_us)
            if self._interrupted:
                raise KeyboardInterrupt
        finally:
            self._interrupted = False
            self._running = False
            events._set_running_loop(None)

    def _turn(self, until_us: int | None) -> None:
        """Run callbacks until `stop`, `until_us` or a deadlock.

        The method repeats:
        1. If callbacks are ready, run all of them, as one round.
        2. Otherwise advance the clock to the next timer, and run that timer. If several timers have
           this instant, make all of them ready instead.
        """
        ready, heap = self._ready, self._heap
        next_ready = ready.popleft
        allowed = self._max_events_per_instant
        while not self._stopping:
            if self.events_run >= self._next_check_at and self._check is not None:
                self._next_check_at = self.events_run + self._check_every
                self._check()
            if ready:
                # What these callbacks schedule for now runs in the next round.
                count = len(ready)
                self.events_run += count
                allowed -= count
                if allowed < 0:
                    raise self._instant_never_ends()
                for _ in range(count):
                    callback, args = next_ready()
                    if args is not None:
                        callback(*args)
                    elif not callback._cancelled:
                        callback._run()
                continue
            if not heap:
                if until_us is None:
                    raise Deadlock(
                        f"at {self.current_us} us nothing is ready and no timer is armed"
                    )
                break
            entry = heappop(heap)
            when_us, _, callback, args = entry
            if args is None and callback._cancelled:
                continue  # the clock does not move: a cancelled timer is no event
            if until_us is not None and when_us > until_us:
                heappush(heap, entry)  # a later run makes this call
                break
            self.current_us = when_us
            allowed = self._max_events_per_instant
            if heap and heap[0][0] == when_us:
                # Several timers have this time. They must all run before anything that the first of
                # them schedules, so they go into the queue.
                ready.append((callback, args))
                while heap and heap[0][0] == when_us:
                    ready.append(heappop(heap)[2:])
                continue
            self.events_run += 1
            if args is not None:
                callback(*args)
            else:
                callback._run()
        if until_us is not None and not self._stopping:
            # The clock never goes back, even if `until_us` had passed before.
            self.current_us = max(self.current_us, until_us)

    def _compact(self) -> None:
        """Remove cancelled timers from the heap.

        Most timers are timeouts that are cancelled long before their time. If they stayed, nine
        tenths of the heap would be cancelled timers, and each push and pop would take longer.
        """
        # The list is changed in place, because `_turn` has a reference to it. The order of the
        # timers stays, because it depends only on (when_us, sequence). In an entry, e[2] is a
        # callback or a handle; only for a handle, which may be cancelled, e[3] is None.
        self._heap[:] = [e for e in self._heap if e[3] is not None or not e[2]._cancelled]
        heapify(self._heap)
        self._compact_above = max(COMPACT_ABOVE, 2 * len(self._heap))

    def _instant_never_ends(self) -> InstantNeverEnds:
        """Return the exception, which names the callback that would run next."""
        callback, args = self._ready[0]
        function = callback if args is not None else callback._callback
        name = getattr(function, "__qualname__", type(function).__name__)
        return InstantNeverEnds(
            f"more than {self._max_events_per_instant} events at {self.current_us} us;"
            f" next is {name}"
        )
