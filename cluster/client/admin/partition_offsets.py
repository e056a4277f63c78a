"""What an administrator asks about partitions: how many there are, where logs begin and end.

Each partition's leader is looked up in the metadata of any broker. Source: Kafka
KafkaAdminClient.listOffsets, PartitionLeaderStrategy; DEVIATION: a topic that the asked broker does
not know is an answer, where Kafka asks again until the time is over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cluster.client.admin.admin_calls import AdminCalls
from cluster.client.admin.admin_driver import Ask, Lookup
from cluster.client.net.errors import ClientError
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.discovery import MetadataRequest, MetadataResponse
from protocol.messages.log import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
LATEST = -1
"""The timestamps of ListOffsets that mean the log's begin, and its end as consumers see it."""

E = TypeVar("E")
T = TypeVar("T")

_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


async def count_partitions(
    calls: AdminCalls, topics: Sequence[str]
) -> dict[str, int | ClientError]:
    """Return how many partitions each topic has, as one broker knows it.

    Raises: TimeoutError if no broker answers.
    """
    response = await calls.ask_broker(MetadataRequest(topics=tuple(topics)), MetadataResponse)
    return {
        topic.name: len(topic.partitions)
        if topic.error_code is ErrorCode.NONE
        else ClientError(topic.error_code.name, retriable=False)
        for topic in response.topics
    }


async def log_offsets(
    calls: AdminCalls, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int | ClientError]:
    """Return where each partition's log begins (EARLIEST) or ends (LATEST), as its leader says."""
    ask: Ask[TopicPartition, int, ListOffsetsResponse] = Ask(
        request=lambda keys: ListOffsetsRequest(
            topics=by_topic(
                keys,
                topic=lambda name, entries: ListOffsetsTopic(name=name, partitions=entries),
                entry=lambda partition: ListOffsetsPartition(
                    partition_index=partition.partition, timestamp=timestamp
                ),
            )
        ),
        response_type=ListOffsetsResponse,
        outcomes=_offsets,
    )
    return await calls.ask_each(partitions, ask, _LEADERS)


def by_topic(
    partitions: Sequence[TopicPartition],
    *,
    topic: Callable[[str, tuple[E, ...]], T],
    entry: Callable[[TopicPartition], E],
) -> tuple[T, ...]:
    """Return partitions as requests have them: one `topic` for each, with its `entry`s."""
    grouped: dict[str, list[E]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(entry(partition))
    return tuple(topic(name, tuple(entries)) for name, entries in grouped.items())


def _leaders(
    response: MetadataResponse, keys: tuple[TopicPartition, ...]
) -> Mapping[TopicPartition, BrokerId | ClientError]:
    unknown = ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, retriable=False)
    found: dict[TopicPartition, BrokerId | ClientError] = dict.fromkeys(keys, unknown)
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if partition not in found:
                continue
            if entry.error_code is ErrorCode.NONE:
                found[partition] = BrokerId(entry.leader_id)
            else:
                found[partition] = _error(entry.error_code)
    return found


def _offsets(
    response: ListOffsetsResponse, _broker: BrokerId, keys: tuple[TopicPartition, ...]
) -> Mapping[TopicPartition, int | ClientError]:
    missing = ClientError(ErrorCode.UNKNOWN_SERVER_ERROR.name, retriable=False)
    found: dict[TopicPartition, int | ClientError] = dict.fromkeys(keys, missing)
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            is_known = entry.error_code is ErrorCode.NONE
            found[partition] = entry.offset if is_known else _error(entry.error_code)
    return found


def _error(code: ErrorCode) -> ClientError:
    return ClientError(code.name, retriable=code in _RETRIED)


_LEADERS: Lookup[TopicPartition, MetadataResponse] = Lookup(
    request=lambda keys: MetadataRequest(topics=tuple(dict.fromkeys(key.topic for key in keys))),
    response_type=MetadataResponse,
    places=_leaders,
)
