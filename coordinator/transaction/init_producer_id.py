"""InitProducerId (22), v0 to v5: gives a producer its id and epoch, and fences its predecessor.

Two producers must not use one transactional id at the same time. So each InitProducerId raises the
epoch of the transactional id. From then on the requests of the previous producer are refused,
because they have an older epoch. A running producer may also ask for the next epoch. Then its
request names the producer id and the epoch that it believes to have (KIP-360).

If the previous producer has left a transaction open, the coordinator first aborts this transaction.
Until the abort is complete, the new producer gets CONCURRENT_TRANSACTIONS and asks again.

The new epoch is appended to the log. When the append has completed, `new_epoch_written` answers the
request.

Source: Kafka `TransactionCoordinator.handleInitProducerId`, `prepareInitProducerIdTransit`;
KIP-98, KIP-360.
"""

from coordinator.transaction.end_transaction import end_transaction
from coordinator.transaction.metadata import EPOCH_MAX, TransactionMetadata, Transition
from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.transaction_turn import (
    NewProducerEpoch,
    OwnedPartition,
    PendingStep,
    TransactionTurn,
)
from coordinator.transaction.versions import init_producer_id_error
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RequestId
from protocol.messages.transaction import InitProducerIdRequest, InitProducerIdResponse


def handle_init_producer_id(
    turn: TransactionTurn, request_id: RequestId, request: InitProducerIdRequest, api_version: int
) -> None:
    """Answer an InitProducerId.

    A producer without a transactional id only needs a producer id, and is answered immediately.
    """
    ids = turn.shared.producer_ids
    if request.transactional_id is None:
        producer_id = ids.take()
        if producer_id is None:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            turn.reply(request_id, init_producer_id_error(error, api_version))
        else:
            turn.reply(request_id, InitProducerIdResponse(producer_id=producer_id))
    else:
        failure = _begin(turn, request_id, request, request.transactional_id, api_version)
        if failure is not None:
            turn.reply(request_id, init_producer_id_error(failure, api_version))
    # This request may have taken one of the last producer ids of the block.
    if ids.wants_block():
        turn.result.wants_producer_ids = True


def new_epoch_written(
    turn: TransactionTurn, purpose: NewProducerEpoch, pending: PendingStep, error: ErrorCode
) -> None:
    """Answer the producer, because the append of its new epoch has completed."""
    if error is ErrorCode.NONE:
        response = InitProducerIdResponse(
            producer_id=pending.step.producer_id, producer_epoch=pending.step.producer_epoch
        )
    else:
        response = init_producer_id_error(error, purpose.api_version)
    turn.reply(purpose.request_id, response)


def _begin(
    turn: TransactionTurn,
    request_id: RequestId,
    request: InitProducerIdRequest,
    transactional_id: str,
    api_version: int,
) -> ErrorCode | None:
    """Append a new epoch, or the abort of an open transaction, and return None.

    If neither of these is possible, return the error with which to answer immediately.
    """
    # A request must name both a producer id and an epoch, or neither of them (-1 and -1).
    names_id = request.producer_id != NO_PRODUCER_ID
    if not transactional_id or names_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= turn.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    owned = turn.owned(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned

    metadata = _get_or_create(turn, owned, transactional_id, timeout_ms)
    if metadata is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    step = _prepare(turn, metadata, request)
    if isinstance(step, ErrorCode):
        return step
    if step.state is TransactionState.PREPARE_EPOCH_FENCE:
        # The previous producer has left a transaction open, which is aborted. When the decision to
        # abort is in the log, the request is answered with CONCURRENT_TRANSACTIONS, so that the new
        # producer asks again.
        return end_transaction(
            turn,
            transactional_id,
            step.producer_id,
            step.producer_epoch,
            is_commit=False,
            request_id=request_id,
            api_version=api_version,
        )
    turn.write(owned, metadata, step, NewProducerEpoch(request_id, api_version))
    return None


def _get_or_create(
    turn: TransactionTurn, owned: OwnedPartition, transactional_id: str, timeout_ms: int
) -> TransactionMetadata | None:
    """Return the metadata of a transactional id, which is created if the id is new.

    The result is None if the id is new and this broker has no producer id to give out.
    """
    metadata = owned.transactions.get(transactional_id)
    if metadata is None:
        producer_id = turn.shared.producer_ids.take()
        if producer_id is None:
            return None
        metadata = TransactionMetadata(
            transactional_id,
            producer_id,
            txn_timeout_ms=timeout_ms,
            txn_last_update_timestamp_ms=turn.now_ms,
        )
        owned.transactions[transactional_id] = metadata
    return metadata


def _prepare(
    turn: TransactionTurn, metadata: TransactionMetadata, request: InitProducerIdRequest
) -> Transition | ErrorCode:
    """Prepare the change that an InitProducerId makes, or return the error of its answer."""
    # The epoch that the producer believes to have, None if the request names no epoch.
    expected = None if request.producer_id == NO_PRODUCER_ID else request.producer_epoch
    if metadata.is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _is_valid(metadata, request.producer_id, expected):
        return ErrorCode.PRODUCER_FENCED
    if metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.state is TransactionState.ONGOING:
        return metadata.prepare_fence_producer_epoch()
    if metadata.is_epoch_exhausted:
        producer_id = turn.shared.producer_ids.take()
        if producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return metadata.prepare_producer_id_rotation(
            producer_id,
            txn_timeout_ms=request.transaction_timeout_ms,
            names_epoch=expected is not None,
            now_ms=turn.now_ms,
        )
    step = metadata.prepare_new_epoch(
        txn_timeout_ms=request.transaction_timeout_ms,
        expected_epoch=expected,
        now_ms=turn.now_ms,
    )
    return ErrorCode.PRODUCER_FENCED if step is None else step


def _is_valid(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Return True if the producer id that a request names is acceptable (KIP-360).

    Normally the epoch is checked later, in `prepare_new_epoch`.
    """
    return (
        # No producer has got an epoch of the current producer id, so there is no other producer to
        # protect. For example, the transactional id had expired and was created again for this
        # request.
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == metadata.producer_id
        # The producer had used up its epochs and got a new producer id, but the answer was lost.
        or (producer_id == metadata.last_producer_id and producer_epoch >= EPOCH_MAX)
    )
