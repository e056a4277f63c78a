"""EndTxn (26), v0 to v4: ends a transaction. The coordinator also aborts abandoned transactions.

The end of a transaction takes three steps:
1. The decision, PrepareCommit or PrepareAbort, is appended to the log. From then on it is final,
   even if this broker fails.
2. The client is answered.
3. Markers are written to all partitions of the transaction (`markers`).

The coordinator itself aborts a transaction that has run longer than the producer's
transaction.timeout.ms, or that is open when a new producer begins with the same transactional id.
The abort has an epoch above that of the old producer. This fences the old producer: its requests
are refused from then on.

- Step: a change of one transactional id. It is pending from its preparation until its append has
  completed; no other step begins meanwhile. Raising the epoch is a step of its own kind,
  PrepareEpochFence. It is never appended, because the abort that follows carries the epoch.
- Turn: the handling of one input. `turn.write` appends a step with its purpose (`EndDecided`), by
  which `end_decided` continues.
- Owned partition: a partition of `__transaction_state` that this broker has loaded.
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
    """Append the decision and return None; or return the error of an immediate answer.

    The error is NONE for a repeated request, whose transaction has ended already.

    request_id: the request to answer after the append, None if no client waits.
    is_from_client: True for a client's EndTxn. False for the abort of an abandoned transaction:
        then `producer_epoch` is the epoch that fences the producer, and a client that waits has
        sent an InitProducerId.
    """
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    owned = turn.owned(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned
    metadata = owned.transactions.get(transactional_id)
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # An abort by the coordinator comes here with a pending PrepareEpochFence, which its caller has
    # prepared. It is never written: `abort_fenced` replaces it by PrepareAbort.
    is_fence = metadata.pending_state is TransactionState.PREPARE_EPOCH_FENCE
    # True if another producer has the transactional id by now. The epoch in a client's request must
    # equal the current epoch. The coordinator's own abort may have a higher epoch, which fences the
    # producer.
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

    # Kafka tests `not is_commit`, too. Here the test is without effect: a fence is prepared and
    # used in one turn, so a client's commit never meets a pending fence.
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
            # The only request that waits for an abort by the coordinator is an InitProducerId.
            is_init=request_id is not None and not is_from_client,
        ),
    )
    return None


def end_decided(
    turn: TransactionTurn, purpose: EndDecided, pending: PendingStep, error: ErrorCode
) -> None:
    """Continue after the append of a decision: answer the client, then begin with the markers."""
    owned = turn.owned_partition(pending.partition)
    found = None  # the metadata, if this broker still leads its partition in the same epoch
    if isinstance(owned, OwnedPartition) and owned.coordinator_epoch == pending.coordinator_epoch:
        found = owned.transactions.get(pending.transactional_id)
    if error is not ErrorCode.NONE and found is not None and purpose.is_epoch_fence:
        # The next attempt to fence must use the same epoch. If each attempt used a new epoch, a log
        # that refuses appends for a long time would use up the epochs of the producer id.
        found.has_failed_epoch_fence = True
    if purpose.request_id is not None:
        if purpose.is_init:
            # The old transaction is being aborted. On CONCURRENT_TRANSACTIONS the new producer asks
            # again, until the abort is complete.
            retry = ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error
            turn.reply(purpose.request_id, init_producer_id_error(retry, purpose.api_version))
        else:
            turn.reply(purpose.request_id, end_txn_answer(error, purpose.api_version))
    # If `found` is None, another coordinator loads the log, finds the decision, and sends the
    # markers. If `found` is not None, `owned` is an OwnedPartition; the test is for the type
    # checker.
    if error is ErrorCode.NONE and isinstance(owned, OwnedPartition) and found is not None:
        begin_markers(turn, owned, found)


def abort_timed_out(turn: TransactionTurn) -> None:
    """Abort every transaction that has run longer than its producer's transaction.timeout.ms."""
    for owned in turn.shared.owned.values():
        for metadata in list(owned.transactions.values()):
            if _is_timed_out(metadata, turn.now_ms):
                step = metadata.prepare_fence_producer_epoch()
                # No client waits, so the returned error is ignored.
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
    """Return True for a transaction over its timeout for which no step is under way."""
    return (
        metadata.state is TransactionState.ONGOING
        and not metadata.is_pending
        and metadata.txn_start_timestamp_ms + metadata.txn_timeout_ms < now_ms
    )


def _answer_by_state(metadata: TransactionMetadata, *, is_commit: bool) -> ErrorCode | None:
    """Return the answer if no transaction is left to decide; None in Ongoing.

    The client repeats a request if the first answer got lost. If the request agrees with the
    decision, the answer is NONE once all markers are written; until then the client must ask again.
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
