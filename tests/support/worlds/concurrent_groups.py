"""Fifty groups of twenty-five members act at the same time on a cluster in virtual time.

The tests follow Kafka's GroupCoordinatorConcurrencyTest. A test tells all members what to do, as in
`await groups.all_do(ClientMember.join)`. Then each member sends a request and waits for the answer.
A member does not repeat a request that fails. The latencies of the network are drawn from a seed.
So each seed mixes the requests of the members in another order.

The cluster has three brokers. Two of them coordinate groups, because `__consumer_offsets` has two
partitions.
"""

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.conformance.client_machine import Address, ClientMachine
from cluster.host.host import Host
from cluster.node_factory import Node, build_node
from cluster.spec import BrokerSpec, ClusterSpec, ControllerSpec, NodeSpec, ProducerSpec, TopicSpec
from cluster.virtual.runtime import VirtualRuntime
from protocol.api import AnyRequest, AnyResponse
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, NodeName
from protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from protocol.messages.group_admin import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.offset import OffsetCommitResponse, OffsetFetchResponse
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from protocol.partitioner import partition_for
from tests.support.builders.requests import (
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

GROUPS = 50
MEMBERS = 25
"""The number of members in each group."""
BROKERS, OFFSETS_PARTITIONS = 3, 2
TRANSACTION_COORDINATOR = 0
"""The broker that coordinates all transactions: `__transaction_state` has only one partition."""
TOPIC = "foo"
MACHINE = NodeName("machine")
"""The node that sends the requests of all members."""
JOIN_VERSION = 3
"""With this version of JoinGroup a client becomes a member with a single request.

With later versions, a client first gets a member id, and must join again with this id.
"""
SESSION_MS = 60_000
LOOK_EVERY_US = 10_000
"""The time between two checks of a task that waits for something."""
WAIT_MAX_US = 600_000_000
"""A test fails if an answer has not come after this time. It is longer than any timeout."""
Operation = Callable[["ClientMember"], Awaitable[ErrorCode]]
"""Something that a member does, such as `ClientMember.join`."""


@dataclass(slots=True)
class ClientMember:
    """A member of a group. Each of its operations returns the error code of the answer.

    Member number n commits only for partition n, and always the offset n.
    """

    machine: ClientMachine
    group_id: str
    index: int
    rebalance_timeout_ms: int
    member_id: str = ""
    generation_id: int = -1
    # The answer to the member's last successful JoinGroup.
    joined: JoinGroupResponse | None = None

    async def join(self) -> ErrorCode:
        """Send a JoinGroup, and keep what the answer says."""
        body = join_group(
            self.member_id,
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )
        response = await self._ask(body, version=JOIN_VERSION)
        assert isinstance(response, JoinGroupResponse)
        if response.error_code is ErrorCode.NONE:
            self.joined = response
            self.generation_id = response.generation_id
        self.member_id = response.member_id
        return response.error_code

    async def sync(self) -> ErrorCode:
        """Send a SyncGroup, and check that the member gets its own assignment.

        For this check, the leader of the group assigns to each member the member's own id.
        """
        members = self.joined.members if self.joined is not None else ()
        assignments = {member.member_id: member.member_id.encode() for member in members}
        body = sync_group(self.member_id, self.generation_id, assignments, group_id=self.group_id)
        response = await self._ask(body, version=5)
        assert isinstance(response, SyncGroupResponse)
        if response.error_code is ErrorCode.NONE:
            assert response.assignment == self.member_id.encode()
        return response.error_code

    async def heartbeat(self) -> ErrorCode:
        """Send a Heartbeat."""
        response = await self._ask(
            heartbeat(self.member_id, self.generation_id, group_id=self.group_id), version=4
        )
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    async def commit(self) -> ErrorCode:
        """Send an OffsetCommit for the member's own partition."""
        body = offset_commit(
            {(TOPIC, self.index): self.index},
            self.member_id,
            self.generation_id,
            group_id=self.group_id,
        )
        response = await self._ask(body, version=9)
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    async def fetch(self) -> ErrorCode:
        """Send an OffsetFetch for the member's own partition."""
        error, _ = await self.fetched()
        return error

    async def fetched(self, *, require_stable: bool = False) -> tuple[ErrorCode, int]:
        """Send an OffsetFetch for the member's own partition; return its error code and offset."""
        body = offset_fetch(
            (TOPIC, self.index), group_id=self.group_id, require_stable=require_stable
        )
        response = await self._ask(body, version=9)
        assert isinstance(response, OffsetFetchResponse)
        (group,) = response.groups
        assert group.error_code is ErrorCode.NONE
        (partition,) = group.topics[0].partitions
        return partition.error_code, partition.committed_offset

    async def commit_in_a_transaction(self) -> ErrorCode:
        """Commit the offset in a new transaction, and commit the transaction.

        Return the error code of the commit of the offset. All other requests must succeed.
        """
        name = f"tx-{self.group_id}-{self.index}"
        producer = await self._init_producer_id(name)
        added = await self._ask(
            AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id=self.group_id,
            ),
            version=3,
            broker=TRANSACTION_COORDINATOR,
        )
        assert isinstance(added, AddOffsetsToTxnResponse)
        assert added.error_code is ErrorCode.NONE
        topics = offset_commit({(TOPIC, self.index): self.index}).topics
        committed = await self._ask(
            TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=self.group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                generation_id=self.generation_id,
                member_id=self.member_id,
                topics=topics,
            ),
            version=3,
        )
        assert isinstance(committed, TxnOffsetCommitResponse)
        error = committed.topics[0].partitions[0].error_code
        ended = await self._ask(
            EndTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=True,
            ),
            version=3,
            broker=TRANSACTION_COORDINATOR,
        )
        assert isinstance(ended, EndTxnResponse)
        assert ended.error_code is ErrorCode.NONE
        return error

    async def _init_producer_id(self, transactional_id: str) -> InitProducerIdResponse:
        """Send InitProducerId, and repeat it as long as the coordinator has no producer ids.

        The coordinator gets producer ids in blocks from the controller. While it waits for a block,
        it has none.
        """
        body = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        while True:
            response = await self._ask(body, version=4, broker=TRANSACTION_COORDINATOR)
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert response.error_code is ErrorCode.NONE, response
                return response
            await self.machine.host.sleep(LOOK_EVERY_US)

    async def fetch_stable(self) -> ErrorCode:
        """Send OffsetFetch for the member's own partition until the offset is stable.

        The offset is stable when no open transaction has an offset for the partition.
        """
        error, offset = await self.fetched(require_stable=True)
        while error is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await self.machine.host.sleep(LOOK_EVERY_US)
            error, offset = await self.fetched(require_stable=True)
        assert offset == self.index
        return error

    async def leave(self) -> ErrorCode:
        """Send a LeaveGroup."""
        response = await self._ask(leave_group(self.member_id, group_id=self.group_id), version=5)
        assert isinstance(response, LeaveGroupResponse)
        assert response.error_code is ErrorCode.NONE
        return response.members[0].error_code

    async def _ask(
        self, body: AnyRequest, *, version: int, broker: int | None = None
    ) -> AnyResponse | str:
        """Send a request in this version of its API, and return the answer.

        The request goes to `broker`, by default to the coordinator of the group.
        """
        broker_id = coordinator_of(self.group_id) if broker is None else broker
        name = f"{self.group_id}-{self.index}"
        address = Address(client=name, client_id=name, number=0, broker_id=broker_id)
        return await self.machine.ask(address, body, version)


