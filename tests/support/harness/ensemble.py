"""An ensemble (servers of ZooKeeper) in virtual time (a simulated clock), and its clients.

A session is a client's connection to the ensemble; it survives a change of the server. A watch
notifies a client of a change of ZooKeeper's data. A host is a node's access to network, clock and
timers.

The specification of a cluster knows ZooKeeper clients only as consumers of a group. A test needs
clients without a group, so each of them uses the host of a producer: EnsembleRun builds an IdleNode
in place of the producer.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from cluster.host.host import Host
from cluster.links.rules import Cut, LinkEffect, LinkRule, Selector
from cluster.node_factory import Node, build_node
from cluster.spec import ClusterSpec, NodeSpec, ProducerSpec, ZooKeeperSpec
from cluster.virtual.runtime import VirtualRuntime
from cluster.zookeeper.client import KeeperState, ZooKeeperHandle
from cluster.zookeeper.zk_client import ZkClient
from protocol.ids import NodeName, zookeeper_name
from protocol.messages.zookeeper import WatcherEvent, ZooKeeperRequest, ZooKeeperResponse
from protocol.trace import TraceKind, TraceRow

SESSION_TIMEOUT_MS = 6_000
SECOND = 1_000_000  # in microseconds
CLIENTS = 3


class IdleNode:
    """A node that does nothing: tests use its host."""

    def start(self) -> None:
        """Do nothing."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: object) -> None:
        """Report nothing."""


@dataclass
class Client:
    """A client of the ensemble: its session, and the session's states and watch events in order."""

    handle: ZooKeeperHandle
    states: list[KeeperState] = field(default_factory=list)
    events: list[WatcherEvent] = field(default_factory=list)

    async def call(self, request: ZooKeeperRequest) -> ZooKeeperResponse:
        """Carry out one request."""
        return await self.handle.call(request)


class EnsembleRun:
    """An ensemble of `servers` servers and hosts `client-0`, `client-1`, ... for its clients."""

    def __init__(self, servers: int = 1, *, seed: int = 1) -> None:
        self.rows: list[TraceRow] = []
        self.hosts: dict[NodeName, Host] = {}
        self.servers = tuple(zookeeper_name(index) for index in range(1, servers + 1))
        spec = ClusterSpec(
            controllers=(),
            brokers=(),
            topics=(),
            producers=tuple(
                ProducerSpec(name=NodeName(f"client-{index}"), topic="t", records_per_second=1)
                for index in range(CLIENTS)
            ),
            zookeepers=tuple(ZooKeeperSpec(server_id=index) for index in range(1, servers + 1)),
        )
        self.runtime = VirtualRuntime(
            spec,
            seed=seed,
            run_id="ensemble",
            observers=[self.rows.append],
            build=self._build,
            invariants_every=1,
        )

    def run(self, scenario: Callable[["EnsembleRun"], Awaitable[None]]) -> None:
        """Start the ensemble, carry out `scenario`, stop; no node may have failed."""

        async def main() -> None:
            await self.runtime.start()
            await self.serving()
            await scenario(self)
            await self.runtime.stop()

        self.runtime.run(main())
        assert self.runtime.failures() == ()

    async def serving(self, count: int | None = None) -> None:
        """Wait until `count` servers serve clients; None: all servers."""
        needed = len(self.servers) if count is None else count
        # 600 steps of a tenth of a second: a minute at most.
        for _ in range(600):
            status = await self.runtime.status()
            if sum(server.is_serving for server in status.zookeepers.values()) >= needed:
                return
            await self.runtime.sleep(SECOND // 10)
        raise AssertionError(f"no {needed} servers serve: {status.zookeepers}")

    async def leader(self) -> NodeName:
        """Return the server that leads and serves."""
        status = await self.runtime.status()
        (leader,) = (
            name
            for name, server in status.zookeepers.items()
            if server.state == "LEADING" and server.is_serving
        )
        return leader

    def client(self, index: int = 0, servers: Sequence[NodeName] = ()) -> Client:
        """Return a new session of host `index`, which knows `servers` (default: all)."""
        states: list[KeeperState] = []
        events: list[WatcherEvent] = []
        handle = ZooKeeperHandle(
            self.hosts[NodeName(f"client-{index}")],
            servers or self.servers,
            SESSION_TIMEOUT_MS,
            on_state=states.append,
            on_event=events.append,
        )
        return Client(handle, states, events)

    def zk_client(self, index: int = 0, servers: Sequence[NodeName] = ()) -> ZkClient:
        """Return a new ZkClient of host `index`."""
        host = self.hosts[NodeName(f"client-{index}")]
        return ZkClient(host, servers or self.servers, SESSION_TIMEOUT_MS)

    async def cut(self, sources: Sequence[str], destinations: Sequence[str]) -> None:
        """Cut the links between two sets of nodes, both ways; this replaces every other rule."""
        await self.rule(Cut(), sources, destinations, both_ways=True)

    async def rule(
        self,
        effect: LinkEffect,
        sources: Sequence[str],
        destinations: Sequence[str],
        *,
        both_ways: bool = False,
    ) -> None:
        """Let `effect` act on the links between two sets of nodes, one way or both ways.

        This replaces every other rule.
        """
        await self.runtime.set_link_rules(
            link_rules(effect, sources, destinations, both_ways=both_ways)
        )

    async def heal(self) -> None:
        """Remove every rule: all links work again."""
        await self.runtime.set_link_rules([])

    def of(self, kind: TraceKind) -> list[TraceRow]:
        """Return the rows of a kind."""
        return [row for row in self.rows if row.kind == kind]

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a server; for a client keep only its host."""
        if isinstance(spec, ProducerSpec):
            self.hosts[host.name] = host
            return IdleNode()
        return build_node(spec, cluster, host)


def run_ensemble(
    scenario: Callable[[EnsembleRun], Awaitable[None]], servers: int = 1, *, seed: int = 1
) -> EnsembleRun:
    """Run `scenario` on a new ensemble, and return the run, which has the ensemble's rows."""
    run = EnsembleRun(servers, seed=seed)
    run.run(scenario)
    return run


def link_rules(
    effect: LinkEffect,
    sources: Sequence[str],
    destinations: Sequence[str],
    *,
    apis: tuple[str, ...] = (),
    both_ways: bool = False,
) -> list[LinkRule]:
    """Return the rules of one effect, in one direction or in both.

    Empty `apis` match the messages of every API.
    """
    directions = [(sources, destinations)]
    if both_ways:
        directions.append((destinations, sources))
    return [
        LinkRule(
            rule_id=f"rule-{number}",
            selector=Selector(
                sources=tuple(NodeName(name) for name in from_),
                destinations=tuple(NodeName(name) for name in to),
                apis=apis,
            ),
            effect=effect,
        )
        for number, (from_, to) in enumerate(directions)
    ]
