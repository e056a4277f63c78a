"""ListOffsets: where a consumer without a committed offset begins.

Source: Kafka `Partition.fetchOffsetForTimestamp`. DEVIATION: no lookup by time.
"""

from cluster.broker.replication.replica_manager import ReplicaManager
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def list_offsets(replicas: ReplicaManager, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer ListOffsets for the partitions that this broker leads."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _list_offset(replicas, TopicPartition(topic.name, asked.partition_index), asked)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _list_offset(
    replicas: ReplicaManager, name: TopicPartition, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    partition = replicas.partition(name)
    if partition is None:
        error = replicas.absence(name.topic, name.partition)
    else:
        error = _check(partition, asked.timestamp)
        if error is ErrorCode.NONE:
            log = partition.log
            is_latest = asked.timestamp == LATEST_TIMESTAMP
            return ListOffsetsPartitionResponse(
                partition_index=name.partition,
                offset=log.high_watermark if is_latest else log.log_start_offset,
                leader_epoch=partition.leader_epoch,
            )
    return ListOffsetsPartitionResponse(partition_index=name.partition, error_code=error)


def _check(partition: Partition, timestamp: int) -> ErrorCode:
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        return ErrorCode.INVALID_REQUEST
    if (
        timestamp == LATEST_TIMESTAMP
        and partition.log.high_watermark < partition.leader_epoch_start_offset
    ):
        # A new leader's high watermark may lag behind what was acknowledged before it.
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE
