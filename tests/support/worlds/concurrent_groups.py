"""Fifty groups of twenty-five members that act at the same time, on a virtual cluster.

The cluster has three brokers, and its groups are stored in two offsets partitions (partitions of
`__consumer_offsets`; the broker that leads one coordinates its groups). Network latencies are drawn
by a seed. A member sends single requests and waits for each answer; it retries nothing. The tests
follow Kafka's GroupCoordinatorConcurrencyTest.
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

GROUPS, MEMBERS = 50, 25
"""Number of groups, and of the members of each."""
BROKERS, OFFSETS_PARTITIONS = 3, 2
TRANSACTION_COORDINATOR = 0
"""Broker that leads the only partition of `__transaction_state`."""
TOPIC = "foo"
MACHINE = NodeName("machine")
JOIN_VERSION = 3
"""JoinGroup version in which a client without a member id becomes a member with one request.

In later versions the client first gets an id, and must join again with it.
"""
SESSION_MS = 60_000
LOOK_EVERY_US = 10_000
"""Interval at which a test checks whether an answer or a state has come."""
WAIT_MAX_US = 600_000_000
"""Time after which a test fails for lack of an answer; it is longer than any timeout."""
Operation = Callable[["ClientMember"], Awaitable[ErrorCode]]


@dataclass(slots=True)
class ClientMember:
    """A member of a group, with what its client knows of it.

    Member number n commits only offset n, for partition n. Each method sends a request in one
    version of its API, which is the second argument of `_ask`.
    """

    machine: ClientMachine
    group_id: str
    index: int
    rebalance_timeout_ms: int
    member_id: str = ""
    generation_id: int = -1
    joined: JoinGroupResponse | None = None

    async def join(self) -> ErrorCode:
        """Send a JoinGroup and keep the answer."""
        body = join_group(
            self.member_id,
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )
        response = await self._ask(body, JOIN_VERSION)
        assert isinstance(response, JoinGroupResponse)
        if response.error_code is ErrorCode.NONE:
            self.joined = response
            self.generation_id = response.generation_id
        self.member_id = response.member_id
        return response.error_code

    async def sync(self) -> ErrorCode:
        """Send a SyncGroup. The leader of the group gives each member its own id as assignment."""
        members = self.joined.members if self.joined is not None else ()
        assignments = {member.member_id: member.member_id.encode() for member in members}
        body = sync_group(self.member_id, self.generation_id, assignments, group_id=self.group_id)
        response = await self._ask(body, 5)
        assert isinstance(response, SyncGroupResponse)
        if response.error_code is ErrorCode.NONE:
            assert response.assignment == self.member_id.encode()
        return response.error_code

    async def heartbeat(self) -> ErrorCode:
        """Send a Heartbeat."""
        response = await self._ask(
            heartbeat(self.member_id, self.generation_id, group_id=self.group_id), 4
        )
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    async def commit(self) -> ErrorCode:
        """Send an OffsetCommit of the member's own partition."""
        body = offset_commit(
            {(TOPIC, self.index): self.index},
            self.member_id,
            self.generation_id,
            group_id=self.group_id,
        )
        response = await self._ask(body, 9)
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    async def fetch(self) -> ErrorCode:
        """Send an OffsetFetch of the member's own partition."""
        return (await self.fetched())[0]

    async def fetched(self, *, require_stable: bool = False) -> tuple[ErrorCode, int]:
        """Return the error and the offset of the member's own partition."""
        body = offset_fetch(
            (TOPIC, self.index), group_id=self.group_id, require_stable=require_stable
        )
        response = await self._ask(body, 9)
        assert isinstance(response, OffsetFetchResponse)
        (group,) = response.groups
        assert group.error_code is ErrorCode.NONE
        (partition,) = group.topics[0].partitions
        return partition.error_code, partition.committed_offset

    async def commit_in_a_transaction(self) -> ErrorCode:
        """Commit the member's own partition in a new transaction, and commit the transaction."""
        name = f"tx-{self.group_id}-{self.index}"
        begun = await self._init_producer_id(name)
        added = await self._ask(
            AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                group_id=self.group_id,
            ),
            3,
            broker=TRANSACTION_COORDINATOR,
        )
        assert isinstance(added, AddOffsetsToTxnResponse)
        assert added.error_code is ErrorCode.NONE
        topics = offset_commit({(TOPIC, self.index): self.index}).topics
        committed = await self._ask(
            TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=self.group_id,
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                generation_id=self.generation_id,
                member_id=self.member_id,
                topics=topics,
            ),
            3,
        )
        assert isinstance(committed, TxnOffsetCommitResponse)
        error = committed.topics[0].partitions[0].error_code
        ended = await self._ask(
            EndTxnRequest(
                transactional_id=name,
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                committed=True,
            ),
            3,
            broker=TRANSACTION_COORDINATOR,
        )
        assert isinstance(ended, EndTxnResponse)
        assert ended.error_code is ErrorCode.NONE
        return error

    async def _init_producer_id(self, transactional_id: str) -> InitProducerIdResponse:
        """Send InitProducerId, and repeat it while the coordinator has no producer ids to give.

        The coordinator gets them in blocks from the controller.
        """
        body = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        while True:
            response = await self._ask(body, 4, broker=TRANSACTION_COORDINATOR)
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert response.error_code is ErrorCode.NONE, response
                return response
            await self.machine.host.sleep(LOOK_EVERY_US)

    async def fetch_stable(self) -> ErrorCode:
        """Send OffsetFetch of the member's own partition, until its offset is stable.

        The offset is unstable while a transaction with an offset for the partition has not ended.
        """
        error, offset = await self.fetched(require_stable=True)
        while error is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await self.machine.host.sleep(LOOK_EVERY_US)
            error, offset = await self.fetched(require_stable=True)
        assert offset == self.index
        return error

    async def leave(self) -> ErrorCode:
        """Send a LeaveGroup."""
        response = await self._ask(leave_group(self.member_id, group_id=self.group_id), 5)
        assert isinstance(response, LeaveGroupResponse)
        assert response.error_code is ErrorCode.NONE
        return response.members[0].error_code

    async def _ask(
        self, body: AnyRequest, version: int, *, broker: int | None = None
    ) -> AnyResponse | str:
        """Send a request to `broker` (None: the group's coordinator); return the answer."""
        to = coordinator_of(self.group_id) if broker is None else broker
        name = f"{self.group_id}-{self.index}"
        address = Address(client=name, client_id=name, number=0, broker_id=to)
        return await self.machine.ask(address, body, version)


