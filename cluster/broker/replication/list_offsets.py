"""ListOffsets: returns an offset of a log, mainly for consumers without a committed offset.

A request asks for one of three offsets: the first offset of the log, the end of the log as
consumers see it (the high watermark), or the first record since a certain time. The field
`timestamp` of the request is this time, or EARLIEST_TIMESTAMP (-2) for the first offset, or
LATEST_TIMESTAMP (-1) for the end.

Source: Kafka `Partition.fetchOffsetForTimestamp`.
"""

from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.storage.compression import CODECS
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.ids import Offset, TopicPartition
from protocol.messages.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records.batch import records_of

READ_BYTES = 1_048_576
"""Size of the batches that a search by time reads in one step."""


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
    """Return the requested offset of one partition, or the error."""
    partition = replicas.partition(name)
    if partition is None:  # this broker has no replica
        error = replicas.absence(name.topic, name.partition)
    else:
        error = _check(partition, asked)
        if error is ErrorCode.NONE:
            log = partition.log
            if asked.timestamp >= 0:  # a time, and not one of the two constants
                return _first_record_since(partition, asked)
            is_latest = asked.timestamp == LATEST_TIMESTAMP
            return ListOffsetsPartitionResponse(
                partition_index=name.partition,
                offset=log.high_watermark if is_latest else log.log_start_offset,
                leader_epoch=partition.leader_epoch,
            )
    return ListOffsetsPartitionResponse(partition_index=name.partition, error_code=error)


def _first_record_since(
    partition: Partition, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Return offset and time of the first record that is not older than the requested time.

    The log is read batch after batch, up to the high watermark. If there is no such record, the
    answer has the offset -1, which is the default of the response's field.
    """
    log = partition.log
    offset = log.log_start_offset
    while batches := log.read(offset, READ_BYTES, up_to=log.high_watermark):
        for batch in batches:
            # Control batches have markers of transactions, which no consumer reads.
            if batch.max_timestamp_ms < asked.timestamp or batch.is_control:
                continue
            for record_offset, record in records_of(batch, CODECS):
                if record.timestamp_ms >= asked.timestamp:
                    return ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        timestamp=record.timestamp_ms,
                        offset=record_offset,
                        leader_epoch=partition.leader_epoch,
                    )
        offset = Offset(batches[-1].next_offset)
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index)


def _check(partition: Partition, asked: ListOffsetsPartition) -> ErrorCode:
    """Return the error of a request that this replica cannot answer now; NONE otherwise."""
    error = partition.check_leadership(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    if asked.timestamp < EARLIEST_TIMESTAMP:
        return ErrorCode.INVALID_REQUEST
    if (
        asked.timestamp == LATEST_TIMESTAMP
        and partition.log.high_watermark < partition.leader_epoch_start_offset
    ):
        # A new leader's high watermark may at first be too low: below records that the old leader
        # has acknowledged. Once the high watermark has reached the start of the new epoch, it is
        # above all these records.
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE
