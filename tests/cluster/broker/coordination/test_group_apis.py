"""What a broker does for its group coordinator.

The broker checks a request before it passes it to the coordinator, and appends the records that the
coordinator returns. Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.0, 2.1 and 5.3.

Each test plays a story: a coroutine that sends requests to a cluster of three brokers in virtual
time (`lab`). `lab.client.commit(2, GROUP, 7)` commits offset 7 of orders-0 at broker 2, as a client
that is no member of the group. `lab.events(kind)` returns the recorded events of a kind.
"""

from cluster.host.host import Disconnected, RequestTimedOut
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, BrokerId, broker_name
from protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.discovery import (
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.group import JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

GROUP = "group"
COORDINATOR = partition_for(GROUP, 3)
"""The broker that coordinates the group, because it leads the group's offsets partition.

Broker n leads partition n of the offsets topic, so this is also the number of the partition.
"""
FOLLOWERS = [broker_id for broker_id in range(3) if broker_id != COORDINATOR]


def test_commit_is_acknowledged_when_the_high_watermark_has_passed_it() -> None:
    """The append of a commit ends when the high watermark has passed the record (BEHAVIOUR 5.3).

    An append has two events: one when it starts, with the leader epoch, and one when it ends, with
    the ISR.
    """

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.commit(COORDINATOR, GROUP, 7)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
        (started,) = lab.events(TraceKind.APPEND_STARTED)
        (completed,) = lab.events(TraceKind.APPEND_COMPLETED)
        (advanced,) = lab.events(TraceKind.HIGH_WATERMARK, f"broker-{COORDINATOR}")
        assert started.time_us < advanced.time_us <= completed.time_us
        assert (started.offset, started.leader_epoch) == (0, 0)
        assert (completed.offset, completed.error) == (0, "NONE")
        assert started.correlation_id == completed.correlation_id
        # `epoch_start_offset` is the offset at which the leader epoch begins.
        assert started.detail == '{"epoch_start_offset":0,"records":1}'
        # The coordinator is broker 2. Partition 2 has the replicas 2, 0 and 1.
        assert completed.detail == '{"epoch_start_offset":0,"isr":[2,0,1],"records":1}'

    BrokerLab(broker_cluster()).run(story)


def test_commit_of_an_unknown_partition_is_refused_for_that_partition_only() -> None:
    """The coordinator gets only the offsets of the partitions that exist.

    Source: BEHAVIOUR 2.0.
    """

    async def story(lab: BrokerLab) -> None:
        # The topic has the partitions 0, 1 and 2.
        answer = await lab.client.commit(COORDINATOR, GROUP, 7, partitions=(0, 9))
        errors = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
        assert errors == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert [topic.name for topic in answer.topics] == [ORDERS]

    BrokerLab(broker_cluster()).run(story)


def test_commit_of_unknown_partitions_only_does_not_reach_the_coordinator() -> None:
    """A broker refuses unknown partitions itself, before its coordinator gets the request.

    The request goes to a broker that does not coordinate the group. If the coordinator of this
    broker got the request, the answer would be NOT_COORDINATOR.
    """

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.commit(FOLLOWERS[0], GROUP, 7, partitions=(8, 9))
        errors = [p.error_code for p in answer.topics[0].partitions]
        assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2

    BrokerLab(broker_cluster()).run(story)


def test_sync_group_without_protocol_names_is_inconsistent_since_version_5() -> None:
    """From version 5 on the broker refuses a SyncGroup without protocol names (BEHAVIOUR 2.0).

    In version 4 the request reaches the coordinator, which does not know the member "m".
    """

    async def story(lab: BrokerLab) -> None:
        request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m")
        for version, error in (
            (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (4, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            answer = await lab.client.call(COORDINATOR, request, api_version=version)
            assert isinstance(answer, SyncGroupResponse)
            assert answer.error_code is error

    BrokerLab(broker_cluster()).run(story)


def test_request_may_wait_for_ever_if_a_later_one_replaced_it_and_was_disconnected() -> None:
    """Kafka never answers the replaced request, so the invariant must accept it (BEHAVIOUR 2.2).

    `check_invariants` looks for requests that a broker has forgotten to answer.

    1. A member sends a JoinGroup on one connection, and again on a second connection. For the
       coordinator the second request replaces the first request. So the first request gets no
       answer any more.
    2. The second connection ends. The coordinator does not learn of this, and keeps the second
       request.
    3. The first connection is still open, and waits for an answer that never comes.
    """

    async def story(lab: BrokerLab) -> None:
        # The first answer assigns a member id. The JoinGroup with this id then waits for 3 s,
        # group.initial.rebalance.delay.ms.
        with_member_id = await lab.client.call(COORDINATOR, join_group(group_id=GROUP))
        assert isinstance(with_member_id, JoinGroupResponse)
        assert with_member_id.error_code is ErrorCode.MEMBER_ID_REQUIRED
        request = join_group(group_id=GROUP, member_id=with_member_id.member_id)
        connections = [
            lab.client.host.connect(
                broker_name(BrokerId(COORDINATOR)), "test", setup_timeout_us=1_000_000
            )
            for _ in range(2)
        ]
        answers: list[object] = []
        for connection in connections:
            connection.send(request, timeout_us=2_000_000, on_response=answers.append)
            await lab.seconds(0.1)  # the request arrives
        lab.runtime.check_invariants()
        connections[1].close()
        await lab.seconds(0.1)
        lab.runtime.check_invariants()
        assert [type(answer) for answer in answers] == [Disconnected]
        await lab.seconds(3)  # longer than the timeout of the first request, 2 s
        assert [type(answer) for answer in answers] == [Disconnected, RequestTimedOut]

    BrokerLab(broker_cluster()).run(story)


def test_request_may_wait_for_ever_if_a_later_one_replaced_it_and_was_answered() -> None:
    """Kafka never answers the replaced request, so the invariant must accept it (BEHAVIOUR 2.2).

    1. A member sends a JoinGroup on one connection, and again on a second connection. For the
       coordinator the second request replaces the first request. So the first request gets no
       answer any more.
    2. The coordinator answers the second request.
    3. The first connection is still open, and waits for an answer that never comes.
    """

    async def story(lab: BrokerLab) -> None:
        with_member_id = await lab.client.call(COORDINATOR, join_group(group_id=GROUP))
        assert isinstance(with_member_id, JoinGroupResponse)
        request = join_group(group_id=GROUP, member_id=with_member_id.member_id)
        answers: list[object] = []
        for _ in range(2):
            connection = lab.client.host.connect(
                broker_name(BrokerId(COORDINATOR)), "test", setup_timeout_us=1_000_000
            )
            connection.send(request, timeout_us=10_000_000, on_response=answers.append)
            await lab.seconds(0.1)
        await lab.seconds(3)  # the JoinGroup waits for group.initial.rebalance.delay.ms
        assert [type(answer) for answer in answers] == [JoinGroupResponse]
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_metadata_lists_live_brokers_and_leaders() -> None:
    """Metadata leaves out a broker that the controller has fenced, that is, counts as dead."""

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.call(0, MetadataRequest(topics=None))
        assert isinstance(answer, MetadataResponse)
        assert sorted(broker.node_id for broker in answer.brokers) == [0, 1, 2]
        topics = {topic.name: topic for topic in answer.topics}
        assert topics[CONSUMER_OFFSETS].is_internal
        assert [p.leader_id for p in topics[ORDERS].partitions] == [0, 1, 2]

        await lab.kill(2)
        await lab.until(lambda status: status.brokers_fenced[2])  # type: ignore[index]  # a BrokerId
        await lab.seconds(1)  # broker 0 learns of the fencing
        answer = await lab.client.call(0, MetadataRequest(topics=(ORDERS, "unknown")))
        assert isinstance(answer, MetadataResponse)
        assert sorted(broker.node_id for broker in answer.brokers) == [0, 1]
        orders, unknown = answer.topics
        # orders-2 has the replicas 2, 0 and 1. Without broker 2 the next replica leads, broker 0.
        assert [p.leader_id for p in orders.partitions] == [0, 1, 0]
        assert orders.partitions[0].offline_replicas == (2,)
        assert unknown.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    BrokerLab(broker_cluster()).run(story)


def test_request_for_the_controller_is_refused_by_a_broker() -> None:
    """A broker does not forward a heartbeat, but answers NOT_CONTROLLER."""

    async def story(lab: BrokerLab) -> None:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, current_metadata_offset=1)
        answer = await lab.client.call(0, request)
        assert isinstance(answer, BrokerHeartbeatResponse)
        assert answer.error_code is ErrorCode.NOT_CONTROLLER

    BrokerLab(broker_cluster()).run(story)


def test_commit_record_carries_the_wall_clock() -> None:
    """The retention of an offset counts from the time in its record (BEHAVIOUR 5.1).

    The record must have the wall-clock time, because the next coordinator must understand it, too.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, GROUP, 7)
        data = await lab.client.fetch(COORDINATOR, partition=COORDINATOR, topic=CONSUMER_OFFSETS)
        (batch,) = data.records
        now_ms = lab.client.host.wall_us() // 1_000
        assert now_ms - 1_000 < batch.max_timestamp_ms <= now_ms

    BrokerLab(broker_cluster()).run(story)


def test_consumer_group_heartbeat_is_refused_while_the_protocol_is_off() -> None:
    """The newer group protocol (KIP-848) is off in Kafka 3.9 (recording `kip848-refused`)."""

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.call(
            COORDINATOR,
            ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="", member_epoch=0),
        )
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code is ErrorCode.UNSUPPORTED_VERSION
        assert (await lab.runtime.status()).groups == {}

    BrokerLab(broker_cluster()).run(story)