class ConcurrentGroups:
    """The cluster, and the members of all groups.

    max_size: how many members a group may have (`group.max.size`).
    delay_ms: how long a new group waits for more members (`group.initial.rebalance.delay.ms`).
    """

    def __init__(
        self,
        *,
        seed: int,
        max_size: int = 1_000,
        rebalance_timeout_ms: int = 300_000,
        delay_ms: int = 500,
    ) -> None:
        self.rng = random.Random(seed)
        self.members: list[ClientMember] = []
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._machine: ClientMachine | None = None
        config = BrokerConfig(
            group_max_size=max_size,
            group_initial_rebalance_delay_ms=delay_ms,
            offsets_topic_num_partitions=OFFSETS_PARTITIONS,
            transaction_state_log_num_partitions=1,
        )
        self.runtime = VirtualRuntime(
            _cluster(config), seed=seed, run_id="test", trace_messages=False, build=self._build
        )

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the cluster, wait until all coordinators serve, run `main`, and stop."""

        async def whole() -> None:
            await self.runtime.start()
            try:
                await self._wait_until_served()
                await main
            finally:
                await self.runtime.stop()

        self.runtime.run(whole())

    async def all_do(self, operation: Operation) -> dict[str, list[ErrorCode]]:
        """Let all members do something at the same time; return the error codes by group."""
        return await self.all_do_each([operation])

    async def all_do_each(
        self, operations: Sequence[Operation], *, shuffled: bool = False, pause_us: int = 0
    ) -> dict[str, list[ErrorCode]]:
        """Let every member do some operations one after the other, all members at the same time.

        Return the error codes by group, in the order of the answers.

        shuffled: each member does the operations in a random order of its own.
        pause_us: before each operation, each member makes a random pause of at most this time.
        """
        machine = self._machine
        assert machine is not None
        errors: dict[str, list[ErrorCode]] = {member.group_id: [] for member in self.members}
        unfinished = len(self.members)

        async def take_steps(
            member: ClientMember, order: list[Operation], pauses_us: list[int]
        ) -> None:
            nonlocal unfinished
            for operation, pause in zip(order, pauses_us, strict=True):
                await machine.host.sleep(pause)
                errors[member.group_id].append(await operation(member))
            unfinished -= 1

        for member in self.members:
            order = list(operations)
            if shuffled:
                self.rng.shuffle(order)
            pauses_us = [self.rng.randint(0, pause_us) for _ in order]
            name = f"{member.group_id}-{member.index}"
            machine.host.spawn(take_steps(member, order, pauses_us), name=name)
        until_us = self.runtime.now_us() + WAIT_MAX_US
        while unfinished:
            assert self.runtime.now_us() < until_us, f"{unfinished} members wait for an answer"
            await self.runtime.sleep(LOOK_EVERY_US)
        return errors

    async def described(self) -> dict[str, DescribedGroup]:
        """Return for each group how its coordinator describes it."""
        groups: dict[str, DescribedGroup] = {}
        for broker_id in range(BROKERS):
            response = await self._describe_groups_of(broker_id)
            assert isinstance(response, DescribeGroupsResponse)
            groups.update({group.group_id: group for group in response.groups})
        return groups

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a node as usual. Instead of the producer, build the machine of all clients."""
        if not isinstance(spec, ProducerSpec):
            return build_node(spec, cluster, host)
        self._machine = ClientMachine(host)
        self.members = [
            ClientMember(self._machine, group_id, index, self._rebalance_timeout_ms)
            for group_id in group_ids()
            for index in range(MEMBERS)
        ]
        return self._machine

    async def _wait_until_served(self) -> None:
        """Wait until all coordinators of groups and the coordinator of transactions serve."""
        while True:
            await self.runtime.sleep(LOOK_EVERY_US)
            descriptions = [
                await self._describe_groups_of(broker_id) for broker_id in range(BROKERS)
            ]
            producer = await self._ask(
                InitProducerIdRequest(transactional_id="probe", transaction_timeout_ms=60_000),
                version=4,
                broker_id=TRANSACTION_COORDINATOR,
            )
            groups_are_served = all(
                isinstance(response, DescribeGroupsResponse)
                and all(group.error_code is ErrorCode.NONE for group in response.groups)
                for response in descriptions
            )
            transactions_are_served = (
                isinstance(producer, InitProducerIdResponse)
                and producer.error_code is ErrorCode.NONE
            )
            if groups_are_served and transactions_are_served:
                return

    async def _describe_groups_of(self, broker_id: int) -> AnyResponse | str:
        """Ask a broker to describe its groups. If it does not answer, return a text instead."""
        ids = tuple(group_id for group_id in group_ids() if coordinator_of(group_id) == broker_id)
        return await self._ask(DescribeGroupsRequest(groups=ids), version=5, broker_id=broker_id)

    async def _ask(self, body: AnyRequest, *, version: int, broker_id: int) -> AnyResponse | str:
        machine = self._machine
        if machine is None:
            return "the clients' machine has not started"
        address = Address(client="admin", client_id="admin", number=0, broker_id=broker_id)
        return await machine.ask(address, body, version)


