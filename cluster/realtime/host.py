"""RealHost: the Host of a node in real time, on a node process's asyncio loop.

It knows clocks, timers, tasks, the trace file and the endpoint; what carries frames to other
nodes is the process's business (`process`). What dies in here is reported, never swallowed.

A host can be paused, alone or before its whole process is stopped (SIGSTOP): timers that come due
and frames that arrive wait. When it goes on, the timers fire first, then the frames are delivered
in the order in which they came: a zombie acts on its old beliefs before it hears the news.
"""

import asyncio
import os
import random
import traceback
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVarTuple

from cluster.host.connections import Endpoint
from cluster.host.frames import CloseFrame, Frame
from cluster.host.host import Connection, Host, HostDead, IncomingRequest, Timer
from cluster.host.randomness import stream
from cluster.links.gate import LinkGate
from cluster.links.rules import LinkRule
from cluster.realtime.clock import RunClock
from cluster.trace.files import FrameTraceWriter, frames_path
from partition_log.storage import Storage
from protocol.api import AnyResponse
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


class _HostTimer:
    """A pending call of RealHost.after; if it comes due during a pause it waits for its end."""

    __slots__ = ("_args", "_fn", "_handle", "_host")

    def __init__(
        self, host: "RealHost", fn: Callable[..., None], args: tuple[object, ...], delay_us: int
    ) -> None:
        self._host = host
        self._fn: Callable[..., None] | None = fn
        self._args = args
        # Invariant: None once it fired or was cancelled, or timer and handle would be a cycle.
        self._handle: asyncio.Handle | None = host.schedule(delay_us, self._due)

    def cancel(self) -> None:
        """Forget the call, also one that is due and waits."""
        self._fn = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def fire(self) -> None:
        """Call the function, unless it was cancelled."""
        fn, self._fn = self._fn, None
        if fn is not None:
            self._host.run_callback(fn, *self._args)

    def _due(self) -> None:
        self._handle = None
        if self._host.is_paused:
            self._host.hold_timer(self)
        else:
            self.fire()


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
        self.is_paused = False
        self._due_timers: list[_HostTimer] = []
        """Came due during the pause, in that order."""
        self._arrivals: list[Frame | NodeName] | None = None
        """What came during the pause and is not delivered yet: frames, and peers that were lost.

        None while frames are delivered at once.
        """
        self._released: list[Frame] = []
        """What link rules held before the pause and do not hold now: it goes before `_arrivals`."""
        self._resets: list[CloseFrame] = []
        """Connections that were reset during the pause: heard before what arrived."""
        self._gate: LinkGate | None = None
        """What carries out the link rules; None while none is about this node."""
        self._seed = settings.seed
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
        return _HostTimer(self, fn, args, delay_us)

    def schedule(self, delay_us: int, fn: Callable[[], None]) -> asyncio.Handle:
        """Have the loop call `fn` after `delay_us`, whether the host is paused or not."""
        if delay_us <= 0:
            return self._loop.call_soon(fn)
        return self._loop.call_later(self._clock.real_seconds(delay_us), fn)

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

    def connect(
        self, peer: NodeName, purpose: str, *, setup_timeout_us: int, client_id: str | None = None
    ) -> Connection:
        """Open a connection to `peer`."""
        self._check_alive()
        return self.endpoint.connect(
            peer, purpose, setup_timeout_us=setup_timeout_us, client_id=client_id
        )

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
        """Take a frame that arrived for this node: the receiver's side of its links."""
        if self._arrivals is not None:
            self._arrivals.append(frame)
        elif self._gate is None:
            self._take(frame)
        else:
            self.run_callback(self._gate.receive, frame)

    def peer_lost(self, peer: NodeName) -> None:
        """Take the death of the process that hosts `peer`."""
        if self._arrivals is not None:
            self._arrivals.append(peer)
        elif self._gate is None:
            self.run_callback(self.endpoint.peer_lost, peer)
        else:
            self.run_callback(self._gate.peer_lost, peer)

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace the link rules; those about other nodes are ignored."""
        gate = self._gate
        if gate is None:
            gate = LinkGate(
                self.name,
                self.endpoint,
                after=self.after,
                transmit=self._transmit,
                deliver=self._take,
                rng_for=self._rng_for_rule,
            )
        gate.set_rules(rules)
        self._gate = None if gate.is_idle else gate

    def reset(self, closes: Sequence[CloseFrame]) -> None:
        """End connections whatever the rules say; what is in flight or waits on them is lost.

        Shape: `closes` are Endpoint.resets', one for each connection.
        """
        if self._arrivals is not None:
            self._resets.extend(closes)
        elif self._gate is not None:
            self.run_callback(self._gate.reset, closes)
        else:
            for close in closes:
                self._take(close)

    def pause(self) -> None:
        """Hold timers and frames from now on, and flush the trace; twice does no harm.

        Task steps that the loop has ready still run, as if the stop came a moment later; whatever
        they wait for next is held. Raises: OSError.
        """
        self.is_paused = True
        if self._arrivals is None:
            self._arrivals = []
        self.flush()

    def resume(self) -> None:
        """Go on: due timers fire now, in order; then what they woke; then what arrived."""
        if not self.is_paused:
            return
        self.is_paused = False
        timers, self._due_timers = self._due_timers, []
        for timer in timers:
            timer.fire()
        self._loop.call_soon(self._deliver_arrivals)

    def hold_timer(self, timer: _HostTimer) -> None:
        """Keep a timer that came due during a pause."""
        self._due_timers.append(timer)

    def peers(self) -> tuple[NodeName, ...]:
        """Return every node that must hear of this incarnation's end."""
        unheard = () if self._gate is None else self._gate.unheard_peers()
        return tuple(dict.fromkeys((*self.endpoint.peers(), *unheard)))

    def half_open(self) -> tuple[CloseFrame, ...]:
        """Return the end of each connection that was accepted and whose client has not heard."""
        return () if self._gate is None else self._gate.half_open()

    def unread_frames(self) -> tuple[Frame, ...]:
        """Return the frames that arrived during a pause and were not delivered."""
        arrived = (item for item in self._arrivals or () if not isinstance(item, str))
        return (*self._released, *arrived)

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
        self._gate = None
        self._due_timers.clear()
        for task in list(self._tasks):
            task.cancel()
        self._trace.close()
        os.close(self._log_file)

    def _deliver_arrivals(self) -> None:
        if self.is_paused or self._arrivals is None:
            return  # paused again: the next resume comes back here
        arrivals, self._arrivals = self._arrivals, None
        released, self._released = self._released, []
        resets, self._resets = self._resets, []
        self.reset(resets)
        for frame in released:
            self._take(frame)
        for item in arrivals:
            if isinstance(item, str):
                self.peer_lost(item)
            else:
                self.deliver(item)

    def _take(self, frame: Frame) -> None:
        """Give a frame to the endpoint; one that the gate lets go of during a pause waits."""
        if self._arrivals is None:
            self.run_callback(self.endpoint.deliver, frame)
        else:
            self._released.append(frame)

    def _send_frame(self, frame: Frame) -> None:
        """Take a frame of the endpoint: the sender's side of its links."""
        if self._gate is None:
            self._transmit(frame)
        else:
            self._gate.send(frame)

    def _transmit(self, frame: Frame) -> None:
        if self.alive:
            self._callbacks.send_frame(frame)

    def _rng_for_rule(self, rule_id: str) -> random.Random:
        return stream(self._seed, "slow", rule_id, self.name, self.incarnation)

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
