"""EndTxn (26), v0 to v4: ends a transaction. The coordinator also aborts abandoned transactions.

The end of a transaction takes three steps:
1. The decision, PrepareCommit or PrepareAbort, is appended to the log. From then on it is final,
   even if this broker fails.
2. The client is answered.
3. Markers are written to all partitions of the transaction (`markers`).

`end_transaction` takes step 1. When its append has completed, `end_decided` takes steps 2 and 3.

The coordinator itself aborts a transaction that has run longer than the producer's
transaction.timeout.ms. It also aborts an open transaction when a new producer begins with the same
transactional id. In both cases the abort has a higher epoch than the old producer. This fences the
old producer: its requests are refused from then on. The caller of `end_transaction` has raised the
epoch before (`prepare_fence_producer_epoch`).

Source: Kafka `TransactionCoordinator.endTransaction`, `abortTimedOutTransactions`.
"""

from coordinator.transaction.markers import begin_markers
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transaction_turn import (
    EndDecided,
    OwnedPartition,
    PendingStep,
    TransactionTurn,
)
from coordinator.transaction.versions import end_txn_answer, init_producer_id_error
from protocol.errors import ErrorCode, IllegalTransition
from protocol.ids import RequestId
from protocol.messages.transaction import EndTxnRequest


def handle_end_txn(
    turn: TransactionTurn, request_id: RequestId, request: EndTxnRequest, api_version: int
) -> None:
    """Commit or abort a producer's transaction."""
    error: ErrorCode | None = end_transaction(
        turn,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        request_id=request_id,
        api_version=api_version,
        is_from_client=True,
    )
    if error is not None:
        turn.reply(request_id, end_txn_answer(error, api_version))


