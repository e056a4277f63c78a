"""Commands of a transcript that are requests of clients to one broker.

A transcript is a text file of commands and their printed results. A command has a name, words and
settings (`acks=1`). The functions here are readers. A reader makes a request from a command, and
removes from the command the settings that it has read. If a setting remains, no reader knows it,
which is an error.

Some settings are numbers of Kafka's protocol. `acks=-1`, the default, means that all in-sync
replicas must have the records before the broker answers. The key type 0 of a coordinator, the
default, stands for a group.
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
    """Return the request of a command. The caller reads the setting `version`.

    Raises: UnknownWord for a command that is no request.
    """
    read = READERS.get(command.name)
    return read_request(command) if read is None else read(command)


def _produce(command: Command) -> AnyRequest:
    """`produce orders-0 'a' 'b'`: send one batch with the records a and b."""
    partition = read_partition(command.words[0])
    batch = build_batch(tuple(Record(None, read_bytes(word)) for word in command.words[1:]))
    data = PartitionProduceData(index=partition.partition, records=batch)
    return ProduceRequest(
        acks=command.number("acks", -1),
        timeout_ms=command.number("timeout", 10_000),
        topic_data=(TopicProduceData(name=partition.topic, partition_data=(data,)),),
    )


def _read(command: Command) -> AnyRequest:
    """`read orders-0 5`: fetch as a consumer, from offset 5; `read orders-0`: from offset 0."""
    partition = read_partition(command.words[0])
    offset = int(command.words[1]) if len(command.words) > 1 else 0
    position = FetchPartition(partition=partition.partition, fetch_offset=offset)
    return FetchRequest(
        max_wait_ms=command.number("max_wait", 0),
        min_bytes=command.number("min_bytes", 1),
        topics=(FetchTopic(topic=partition.topic, partitions=(position,)),),
    )


def _find_coordinator(command: Command) -> AnyRequest:
    """`find_coordinator g`: ask for the coordinator of group g.

    `find_coordinator tx type=1`: ask for the coordinator of the transactional id tx.
    """
    return FindCoordinatorRequest(
        key_type=command.number("type", 0), coordinator_keys=tuple(command.words)
    )


def _list_offsets(command: Command) -> AnyRequest:
    """`list_offsets orders-0 -2`: request the first offset; with -1 the offset of the log's end."""
    partition = read_partition(command.words[0])
    position = ListOffsetsPartition(
        partition_index=partition.partition, timestamp=int(command.words[1])
    )
    topic = ListOffsetsTopic(name=partition.topic, partitions=(position,))
    return ListOffsetsRequest(topics=(topic,))


def _metadata(command: Command) -> AnyRequest:
    """`metadata orders`: request the metadata of a topic; without words, of all topics."""
    return MetadataRequest(topics=tuple(command.words) or None)


def _delete_topics(command: Command) -> AnyRequest:
    """`delete_topics orders`: delete topics."""
    return DeleteTopicsRequest(topic_names=tuple(command.words))


READERS: dict[str, Callable[[Command], AnyRequest]] = {
    "produce": _produce,
    "read": _read,
    "find_coordinator": _find_coordinator,
    "list_offsets": _list_offsets,
    "metadata": _metadata,
    "delete_topics": _delete_topics,
}
"""Functions that build a request from a command, by the command's name.

The requests of groups are in `group_requests`.
"""