def group_ids() -> list[str]:
    """Return the ids of all groups."""
    return [f"group-{number}" for number in range(GROUPS)]


def coordinator_of(group_id: str) -> int:
    """Return the broker that coordinates a group: broker n leads the offsets partition n."""
    return partition_for(group_id, OFFSETS_PARTITIONS)


def _cluster(config: BrokerConfig) -> ClusterSpec:
    # The first replica of a partition becomes its leader. `replicas[n]` begins with broker n.
    replicas = [
        tuple((first + step) % BROKERS for step in range(BROKERS)) for first in range(BROKERS)
    ]
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=broker_id) for broker_id in range(BROKERS)),
        topics=(
            TopicSpec(
                name=CONSUMER_OFFSETS,
                partitions=OFFSETS_PARTITIONS,
                replication_factor=BROKERS,
                assignments=tuple(replicas[:OFFSETS_PARTITIONS]),
            ),
            TopicSpec(
                name=TRANSACTION_STATE,
                partitions=1,
                replication_factor=BROKERS,
                assignments=(replicas[0],),
            ),
            TopicSpec(name=TOPIC, partitions=MEMBERS, replication_factor=1),
        ),
        # Instead of this producer, `_build` builds the machine of all clients.
        producers=(ProducerSpec(name=MACHINE, topic=TOPIC, records_per_second=1),),
        broker_config=config,
    )
