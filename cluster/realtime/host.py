"""RealHost: the Host of a node in real time, on a node process's asyncio loop.

BaseHost has the part of a host that is the same in virtual and in real time. RealHost adds the
clock of the run, timers, a file for trace rows and a file for log lines. A RealHost belongs to a
NodeProcess, the process in which the node runs, perhaps with other nodes. The NodeProcess carries
the messages of its nodes to other nodes.

An exception in a node's task or callback is reported as a failure. While a node is paused, its host
fires no timers and delivers no messages. A process whose only node is paused is stopped, too
(SIGSTOP).
"""

import asyncio
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVarTuple

from cluster.host.base_host import BaseHost
from cluster.host.frames import Frame
from cluster.host.host import HostDead, Timer
from cluster.host.incoming_request import AcceptedConnection, IncomingRequest
from cluster.realtime.clock import RunClock
from cluster.trace.files import FrameTraceWriter, frames_path
from partition_log.storage import Storage
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint
from protocol.trace import TraceEvent, TraceKind

Ts = TypeVarTuple("Ts")

TRACED_EXCEPTION_MAX = 8_000
"""Longest stack trace in a TASK_FAILED row, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings that all hosts of a run share.

    `token` is the secret that a process must know to connect to a process of the run. `machine_dir`
    is the folder for traces, logs and disks on this machine.
    """

    run_id: str
    seed: int
    token: str
    clock: RunClock
    machine_dir: Path
    trace_messages: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCallbacks:
    """Functions of the process that a host calls."""

    send_frame: Callable[[Frame], None]
    """Sends a frame; it never calls the host back before it returns."""
    traced: Callable[["RealHost"], None]
    """Called after each traced row. The process must write the row in the loop's next turn."""
    failed: Callable[[str, BaseException], None]
    """Called when a task has failed, with a line of text and the exception."""
    serving: Callable[["RealHost"], None]
    """Called when the node is ready for connections."""


class _HostTimer:
    """A pending call of RealHost.after. A call that is due during a pause is made after it."""

    __slots__ = ("_args", "_fn", "_handle", "_host")

    def __init__(
        self, host: "RealHost", fn: Callable[..., None], args: tuple[object, ...], delay_us: int
    ) -> None:
        self._host = host
        self._fn: Callable[..., None] | None = fn
        """The function to call; None once it was called or cancelled."""
        self._args = args
        # None once the timer has fired or was cancelled. Otherwise timer and handle would refer to
        # each other, and only the garbage collector could free them.
        self._handle: asyncio.Handle | None = host.schedule(delay_us, self._due)

    def cancel(self) -> None:
        """Cancel the call, even if it is due and waits for the end of a pause."""
        self._fn = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def fire(self) -> None:
        """Call the function, unless the timer was cancelled.

        This method is called when the timer is due, or at the end of a pause.
        """
        fn, self._fn = self._fn, None
        if fn is not None:
            self._host.run_callback(fn, *self._args)

    def _due(self) -> None:
        """Make the call at its time; while the host is paused, let the host keep the timer."""
        self._handle = None
        if self._host.fires_timers:
            self.fire()
        else:
            self._host.keep_timer(self)


class RealHost(BaseHost):
    """One incarnation in real time; a NodeProcess creates and ends it on its loop."""

    def __init__(
        self,
        name: NodeName,
        incarnation: Incarnation,
        *,
        settings: RunSettings,
        storage: Storage,
        callbacks: HostCallbacks,
        listeners: tuple[BrokerEndpoint, ...] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(
            name,
            incarnation,
            run_id=settings.run_id,
            seed=settings.seed,
            loop=self._loop,
            storage=storage,
            traces_messages=settings.trace_messages,
            carry=callbacks.send_frame,
        )
        self.listeners = listeners
        self._clock = settings.clock
        self._callbacks = callbacks
        self._trace = FrameTraceWriter(
            frames_path(settings.machine_dir / "trace", name, incarnation)
        )
        log_path = settings.machine_dir / "logs" / f"{name}-{incarnation}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def serve(
        self,
        handler: Callable[[IncomingRequest], None],
        *,
        on_end: Callable[[AcceptedConnection], None] | None = None,
    ) -> None:
        """Accept connections from nodes, and from Kafka clients if the node has a listener."""
        super().serve(handler, on_end=on_end)
        self._callbacks.serving(self)

    def now_us(self) -> int:
        """Return the run's time; in real time a node's clock has no drift of its own."""
        return self._clock.now_us()

    def wall_us(self) -> int:
        """Return the run's wall clock."""
        return self._clock.wall_us()

    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> Timer:
        """Call `fn(*args)` after `delay_us`, unless it is cancelled or the incarnation ends."""
        if not self.alive:
            raise self._dead()
        return _HostTimer(self, fn, args, delay_us)

    def schedule(self, delay_us: int, fn: Callable[[], None]) -> asyncio.Handle:
        """Call `fn` after `delay_us`, even while the host is paused."""
        if delay_us <= 0:
            return self._loop.call_soon(fn)
        return self._loop.call_later(self._clock.real_seconds(delay_us), fn)

    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and write it to the trace file, which the process flushes soon."""
        if not self.alive:
            raise self._dead()
        # A node has no clock of its own in real time, so both times of the row are the same.
        now_us = self._clock.now_us()
        self._trace.write(self._stamped(event, time_us=now_us, node_time_us=now_us))
        self._callbacks.traced(self)

    def log(self, message: str) -> None:
        """Write a line to `logs/<node>-<incarnation>.log`."""
        if not self.alive:
            raise self._dead()
        # `os.write` has no buffer, so the line is in the file even if the process is killed next.
        os.write(self._log_file, f"{self._clock.now_us() / 1e6:12.6f} {message}\n".encode())

    def flush(self) -> None:
        """Write the rows traced so far to the page cache. Raises: OSError."""
        self._trace.flush()

    def pause(self) -> None:
        """Hold timers and frames from now on, and flush the trace. May be called twice.

        Steps of tasks that are already scheduled still run, as if the pause had come a moment
        later.
        Raises: OSError.
        """
        super().pause()
        self.flush()

    def run_callback(self, fn: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call `fn(*args)` for the node; an exception of it is a failure of the node."""
        if not self.alive:
            return
        try:
            fn(*args)
        except HostDead:
            pass  # the incarnation ended during the call
        except Exception as error:
            # Some callables have no name, for example a functools.partial.
            self.callback_failed(error, getattr(fn, "__qualname__", "callback"))

    # The methods below are called by BaseHost.
    def _post(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.call_soon(callback, *args)

    def _report_failure(self, what: str, error: BaseException) -> None:
        """Report that the task or callback `what` died: in the trace, the log and the process."""
        summary = f"{type(error).__name__}: {error}"
        self._callbacks.failed(f"{self.name}: {what} died with {summary}", error)
        stack_trace = "".join(traceback.format_exception(error))
        # The end is kept, because it has the exception itself.
        kept = stack_trace[-TRACED_EXCEPTION_MAX:]
        self.trace(TraceEvent(kind=TraceKind.TASK_FAILED, cause=what, detail={"exception": kept}))
        self.log(f"{what} died:\n{stack_trace}")

    def _free_resources(self) -> None:
        """Cancel the tasks, and close the files.

        The tasks' `finally` blocks run later. If one calls the host, the call raises HostDead.
        """
        for task in list(self._tasks):
            task.cancel()
        self._trace.close()
        os.close(self._log_file)
