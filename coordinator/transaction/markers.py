"""Markers: the records that end a transaction in each of its partitions.

A transaction ends in these steps, after the decision (PrepareCommit or PrepareAbort) is in the log:
1. A marker is sent to the leader of each partition. A marker that fails is sent again.
2. Once every partition has its marker, CompleteCommit or CompleteAbort is appended to the log.
3. When this append is acknowledged, the transaction is complete.

The coordinator knows only in memory which markers are still missing. If another coordinator takes
over, it finds the decision in the log and begins again with step 1, in its own, higher leader
epoch. Once a partition has a marker of the new coordinator, the partition refuses markers of the
old coordinator.

The change that step 2 appends is called the completion. It is prepared before step 1, and
`turn.shared.completions` keeps it until its append has ended.

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
"""Time after which a failed append of a completion is repeated. Kafka has no delay of its own for
this: Kafka repeats the append when it sends markers the next time."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Errors with which a partition refuses a marker, because the partition already has a marker of a
later coordinator."""


def begin_markers(
    turn: TransactionTurn, owned: OwnedPartition, metadata: TransactionMetadata
) -> None:
    """Send the markers of a transaction to all of its partitions, because its end is decided."""
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
    """Send failed markers again, or append the completion if no marker is missing any more.

    The outcome is ignored if this broker sent the markers in an earlier leader epoch.
    """
    pending = turn.shared.completions.get(transactional_id)
    if pending is None or pending.coordinator_epoch != coordinator_epoch:
        return
    metadata = _metadata_of(turn, pending)
    # If `metadata` is None, this broker does not lead the partition of the transactional id any
    # more. If an error is in `_FENCED`, this broker has lost the leadership and does not know this
    # yet. In both cases another coordinator completes the transaction, and this coordinator gives
    # up.
    if metadata is None or any(error in _FENCED for error in errors.values()):
        del turn.shared.completions[transactional_id]
        return
    retry = tuple(name for name, error in errors.items() if error is not ErrorCode.NONE)
    # `topic_partitions` has the partitions whose marker is missing.
    for name in errors:
        if name not in retry:
            metadata.topic_partitions.pop(name, None)
    if retry:
        turn.result.markers.append(_markers(pending, metadata, retry, is_retry=True))
    elif not metadata.topic_partitions:  # no marker is missing any more
        turn.write_step(pending)


def completion_written(turn: TransactionTurn, pending: PendingStep, error: ErrorCode) -> None:
    """Forget a completion whose append has ended, or start a timer to append it again.

    The completion is appended again after COORDINATOR_NOT_AVAILABLE, if this broker still leads the
    partition of the transactional id.
    """
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE and _metadata_of(turn, pending) is not None:
        transactional_id = pending.transactional_id
        key = f"transaction-complete-{transactional_id}"
        turn.set_timer(key, CompletionTimer(transactional_id), RETRY_MS)
    elif turn.shared.completions.get(pending.transactional_id) is pending:
        # The partition may have been loaded again meanwhile. Then the id may have a new completion,
        # which must stay. So the condition tests that the kept completion is `pending`.
        del turn.shared.completions[pending.transactional_id]


def write_completion_again(turn: TransactionTurn, transactional_id: str) -> None:
    """Append a completion again, because its timer has fired."""
    pending = turn.shared.completions.get(transactional_id)
    if pending is not None and _metadata_of(turn, pending) is not None:
        turn.write_step(pending)


def _send_or_complete(
    turn: TransactionTurn, pending: PendingStep, metadata: TransactionMetadata, *, is_retry: bool
) -> None:
    """Send the missing markers. If no marker is missing, append the completion."""
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
    """Return the request for markers in `partitions`."""
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
    """Return the metadata of a step's transactional id.

    The result is None if this broker does not lead the partition of `__transaction_state` in the
    epoch of the step any more.
    """
    owned = turn.owned_partition(pending.partition)
    if isinstance(owned, ErrorCode) or owned.coordinator_epoch != pending.coordinator_epoch:
        return None
    return owned.transactions.get(pending.transactional_id)
