"""The lives of the nodes in virtual time: started, killed, stopped, paused, and started again.

Owns what outlives an incarnation (disk, clock, how often it lived) and the link rules in force. It
must not know what a fault is; what the cluster believes is the nodes' business.
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
"""Makes the host of an incarnation, on its machine's disk and clock."""


class VirtualLife(NodeLife):
    """A node with its machine: its disk and its clock outlive its incarnations."""

    def __init__(self, spec: NodeSpec, loop: VirtualLoop) -> None:
        super().__init__(spec.name, spec)
        self.storage = MemoryStorage()
        self.clock = NodeClock(loop)
        self.host: VirtualHost | None = None
        """The live incarnation, None while the node is down."""
        self.node: Node | None = None
        self.is_stopping = False
        """Whether it was asked for a controlled shutdown and is not done."""

    @property
    def live_state(self) -> NodeState | None:
        """UP, STOPPING or PAUSED, which hides STOPPING; None while no incarnation lives."""
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

    `trace` writes rows of the driver. Acts on a node raise UnknownNode if there is none of that
    name, or not in the state that the act needs.
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
        self._past_hosts: list[VirtualHost] = []
        self._rules: tuple[LinkRule, ...] = ()

    async def status(self) -> ClusterStatus:
        """Look at the cluster: every live node that is not paused says what it knows."""
        return self.status_now()

    def status_now(self) -> ClusterStatus:
        """Look at the cluster, also from inside a callback."""
        status = self._status()
        for name, life in self._lives.items():
            if life.node is not None and status.nodes[name] is not NodeState.PAUSED:
                life.node.report(status)
        return status

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Have every live node that can do it check itself; between two events only.

        `thoroughly` they read their logs, too.

        Raises: InvariantViolation that names the node.
        """
        for name, life in self._lives.items():
            self._check_one(name, life, thoroughly=thoroughly)

    def _check_one(self, name: NodeName, life: VirtualLife, *, thoroughly: bool) -> None:
        node = life.node
        if life.host is None or not isinstance(node, SelfChecking):
            return
        try:
            node.check_invariants(thoroughly=thoroughly)
        except InvariantViolation as violation:
            raise InvariantViolation(
                violation.name,
                f"{name} incarnation {life.host.incarnation}: {violation.evidence}",
            ) from violation

    def node(self, name: NodeName) -> Node | None:
        """Return the node that is up under this name, for debugging; None while it is down."""
        return self._life(name).node

    def admin_host(self) -> VirtualHost:
        """Return the administrator's host, to ask with beside what runs; also from a callback."""
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

        Its peers see their connections reset, as after a crash, unless link rules keep it from
        them: a machine without power says nothing until it is back.
        """
        return self.crash_now(node, loses_power=True)

    def crash_now(self, node: NodeName, *, loses_power: bool = False) -> HitNode:
        """Kill a node, also from inside a callback: an observer, or the node itself."""
        life = self._begin(node, LifeAct.KILL, cause=KillCause.POWER_LOSS if loses_power else None)
        host = life.live_host()
        self._bury(life, host)
        host.crash()
        # What is left of a callback that died half way must not reach the disk: it keeps the old
        # object, the next incarnation finds a copy.
        life.storage = life.storage.copy()
        if loses_power:
            life.storage.power_loss()
        return _hit(host)

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask a node to stop as SIGTERM does; it begins in this instant."""
        life = self._begin(node, LifeAct.SHUT_DOWN)
        life.is_stopping = True
        host = life.live_host()
        if life.node is not None:
            # Not now: what the node does wrong is the node's failure, and not its caller's.
            host.after(0, life.node.shut_down, lambda: self._is_done(life, host))
        return _hit(host)

    async def pause(self, node: NodeName) -> HitNode:
        """Stop a node as SIGSTOP does; its clocks go on."""
        host = self._begin(node, LifeAct.PAUSE).live_host()
        host.pause()
        return _hit(host)

    async def resume(self, node: NodeName) -> None:
        """Let a paused node go on: first its due timers fire, then what waited is delivered."""
        self._begin(node, LifeAct.RESUME).live_host().resume()

    async def stop(self) -> None:
        """End every node in an orderly way, and free what dead ones left. May be called twice."""
        for life in self._lives.values():
            if life.host is not None:
                host = life.host
                host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
                self._bury(life, host)
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
        """Replace all link rules, at this instant and for every host that is made later."""
        self._rules = tuple(rules)
        for host in self._hosts_alive():
            host.set_link_rules(self._rules)

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections between the two sets of nodes; both ends hear it in this instant.

        Returns: how many there were. Raises: UnknownNode if a name is no node's.
        """
        peers: dict[NodeName, dict[NodeName, None]] = {}
        for names, others in ((sources, destinations), (destinations, sources)):
            for name in names:
                if name != ADMIN_NODE:
                    self._life(name)
                peers.setdefault(name, {}).update((o, None) for o in others if o != name)
        ended: dict[tuple[NodeName, int], None] = {}
        for host in self._hosts_alive():
            closes = host.reset_links(tuple(peers.get(host.name, ())), purposes)
            ended.update((connection_named_by(close), None) for close in closes)
        return len(ended)

    # -- inside -------------------------------------------------------------------------------

    def _hosts_alive(self) -> Iterator[VirtualHost]:
        for life in self._lives.values():
            if life.host is not None:
                yield life.host
        if self._admin is not None and self._admin.alive:
            yield self._admin

    def _boot(self, life: VirtualLife) -> None:
        incarnation = Incarnation(life.incarnations)
        life.incarnations += 1
        host = life.host = self._new_host(life.name, incarnation, life.storage, life.clock)
        try:
            life.node = self._build(life.spec, self._cluster, host)
            host.trace(TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": role_of(life.spec)}))
            life.node.start()
        except BaseException:
            self._bury(life, host)
            host.retire()
            raise

    def _new_host(
        self, name: NodeName, incarnation: Incarnation, storage: MemoryStorage, clock: NodeClock
    ) -> VirtualHost:
        host = self._make_host(name, incarnation, storage, clock)
        host.set_link_rules(self._rules)
        return host

    def _is_done(self, life: VirtualLife, host: VirtualHost) -> None:
        # Not now: the node's own last step goes on behind its call.
        host.after(0, self._exit, life, host)

    def _exit(self, life: VirtualLife, host: VirtualHost) -> None:
        """End a process that has nothing left to do: its kernel closes its connections."""
        self._exits(life)
        host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
        self._bury(life, host)
        host.crash()

    def _exits(self, life: VirtualLife) -> None:
        """Look at a node that has done everything that an orderly stop asks for."""

    def _bury(self, life: VirtualLife, host: VirtualHost) -> None:
        life.host = None
        life.node = None
        life.is_stopping = False
        self._past_hosts.append(host)


def _hit(host: VirtualHost) -> HitNode:
    return HitNode(node=host.name, incarnation=host.incarnation, pid=None)
