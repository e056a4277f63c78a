"""AddPartitionsToTxn (24) and AddOffsetsToTxn (25): add partitions to a producer's transaction.

A producer sends AddPartitionsToTxn before it writes to a partition for the first time in a
transaction. The first such request begins the transaction. AddOffsetsToTxn names a group, and adds
the group's partition of `__consumer_offsets`.

A broker sends AddPartitionsToTxn, too, but with `verify_only`. Such a request adds no partitions.
The broker asks whether a partition is part of the transaction, before it accepts the transaction's
first batch in this partition (KIP-890).

A request may be about several transactions. The change of each transaction is appended to the log.
When an append has completed, `partitions_added` puts its outcome into the CollectedAnswer. When no
outcome is missing any more, the answer is sent.

Source: Kafka `TransactionCoordinator.handleAddPartitionsToTransaction`,
`handleVerifyPartitionsInTransaction`, `KafkaApis.handleAddOffsetsToTxnRequest`.
"""

from collections.abc import Iterable

from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.transaction_turn import (
    CollectedAnswer,
    OwnedPartition,
    PartitionsAdded,
    TransactionTurn,
)
from coordinator.transaction.versions import add_offsets_answer, error_for_version
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition, offsets_partition
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.partitioner import partition_for


def handle_add_partitions(
    turn: TransactionTurn,
    request_id: RequestId,
    request: AddPartitionsToTxnRequest,
    api_version: int,
) -> None:
    """Add or verify the partitions of each transaction.

    The answer is sent when all transactions have an outcome.
    """
    answer = CollectedAnswer(
        request_id,
        is_add_offsets=False,
        transactions=len(request.transactions),
        api_version=api_version,
    )
    if not request.transactions:
        # A request without transactions has no outcome to wait for, so the answer is sent here.
        turn.reply(request_id, AddPartitionsToTxnResponse())
    for transaction in request.transactions:
        partitions = tuple(
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
        )
        if transaction.verify_only:
            errors = _verify(turn, transaction, partitions)
            _collect(turn, answer, transaction.transactional_id, errors)
        else:
            _add(
                turn,
                answer,
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                partitions,
            )


def handle_add_offsets(
    turn: TransactionTurn, request_id: RequestId, request: AddOffsetsToTxnRequest, api_version: int
) -> None:
    """Add the offsets partition of a group to a transaction."""
    answer = CollectedAnswer(
        request_id, is_add_offsets=True, transactions=1, api_version=api_version
    )
    partition = offsets_partition(
        partition_for(request.group_id, turn.shared.num_offsets_partitions)
    )
    _add(
        turn,
        answer,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (partition,),
    )


def partitions_added(
    turn: TransactionTurn,
    purpose: PartitionsAdded,
    transactional_id: str,
    error: ErrorCode,
) -> None:
    """Put the outcome of an append of added partitions, `error`, into the request's answer."""
    errors = dict.fromkeys(purpose.partitions, error)
    _collect(turn, purpose.answer, transactional_id, errors)


def _add(
    turn: TransactionTurn,
    answer: CollectedAnswer,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: tuple[TopicPartition, ...],
) -> None:
    """Add partitions to one transaction.

    The outcome is known after an append. If there is an error, or if the transaction has the
    partitions already, no append is needed, and the outcome goes into the answer immediately.
    """
    found = _find(turn, transactional_id)
    error: ErrorCode | None  # None: the outcome is not known before the append
    if isinstance(found, ErrorCode):
        error = found
    else:
        owned, metadata = found
        error = _check(metadata, producer_id, producer_epoch, partitions)
        if error is None:
            step = metadata.prepare_add_partitions(partitions, now_ms=turn.now_ms)
            turn.write(owned, metadata, step, PartitionsAdded(answer, partitions))
            return
    _collect(turn, answer, transactional_id, dict.fromkeys(partitions, error))


def _check(
    metadata: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> ErrorCode | None:
    """Return None if the partitions must be appended to the log, otherwise the outcome.

    The outcome is an error, or NONE if the partitions are part of the transaction already.
    """
    if metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.is_pending or metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_ongoing = metadata.state is TransactionState.ONGOING
    # A producer that repeats its request names partitions that are part of the transaction already.
    if is_ongoing and all(each in metadata.topic_partitions for each in partitions):
        return ErrorCode.NONE
    return None


def _verify(
    turn: TransactionTurn,
    asked: AddPartitionsToTxnTransaction,
    partitions: tuple[TopicPartition, ...],
) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition, which is NONE if it is part of the transaction."""
    # A step is a change that is being appended to the log. Unlike in `_check`, a pending step is no
    # error here, although it may still change the transaction. The reason is that the broker that
    # asks checks the batch once more when it appends the batch to its log.
    found = _find(turn, asked.transactional_id)
    if isinstance(found, ErrorCode):
        return dict.fromkeys(partitions, found)
    _owned, metadata = found  # the partition is not needed, since nothing is appended
    if metadata.producer_id != asked.producer_id:
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif metadata.producer_epoch != asked.producer_epoch:
        error = ErrorCode.PRODUCER_FENCED
    elif metadata.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        return {
            each: ErrorCode.NONE
            if each in metadata.topic_partitions
            else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }
    return dict.fromkeys(partitions, error)


def _find(
    turn: TransactionTurn, transactional_id: str
) -> tuple[OwnedPartition, TransactionMetadata] | ErrorCode:
    """Return the partition and the metadata of a transactional id, or the error of the answer."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    owned = turn.owned(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned
    metadata = owned.transactions.get(transactional_id)
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if metadata is None else (owned, metadata)


def _collect(
    turn: TransactionTurn,
    answer: CollectedAnswer,
    transactional_id: str,
    errors: dict[TopicPartition, ErrorCode],
) -> None:
    """Put the outcome of one transaction into the answer.

    If no outcome is missing any more, send the answer.
    """
    answer.errors[transactional_id] = {
        partition: error_for_version(error, answer.api_version)
        for partition, error in errors.items()
    }
    answer.missing -= 1
    if answer.missing:
        return
    if answer.is_add_offsets:
        (error,) = errors.values()  # AddOffsetsToTxn adds one partition, so there is one error
        turn.reply(answer.request_id, add_offsets_answer(error, answer.api_version))
        return
    turn.reply(
        answer.request_id,
        AddPartitionsToTxnResponse(
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(
                    transactional_id=name, topic_results=_topic_results(of_transaction)
                )
                for name, of_transaction in answer.errors.items()
            )
        ),
    )


def _topic_results(
    errors: dict[TopicPartition, ErrorCode],
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    """Return one transaction's part of the answer."""
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        by_topic.setdefault(topic, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return tuple(
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=tuple(results))
        for name, results in by_topic.items()
    )
