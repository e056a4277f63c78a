"""OffsetForLeaderEpoch: returns where a leader epoch ends in this broker's log.

A consumer sends this request after an election, with the epoch of the last record that it has read.
If that epoch ends below the consumer's position, records that the consumer has read were truncated.

Source: Kafka `Partition.lastOffsetForLeaderEpoch`.
"""

from cluster.broker.replication.replica_manager import ReplicaManager
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.log import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer OffsetForLeaderEpoch for the partitions that this broker leads."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    _end_of_epoch(replicas, TopicPartition(topic.topic, asked.partition), asked)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _end_of_epoch(
    replicas: ReplicaManager, name: TopicPartition, asked: OffsetForLeaderPartition
) -> OffsetForLeaderPartitionResult:
    """Return the end of one partition's leader epoch, or the error."""
    partition = replicas.partition(name)
    if partition is None:
        error = replicas.absence(name.topic, name.partition)
    else:
        error = partition.check_leadership(asked.current_leader_epoch)
        if error is ErrorCode.NONE:
            # If the log lacks the epoch, this is the end of the largest epoch below.
            end = partition.log.end_offset_for_epoch(asked.leader_epoch)
            return OffsetForLeaderPartitionResult(
                partition=name.partition, leader_epoch=end.epoch, end_offset=end.offset
            )
    return OffsetForLeaderPartitionResult(partition=name.partition, error_code=error)
