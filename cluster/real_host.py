"""RealHost: the Host of a node in real time, on a node process's asyncio loop.

It knows clocks, timers, tasks, the trace file and the endpoint; what carries frames to other
nodes is the process's business (`process`). What dies in here is reported, never swallowed.
"""

import asyncio
import os
import traceback
from asyncio import Future
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVarTuple

from cluster.clock import RunClock
from cluster.connections import Endpoint
from cluster.frames import Frame
from cluster.host import Connection, Host, HostDead, IncomingRequest, Timer
from cluster.randomness import stream
from cluster.trace_files import FrameTraceWriter, frames_path
from partition_log.storage import Storage
from protocol.envelope import AnyResponse
from protocol.ids import Incarnation, NodeName, RequestId
from protocol.trace import TraceEvent, TraceKind, stamp

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What every host of a run shares. `machine_dir` holds traces, logs and disks."""

    run_id: str
    seed: int
    token: str
    clock: RunClock
    machine_dir: Path
    trace_messages: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCallbacks:
    """What a host asks of its process.

    `send_frame` never calls back at once. `traced` is called when there is something to flush.
    `failed` gets a line for people: the node's name and the exception.
    """

    send_frame: Callable[[Frame], None]
    traced: Callable[["RealHost"], None]
    failed: Callable[[str], None]


class RealHost(Host):
    """One incarnation in real time. Made, and ended, by a NodeProcess on its loop."""

    def __init__(
        self,
        name: NodeName,
        incarnation: Incarnation,
        *,
        settings: RunSettings,
        storage: Storage,
        callbacks: HostCallbacks,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.rng = stream(settings.seed, "node", name, incarnation)
        self.storage = storage
        self.traces_messages = settings.trace_messages
        self.alive = True
        self._run_id = settings.run_id
        self._clock = settings.clock
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, None]] = {}
        self._seq = 0
        self._trace = FrameTraceWriter(
            frames_path(settings.machine_dir / "trace", name, incarnation)
        )
        log_path = settings.machine_dir / "logs" / f"{name}-{incarnation}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.endpoint = Endpoint(self, self._send_frame)

    def now_us(self) -> int:
        """Return run time; a real node's clock does not drift."""
        return self._clock.now_us()

    def wall_us(self) -> int:
        """Return the run's wall clock."""
        return self._clock.wall_us()

    def after(self, delay_us: int, fn: Callable[[*Ts], None], *args: *Ts) -> Timer:
        """Call `fn(*args)` after `delay_us`, unless cancelled or the incarnation is over."""
        self._check_alive()
        if delay_us <= 0:
            return self._loop.call_soon(self.run_callback, fn, *args)
        return self._loop.call_later(
            self._clock.real_seconds(delay_us), self.run_callback, fn, *args
        )

    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us`."""
        woken = self.create_future()
        timer = self.after(delay_us, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def create_future(self) -> "Future[Any]":
        """Return a future of the loop."""
        self._check_alive()
        return self._loop.create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `coroutine` as a task of this incarnation; its death is reported."""
        if not self.alive:
            coroutine.close()
            self._check_alive()
        task = self._loop.create_task(self._watch(coroutine, name), name=f"{self.name}/{name}")
        self._tasks[task] = coroutine
        task.add_done_callback(self._forget_task)

    def connect(self, peer: NodeName, purpose: str, *, setup_timeout_us: int) -> Connection:
        """Open a connection to `peer`."""
        self._check_alive()
        return self.endpoint.connect(peer, purpose, setup_timeout_us=setup_timeout_us)

    def serve(self, handler: Callable[[IncomingRequest], None]) -> None:
        """Accept connections."""
        self._check_alive()
        self.endpoint.serve(handler)

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        self._check_alive()
        self.endpoint.reply(request_id, response)

    def trace(self, event: TraceEvent) -> None:
        """Stamp `event` and put it into the trace file, which is flushed in this loop turn."""
        self._check_alive()
        now_us = self._clock.now_us()
        self._trace.write(
            stamp(
                event,
                run=self._run_id,
                time_us=now_us,
                node_time_us=now_us,
                seq=self._seq,
                node=self.name,
                incarnation=self.incarnation,
            )
        )
        self._seq += 1
        self._callbacks.traced(self)

    def log(self, message: str) -> None:
        """Write a line to `logs/<node>-<incarnation>.log`."""
        self._check_alive()
        os.write(self._log_file, f"{self._clock.now_us() / 1e6:12.6f} {message}\n".encode())

    def flush(self) -> None:
        """Hand the rows traced so far to the page cache. Raises: OSError."""
        self._trace.flush()

    def deliver(self, frame: Frame) -> None:
        """Take a frame that arrived for this node."""
        self.run_callback(self.endpoint.deliver, frame)

    def peer_lost(self, peer: NodeName) -> None:
        """Take the death of the process that hosts `peer`."""
        self.run_callback(self.endpoint.peer_lost, peer)

    def run_callback(self, fn: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call `fn(*args)` on behalf of the node: what it raises is the node's failure."""
        if not self.alive:
            return
        try:
            fn(*args)
        except HostDead:
            pass
        except Exception as error:
            self.report_failure(getattr(fn, "__qualname__", "callback"), error)

    def report_failure(self, task: str, error: Exception) -> None:
        """Report that `task` died: in the trace, in the log and to the process."""
        summary = f"{type(error).__name__}: {error}"
        self._callbacks.failed(f"{self.name}: {task} died with {summary}")
        if self.alive:
            story = "".join(traceback.format_exception(error))
            self.trace(
                TraceEvent(
                    kind=TraceKind.TASK_FAILED, cause=task, detail={"exception": story[-8_000:]}
                )
            )
            self.log(f"{task} died:\n{story}")

    def end(self) -> None:
        """End the incarnation: from now on the host refuses everything.

        Its tasks are cancelled only after that, to be collected: their `finally` blocks meet
        HostDead before they can say anything to anybody.
        """
        if not self.alive:
            return
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self._trace.close()
        os.close(self._log_file)

    def _send_frame(self, frame: Frame) -> None:
        if self.alive:
            self._callbacks.send_frame(frame)

    def _check_alive(self) -> None:
        if not self.alive:
            raise HostDead(f"{self.name} incarnation {self.incarnation} is over")

    async def _watch(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await coroutine
        except HostDead:
            pass
        except asyncio.CancelledError:
            if self.alive:
                self.report_failure(name, RuntimeError("the task was cancelled"))
            raise
        except Exception as error:
            if self.alive:
                self.report_failure(name, error)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        # A task that was cancelled before its first step leaves a coroutine that nobody awaited.
        self._tasks.pop(task).close()


def _wake(future: "Future[Any]") -> None:
    if not future.done():
        future.set_result(None)
