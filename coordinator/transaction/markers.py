"""Markers: telling the partitions of a transaction how it ended, until every one has been told.

Each partition that fails is told again; the transaction is complete, in the log, once all have
their marker. Nothing of it survives the loss of leadership: the next coordinator reads the decision
and begins anew, with its own epoch, and a marker of this one is then refused.
Source: Kafka `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
"""

from coordinator.transaction.effects import SendMarkers
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transaction_turn import (
    Completed,
    CompletionTimer,
    OwnedPartition,
    PendingStep,
    TransactionTurn,
)
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition

RETRY_MS = 100
"""How long a completion waits that could not be written. Kafka tries with what it sends next."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has followed, and its markers count."""


def begin_markers(
    turn: TransactionTurn, owned: OwnedPartition, metadata: TransactionMetadata
) -> None:
    """Have the markers of a decided transaction written."""
    step = metadata.prepare_complete(now_ms=turn.now_ms)
    pending = PendingStep(
        partition=owned.partition,
        coordinator_epoch=owned.coordinator_epoch,
        transactional_id=metadata.transactional_id,
        step=step,
        purpose=Completed(),
    )
    turn.shared.completions[metadata.transactional_id] = pending
    _send_or_complete(turn, pending, metadata, is_retry=False)


def markers_answered(
    turn: TransactionTurn,
    transactional_id: str,
    coordinator_epoch: int,
    errors: dict[TopicPartition, ErrorCode],
) -> None:
    """Take the outcome of markers: tell those that failed again, complete what has all.

    The outcome of another tenure's means nothing.
    """
    pending = turn.shared.completions.get(transactional_id)
    if pending is None or pending.coordinator_epoch != coordinator_epoch:
        return
    metadata = _metadata_of(turn, pending)
    if metadata is None or any(error in _FENCED for error in errors.values()):
        del turn.shared.completions[transactional_id]
        return
    retry = tuple(name for name, error in errors.items() if error is not ErrorCode.NONE)
    for name in errors:
        if name not in retry:
            metadata.topic_partitions.pop(name, None)
    if retry:
        turn.result.markers.append(_markers(pending, metadata, retry, is_retry=True))
    elif not metadata.topic_partitions:
        turn.write_step(pending)


def completion_written(turn: TransactionTurn, pending: PendingStep, error: ErrorCode) -> None:
    """Take that a completion is in the log, or try it again, or leave it to who leads now."""
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE and _metadata_of(turn, pending) is not None:
        transactional_id = pending.transactional_id
        key = f"transaction-complete-{transactional_id}"
        turn.set_timer(key, CompletionTimer(transactional_id), RETRY_MS)
    elif turn.shared.completions.get(pending.transactional_id) is pending:
        del turn.shared.completions[pending.transactional_id]


def write_completion_again(turn: TransactionTurn, transactional_id: str) -> None:
    """Take that it is time to write a completion again."""
    pending = turn.shared.completions.get(transactional_id)
    if pending is not None and _metadata_of(turn, pending) is not None:
        turn.write_step(pending)


def _send_or_complete(
    turn: TransactionTurn, pending: PendingStep, metadata: TransactionMetadata, *, is_retry: bool
) -> None:
    partitions = tuple(metadata.topic_partitions)
    if partitions:
        turn.result.markers.append(_markers(pending, metadata, partitions, is_retry=is_retry))
    else:
        turn.write_step(pending)


def _markers(
    pending: PendingStep,
    metadata: TransactionMetadata,
    partitions: tuple[TopicPartition, ...],
    *,
    is_retry: bool,
) -> SendMarkers:
    return SendMarkers(
        transactional_id=pending.transactional_id,
        coordinator_epoch=pending.coordinator_epoch,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        is_commit=pending.step.state is TransactionState.COMPLETE_COMMIT,
        partitions=partitions,
        is_retry=is_retry,
    )


def _metadata_of(turn: TransactionTurn, pending: PendingStep) -> TransactionMetadata | None:
    """Return the transactional id of a step, None if its tenure is over."""
    owned = turn.owned_partition(pending.partition)
    if isinstance(owned, ErrorCode) or owned.coordinator_epoch != pending.coordinator_epoch:
        return None
    return owned.transactions.get(pending.transactional_id)
