"""VirtualRuntime: a whole cluster in one process, in virtual time, from a seed.

Owns the nodes' lives (start, crash, restart, stop), the order of trace rows and the tool's own
failures. It must not know what a fault, a plan or a verdict is. Rows go to the observers in the
order in which they happen.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from cluster.client.admin import fetch_committed_offsets
from cluster.host import Host
from cluster.link_rules import LinkRule
from cluster.loop import Deadlock, VirtualLoop
from cluster.nodes import Node, build_node, node_specs
from cluster.randomness import stream
from cluster.runtime import (
    ClusterStartError,
    ClusterStatus,
    HitNode,
    NodeTaskFailed,
    RowObserver,
    Runtime,
    UnknownNode,
)
from cluster.spec import BrokerSpec, ClusterSpec, NodeSpec, role_of
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import LogSink, VirtualHost
from cluster.virtual.network import VirtualNetwork
from partition_log.memory_storage import MemoryStorage
from protocol.ids import BrokerId, Incarnation, NodeName, Offset, TopicPartition
from protocol.trace import TraceEvent, TraceKind, stamp

T = TypeVar("T")

DRIVER = NodeName("driver")
ADMIN = NodeName("admin-0")

NodeBuilder = Callable[[NodeSpec, ClusterSpec, Host], Node]


class _Machine:
    """What outlives the incarnations of one node: its disk, its clock, and how often it lived."""

    def __init__(self, spec: NodeSpec | None, loop: VirtualLoop) -> None:
        self.spec = spec
        """None for a client that the runtime itself runs (admin-0)."""
        self.storage = MemoryStorage()
        self.clock = NodeClock(loop)
        self.incarnations = 0
        self.host: VirtualHost | None = None
        """The live incarnation, None while the node is down."""
        self.node: Node | None = None


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
        self._build = build
        self._loop = VirtualLoop()
        self._network = VirtualNetwork(
            self._loop,
            seed=seed,
            model=spec.links,
            racks={broker.name: broker.rack for broker in spec.brokers},
            copy_messages=copy_messages,
        )
        self._machines = {node.name: _Machine(node, self._loop) for node in node_specs(spec)}
        self._admin = _Machine(None, self._loop)
        self._past_hosts: list[VirtualHost] = []
        self._failures: list[str] = []
        self._driver_rows = 0

    def now_us(self) -> int:
        """Return the run's undrifted clock: microseconds since the run began."""
        return self._loop.now_us()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        When the run is interrupted or breaks, `main` is cancelled and its cleanup runs before
        this raises; a second Ctrl-C cuts that short.
        Raises: what `main` raises; NodeTaskFailed when a node's task died; Deadlock;
            KeyboardInterrupt after a Ctrl-C.
        """
        task = self._loop.create_task(main, name="main")
        with self._interruptible():
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
        """Start every node, in order.

        Raises: ClusterStartError if a node cannot be started; whatever was started is stopped.
        """
        for name, machine in self._machines.items():
            try:
                self._boot(name, machine)
            except Exception as error:
                await self.stop()
                raise ClusterStartError(f"{name} could not be started: {error!r}") from error

    async def status(self) -> ClusterStatus:
        """Look at the cluster: every live node says what it knows."""
        status = ClusterStatus()
        for machine in self._machines.values():
            if isinstance(machine.spec, BrokerSpec):
                status.brokers_alive[BrokerId(machine.spec.broker_id)] = machine.host is not None
            if machine.node is not None:
                machine.node.report(status)
        return status

    async def crash(self, node: NodeName) -> HitNode:
        """Kill the node's process as `kill -9` does; its disk keeps what was appended.

        Raises: UnknownNode if there is no such node, or it is down already.
        """
        return self.crash_now(node)

    def crash_now(self, node: NodeName) -> HitNode:
        """Kill a node, also from inside a callback: an observer, or the node itself."""
        machine = self._machine(node)
        host = machine.host
        if host is None:
            raise UnknownNode(f"{node} is down already and cannot be killed")
        self.trace(TraceEvent(kind=TraceKind.NODE_KILLED, peer=node))
        self._bury(machine, host)
        host.crash()
        # What is left of a callback that died half way must not reach the disk: it keeps the old
        # object, the next incarnation finds a copy.
        machine.storage = machine.storage.copy()
        return HitNode(node=node, incarnation=host.incarnation, pid=None)

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again on its disk, as a new incarnation.

        Raises: UnknownNode if there is no such node, or it is running.
        """
        machine = self._machine(node)
        if machine.host is not None:
            raise UnknownNode(f"{node} is running and cannot be restarted")
        self._boot(node, machine)

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""
        raise NotImplementedError

    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process and cut its logs back to what was flushed."""
        raise NotImplementedError

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop as SIGTERM does, and return at once."""
        raise NotImplementedError

    async def pause(self, node: NodeName) -> HitNode:
        """Stop the node as SIGSTOP does."""
        raise NotImplementedError

    async def resume(self, node: NodeName) -> None:
        """Let a paused node go on."""
        raise NotImplementedError

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules."""
        raise NotImplementedError

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections between the two sets of nodes."""
        raise NotImplementedError

    async def elect_preferred_leaders(self, partitions: Sequence[TopicPartition] | None) -> None:
        """Ask the controller for ElectLeaders(PREFERRED)."""
        raise NotImplementedError

    async def move_leader(self, partition: TopicPartition, broker: BrokerId) -> None:
        """Make `broker` the preferred leader of `partition`, and elect it."""
        raise NotImplementedError

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, Offset]:
        """Ask the group's coordinator, through the cluster's own network, what is committed.

        Raises: TimeoutError after 60 s without a definite answer.
        """
        host = self._admin.host
        if host is None:
            host = self._admin.host = self._new_host(ADMIN, self._admin)
            host.trace(TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": "admin"}))
        return await fetch_committed_offsets(host, self._spec, group_id)

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
        for machine in (*self._machines.values(), self._admin):
            host = machine.host
            if host is not None:
                host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
                self._bury(machine, host)
                host.retire()
        for host in self._past_hosts:
            host.dispose()
        self._past_hosts.clear()

    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far."""
        return tuple(self._failures)

    def _machine(self, node: NodeName) -> _Machine:
        machine = self._machines.get(node)
        if machine is None:
            raise UnknownNode(f"no node {node}; there are {', '.join(self._machines)}")
        return machine

    def _boot(self, name: NodeName, machine: _Machine) -> None:
        if machine.spec is None:
            raise UnknownNode(f"{name} is no node of the cluster")
        host = machine.host = self._new_host(name, machine)
        try:
            machine.node = self._build(machine.spec, self._spec, host)
            host.trace(
                TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": role_of(machine.spec)})
            )
            machine.node.start()
        except BaseException:
            self._bury(machine, host)
            host.retire()
            raise

    def _new_host(self, name: NodeName, machine: _Machine) -> VirtualHost:
        incarnation = Incarnation(machine.incarnations)
        machine.incarnations += 1
        host = VirtualHost(
            name=name,
            incarnation=incarnation,
            run_id=self._run_id,
            loop=self._loop,
            network=self._network,
            clock=machine.clock,
            rng=stream(self._seed, "node", name, incarnation),
            storage=machine.storage,
            observers=self._observers,
            traces_messages=self._trace_messages,
            on_failure=self._node_failed,
            log=self._log,
        )
        self._network.attach(host)
        return host

    def _bury(self, machine: _Machine, host: VirtualHost) -> None:
        machine.host = None
        machine.node = None
        self._past_hosts.append(host)

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