def end_transaction(
    turn: TransactionTurn,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    request_id: RequestId | None,
    api_version: int,
    is_from_client: bool = False,
) -> ErrorCode | None:
    """Append the decision to end a transaction, and return None.

    If no append is needed, return the error with which to answer immediately. The error is NONE if
    the request is repeated and the transaction has ended already.

    request_id: the request to answer after the append, None if no client waits.
    is_from_client: True if the client has sent an EndTxn. False if the coordinator itself aborts
        the transaction. Then `producer_epoch` is the raised epoch. The request, if there is one, is
        the InitProducerId of a new producer.
    """
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    owned = turn.owned(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned
    metadata = owned.transactions.get(transactional_id)
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # If the coordinator itself aborts the transaction, the caller of this function has prepared the
    # raised epoch. That step is pending here. Below, the abort takes the place of that step.
    is_fence = metadata.pending_state is TransactionState.PREPARE_EPOCH_FENCE
    # True if another producer has taken over the transactional id. A client must name exactly the
    # current epoch. The coordinator's own abort may have a higher epoch.
    is_other = producer_epoch < metadata.producer_epoch or (
        is_from_client and producer_epoch != metadata.producer_epoch
    )
    if metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_other:
        return ErrorCode.PRODUCER_FENCED
    if metadata.is_pending and not is_fence:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    answer = _answer_by_state(metadata, is_commit=is_commit)
    if answer is not None:
        return answer

    # Kafka tests `not is_commit`, so the test is here, too. The test has no effect: a raised epoch
    # is prepared and used in one turn, so a client's commit never finds a pending fence.
    is_epoch_fence = is_fence and not is_commit
    if is_epoch_fence:
        metadata.abort_fenced(producer_epoch)
    step = metadata.prepare_abort_or_commit(is_commit=is_commit, now_ms=turn.now_ms)
    turn.write(
        owned,
        metadata,
        step,
        EndDecided(
            is_commit=is_commit,
            is_epoch_fence=is_epoch_fence,
            request_id=request_id,
            api_version=api_version,
            # Only an InitProducerId waits for an abort by the coordinator.
            is_init=request_id is not None and not is_from_client,
        ),
    )
    return None


def end_decided(
    turn: TransactionTurn, purpose: EndDecided, pending: PendingStep, error: ErrorCode
) -> None:
    """Answer the client and send the markers, because the append of the decision has completed."""
    owned = turn.owned_partition(pending.partition)
    # `found` has the metadata of the transactional id if this broker still leads the partition in
    # the same epoch. Otherwise it is None.
    found = None
    if isinstance(owned, OwnedPartition) and owned.coordinator_epoch == pending.coordinator_epoch:
        found = owned.transactions.get(pending.transactional_id)
    if error is not ErrorCode.NONE and found is not None and purpose.is_epoch_fence:
        # The raised epoch was not stored. The next attempt to abort must use the same epoch again.
        # Otherwise, while the log refuses appends, the attempts would soon use up all epochs of the
        # producer id.
        found.has_failed_epoch_fence = True
    if purpose.request_id is not None:
        if purpose.is_init:
            # The abort of the old transaction has only begun. CONCURRENT_TRANSACTIONS makes the new
            # producer ask again, until the abort is complete.
            retry = ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error
            turn.reply(purpose.request_id, init_producer_id_error(retry, purpose.api_version))
        else:
            turn.reply(purpose.request_id, end_txn_answer(error, purpose.api_version))
    # If `found` is None, another coordinator finds the decision in the log and sends the markers.
    # The test of `owned` is for the type checker: if `found` is not None, `owned` is an
    # OwnedPartition.
    if error is ErrorCode.NONE and isinstance(owned, OwnedPartition) and found is not None:
        begin_markers(turn, owned, found)


def abort_timed_out(turn: TransactionTurn) -> None:
    """Abort every transaction that has run longer than its producer's transaction.timeout.ms."""
    for owned in turn.shared.owned.values():
        for metadata in list(owned.transactions.values()):
            if _is_timed_out(metadata, turn.now_ms):
                step = metadata.prepare_fence_producer_epoch()
                # No client waits, so the result does not matter.
                end_transaction(
                    turn,
                    metadata.transactional_id,
                    step.producer_id,
                    step.producer_epoch,
                    is_commit=False,
                    request_id=None,
                    api_version=0,  # not used, since no request is answered
                )


def _is_timed_out(metadata: TransactionMetadata, now_ms: int) -> bool:
    """Return True if the transaction has run longer than its timeout, and no step is pending."""
    return (
        metadata.state is TransactionState.ONGOING
        and not metadata.is_pending
        and metadata.txn_start_timestamp_ms + metadata.txn_timeout_ms < now_ms
    )


def _answer_by_state(metadata: TransactionMetadata, *, is_commit: bool) -> ErrorCode | None:
    """Return None if the transaction is open, so that its end can be decided now.

    Otherwise return the answer. If the end is decided already, a request for the same end is
    probably repeated, because the first answer got lost. After all markers are written, the answer
    is NONE. Before that, the answer CONCURRENT_TRANSACTIONS makes the client ask again.
    """
    match metadata.state:
        case TransactionState.ONGOING:
            return None
        case TransactionState.COMPLETE_COMMIT:
            return ErrorCode.NONE if is_commit else ErrorCode.INVALID_TXN_STATE
        case TransactionState.COMPLETE_ABORT:
            return ErrorCode.INVALID_TXN_STATE if is_commit else ErrorCode.NONE
        case TransactionState.PREPARE_COMMIT:
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_commit else ErrorCode.INVALID_TXN_STATE
        case TransactionState.PREPARE_ABORT:
            return ErrorCode.INVALID_TXN_STATE if is_commit else ErrorCode.CONCURRENT_TRANSACTIONS
        case TransactionState.EMPTY:
            return ErrorCode.INVALID_TXN_STATE
        case TransactionState.DEAD | TransactionState.PREPARE_EPOCH_FENCE:
            raise IllegalTransition(
                f"{metadata.transactional_id} is {metadata.state.value}, which is never stored"
            )
