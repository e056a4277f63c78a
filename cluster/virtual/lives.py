"""The lives of the nodes in virtual time: started, killed, stopped, paused, and started again.

Owns what outlives an incarnation (disk, clock, how often it lived) and which states a node goes
through. It must not know what a fault is; what the cluster believes is the nodes' business.
"""

from collections.abc import Callable, Iterator, Sequence

from cluster.host.connections import connection_named_by
from cluster.host.host import Host
from cluster.links.rules import LinkRule
from cluster.node_factory import Node, node_specs
from cluster.runtime import ClusterStatus, HitNode, NodeState, UnknownNode
from cluster.spec import BrokerSpec, ClusterSpec, ConsumerSpec, NodeSpec, role_of
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import VirtualHost
from cluster.virtual.loop import VirtualLoop
from partition_log.memory_storage import MemoryStorage
from protocol.causes import KillCause
from protocol.ids import BrokerId, Incarnation, NodeName
from protocol.trace import TraceEvent, TraceKind

ADMIN = NodeName("admin-0")

NodeBuilder = Callable[[NodeSpec, ClusterSpec, Host], Node]
HostBuilder = Callable[["Machine", Incarnation], VirtualHost]
"""Makes the host of a machine's next incarnation; its storage and clock are the machine's."""


class Machine:
    """What outlives the incarnations of one node: its disk, its clock, and how often it lived."""

    def __init__(self, name: NodeName, spec: NodeSpec | None, loop: VirtualLoop) -> None:
        self.name = name
        self.spec = spec
        """None for a client that the runtime itself runs (admin-0)."""
        self.storage = MemoryStorage()
        self.clock = NodeClock(loop)
        self.incarnations = 0
        self.host: VirtualHost | None = None
        """The live incarnation, None while the node is down."""
        self.node: Node | None = None
        self.is_stopping = False
        """Whether it was asked for a controlled shutdown and is not done."""

    @property
    def starts_later(self) -> bool:
        """Whether it is not started with the cluster."""
        return isinstance(self.spec, ConsumerSpec) and self.spec.starts_later

    @property
    def state(self) -> NodeState:
        """What the runtime knows of the node; of one that is paused while it stops, the pause."""
        if self.host is None:
            return NodeState.DOWN if self.incarnations > 0 else NodeState.NOT_STARTED
        if self.host.is_paused:
            return NodeState.PAUSED
        return NodeState.STOPPING if self.is_stopping else NodeState.UP


