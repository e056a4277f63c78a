"""A group on ZooKeeper in virtual time: an ensemble, brokers, producers, and its members.

The members of such a group agree through ZooKeeper on who owns which partition; there is no
coordinator. The ensemble are the servers of ZooKeeper. An attempt is one try of a member to own its
share of the partitions. Virtual time is a simulated clock.

A test gives the lab a scenario, a coroutine function that changes the cluster. After the run the
test reads the rows of the trace, for instance the requests, the attempts and the writes.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cluster.host.host import Host
from cluster.links.rules import LinkEffect
from cluster.node_factory import Node, build_node
from cluster.runtime import MemberStatus
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ControllerSpec,
    NodeSpec,
    ProducerSpec,
    TopicFilterSpec,
    TopicSpec,
    ZooKeeperConsumerSpec,
    ZooKeeperSpec,
)
from cluster.virtual.runtime import VirtualRuntime
from cluster.zookeeper.zk_client import ZkClient
from protocol.config import BrokerConfig, ZooKeeperConsumerConfig
from protocol.ids import CONSUMER_OFFSETS, NodeName, zookeeper_name
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.ensemble import SESSION_TIMEOUT_MS, IdleNode, link_rules

GROUP = "g"
VISITOR = NodeName("visitor")
"""The node of a client of the ensemble that is no member of the group."""
SECOND = 1_000_000  # in microseconds
READS = ("Exists", "GetData", "GetChildren")
WRITES = ("Create", "Delete", "SetData")


def member_name(index: int) -> NodeName:
    """Return the node of member `index`."""
    return NodeName(f"consumer-{GROUP}-{index}")


class GroupLab:
    """One group of `members` members, with the cluster that they need.

    late_from: the members from this index on do not start with the cluster; the scenario starts
        them.
    starts_apart: if False, the members that start with the cluster start in the same moment.
    config: the configuration of all members.
    configs: other configurations of single members, by index.
    has_visitor: adds a host for a client of the ensemble that is no member.
    brokers_register: the brokers register in ZooKeeper.
    records_per_second: the rate of the producer of each topic; 0: there are no producers.
    process_us: the time that a member works on a record.
    """

    def __init__(
        self,
        members: int,
        partitions: int = 8,
        *,
        late_from: int | None = None,
        servers: int = 1,
        topics: int = 1,
        brokers: int = 1,
        records_per_second: float | None = None,
        process_us: int = 0,
        seed: int = 1,
        config: ZooKeeperConsumerConfig | None = None,
        configs: dict[int, ZooKeeperConsumerConfig] | None = None,
        has_visitor: bool = False,
        brokers_register: bool = False,
        topic_filter: TopicFilterSpec | None = None,
        starts_apart: bool = True,
    ) -> None:
        self.nodes: dict[NodeName, Node] = {}
        """The node object of each node's last start."""
        self._visitor_host: Host | None = None
        self._starts_apart = starts_apart
        self.members = members
        self.names = tuple(member_name(index) for index in range(members))
        self.servers = tuple(zookeeper_name(index) for index in range(1, servers + 1))
        self.rows: list[TraceRow] = []
        topic_names = tuple(f"t{index}" for index in range(topics))
        # By default 5 records a second for each partition.
        rate = 5.0 * partitions if records_per_second is None else records_per_second
        producers = []
        if rate:
            producers = [
                ProducerSpec(
                    name=NodeName(f"producer-{index}"), topic=name, records_per_second=rate
                )
                for index, name in enumerate(topic_names)
            ]
        if has_visitor:
            # A cluster has no kind of node for a visitor. So the visitor is listed as a producer,
            # and `_build` builds an IdleNode for it.
            visitor = ProducerSpec(name=VISITOR, topic=topic_names[0], records_per_second=1)
            producers.append(visitor)
        spec = ClusterSpec(
            controllers=(ControllerSpec(node_id=100),),
            brokers=tuple(BrokerSpec(broker_id=index) for index in range(brokers)),
            topics=(
                TopicSpec(name=CONSUMER_OFFSETS, partitions=1, replication_factor=1),
                *(
                    TopicSpec(name=name, partitions=partitions, replication_factor=1)
                    for name in topic_names
                ),
            ),
            producers=tuple(producers),
            zookeepers=tuple(ZooKeeperSpec(server_id=index) for index in range(1, servers + 1)),
            brokers_register_in_zookeeper=brokers_register,
            zookeeper_consumers=tuple(
                ZooKeeperConsumerSpec(
                    name=name,
                    group_id=GROUP,
                    index=index,
                    topics=topic_names,
                    config=(configs or {}).get(index, config or ZooKeeperConsumerConfig()),
                    topic_filter=topic_filter,
                    process_us=process_us,
                    starts_later=late_from is not None and index >= late_from,
                )
                for index, name in enumerate(self.names)
            ),
            broker_config=BrokerConfig(
                offsets_topic_num_partitions=1, offsets_topic_replication_factor=1
            ),
        )
        self.runtime = VirtualRuntime(
            spec,
            seed=seed,
            run_id="group",
            observers=[self.rows.append],
            invariants_every=50,
            build=self._build,
        )
        self.change_began_us = 0
        """Time at which the scenario changed the cluster; the scenario sets it."""
        self.change_ended_us = 0
        """Time at which the scenario's change, such as a cut, ended; the scenario sets it."""
        self._started = self.names if late_from is None else self.names[:late_from]

    def run(self, scenario: Callable[["GroupLab"], Awaitable[None]]) -> "GroupLab":
        """Start the cluster, run `scenario`, and stop the cluster.

        The scenario begins a second after each member that has started owns its share.
        """

        async def main() -> None:
            await self.runtime.start(apart=self._starts_apart)
            await self.settled(self._started)
            await self.runtime.sleep(SECOND)
            await scenario(self)
            await self.runtime.stop()

        self.runtime.run(main())
        assert self.runtime.failures() == ()
        return self

    async def status(self) -> dict[NodeName, MemberStatus]:
        """Return each member's own status."""
        return (await self.runtime.status()).members

    async def settled(self, names: Sequence[NodeName], timeout_us: int = 120 * SECOND) -> None:
        """Wait until each of the members `names` owns its share, which is the state STABLE."""
        deadline_us = self.runtime.now_us() + timeout_us
        while self.runtime.now_us() < deadline_us:
            status = await self.status()
            if all(name in status and status[name].state == "STABLE" for name in names):
                return
            await self.runtime.sleep(SECOND // 20)
        states = {name: member.state for name, member in (await self.status()).items()}
        raise AssertionError(states)

    async def rule(
        self,
        effect: LinkEffect,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        *,
        apis: tuple[str, ...] = (),
        both_ways: bool = False,
    ) -> None:
        """Let `effect` act on the links between nodes; this replaces every other rule.

        Empty `apis` match the messages of every API.
        """
        await self.runtime.set_link_rules(
            link_rules(effect, sources, destinations, apis=apis, both_ways=both_ways)
        )

    async def heal(self) -> None:
        """Remove every rule: all links work again."""
        await self.runtime.set_link_rules([])

    def visitor(self) -> ZkClient:
        """Return a client of the ensemble on the visitor's host."""
        assert self._visitor_host is not None, "pass has_visitor=True"
        return ZkClient(self._visitor_host, self.servers, SESSION_TIMEOUT_MS)

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build and keep a node of the product; for the visitor keep only its host."""
        if host.name == VISITOR:
            self._visitor_host = host
            return IdleNode()
        node = self.nodes[host.name] = build_node(spec, cluster, host)
        return node

    # -- readers of the rows ---------------------------------------------------------------------

    def of(self, kind: TraceKind, *, after_us: int = 0, node: str | None = None) -> list[TraceRow]:
        """Return the rows of a kind from `after_us` on, of `node` or (None) of all nodes."""
        return [
            row
            for row in self.rows
            if row.kind == kind and row.time_us >= after_us and (node is None or row.node == node)
        ]

    def requests(self, after_us: int = 0, node: str | None = None) -> Counter[str]:
        """Return the number of requests to the ensemble, by operation."""
        return Counter(
            str(row.api)
            for row in self.of(TraceKind.REQUEST_SENT, after_us=after_us, node=node)
            if row.peer in self.servers
        )

    def reads(self, after_us: int = 0) -> int:
        """Return the number of reads by the members."""
        requests = self.requests(after_us)
        return sum(requests[name] for name in READS)

    def attempts(self, after_us: int = 0, node: str | None = None) -> list[dict[str, Any]]:
        """Return the details of the attempts that ended."""
        rows = self.of(TraceKind.ZOOKEEPER_ATTEMPT_ENDED, after_us=after_us, node=node)
        return [detail_of(row) for row in rows]

    def writes_of(self, part: str, after_us: int = 0) -> list[tuple[TraceRow, dict[str, Any]]]:
        """Return the applied writes under `/consumers/g/<part>/`, with their details."""
        # Each server applies every write, and writes a row for it. So the rows of one server are
        # enough.
        applied = [
            (row, detail_of(row))
            for row in self.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=after_us)
            if row.node == self.servers[0]
        ]
        return [
            (row, detail)
            for row, detail in applied
            if str(detail.get("path", "")).startswith(f"/consumers/{GROUP}/{part}/")
        ]

    def processed(self, after_us: int = 0, node: str | None = None) -> list[TraceRow]:
        """Return the rows of records that applications have processed."""
        return self.of(TraceKind.RECORDS_CONSUMED, after_us=after_us, node=node)


def detail_of(row: TraceRow) -> dict[str, Any]:
    """Return a row's detail."""
    detail: dict[str, Any] = json.loads(row.detail or "{}")
    return detail
