"""Checks of transaction coordinators: an answer agrees with what the coordinator knows afterwards.

A check looks at the coordinator's state of the transactional id, just before the answer is sent. It
is not made if the broker no longer coordinates the transactional id, or if the id now belongs to
another producer.

Source: Kafka TransactionCoordinator.handleInitProducerId, handleAddPartitionsToTransaction,
endTransaction.
"""

from cluster.broker.node import BrokerNode
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import CONSUMER_OFFSETS, TopicPartition
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.partitioner import partition_for

_DECIDED = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
"""The states of a transaction that was committed (True) or aborted (False)."""


def init_answered(
    broker: BrokerNode, request: InitProducerIdRequest, response: InitProducerIdResponse
) -> None:
    """Check that the producer gets the id and the epoch that the coordinator has for it."""
    if response.error_code is not ErrorCode.NONE or not request.transactional_id:
        return
    metadata = broker.transaction(request.transactional_id)
    if metadata is None:
        return
    known = (metadata.producer_id, metadata.producer_epoch)
    got = (response.producer_id, response.producer_epoch)
    if known != got or metadata.state is not TransactionState.EMPTY:
        raise _violation(
            request.transactional_id,
            f"InitProducerId gives the producer {got[0]} with epoch {got[1]}",
            metadata,
        )


def offsets_answered(
    broker: BrokerNode, request: AddOffsetsToTxnRequest, response: AddOffsetsToTxnResponse
) -> None:
    """Check that the group's offsets partition belongs to the transaction after a success."""
    metadata = _metadata(broker, request)
    if response.error_code is not ErrorCode.NONE or metadata is None:
        return
    count = len(broker.metadata.image.topics.get(CONSUMER_OFFSETS, ()))
    if not count:
        return
    partition = TopicPartition(CONSUMER_OFFSETS, partition_for(request.group_id, count))
    is_open = metadata.state is TransactionState.ONGOING
    if not is_open or partition not in metadata.topic_partitions:
        raise _violation(
            request.transactional_id, f"AddOffsetsToTxn of {partition} is answered NONE", metadata
        )


def end_answered(broker: BrokerNode, request: EndTxnRequest, response: EndTxnResponse) -> None:
    """Check that EndTxn succeeds for the transaction's decision, and not for the other one."""
    metadata = _metadata(broker, request)
    if metadata is None:
        return
    is_decided = metadata.state in _DECIDED[request.committed]
    error = response.error_code
    is_wrong = (error is ErrorCode.NONE and not is_decided) or (
        error is ErrorCode.INVALID_TXN_STATE and is_decided
    )
    if is_wrong:
        end = "commit" if request.committed else "abort"
        raise _violation(
            request.transactional_id, f"EndTxn ({end}) is answered {error.name}", metadata
        )


def _metadata(
    broker: BrokerNode, request: AddOffsetsToTxnRequest | EndTxnRequest
) -> TransactionMetadata | None:
    """Return the state of the request's producer; None if another one has the id by now."""
    metadata = broker.transaction(request.transactional_id)
    if metadata is None:
        return None
    known = (metadata.producer_id, metadata.producer_epoch)
    return metadata if known == (request.producer_id, request.producer_epoch) else None


def _violation(
    transactional_id: str, answer: str, metadata: TransactionMetadata
) -> InvariantViolation:
    return InvariantViolation(
        "an answer of a transaction coordinator agrees with its state",
        f"{transactional_id}: {answer}; producer {metadata.producer_id} with epoch "
        f"{metadata.producer_epoch} is in {metadata.state.name}, with the partitions "
        f"{', '.join(map(str, metadata.topic_partitions))}",
    )
