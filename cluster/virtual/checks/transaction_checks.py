"""Checks of transaction coordinators: their answers, and the producer epochs in their rows.

An answer must agree with what the coordinator knows afterwards. A check looks at the coordinator's
state of the transactional id, just before the answer is sent. If the broker no longer coordinates
the transactional id by then, or if the id now belongs to another producer, there is nothing to
compare, and the answer is not checked.

A producer's epoch must rise when another producer takes over, or when the coordinator aborts the
transaction without being asked by the producer. It must not rise otherwise (`ProducerEpochChecks`).

Source: Kafka TransactionCoordinator.handleInitProducerId, handleAddPartitionsToTransaction,
endTransaction, abortTimedOutTransactions.
"""

import msgspec

from cluster.broker.node import BrokerNode
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from protocol.causes import TransactionCause
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
from protocol.trace import TraceRow

_DECIDED = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
"""Was the transaction committed (True) or aborted (False)? -> the states that it can then have."""

_RAISE_EPOCH = frozenset({TransactionCause.TIMED_OUT, TransactionCause.NEW_PRODUCER})
"""Causes of an abort that the producer has not asked for. It must fence the producer."""
_KEEP_EPOCH = frozenset(
    {
        TransactionCause.PARTITIONS_ADDED,
        TransactionCause.ENDED,
        TransactionCause.MARKERS_WRITTEN,
    }
)
"""Causes of steps that the producer itself takes, or that follow from an earlier decision."""


class ProducerEpochChecks:
    """The check of the producer epochs in the rows TRANSACTION_STATE.

    Each tenure of a coordinator (a load of a partition of `__transaction_state` in a leader epoch)
    is followed by itself, because the rows of two brokers may be of any order.
    """

    def __init__(self) -> None:
        self._producers: dict[tuple[str, int, str, int, str], tuple[int, int]] = {}
        """Node, incarnation, partition, leader epoch and transactional id -> the producer id and
        the epoch in the last row."""

    def observe(self, row: TraceRow) -> None:
        """Check a row TRANSACTION_STATE. Raises: InvariantViolation."""
        detail = msgspec.json.decode(row.detail or "{}")
        transactional_id = detail["transactional_id"]
        tenure = (row.node, row.incarnation, row.partition or "", row.leader_epoch or 0)
        producer = (detail["producer_id"], detail["producer_epoch"])
        known = self._producers.get((*tenure, transactional_id))
        self._producers[(*tenure, transactional_id)] = producer
        if known is None:
            return
        (known_id, known_epoch), (producer_id, epoch) = known, producer
        if row.cause in _RAISE_EPOCH:
            is_right = producer_id == known_id and epoch > known_epoch
        else:
            is_right = row.cause not in _KEEP_EPOCH or producer == known
        if not is_right:
            raise InvariantViolation(
                "a producer's epoch rises when it is replaced or aborted by others, not otherwise",
                f"{row.node}: {transactional_id} had the producer id {known_id} with epoch "
                f"{known_epoch}, and has {producer_id} with epoch {epoch} in {detail['to']} "
                f"({row.cause})",
            )


def init_answered(
    broker: BrokerNode, request: InitProducerIdRequest, response: InitProducerIdResponse
) -> None:
    """Check that the producer gets the producer id and the epoch that the coordinator has stored.

    After InitProducerId no transaction of this producer may be open or being ended.
    """
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
    """Check that a successful request has added the group's offsets to the open transaction.

    The transaction must then contain the partition of `__consumer_offsets` that has the group.
    """
    metadata = _metadata(broker, request)
    if response.error_code is not ErrorCode.NONE or metadata is None:
        return
    count = len(broker.metadata.image.topics.get(CONSUMER_OFFSETS, ()))
    if not count:  # this broker does not know of the topic yet
        return
    partition = TopicPartition(CONSUMER_OFFSETS, partition_for(request.group_id, count))
    is_open = metadata.state is TransactionState.ONGOING
    if not is_open or partition not in metadata.topic_partitions:
        raise _violation(
            request.transactional_id, f"AddOffsetsToTxn of {partition} is answered NONE", metadata
        )


def end_answered(broker: BrokerNode, request: EndTxnRequest, response: EndTxnResponse) -> None:
    """Check that EndTxn succeeds only if the transaction has the end that the request asks for.

    For example, a request to commit succeeds only if the transaction is being committed, or has
    been. In this case the answer must not be INVALID_TXN_STATE. Other errors say nothing about the
    transaction's end.
    """
    metadata = _metadata(broker, request)
    if metadata is None:
        return
    is_decided = metadata.state in _DECIDED[request.committed]
    error = response.error_code
    # Two answers are wrong: a success without this end, and INVALID_TXN_STATE with this end.
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
    """Return what the coordinator knows of the request's transactional id.

    Returns None if this broker does not coordinate the id, or if another producer has the id by
    now.
    """
    metadata = broker.transaction(request.transactional_id)
    if metadata is None:
        return None
    known = (metadata.producer_id, metadata.producer_epoch)
    return metadata if known == (request.producer_id, request.producer_epoch) else None


def _violation(
    transactional_id: str, answer: str, metadata: TransactionMetadata
) -> InvariantViolation:
    """Return the violation by an answer that does not fit the coordinator's `metadata`."""
    return InvariantViolation(
        "an answer of a transaction coordinator agrees with its state",
        f"{transactional_id}: {answer}; producer {metadata.producer_id} with epoch "
        f"{metadata.producer_epoch} is in {metadata.state.name}, with the partitions "
        f"{', '.join(map(str, metadata.topic_partitions))}",
    )
