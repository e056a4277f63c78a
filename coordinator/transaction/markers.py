"""Markers: the records that end a transaction in each of its partitions.

A transaction ends in these steps, after the decision (PrepareCommit or PrepareAbort) is in the log:
1. A marker is sent to the leader of each partition, and sent again as long as it fails.
2. Once every partition has its marker, CompleteCommit or CompleteAbort is appended to the log.
3. When this append is acknowledged, the transaction is complete.

The set of markers still to be written is in memory only. A coordinator that takes over finds the
decision in the log and begins again with step 1, in its own leader epoch (the number of the
partition's leadership, which each election increases). Partitions then refuse markers of the older
epoch.

A completion is the change that step 2 appends. `turn.shared.completions` has it as a PendingStep
under its transactional id. It is put there when the markers are sent, and taken out when its append
has ended. A turn is the handling of one input; appends and markers go through it.
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
"""Delay before a failed append of a completion is repeated. Kafka has no such delay: it repeats the
append when it sends markers the next time."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Errors of a partition that has a marker of a later coordinator."""


def begin_markers(
    turn: TransactionTurn, owned: OwnedPartition, metadata: TransactionMetadata
) -> None:
    """Send the markers of a decided transaction to all of its partitions."""
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
    """Handle the outcome of markers: send failed markers again, or complete the transaction.

    Outcomes of markers that this broker sent in an earlier leader epoch are ignored.
    """
    pending = turn.shared.completions.get(transactional_id)
    if pending is None or pending.coordinator_epoch != coordinator_epoch:
        return
    metadata = _metadata_of(turn, pending)
    # If the metadata is gone, this broker no longer leads the partition. If a partition has a
    # marker of a later coordinator, it does not know this yet. In both cases another coordinator
    # completes the transaction. This one gives up, because it must not append to the log.
    if metadata is None or any(error in _FENCED for error in errors.values()):
        del turn.shared.completions[transactional_id]
        return
    retry = tuple(name for name, error in errors.items() if error is not ErrorCode.NONE)
    # Since the decision, `topic_partitions` has only the partitions whose marker is missing.
    for name in errors:
        if name not in retry:
            metadata.topic_partitions.pop(name, None)
    if retry:
        turn.result.markers.append(_markers(pending, metadata, retry, is_retry=True))
    elif not metadata.topic_partitions:  # no marker is missing any more
        turn.write_step(pending)


def completion_written(turn: TransactionTurn, pending: PendingStep, error: ErrorCode) -> None:
    """Continue after the append of a completion: repeat it later, or forget it.

    The append is repeated after COORDINATOR_NOT_AVAILABLE, if this broker still leads the
    partition.
    """
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE and _metadata_of(turn, pending) is not None:
        transactional_id = pending.transactional_id
        key = f"transaction-complete-{transactional_id}"
        turn.set_timer(key, CompletionTimer(transactional_id), RETRY_MS)
    elif turn.shared.completions.get(pending.transactional_id) is pending:
        # After a load in a later leader epoch, the id may have another completion. That one stays.
        del turn.shared.completions[pending.transactional_id]


def write_completion_again(turn: TransactionTurn, transactional_id: str) -> None:
    """Append a completion again, after its timer fired."""
    pending = turn.shared.completions.get(transactional_id)
    if pending is not None and _metadata_of(turn, pending) is not None:
        turn.write_step(pending)


def _send_or_complete(
    turn: TransactionTurn, pending: PendingStep, metadata: TransactionMetadata, *, is_retry: bool
) -> None:
    """Send the missing markers; append the completion if none is missing."""
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
    """Return the metadata of a step's id, None if the leader epoch of the step is over."""
    owned = turn.owned_partition(pending.partition)
    if isinstance(owned, ErrorCode) or owned.coordinator_epoch != pending.coordinator_epoch:
        return None
    return owned.transactions.get(pending.transactional_id)
