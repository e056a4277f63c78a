"""Nodes in virtual time, over all their incarnations: start, kill, stop, pause and restart.

Each life of a node, from a start to its end, is called an incarnation, and has a host of its own.
The disk and the clock of a node belong to its machine, so they stay from one incarnation to the
next.

The states here (up, paused, down, ...) are those of the node's process. They do not show which
brokers the controller considers alive; the controller's metadata does.
"""

from collections.abc import Callable, Iterator, Sequence

from cluster.host.connections import connection_named_by
from cluster.links.rules import LinkRule
from cluster.lives import ADMIN_NODE, LifeAct, NodeBuilder, NodeLife, NodeLives
from cluster.node_factory import Node, SelfChecking, node_specs
from cluster.runtime import ClusterStatus, HitNode, NodeState
from cluster.spec import ClusterSpec, NodeSpec, role_of
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import VirtualHost
from cluster.virtual.loop import VirtualLoop
from partition_log.memory_storage import MemoryStorage
from protocol.causes import KillCause
from protocol.errors import InvariantViolation, SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent, TraceKind

HostBuilder = Callable[[NodeName, Incarnation, MemoryStorage, NodeClock], VirtualHost]
"""Creates the host for an incarnation of a node, on the disk and clock of its machine."""


class VirtualLife(NodeLife):
    """A node with its machine: its disk and its clock outlive its incarnations."""

    def __init__(self, spec: NodeSpec, loop: VirtualLoop) -> None:
        super().__init__(spec.name, spec)
        self.storage = MemoryStorage()
        self.clock = NodeClock(loop)
        self.host: VirtualHost | None = None
        """The live incarnation, None while the node is down."""
        self.node: Node | None = None
        """The node on `host`; None while it is down."""
        self.self_checking: SelfChecking | None = None
        """The live node, if it has checks of its own state; None otherwise.

        Determined once, when the node starts, because checks are frequent, and `isinstance` with a
        protocol is slow.
        """
        self.is_stopping = False
        """True from a request for a controlled shutdown until the process exits."""

    @property
    def live_state(self) -> NodeState | None:
        """UP, STOPPING or PAUSED; None while no incarnation lives.

        A node that was paused during a shutdown is PAUSED.
        """
        if self.host is None:
            return None
        if self.host.is_paused:
            return NodeState.PAUSED
        return NodeState.STOPPING if self.is_stopping else NodeState.UP

    def live_host(self) -> VirtualHost:
        """Return the host of a node that is not down."""
        if self.host is None:
            raise SimulationError(f"{self.name} has no live incarnation")
        return self.host


