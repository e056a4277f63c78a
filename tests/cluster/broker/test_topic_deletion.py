"""A deleted topic, from the controller to disks, waiting requests, groups and clients."""

import pytest

from cluster.client.admin.orders import TopicDeletionFailed, delete_topics, move_leader
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, BrokerId, TopicPartition, broker_name
from protocol.messages.admin import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.discovery import MetadataRequest, MetadataResponse
from protocol.messages.offset import OffsetFetchResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.builders.requests import offset_fetch
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

GROUP = "group"
COORDINATOR = partition_for(GROUP, 3)


async def committed(lab: BrokerLab) -> list[int]:
    """Return the group's committed offsets, as its coordinator says."""
    answer = await lab.client.call(COORDINATOR, offset_fetch(group_id=GROUP))
    assert isinstance(answer, OffsetFetchResponse)
    return [
        partition.committed_offset
        for group in answer.groups
        for topic in group.topics
        for partition in topic.partitions
    ]


def partitions_on(lab: BrokerLab, broker_id: int) -> list[str]:
    """Return the topics that have a log on a broker's disk."""
    return sorted({name.topic for name in lab.storages[broker_name(broker_id)].partitions()})


def test_deleted_topic_goes_from_every_disk_and_every_answer() -> None:
    """Its logs are gone, and nobody finds it."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"lost")
        await lab.runtime.ask_as_admin(delete_topics, [ORDERS])
        await lab.seconds(1)
        for broker_id in range(3):
            assert partitions_on(lab, broker_id) == [CONSUMER_OFFSETS]
            fetched = await lab.client.fetch(broker_id)
            assert fetched.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        produced = await lab.client.produce(0, b"more")
        assert produced.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await lab.client.call(1, MetadataRequest(topics=(ORDERS,)))
        assert isinstance(answer, MetadataResponse)
        assert answer.topics[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    BrokerLab(broker_cluster()).run(story)


def test_deleted_topic_takes_the_offsets_that_groups_committed_of_it() -> None:
    """BEHAVIOUR 2.13: and the group, which holds nothing more."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, GROUP, 7, partitions=(0, 1))
        assert await committed(lab) == [7, 7]
        await lab.runtime.ask_as_admin(delete_topics, [ORDERS])
        await lab.seconds(1)
        assert await committed(lab) == []
        removed = lab.events(TraceKind.OFFSET_REMOVED)
        assert [(row.node, row.group, row.partition) for row in removed] == [
            (broker_name(COORDINATOR), GROUP, "orders-0"),
            (broker_name(COORDINATOR), GROUP, "orders-1"),
        ]
        successor = BrokerId((COORDINATOR + 1) % 3)
        await lab.runtime.ask_as_admin(
            move_leader, TopicPartition(CONSUMER_OFFSETS, COORDINATOR), successor
        )
        await lab.seconds(2)
        (loaded,) = [
            row
            for row in lab.events(TraceKind.LOAD_COMPLETED)
            if row.partition == f"{CONSUMER_OFFSETS}-{COORDINATOR}" and row.leader_epoch == 1
        ]
        assert '"groups":0' in (loaded.detail or "")

    BrokerLab(broker_cluster()).run(story)


def test_append_that_waits_when_its_topic_goes_is_answered() -> None:
    """Nobody will ever acknowledge it."""

    async def story(lab: BrokerLab) -> None:
        for broker_id in (1, 2):
            await lab.kill(broker_id)
        answered: list[ErrorCode] = []

        async def produce() -> None:
            answered.append((await lab.client.produce(0, b"waits")).error_code)

        lab.client.host.spawn(produce(), name="produce")
        await lab.seconds(0.1)
        assert answered == []
        await lab.runtime.ask_as_admin(delete_topics, [ORDERS])
        await lab.seconds(1)
        assert answered == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    BrokerLab(broker_cluster()).run(story)


def test_broker_that_was_down_deletes_the_logs_when_it_is_back() -> None:
    """It learns from the metadata log what it missed, before it serves."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"on three disks")
        await lab.kill(2)
        await lab.runtime.ask_as_admin(delete_topics, [ORDERS])
        await lab.seconds(1)
        await lab.restart(2)
        await lab.seconds(15)
        assert partitions_on(lab, 2) == [CONSUMER_OFFSETS]

    BrokerLab(broker_cluster()).run(story)


def test_deleted_offsets_topic_is_unloaded_without_an_epoch() -> None:
    """MM-18: its groups are gone; the coordinator says that it is none."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, GROUP, 7)
        await lab.runtime.ask_as_admin(delete_topics, [CONSUMER_OFFSETS])
        await lab.seconds(1)
        unloaded = [row.leader_epoch for row in lab.events(TraceKind.UNLOAD_COMPLETED)]
        assert unloaded.count(None) == 9
        answer = await lab.client.commit(COORDINATOR, GROUP, 8)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR
        found = await lab.client.find_coordinator(0, GROUP)
        assert found.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    BrokerLab(broker_cluster()).run(story)


def test_deletion_of_an_unknown_topic_fails_with_kafkas_error() -> None:
    """The administrator is told which one."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(TopicDeletionFailed, match="unknown: UNKNOWN_TOPIC_OR_PARTITION"):
            await lab.runtime.ask_as_admin(delete_topics, [ORDERS, "unknown"])

    BrokerLab(broker_cluster()).run(story)


def test_broker_refuses_to_delete_topics() -> None:
    """The controllers are asked themselves (KIP-919)."""

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.call(0, DeleteTopicsRequest(topic_names=(ORDERS, "b")))
        assert isinstance(answer, DeleteTopicsResponse)
        assert [each.error_code for each in answer.responses] == [ErrorCode.NOT_CONTROLLER] * 2
        assert len(lab.storages[broker_name(0)].partitions()) == 6

    BrokerLab(broker_cluster()).run(story)
