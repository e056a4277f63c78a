"""VirtualRuntime: a whole cluster in one process, in virtual time, from a seed.

Owns the loop, the network, the driver's rows and the tool's own failures; `lives` has the nodes. It
must not know what a fault, a plan or a verdict is. Rows go to the observers in the order in which
they happen.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from cluster.host.host import Host
from cluster.host.randomness import stream
from cluster.links.rules import LinkRule
from cluster.node_factory import Node, build_node
from cluster.runtime import (
    ClusterStartError,
    ClusterStatus,
    HitNode,
    NodeTaskFailed,
    RowObserver,
    Runtime,
)
from cluster.spec import ClusterSpec
from cluster.virtual.host import LogSink, VirtualHost
from cluster.virtual.lives import Machine, NodeBuilder, NodeLives
from cluster.virtual.loop import Deadlock, VirtualLoop
from cluster.virtual.network import VirtualNetwork
from cluster.virtual.tripwires import tripwires
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent, TraceKind, stamp

P = ParamSpec("P")
T = TypeVar("T")

DRIVER = NodeName("driver")


class VirtualRuntime(Runtime):
    """A cluster in virtual time. One object is one run."""

    name = "virtual"

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        seed: int,
        run_id: str,
        observers: Sequence[RowObserver] = (),
        trace_messages: bool = True,
        copy_messages: bool = False,
        log: LogSink | None = None,
        build: NodeBuilder = build_node,
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._run_id = run_id
        self._observers = tuple(observers)
        self._trace_messages = trace_messages
        self._log = log
        self._loop = VirtualLoop()
        self._network = VirtualNetwork(
            self._loop,
            seed=seed,
            model=spec.links,
            racks={broker.name: broker.rack for broker in spec.brokers},
            copy_messages=copy_messages,
        )
        self._lives = NodeLives(
            spec, self._loop, build=build, new_host=self._new_host, trace=self.trace
        )
        self._failures: list[str] = []
        self._driver_rows = 0

    def now_us(self) -> int:
        """Return the run's undrifted clock: microseconds since the run began."""
        return self._loop.now_us()

    @property
    def events_run(self) -> int:
        """Callbacks of the loop so far: frames, timers and steps of tasks."""
        return self._loop.events_run

    def requests_arrived(self) -> dict[str, int]:
        """Return how many requests reached a node that was up, by Kafka's name of the API."""
        arrived = self._network.requests_arrived
        return {api_key.label: arrived[api_key] for api_key in sorted(arrived)}

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        When the run is interrupted or breaks, `main` is cancelled and its cleanup runs before
        this raises; a second Ctrl-C cuts that short.
        Raises: what `main` raises; NodeTaskFailed when a node's task died, of a tripwire too
            (`tripwires`); Deadlock; KeyboardInterrupt after a Ctrl-C.
        """
        task = self._loop.create_task(main, name="main")
        with self._interruptible(), tripwires():
            try:
                return self._loop.run_until_complete(task)
            except (KeyboardInterrupt, NodeTaskFailed, Deadlock):
                self._cancel(task)
                raise

    async def sleep(self, delay_us: int) -> None:
        """Wait on the run's clock."""
        future = self._loop.create_future()
        self._loop.call_at_us(self._loop.now_us() + delay_us, _wake, future)
        await future

    async def start(self) -> None:
        """Start every node that is there from the beginning, in order.

        Raises: ClusterStartError if a node cannot be started; whatever was started is stopped.
        """
        for name in self._lives.names_to_start():
            try:
                self._lives.start(name)
            except Exception as error:
                await self.stop()
                raise ClusterStartError(f"{name} could not be started: {error!r}") from error

    async def status(self) -> ClusterStatus:
        """Look at the cluster: every live node that is not paused says what it knows."""
        return self.status_now()

    def status_now(self) -> ClusterStatus:
        """Look at the cluster, also from inside a callback."""
        status = ClusterStatus()
        self._lives.report(status)
        return status

    def at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call `callback` before anything else that happens at `time_us`.

        For looking on: the run stays the same as long as the callback changes nothing of it. A
        KeyboardInterrupt that it raises ends the run there, as a Ctrl-C does.
        """
        self._loop.call_at_us(time_us, callback)

    def node(self, name: NodeName) -> Node | None:
        """Return the node that is up under this name, for debugging; None while it is down.

        Raises: UnknownNode if there is no such node.
        """
        return self._lives.node(name)

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`.

        Raises: UnknownNode if there is no such node, or it was started before.
        """
        self._lives.start(node)

    async def crash(self, node: NodeName) -> HitNode:
        """Kill the node's process as `kill -9` does; its disk keeps what was appended.

        Raises: UnknownNode if there is no such node, or it is not alive.
        """
        return self._lives.kill(node)

    def crash_now(self, node: NodeName) -> HitNode:
        """Kill a node, also from inside a callback: an observer, or the node itself."""
        return self._lives.kill(node)

    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process and cut its logs back to what was flushed.

        Its peers see their connections reset, as after a crash, unless link rules keep it from
        them: a machine without power says nothing until it is back.
        Raises: UnknownNode if there is no such node, or it is not alive.
        """
        return self._lives.kill(node, loses_power=True)

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop as SIGTERM does; it begins in this instant.

        Raises: UnknownNode if there is no such node, or it is not up; a paused one cannot answer.
        """
        return self._lives.shut_down(node)

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation.

        Raises: UnknownNode if there is no such node, or it is running, or it never was.
        """
        self._lives.restart(node, empty_disk=empty_disk)

    async def pause(self, node: NodeName) -> HitNode:
        """Stop the node as SIGSTOP does; its clocks go on.

        Raises: UnknownNode if there is no such node, or it is not running.
        """
        return self._lives.pause(node)

    async def resume(self, node: NodeName) -> None:
        """Let a paused node go on: first its due timers fire, then what waited is delivered.

        Raises: UnknownNode if there is no such node, or it is not paused.
        """
        self._lives.resume(node)

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules, at this instant on every node."""
        self._lives.set_link_rules(rules)

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections between the two sets of nodes; both ends hear it in this instant.

        Raises: UnknownNode if a name is no node's.
        """
        return self._lives.reset_links(sources, destinations, purposes)

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Ask or order something with the administrator's host. Raises: what `question` raises."""
        return await question(self._lives.admin(), self._spec, *args, **kwargs)

    def admin_host(self) -> Host:
        """Return the administrator's host, to ask with beside what runs; also from a callback."""
        return self._lives.admin()

    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself (node "driver")."""
        if not self._observers:
            return
        now_us = self._loop.now_us()
        row = stamp(
            event,
            run=self._run_id,
            time_us=now_us,
            node_time_us=now_us,
            seq=self._driver_rows,
            node=DRIVER,
            incarnation=0,
        )
        self._driver_rows += 1
        for observer in self._observers:
            observer(row)

    async def stop(self) -> None:
        """Stop every node. May be called twice, and after errors."""
        self._lives.stop_all()

    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far."""
        return tuple(self._failures)

    def _new_host(self, machine: Machine, incarnation: Incarnation) -> VirtualHost:
        name = machine.name
        host = VirtualHost(
            name=name,
            incarnation=incarnation,
            run_id=self._run_id,
            loop=self._loop,
            network=self._network,
            clock=machine.clock,
            rng=stream(self._seed, "node", name, incarnation),
            gate_rng_for=lambda rule_id: stream(self._seed, "slow", rule_id, name, incarnation),
            storage=machine.storage,
            observers=self._observers,
            traces_messages=self._trace_messages,
            on_failure=self._node_failed,
            log=self._log,
        )
        self._network.attach(host)
        return host

    def _node_failed(self, host: VirtualHost, what: str, error: BaseException) -> None:
        failure = f"{host.name} incarnation {host.incarnation}: {what} died: {error!r}"
        self._failures.append(failure)
        host.trace(TraceEvent(kind=TraceKind.TASK_FAILED, detail={"exception": failure}))
        raise NodeTaskFailed(failure) from error

    def _cancel(self, task: "asyncio.Task[Any]") -> None:
        """End an unfinished main: whatever else breaks meanwhile is in `failures`."""
        task.cancel()
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except NodeTaskFailed:
                continue
            except asyncio.CancelledError:
                return
            except Exception as error:  # the reason why main was cancelled is raised, not this
                self._failures.append(f"cleanup after a broken run: {error!r}")
                return

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Turn Ctrl-C into KeyboardInterrupt between two callbacks of the loop."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return
        signal.signal(signal.SIGINT, lambda _signal, _frame: self._loop.interrupt())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