class ConcurrentGroups:
    """The cluster with the clients of all groups."""

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
        """Start the cluster, run `main` when every coordinator serves, and stop the cluster."""

        async def whole() -> None:
            await self.runtime.start()
            try:
                await self._wait_until_served()
                await main
            finally:
                await self.runtime.stop()

        self.runtime.run(whole())

    async def all_do(self, operation: Operation) -> dict[str, list[ErrorCode]]:
        """Let all members do `operation` at the same time; return the errors by group."""
        return await self.all_do_each([operation])

    async def all_do_each(
        self, operations: Sequence[Operation], *, shuffled: bool = False, pause_us: int = 0
    ) -> dict[str, list[ErrorCode]]:
        """Let every member do `operations` one after another, all members at the same time.

        Returns the errors by group, in the order of the answers.

        shuffled: each member has a random order of the operations.
        pause_us: longest random pause before an operation.
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
        """Return the coordinators' descriptions of the groups."""
        groups: dict[str, DescribedGroup] = {}
        for broker_id in range(BROKERS):
            response = await self._describe_groups_of(broker_id)
            assert isinstance(response, DescribeGroupsResponse)
            groups.update({group.group_id: group for group in response.groups})
        return groups

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
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
        """Wait for the coordinators of groups, and for that of transactions."""
        waiting = True
        while waiting:
            await self.runtime.sleep(LOOK_EVERY_US)
            responses = [await self._describe_groups_of(broker_id) for broker_id in range(BROKERS)]
            begun = await self._ask(
                InitProducerIdRequest(transactional_id="probe", transaction_timeout_ms=60_000),
                4,
                broker_id=TRANSACTION_COORDINATOR,
            )
            # Wait until every broker describes its groups without an error, and the coordinator of
            # transactions gives a producer id.
            waiting = (
                not isinstance(begun, InitProducerIdResponse)
                or begun.error_code is not ErrorCode.NONE
                or any(
                    not isinstance(response, DescribeGroupsResponse)
                    or any(group.error_code is not ErrorCode.NONE for group in response.groups)
                    for response in responses
                )
            )

    async def _describe_groups_of(self, broker_id: int) -> AnyResponse | str:
        """Ask a broker for the groups that it coordinates; return a text if it does not answer."""
        ids = tuple(group_id for group_id in group_ids() if coordinator_of(group_id) == broker_id)
        return await self._ask(DescribeGroupsRequest(groups=ids), 5, broker_id=broker_id)

    async def _ask(self, body: AnyRequest, version: int, *, broker_id: int) -> AnyResponse | str:
        machine = self._machine
        if machine is None:
            return "the clients' machine has not started"
        address = Address(client="admin", client_id="admin", number=0, broker_id=broker_id)
        return await machine.ask(address, body, version)


def group_ids() -> list[str]:
    """Return the names of the groups."""
    return [f"group-{number}" for number in range(GROUPS)]


def coordinator_of(group_id: str) -> int:
    """Return the broker that coordinates a group: broker p leads the offsets partition p."""
    return partition_for(group_id, OFFSETS_PARTITIONS)


def _cluster(config: BrokerConfig) -> ClusterSpec:
    # replicas[n] has all brokers, broker n first: the first replica becomes the leader.
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
        # Instead of this producer, `_build` makes the machine of the clients.
        producers=(ProducerSpec(name=MACHINE, topic=TOPIC, records_per_second=1),),
        broker_config=config,
    )
