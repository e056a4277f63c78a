"""Messages that read and write partition logs: Produce, Fetch, and questions about offsets.

Fetch serves several purposes. With a Fetch, consumers read records, followers copy their leader's
log, and brokers read the metadata log `__cluster_metadata`, as in KRaft. `replica_id` in a Fetch is
the id of the node that fetches, or -1 for a consumer.

A number after the name of a request is its API key. `array_like` and `tag` say how this project's
processes send messages to each other: a struct is sent as an array of its fields. A request or an
answer has the name of its struct in front.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode
from protocol.records.batch import RecordBatch


class PartitionProduceData(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The batch for one partition. The leader sets its base offset and leader epoch."""

    index: int
    records: RecordBatch


class TopicProduceData(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The batches for one topic."""

    name: str
    partition_data: tuple[PartitionProduceData, ...]


class ProduceRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Produce (0). Appends batches.

    `acks` says which replicas must have a batch before the answer: all in-sync replicas (-1), the
    leader (1), or none (0).
    """

    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]


class BatchIndexAndErrorMessage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An invalid record of a refused batch, by its place in the batch."""

    batch_index: int
    batch_index_error_message: str | None = None


class PartitionProduceResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition. If there is an error, `base_offset` is -1.

    `log_append_time_ms` is -1 if the records keep their producer's timestamps. `record_errors` says
    which records of a refused batch are invalid.
    """

    index: int
    error_code: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    error_message: str | None = None


class TopicProduceResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to Produce."""

    responses: tuple[TopicProduceResponse, ...] = ()


READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of a consumer. Source: Kafka `IsolationLevel`."""


class FetchPartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A partition to read, and the offset at which the read begins.

    current_leader_epoch: the leader epoch in the metadata of the sender, -1 if the sender does not
        know it. If the leader is in another epoch, the answer is an error.
    last_fetched_epoch: the leader epoch of the sender's last record, -1 if there is no such record.
    log_start_offset: the offset at which a follower's log begins. -1 from a consumer.
    """

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 1_048_576


class FetchTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic to read."""

    topic: str
    partitions: tuple[FetchPartition, ...]


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Fetch (1).

    The broker holds the request until there are `min_bytes` of new records, at most for
    `max_wait_ms`.

    With a fetch session, a client need not name partitions that have not changed (KIP-227). A
    client that uses no session sends `session_id` 0 and `session_epoch` -1. A client that wants a
    session sends `session_epoch` 0.
    """

    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    topics: tuple[FetchTopic, ...]
    session_id: int = 0
    session_epoch: int = -1
    isolation_level: int = READ_UNCOMMITTED


class EpochEndOffset(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """End of a leader epoch in the leader's log, to which a diverging follower truncates."""

    epoch: int
    end_offset: int


class AbortedTransaction(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An aborted transaction. A consumer must skip its records from `first_offset` on.

    Only answers to consumers with READ_COMMITTED list aborted transactions.
    """

    producer_id: int
    first_offset: int


class PartitionData(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Records that were read from one partition.

    A follower reads up to the log end, a consumer up to the high watermark.
    """

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    diverging_epoch: EpochEndOffset | None = None
    records: tuple[RecordBatch, ...] = ()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    """None for a consumer with READ_UNCOMMITTED."""

    @property
    def last_stable_offset(self) -> int:
        """End of the part without open transactions.

        Here this is the high watermark, because no transaction writes to topics that consumers
        read.
        """
        return self.high_watermark


class FetchableTopicResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Records that were read from one topic."""

    topic: str
    partitions: tuple[PartitionData, ...]


class FetchResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to Fetch."""

    error_code: ErrorCode = ErrorCode.NONE
    responses: tuple[FetchableTopicResponse, ...] = ()


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
"""Special timestamps in ListOffsets: for the log's start, and for its high watermark."""


class ListOffsetsPartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A question for the offset of the first record at or after `timestamp` in one partition.

    EARLIEST_TIMESTAMP asks for the beginning of the log instead, and LATEST_TIMESTAMP for the high
    watermark.
    """

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """ListOffsets (2): a consumer requests the offset at which `auto.offset.reset` begins."""

    topics: tuple[ListOffsetsTopic, ...]


class ListOffsetsPartitionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The offset found for one partition. -1 if all records are older than the timestamp."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The offsets found for one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


class ListOffsetsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ListOffsets."""

    topics: tuple[ListOffsetsTopicResponse, ...] = ()


class OffsetForLeaderPartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A partition, and the leader epoch whose end is requested.

    `leader_epoch` is the epoch of the last record that the client has read.
    """

    partition: int
    current_leader_epoch: int = -1
    leader_epoch: int


class OffsetForLeaderTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic."""

    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """OffsetForLeaderEpoch (23): a consumer checks whether an election lost records."""

    topics: tuple[OffsetForLeaderTopic, ...]


class OffsetForLeaderPartitionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """End of the largest epoch up to the requested epoch. -1 if the log has no such epoch."""

    error_code: ErrorCode = ErrorCode.NONE
    partition: int
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    topic: str
    partitions: tuple[OffsetForLeaderPartitionResult, ...]


class OffsetForLeaderEpochResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to OffsetForLeaderEpoch."""

    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
