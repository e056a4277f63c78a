"""The channel to the broker that stores a group's offsets in Kafka: its offset manager.

Later versions of Kafka call this broker the group's coordinator. The broker is looked up when it is
first needed, and again after each failure. A commit has the generation -1 and no member id, so the
broker cannot check whether the consumer owns the partitions (rule ZK-63 of
docs/kafka/ZOOKEEPER_CONSUMER.md).

Source: Kafka 1.1 `ClientUtils.channelToOffsetManager`, `ZookeeperConsumerConnector.fetchOffsets`.
"""

from collections.abc import Iterable, Mapping, Sequence

from cluster.client.zookeeper_consumer.broker_channel import BrokerChannel
from cluster.client.zookeeper_consumer.member import ZooKeeperMember
from cluster.client.zookeeper_consumer.streams import INVALID_OFFSET
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_MS = 1_000  # microseconds in a millisecond


class OffsetManagerChannel:
    """The connection to a group's offset manager; any failure drops the connection."""

    def __init__(self, member: ZooKeeperMember) -> None:
        self._member = member
        self._timeout_us = member.config.offsets_channel_socket_timeout_ms * _MS
        self._channel: BrokerChannel | None = None

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> tuple[TopicPartition, ...]:
        """Commit once, without a retry; return the partitions whose offsets are stored.

        Waits until an offset manager is found.
        """
        channel = await self._connected()
        answer = await channel.ask(
            OffsetCommitRequest(
                group_id=self._member.spec.group_id,
                topics=tuple(
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=tuple(
                            OffsetCommitRequestPartition(
                                partition_index=partition.partition,
                                committed_offset=offsets[partition],
                            )
                            for partition in partitions
                        ),
                    )
                    for topic, partitions in _by_topic(offsets).items()
                ),
            ),
            OffsetCommitResponse,
        )
        # Without an answer, no offset counts as stored.
        stored = tuple(
            TopicPartition(topic.name, entry.partition_index)
            for topic in (() if answer is None else answer.topics)
            for entry in topic.partitions
            if entry.error_code is ErrorCode.NONE
        )
        if len(stored) < len(offsets):
            # The group's offset manager may have moved, so the next use looks it up again.
            self._drop()
        return stored

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets; repeat the request until an offset manager answers."""
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=self._member.spec.group_id,
                    topics=tuple(
                        OffsetFetchRequestTopics(
                            name=topic, partition_indexes=tuple(each.partition for each in group)
                        )
                        for topic, group in _by_topic(partitions).items()
                    ),
                ),
            )
        )
        while True:
            channel = await self._connected()
            answer = await channel.ask(request, OffsetFetchResponse)
            # The request names one group, so the answer has one group.
            if answer is not None and answer.groups[0].error_code is ErrorCode.NONE:
                stored = {
                    TopicPartition(topic.name, entry.partition_index): entry.committed_offset
                    for topic in answer.groups[0].topics
                    for entry in topic.partitions
                    if entry.error_code is ErrorCode.NONE
                }
                return {each: stored.get(each, INVALID_OFFSET) for each in partitions}
            self._drop()
            await self._back_off()

    async def _connected(self) -> BrokerChannel:
        """Return the channel to the offset manager; look for the manager until it is found."""
        while self._channel is None:
            brokers = await self._member.read_brokers()
            self._member.host.rng.shuffle(brokers)
            for broker in brokers:
                manager = await self._ask_for_manager(broker)
                if manager is not None:
                    self._channel = BrokerChannel(self._member.host, manager, self._timeout_us)
                    break
            else:  # no broker named the offset manager
                await self._back_off()
        return self._channel

    async def _ask_for_manager(self, broker: BrokerId) -> BrokerId | None:
        """Return the offset manager that a broker names; None if the broker names none."""
        channel = BrokerChannel(self._member.host, broker, self._timeout_us)
        answer = await channel.ask(
            FindCoordinatorRequest(coordinator_keys=(self._member.spec.group_id,)),
            FindCoordinatorResponse,
        )
        channel.close()
        # The request has one key, the group, so the answer has one coordinator.
        if answer is None or answer.coordinators[0].error_code is not ErrorCode.NONE:
            return None
        return BrokerId(answer.coordinators[0].node_id)

    def _drop(self) -> None:
        """Close the channel, so that the next use looks the offset manager up."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    async def _back_off(self) -> None:
        await self._member.host.sleep(self._member.config.offsets_channel_backoff_ms * _MS)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    return by_topic