class NodeLives:
    """Every node of a run, by name, and the administrator's host.

    `trace` writes rows of the driver. Acts on a node raise UnknownNode if there is none of that
    name, or not in the state that the act needs.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        loop: VirtualLoop,
        *,
        build: NodeBuilder,
        new_host: HostBuilder,
        trace: Callable[[TraceEvent], None],
    ) -> None:
        self._spec = spec
        self._build = build
        self._make_host = new_host
        self._trace = trace
        self._machines = {node.name: Machine(node.name, node, loop) for node in node_specs(spec)}
        self._admin = Machine(ADMIN, None, loop)
        self._past_hosts: list[VirtualHost] = []
        self._rules: tuple[LinkRule, ...] = ()

    def names_to_start(self) -> tuple[NodeName, ...]:
        """Return the nodes that start with the cluster, in their order."""
        return tuple(name for name, m in self._machines.items() if not m.starts_later)

    def report(self, status: ClusterStatus) -> None:
        """Write every node's state into `status`, and what those that can answer know."""
        for name, machine in self._machines.items():
            state = status.nodes[name] = machine.state
            if isinstance(machine.spec, BrokerSpec):
                status.brokers_alive[BrokerId(machine.spec.broker_id)] = machine.host is not None
            if machine.node is not None and state is not NodeState.PAUSED:
                machine.node.report(status)

    def node(self, name: NodeName) -> Node | None:
        """Return the node that is up under this name, None while it is down."""
        return self._machine(name).node

    # -- lives --------------------------------------------------------------------------------

    def start(self, name: NodeName) -> None:
        """Start a node for the first time."""
        machine = self._machine_in(name, "started", NodeState.NOT_STARTED)
        self._boot(machine)

    def restart(self, name: NodeName, *, empty_disk: bool) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation."""
        machine = self._machine_in(name, "restarted", NodeState.DOWN)
        if empty_disk:
            machine.storage = MemoryStorage()
        self._boot(machine)

    def kill(self, name: NodeName, *, loses_power: bool = False) -> HitNode:
        """Kill a node, also from inside a callback: an observer, or the node itself."""
        machine, host = self._live(name, "killed")
        cause = KillCause.POWER_LOSS if loses_power else None
        self._trace(TraceEvent(kind=TraceKind.NODE_KILLED, peer=name, cause=cause))
        self._bury(machine, host)
        host.crash()
        # What is left of a callback that died half way must not reach the disk: it keeps the old
        # object, the next incarnation finds a copy.
        machine.storage = machine.storage.copy()
        if loses_power:
            machine.storage.power_loss()
        return _hit(host)

    def shut_down(self, name: NodeName) -> HitNode:
        """Ask a node to stop as SIGTERM does; it begins in this instant."""
        machine = self._machine_in(name, "shut down", NodeState.UP)
        host, node = machine.host, machine.node
        if host is None or node is None:
            raise UnknownNode(f"{name} has no process")
        self._trace(TraceEvent(kind=TraceKind.NODE_STOPPING, peer=name))
        machine.is_stopping = True
        # Not now: what the node does wrong is the node's failure, and not its caller's.
        host.after(0, node.shut_down, lambda: self._is_done(machine, host))
        return _hit(host)

    def pause(self, name: NodeName) -> HitNode:
        """Stop a node as SIGSTOP does."""
        machine = self._machine_in(name, "paused", NodeState.UP, NodeState.STOPPING)
        if machine.host is None:
            raise UnknownNode(f"{name} has no process")
        self._trace(TraceEvent(kind=TraceKind.NODE_PAUSED, peer=name))
        machine.host.pause()
        return _hit(machine.host)

    def resume(self, name: NodeName) -> None:
        """Let a paused node go on."""
        machine = self._machine_in(name, "resumed", NodeState.PAUSED)
        if machine.host is None:
            raise UnknownNode(f"{name} has no process")
        self._trace(TraceEvent(kind=TraceKind.NODE_RESUMED, peer=name))
        machine.host.resume()

    def admin(self) -> VirtualHost:
        """Return the administrator's host, started when it is needed first."""
        host = self._admin.host
        if host is None:
            host = self._new_host(self._admin)
            host.trace(TraceEvent(kind=TraceKind.NODE_STARTED, detail={"role": "admin"}))
        return host

    def stop_all(self) -> None:
        """End every node in an orderly way, and free what dead ones left. May be called twice."""
        for machine, host in self._up():
            host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
            self._bury(machine, host)
            host.retire()
        for host in self._past_hosts:
            host.dispose()
        self._past_hosts.clear()

    # -- links --------------------------------------------------------------------------------

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules, now and for every host that is made later."""
        self._rules = tuple(rules)
        for _, host in self._up():
            host.set_link_rules(self._rules)

    def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str],
    ) -> int:
        """End all connections between the two sets of nodes; return how many there were."""
        peers: dict[NodeName, dict[NodeName, None]] = {}
        for names, others in ((sources, destinations), (destinations, sources)):
            for name in names:
                if name != ADMIN:
                    self._machine(name)
                peers.setdefault(name, {}).update((o, None) for o in others if o != name)
        ended: dict[tuple[NodeName, int], None] = {}
        for machine, host in self._up():
            closes = host.reset_links(tuple(peers.get(machine.name, ())), purposes)
            ended.update((connection_named_by(close), None) for close in closes)
        return len(ended)

    # -- inside -------------------------------------------------------------------------------

    def _up(self) -> Iterator[tuple[Machine, VirtualHost]]:
        for machine in (*self._machines.values(), self._admin):
            if machine.host is not None:
                yield machine, machine.host

    def _machine(self, name: NodeName) -> Machine:
        machine = self._machines.get(name)
        if machine is None:
            raise UnknownNode(f"no node {name}; there are {', '.join(self._machines)}")
        return machine

    def _machine_in(self, name: NodeName, act: str, *states: NodeState) -> Machine:
        machine = self._machine(name)
        if machine.state not in states:
            raise UnknownNode(f"{name} is {machine.state} and cannot be {act}")
        return machine

    def _live(self, name: NodeName, act: str) -> tuple[Machine, VirtualHost]:
        machine = self._machine(name)
        if machine.host is None:
            raise UnknownNode(f"{name} is {machine.state} already and cannot be {act}")
        return machine, machine.host

    def _boot(self, machine: Machine) -> None:
        if machine.spec is None:
            raise UnknownNode(f"{machine.name} is no node of the cluster")
        host = self._new_host(machine)
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

    def _new_host(self, machine: Machine) -> VirtualHost:
        incarnation = Incarnation(machine.incarnations)
        machine.incarnations += 1
        host = machine.host = self._make_host(machine, incarnation)
        host.set_link_rules(self._rules)
        return host

    def _is_done(self, machine: Machine, host: VirtualHost) -> None:
        # Not now: the node's own last step goes on behind its call.
        host.after(0, self._exit, machine, host)

    def _exit(self, machine: Machine, host: VirtualHost) -> None:
        """End a process that has nothing left to do: its kernel closes its connections."""
        host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
        self._bury(machine, host)
        host.crash()

    def _bury(self, machine: Machine, host: VirtualHost) -> None:
        machine.host = None
        machine.node = None
        machine.is_stopping = False
        self._past_hosts.append(host)


def _hit(host: VirtualHost) -> HitNode:
    return HitNode(node=host.name, incarnation=host.incarnation, pid=None)
