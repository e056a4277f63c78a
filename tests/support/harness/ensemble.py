"""An ensemble (ZooKeeper's servers) and its clients, in virtual time (a simulated clock).

A test writes a scenario, in which clients open sessions and send requests, and servers are cut off
or crash. It runs the scenario by `run_ensemble(scenario, servers=3)`.

In a cluster's specification (ClusterSpec) only the members of a group are clients of ZooKeeper. But
the tests need clients without a group. So the specification has producers named `client-0`,
`client-1` and so on, and EnsembleRun builds an IdleNode instead of each producer. A client of a
test uses the host of such an IdleNode. (A host gives a node access to the network, the clock and
timers.)
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
SECOND = 1_000_000
"""One second in microseconds."""
CLIENTS = 3
"""The number of hosts for clients."""


class IdleNode:
    """A node that does nothing, because only its host is needed."""

    def start(self) -> None:
        """Do nothing."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: object) -> None:
        """Report nothing."""


@dataclass
class Client:
    """A client with one session."""

    handle: ZooKeeperHandle
    # The states of the session so far, such as SyncConnected, oldest first.
    states: list[KeeperState] = field(default_factory=list)
    # The events of the client's watches so far, oldest first.
    events: list[WatcherEvent] = field(default_factory=list)

    async def call(self, request: ZooKeeperRequest) -> ZooKeeperResponse:
        """Send a request and return its response."""
        return await self.handle.call(request)


class EnsembleRun:
    """An ensemble of `servers` servers, with the hosts `client-0` to `client-2` for clients."""

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
            # The servers check themselves after every event.
            invariants_every=1,
        )

    def run(self, scenario: Callable[["EnsembleRun"], Awaitable[None]]) -> None:
        """Start the ensemble, carry out `scenario`, and stop the ensemble.

        Raises: AssertionError if a node has failed because of a bug.
        """

        async def main() -> None:
            await self.runtime.start()
            await self.serving()
            await scenario(self)
            await self.runtime.stop()

        self.runtime.run(main())
        assert self.runtime.failures() == ()

    async def serving(self, count: int | None = None) -> None:
        """Wait until `count` servers serve clients, by default all servers.

        Raises: AssertionError after a minute of virtual time.
        """
        needed = len(self.servers) if count is None else count
        # 600 steps of a tenth of a second are a minute.
        for _ in range(600):
            status = await self.runtime.status()
            if sum(server.is_serving for server in status.zookeepers.values()) >= needed:
                return
            await self.runtime.sleep(SECOND // 10)
        raise AssertionError(f"no {needed} servers serve: {status.zookeepers}")

    async def leader(self) -> NodeName:
        """Return the only server that leads and serves clients."""
        status = await self.runtime.status()
        (leader,) = (
            name
            for name, server in status.zookeepers.items()
            if server.state == "LEADING" and server.is_serving
        )
        return leader

    def client(self, index: int = 0, servers: Sequence[NodeName] = ()) -> Client:
        """Return a client on the host `client-<index>`, with a new session.

        The client may connect to `servers`, by default to all servers.
        """
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
        """Return a new ZkClient on the host `client-<index>`."""
        host = self.hosts[NodeName(f"client-{index}")]
        return ZkClient(host, servers or self.servers, SESSION_TIMEOUT_MS)

    async def cut(self, sources: Sequence[str], destinations: Sequence[str]) -> None:
        """Cut the links between two sets of nodes in both directions.

        This replaces all link rules that were in force before.
        """
        await self.rule(Cut(), sources, destinations, both_ways=True)

    async def rule(
        self,
        effect: LinkEffect,
        sources: Sequence[str],
        destinations: Sequence[str],
        *,
        both_ways: bool = False,
    ) -> None:
        """Let `effect` act on the links from `sources` to `destinations`, or in both directions.

        This replaces all link rules that were in force before.
        """
        await self.runtime.set_link_rules(
            link_rules(effect, sources, destinations, both_ways=both_ways)
        )

    async def heal(self) -> None:
        """Remove all rules, so that all links work again."""
        await self.runtime.set_link_rules([])

    def of(self, kind: TraceKind) -> list[TraceRow]:
        """Return the trace's rows of this kind."""
        return [row for row in self.rows if row.kind == kind]

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a server as usual. For a client, build an IdleNode and keep the client's host."""
        if isinstance(spec, ProducerSpec):
            self.hosts[host.name] = host
            return IdleNode()
        return build_node(spec, cluster, host)


def run_ensemble(
    scenario: Callable[[EnsembleRun], Awaitable[None]], servers: int = 1, *, seed: int = 1
) -> EnsembleRun:
    """Carry out `scenario` on a new ensemble. The returned run has the rows of the trace."""
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
    """Return the rules by which `effect` acts on links in one direction or in both.

    If there are `apis`, the effect acts only on messages of these APIs.
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
