"""Partitions that do not exist, in requests about offsets.

A client may commit or delete offsets of a partition that does not exist. The coordinator gets the
request without such partitions. The API layer then adds an error for each of them to the
coordinator's answer.

Source: Kafka `KafkaApis` (`handleOffsetCommitRequest`, `handleTxnOffsetCommitRequest`,
`handleOffsetDeleteRequest`), `OffsetDeleteResponse.Builder.merge`.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from protocol.api import AnyResponse
from protocol.errors import ErrorCode
from protocol.messages.group_admin import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.transaction import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

UnknownPartitions = dict[str, tuple[int, ...]]
"""Indexes of partitions that do not exist, by topic, in the order of the request."""

OffsetsRequest = TypeVar(
    "OffsetsRequest", OffsetCommitRequest, TxnOffsetCommitRequest, OffsetDeleteRequest
)
Topic = TypeVar("Topic", OffsetCommitRequestTopic, OffsetDeleteRequestTopic)
"""A topic in one of these requests. OffsetCommit and TxnOffsetCommit share one struct for it."""


def without_unknown(
    request: OffsetsRequest, contains: Callable[[str, int], bool]
) -> tuple[OffsetsRequest, UnknownPartitions]:
    """Return the request without nonexistent partitions, and the nonexistent partitions.

    `contains` returns True if a topic has a partition with this index. A topic without an existing
    partition is left out, so the returned request may have no topics.
    """
    # Normally all partitions exist. Then the request is returned without making a copy.
    if all(
        contains(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ):
        return request, {}
    unknown: UnknownPartitions = {}
    known = []
    for topic in request.topics:
        # the indexes of the topic's nonexistent partitions
        indexes = tuple(
            partition.partition_index
            for partition in topic.partitions
            if not contains(topic.name, partition.partition_index)
        )
        if indexes:
            # `get` is used because a request may name a topic twice.
            unknown[topic.name] = unknown.get(topic.name, ()) + indexes
        if len(indexes) < len(topic.partitions):
            known.append(_keep(topic, contains))
    return msgspec.structs.replace(request, topics=tuple(known)), unknown


def _keep(topic: Topic, contains: Callable[[str, int], bool]) -> Topic:
    """Return the topic of a request with its existing partitions only."""
    partitions = tuple(
        partition
        for partition in topic.partitions
        if contains(topic.name, partition.partition_index)
    )
    return msgspec.structs.replace(topic, partitions=partitions)


def with_unknown(response: AnyResponse, unknown: UnknownPartitions) -> AnyResponse:
    """Return the answer with UNKNOWN_TOPIC_OR_PARTITION added for each partition in `unknown`.

    The nonexistent partitions of a topic come first. For example, if topic "a" has the partitions 0
    and 1, a commit for 0, 7 and 1 is answered for 7, 0 and 1. An answer to OffsetDelete with an
    error for the whole group is returned unchanged.
    """
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    match response:
        case OffsetCommitResponse():
            commits = {
                name: tuple(
                    OffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                )
                for name, indexes in unknown.items()
            }
            # A topic with existing and nonexistent partitions gets one entry for both.
            for committed in response.topics:
                commits[committed.name] = commits.get(committed.name, ()) + committed.partitions
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(name=name, partitions=partitions)
                    for name, partitions in commits.items()
                )
            )
        case TxnOffsetCommitResponse():
            # The same for a commit in a transaction, whose offsets are pending until the
            # transaction ends.
            pending = {
                name: tuple(
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                )
                for name, indexes in unknown.items()
            }
            for topic in response.topics:
                pending[topic.name] = pending.get(topic.name, ()) + topic.partitions
            return TxnOffsetCommitResponse(
                topics=tuple(
                    TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
                    for name, partitions in pending.items()
                )
            )
        case OffsetDeleteResponse() if response.error_code is ErrorCode.NONE:
            deletes = {
                name: tuple(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                )
                for name, indexes in unknown.items()
            }
            for deleted in response.topics:
                deletes[deleted.name] = deletes.get(deleted.name, ()) + deleted.partitions
            return OffsetDeleteResponse(
                topics=tuple(
                    OffsetDeleteResponseTopic(name=name, partitions=partitions)
                    for name, partitions in deletes.items()
                )
            )
        case _:  # only an OffsetDelete with an error for the whole group is left
            return response