class VirtualLives(NodeLives[VirtualLife]):
    """Every node of a run in virtual time, and the administrator's host.

    The methods that start, kill or pause a node raise UnknownNode if there is no such node, or if
    it is in a wrong state. They are coroutines only because `Runtime` has them as coroutines; none
    of them waits.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        loop: VirtualLoop,
        *,
        build: NodeBuilder,
        new_host: HostBuilder,
        trace: Callable[[TraceEvent], None],
    ) -> None:
        lives = (VirtualLife(spec, loop) for spec in node_specs(cluster))
        super().__init__(cluster, lives, build=build, trace=trace)
        self._loop = loop
        self._make_host = new_host
        self._admin: VirtualHost | None = None
        """The administrator's host; None before its first use."""
        self._past_hosts: list[VirtualHost] = []
        """Hosts of dead incarnations, whose coroutines `stop` closes."""
        self._rules: tuple[LinkRule, ...] = ()
        """The current link rules, for hosts that are created later."""

    async def status(self) -> ClusterStatus:
        """Query the cluster: every live node that is not paused reports its state."""
        return self.status_now()

    def status_now(self) -> ClusterStatus:
        """Query the cluster as `status` does; may be called inside a callback."""
        status = self._status()
        for name, life in self._lives.items():
            if life.node is not None and status.nodes[name] is not NodeState.PAUSED:
                life.node.report(status)
        return status

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Make every live node that has checks check itself. Only to be called between two events.

        If `thoroughly`, the nodes also read their logs.
        Raises: InvariantViolation that names the node.
        """
        for name, life in self._lives.items():
            self._check_one(name, life, thoroughly=thoroughly)

    def _check_one(self, name: NodeName, life: VirtualLife, *, thoroughly: bool) -> None:
        """Make a node check itself, if it is up and has checks.

        Raises: InvariantViolation.
        """
        node = life.self_checking
        if life.host is None or node is None:
            return
        try:
            node.check_invariants(thoroughly=thoroughly)
        except InvariantViolation as violation:
            raise InvariantViolation(
                violation.name,
                f"{name} incarnation {life.host.incarnation}: {violation.evidence}",
            ) from violation

    def node(self, name: NodeName) -> Node | None:
        """Return the live node of this name, for debugging; None while it is down."""
        return self._life(name).node

    def admin_host(self) -> VirtualHost:
        """Return the administrator's host, created on first use; may be called in a callback."""
        if self._admin is None:
            self._admin = self._new_host(
                ADMIN_NODE, Incarnation(0), MemoryStorage(), NodeClock(self._loop)
            )
            self._admin.trace(TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": "admin"}))
        return self._admin

    # -- lives --------------------------------------------------------------------------------

    async def start_node(self, node: NodeName) -> None:
        """Start a node for the first time."""
        self._boot(self._begin(node, LifeAct.START))

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation."""
        life = self._begin(node, LifeAct.RESTART)
        if empty_disk:
            life.storage = MemoryStorage()
        self._boot(life)

    async def crash(self, node: NodeName) -> HitNode:
        """Kill the node's process as `kill -9` does; its disk keeps what was appended."""
        return self.crash_now(node)

    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process and cut its logs back to what was flushed.

        The peers see at once that their connections are reset, as after a crash. If a real machine
        loses power, they see nothing until the machine is back. A caller that wants this cuts the
        node off by link rules.
        """
        return self.crash_now(node, loses_power=True)

    def crash_now(self, node: NodeName, *, loses_power: bool = False) -> HitNode:
        """Kill a node; may be called inside a callback, even one of the same node."""
        life = self._begin(node, LifeAct.KILL, cause=KillCause.POWER_LOSS if loses_power else None)
        host = life.live_host()
        self._end_life(life, host)
        host.crash()
        # The rest of the running callback, if it is one of this node, may still write to the disk.
        # So the next incarnation gets a copy.
        life.storage = life.storage.copy()
        if loses_power:
            life.storage.power_loss()
        return _hit_node(host)

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask a node to stop as SIGTERM does; the shutdown begins at this instant of virtual time.

        Returns at once; the node exits by itself when it has finished.
        """
        life = self._begin(node, LifeAct.SHUT_DOWN)
        life.is_stopping = True
        host = life.live_host()
        if life.node is not None:
            # Called by the loop, so that an exception counts as a failure of the node.
            host.after(0, life.node.shut_down, lambda: self._schedule_exit(life, host))
        return _hit_node(host)

    async def pause(self, node: NodeName) -> HitNode:
        """Stop a node as SIGSTOP does; its clocks continue."""
        host = self._begin(node, LifeAct.PAUSE).live_host()
        host.pause()
        return _hit_node(host)

    async def resume(self, node: NodeName) -> None:
        """Continue a paused node: its due timers fire, then the messages that waited arrive."""
        self._begin(node, LifeAct.RESUME).live_host().resume()

    async def stop(self) -> None:
        """End every node in an orderly way and free dead coroutines. May be called twice."""
        for life in self._lives.values():
            if life.host is not None:
                host = life.host
                host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
                self._end_life(life, host)
                # `crash` would send resets, which the peers do not need: they end now, too.
                host.retire()
        if self._admin is not None and self._admin.alive:
            self._admin.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
            self._past_hosts.append(self._admin)
            self._admin.retire()
        for host in self._past_hosts:
            host.dispose()
        self._past_hosts.clear()

    # -- links --------------------------------------------------------------------------------

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules, on every live host now and on each host created later."""
        self._rules = tuple(rules)
        for host in self._hosts_alive():
            host.set_link_rules(self._rules)

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """Reset all connections between the two sets of nodes; both ends learn of it at once.

        Returns: the number of connections.
        Raises: UnknownNode if no node has one of the names.
        """
        # The dicts with None as values, here and below, are ordered sets.
        # Node -> the nodes at the other ends of the connections that are reset.
        peers_by_node: dict[NodeName, dict[NodeName, None]] = {}
        for names, others in ((sources, destinations), (destinations, sources)):
            for name in names:
                if name != ADMIN_NODE:  # the administrator has a host, but no life
                    self._life(name)  # raises UnknownNode
                peers_by_node.setdefault(name, {}).update((o, None) for o in others if o != name)
        # Both ends of a connection report it under one name, so each connection counts once.
        ended: dict[tuple[NodeName, int], None] = {}
        for host in self._hosts_alive():
            closes = host.reset_links(tuple(peers_by_node.get(host.name, ())), purposes)
            ended.update((connection_named_by(close), None) for close in closes)
        return len(ended)

    # -- internals ----------------------------------------------------------------------------

    def _hosts_alive(self) -> Iterator[VirtualHost]:
        for life in self._lives.values():
            if life.host is not None:
                yield life.host
        if self._admin is not None and self._admin.alive:
            yield self._admin

    def _boot(self, life: VirtualLife) -> None:
        """Start the next incarnation: a host, and on it a new node from the spec."""
        incarnation = Incarnation(life.incarnations)
        life.incarnations += 1
        host = life.host = self._new_host(life.name, incarnation, life.storage, life.clock)
        try:
            node = life.node = self._build(life.spec, self._cluster, host)
            life.self_checking = node if isinstance(node, SelfChecking) else None
            host.trace(TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": role_of(life.spec)}))
            life.node.start()
        except BaseException:
            # A node that could not start is down, and its host must take no frames.
            self._end_life(life, host)
            host.retire()
            raise

    def _new_host(
        self, name: NodeName, incarnation: Incarnation, storage: MemoryStorage, clock: NodeClock
    ) -> VirtualHost:
        """Return a new host with the current link rules."""
        host = self._make_host(name, incarnation, storage, clock)
        host.set_link_rules(self._rules)
        return host

    def _schedule_exit(self, life: VirtualLife, host: VirtualHost) -> None:
        """End the process of a node that has finished its shutdown."""
        # The process ends in a later call of the loop, because the node's last step calls this and
        # is still running.
        host.after(0, self._exit, life, host)

    def _exit(self, life: VirtualLife, host: VirtualHost) -> None:
        """End a process that has finished its shutdown: its kernel closes its connections."""
        self._before_exit(life)
        host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
        self._end_life(life, host)
        host.crash()  # a kernel closes the connections of every process that ends

    def _before_exit(self, life: VirtualLife) -> None:
        """Inspect a node at the end of its orderly stop; VirtualRuntime overrides this."""

    def _end_life(self, life: VirtualLife, host: VirtualHost) -> None:
        """Note that the node is down. The caller ends `host` itself."""
        life.host = None
        life.node = life.self_checking = None
        life.is_stopping = False
        self._past_hosts.append(host)


def _hit_node(host: VirtualHost) -> HitNode:
    return HitNode(node=host.name, incarnation=host.incarnation, pid=None)
