"""Messages of transactions: from producers, and between brokers.

The writes of a transaction count only when the producer commits the transaction, and then all
writes count together. In this project the writes are committed offsets of a group:
1. A producer gets an id and an epoch from its transaction coordinator (InitProducerId). The
   coordinator raises the epoch for each new producer with the same transactional id.
2. The producer adds a partition of `__consumer_offsets` to its transaction (AddOffsetsToTxn).
3. The producer commits offsets at the group coordinator (TxnOffsetCommit).
4. The producer ends the transaction (EndTxn).
5. The transaction coordinator sends markers, the records that end the transaction, to the leaders
   of the partitions (WriteTxnMarkers).

The structs have the fields of the newest version, even if a request is sent in an older version.
For example, an AddPartitionsToTxn below v4 has exactly one transaction. In docstrings, "(22) v0-v5"
is the API key and the versions in use. `array_like` and `tag` say how this project's processes send
messages to each other: a struct is sent as an array of its fields. A request or an answer has the
name of its struct in front.

Source: Kafka's message schemas; KIP-98, KIP-447, KIP-890.
"""

import msgspec

from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.messages.offset import OffsetCommitRequestTopic


class InitProducerIdRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """InitProducerId (22) v0-v5: a producer asks for its id and epoch.

    `transactional_id` is None for a producer without transactions, which only numbers its records.
    From v3 on, a producer that recovers from an error sends its present id and epoch, and gets the
    next epoch.
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitProducerIdResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to InitProducerId."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = 0


class AddPartitionsToTxnTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic that a transaction writes to."""

    name: str
    partitions: tuple[int, ...]


class AddPartitionsToTxnTransaction(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One transaction and some partitions, which the request adds.

    With `verify_only`, a broker only asks whether the transaction has the partitions already.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...]


class AddPartitionsToTxnRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """AddPartitionsToTxn (24) v0-v5: adds partitions to transactions, or verifies them."""

    transactions: tuple[AddPartitionsToTxnTransaction, ...]


class AddPartitionsToTxnPartitionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition."""

    partition_index: int
    partition_error_code: ErrorCode = ErrorCode.NONE


class AddPartitionsToTxnTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


class AddPartitionsToTxnResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one transaction."""

    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


class AddPartitionsToTxnResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to AddPartitionsToTxn."""

    error_code: ErrorCode = ErrorCode.NONE
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = ()


class AddOffsetsToTxnRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AddOffsetsToTxn (25) v0-v4: the transaction will commit offsets of a group."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to AddOffsetsToTxn."""

    error_code: ErrorCode = ErrorCode.NONE


class EndTxnRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """EndTxn (26) v0-v4: `committed` True commits the transaction, False aborts it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to EndTxn: the decision is in the log, but the markers may not be written yet."""

    error_code: ErrorCode = ErrorCode.NONE


class WritableTxnMarkerTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic that get a marker."""

    name: str
    partition_indexes: tuple[int, ...]


class WritableTxnMarker(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One marker. `transaction_result` is True for a commit and False for an abort.

    `coordinator_epoch` is the leader epoch of the coordinator's partition of
    `__transaction_state`. A log refuses a marker of an older coordinator.
    """

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int


class WriteTxnMarkersRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """WriteTxnMarkers (27) v0-v1: from a transaction coordinator to the leader of partitions."""

    markers: tuple[WritableTxnMarker, ...]


class WritableTxnMarkerPartitionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class WritableTxnMarkerTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


class WritableTxnMarkerResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one marker."""

    producer_id: int
    topics: tuple[WritableTxnMarkerTopicResult, ...]


class WriteTxnMarkersResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to WriteTxnMarkers."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()


class TxnOffsetCommitRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """TxnOffsetCommit (28) v0-v4: stores offsets of a group as part of a transaction.

    A producer that is no member of the group sends generation -1 and member "". Versions below v3
    do not have these fields. Such a request has these values for every producer.
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class TxnOffsetCommitResponseTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


class TxnOffsetCommitResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to TxnOffsetCommit. As in Kafka, there is no error for the whole request."""

    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()
