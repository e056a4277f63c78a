"""Commands of a transcript that are requests of a client to a broker.

A transcript is a text file of commands and their results. Each function here makes the request from
a command such as `produce orders-0 'a' acks=1`. The function removes the settings that it knows
from the command, such as `acks`. If a setting is left in the end, the command is wrong. Settings
have the values of Kafka's protocol. For example, `acks=-1` means acks=all.
"""

from collections.abc import Callable

from partition_log.batches import build_batch
from protocol.api import AnyRequest
from protocol.messages.admin import DeleteTopicsRequest
from protocol.messages.discovery import FindCoordinatorRequest, MetadataRequest
from protocol.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records.batch import Record
from tests.support.transcripts.group_requests import read_request
from tests.support.transcripts.words import Command, read_bytes, read_partition


def read_broker_request(command: Command) -> AnyRequest:
    """Return the request that a command describes.

    The setting `version` is no part of the request. The caller has to take it.

    Raises: UnknownWord if the command is no request.
    """
    read = READERS.get(command.name)
    if read is None:
        # The request may be one about groups.
        return read_request(command)
    return read(command)


def _produce(command: Command) -> AnyRequest:
    """`produce orders-0 'a' 'b'` sends one batch with the records a and b."""
    partition = read_partition(command.words[0])
    batch = build_batch(tuple(Record(None, read_bytes(word)) for word in command.words[1:]))
    data = PartitionProduceData(index=partition.partition, records=batch)
    return ProduceRequest(
        acks=command.number("acks", -1),
        timeout_ms=command.number("timeout", 10_000),
        topic_data=(TopicProduceData(name=partition.topic, partition_data=(data,)),),
    )


def _read(command: Command) -> AnyRequest:
    """`read orders-0 5` fetches from offset 5, as a consumer does. The default is offset 0."""
    partition = read_partition(command.words[0])
    offset = int(command.words[1]) if len(command.words) > 1 else 0
    position = FetchPartition(partition=partition.partition, fetch_offset=offset)
    return FetchRequest(
        max_wait_ms=command.number("max_wait", 0),
        min_bytes=command.number("min_bytes", 1),
        topics=(FetchTopic(topic=partition.topic, partitions=(position,)),),
    )


def _find_coordinator(command: Command) -> AnyRequest:
    """`find_coordinator g` asks for the coordinator of the group g.

    `find_coordinator tx type=1` asks for the coordinator of the transactional id tx.
    """
    return FindCoordinatorRequest(
        key_type=command.number("type", 0), coordinator_keys=tuple(command.words)
    )


def _list_offsets(command: Command) -> AnyRequest:
    """`list_offsets orders-0 -2` asks for the first offset of the log.

    `list_offsets orders-0 -1` asks for the end of the log.
    """
    partition = read_partition(command.words[0])
    position = ListOffsetsPartition(
        partition_index=partition.partition, timestamp=int(command.words[1])
    )
    topic = ListOffsetsTopic(name=partition.topic, partitions=(position,))
    return ListOffsetsRequest(topics=(topic,))


def _metadata(command: Command) -> AnyRequest:
    """`metadata orders` asks for the metadata of the topic orders.

    `metadata` asks for the metadata of all topics.
    """
    return MetadataRequest(topics=tuple(command.words) or None)


def _delete_topics(command: Command) -> AnyRequest:
    """`delete_topics orders` deletes topics."""
    return DeleteTopicsRequest(topic_names=tuple(command.words))


READERS: dict[str, Callable[[Command], AnyRequest]] = {
    "produce": _produce,
    "read": _read,
    "find_coordinator": _find_coordinator,
    "list_offsets": _list_offsets,
    "metadata": _metadata,
    "delete_topics": _delete_topics,
}
"""The name of a command -> the function that makes its request.

Requests about groups are in `group_requests`.
"""
