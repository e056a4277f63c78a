"""A group of old consumers, which coordinate over ZooKeeper, in virtual time (a simulated clock).

The members of such a group have no coordinator. They agree over ZooKeeper on who owns which
partition. A member that has noticed a change makes an attempt to own its share of the partitions.
If the attempt fails, the member makes another attempt.

A test writes a scenario, which is a coroutine function that changes the cluster. The test runs the
scenario in a GroupLab. Then it looks at the rows of the trace (the recorded events), which show the
members' requests, attempts and writes.
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
"""The node of a client of ZooKeeper that is no member of the group."""
SECOND = 1_000_000
"""One second in microseconds."""
# The requests to ZooKeeper that only read, and those that write.
READS = ("Exists", "GetData", "GetChildren")
WRITES = ("Create", "Delete", "SetData")


def member_name(index: int) -> NodeName:
    """Return the name of a member's node: `consumer-g-0` for member 0."""
    return NodeName(f"consumer-{GROUP}-{index}")


class GroupLab:
    """A group of `members` members, with the servers, brokers and producers that they need.

    late_from: the members from this index on do not start with the cluster; the scenario may start
        them later.
    starts_apart: if False, all members that start with the cluster do so in the same moment.
    config: the settings of the members.
    configs: settings that replace `config` for some members, by the member's index.
    has_visitor: if True, `visitor` returns a client of ZooKeeper that is no member.
    brokers_register: if True, the brokers register in ZooKeeper.
    records_per_second: how many records the producer of each topic writes, by default 5 for each
        partition. With 0 there are no producers.
    process_us: how long a member works on a record.
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
        # The object of each node. A node that was started again has a new object.
        self.nodes: dict[NodeName, Node] = {}
        self._visitor_host: Host | None = None
        self._starts_apart = starts_apart
        self.members = members
        self.names = tuple(member_name(index) for index in range(members))
        self.servers = tuple(zookeeper_name(index) for index in range(1, servers + 1))
        self.rows: list[TraceRow] = []
        topic_names = tuple(f"t{index}" for index in range(topics))
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
            # A ClusterSpec has no place for a visitor. So it is listed as a producer, and `_build`
            # builds an IdleNode instead.
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
        # A scenario notes here when it began to change the cluster, and when it ended the change
        # (when it healed a cut, for example).
        self.change_began_us = 0
        self.change_ended_us = 0
        self._started = self.names if late_from is None else self.names[:late_from]

    def run(self, scenario: Callable[["GroupLab"], Awaitable[None]]) -> "GroupLab":
        """Start the cluster, carry out `scenario`, and stop the cluster.

        The scenario begins a second after all started members own their shares.
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
        """Return the status that each member reports about itself."""
        return (await self.runtime.status()).members

    async def settled(self, names: Sequence[NodeName], timeout_us: int = 120 * SECOND) -> None:
        """Wait until each of these members owns its share of the partitions.

        Such a member reports the state STABLE.

        Raises: AssertionError after `timeout_us` of virtual time.
        """
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
        """Let `effect` act on the links from `sources` to `destinations`, or in both directions.

        If there are `apis`, the effect acts only on messages of these APIs. This call replaces all
        link rules that were in force before.
        """
        await self.runtime.set_link_rules(
            link_rules(effect, sources, destinations, apis=apis, both_ways=both_ways)
        )

    async def heal(self) -> None:
        """Remove all rules, so that all links work again."""
        await self.runtime.set_link_rules([])

    def visitor(self) -> ZkClient:
        """Return a client of ZooKeeper on the visitor's host."""
        assert self._visitor_host is not None, "pass has_visitor=True"
        return ZkClient(self._visitor_host, self.servers, SESSION_TIMEOUT_MS)

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a node, and keep it in `nodes`. For the visitor, build an IdleNode."""
        if host.name == VISITOR:
            self._visitor_host = host
            return IdleNode()
        node = self.nodes[host.name] = build_node(spec, cluster, host)
        return node

    # -- readers of the rows ---------------------------------------------------------------------

    def of(self, kind: TraceKind, *, after_us: int = 0, node: str | None = None) -> list[TraceRow]:
        """Return the rows of this kind, from `after_us` on, of one node or of all nodes."""
        return [
            row
            for row in self.rows
            if row.kind == kind and row.time_us >= after_us and (node is None or row.node == node)
        ]

    def requests(self, after_us: int = 0, node: str | None = None) -> Counter[str]:
        """Return how many requests of each API were sent to ZooKeeper: {"Exists": 7, ...}."""
        return Counter(
            str(row.api)
            for row in self.of(TraceKind.REQUEST_SENT, after_us=after_us, node=node)
            if row.peer in self.servers
        )

    def reads(self, after_us: int = 0) -> int:
        """Return how many requests to ZooKeeper only read."""
        requests = self.requests(after_us)
        return sum(requests[name] for name in READS)

    def attempts(self, after_us: int = 0, node: str | None = None) -> list[dict[str, Any]]:
        """Return the details of the attempts that have ended, whether they succeeded or not."""
        rows = self.of(TraceKind.ZOOKEEPER_ATTEMPT_ENDED, after_us=after_us, node=node)
        return [detail_of(row) for row in rows]

    def writes_of(self, part: str, after_us: int = 0) -> list[tuple[TraceRow, dict[str, Any]]]:
        """Return the writes below `/consumers/g/<part>/` that ZooKeeper applied.

        For each write, return its row in the trace and the detail of this row.
        """
        # Every server applies every write and has a row about it. So one server's rows suffice.
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
        """Return the rows about records that members have processed."""
        return self.of(TraceKind.RECORDS_CONSUMED, after_us=after_us, node=node)


def detail_of(row: TraceRow) -> dict[str, Any]:
    """Return the decoded detail of a row; {} if the row has no detail."""
    detail: dict[str, Any] = json.loads(row.detail or "{}")
    return detail
