"""Invariants of the transaction coordinator, which hold between any two inputs.

The docstring of each check states what holds. If it does not hold, the check raises
InvariantViolation with the evidence.

- Owned partition: a partition of `__transaction_state` that this broker has loaded.
- Step: a change of one transactional id. `pending_state` is the state that it leads to, from its
  preparation until its append has completed.
- Marker: the record that ends a transaction in one of its partitions.
- Completion: the last step of a transaction. It is pending while the markers are being written, and
  is appended after the last marker.
- Purpose: what the coordinator does when a step's append has completed.
"""

from coordinator.transaction.metadata import NO_TIMESTAMP
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transaction_turn import (
    AbortTimer,
    CompletionTimer,
    ExpirationTimer,
    OwnedPartition,
    PartitionsAdded,
    TransactionShared,
)
from protocol.errors import InvariantViolation
from protocol.partitioner import partition_for

_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def check_transactions(shared: TransactionShared) -> None:
    """Partitions, transactional ids, steps and timers of a coordinator agree.

    - No partition is both owned and loading.
    - Each transactional id hashes to its partition.
    - Each pending step is being written.
    - An AddPartitionsToTxn that is not answered yet waits for at least one append in flight.
    - The periodic timers run.
    """
    for partition, owned in shared.owned.items():
        _require(
            partition not in shared.loading,
            "owned_or_loading",
            f"transaction partition {partition} is owned and loading",
        )
        _require(
            owned.partition == partition,
            "partition_under_its_number",
            f"transaction partition {owned.partition} is stored as {partition}",
        )
        _check_ids(owned, shared)
    for append_id, pending in shared.in_flight.appends.items():
        # Only an append of added partitions has an AddPartitionsToTxn that waits for it.
        answer = pending.purpose.answer if isinstance(pending.purpose, PartitionsAdded) else None
        _require(
            answer is None or answer.missing > 0,
            "answered_once",
            f"append {append_id} of {pending.transactional_id} ends, and its request is answered",
        )
    # `start` sets the timers. A broker without `__transaction_state` never calls it.
    if shared.owned:
        _check_timers(shared)


def _check_ids(owned: OwnedPartition, shared: TransactionShared) -> None:
    """Each transactional id is in its partition, and its state agrees with its pending step.

    An open transaction has the time at which it began; its timeout counts from this time.
    """
    under_way = {pending.transactional_id for pending in shared.in_flight.appends.values()}
    for name, metadata in owned.transactions.items():
        _require(
            metadata.transactional_id == name
            and partition_for(name, shared.num_partitions) == owned.partition,
            "id_in_its_partition",
            f"{metadata.transactional_id} is stored as {name} in partition {owned.partition}",
        )
        completion = shared.completions.get(name)
        is_completing = (
            completion is not None and completion.coordinator_epoch == owned.coordinator_epoch
        )
        # A pending CompleteCommit or CompleteAbort need not be written yet, because its markers may
        # still be on the way. Or this coordinator has given it up, because a partition has a marker
        # of a later coordinator.
        _require(
            metadata.pending_state is None
            or metadata.pending_state in _COMPLETE
            or name in under_way,
            "pending_step_is_written",
            f"{name} waits to be {metadata.pending_state}, and nothing is being written",
        )
        _require(
            metadata.is_pending or not is_completing,
            "completion_is_pending",
            f"{name} is {metadata.state.value}, its markers are being written, nothing is pending",
        )
        _require(
            metadata.state is not TransactionState.ONGOING
            or metadata.txn_start_timestamp_ms != NO_TIMESTAMP,
            "ongoing_has_begun",
            f"{name} is Ongoing since no time: nothing will ever abort it",
        )


def _check_timers(shared: TransactionShared) -> None:
    """Both periodic timers run, and the key of each CompletionTimer names its id."""
    timers = shared.in_flight.timers
    for kind, ids in (
        (AbortTimer, "transactions over their timeout"),
        (ExpirationTimer, "unused transactional ids"),
    ):
        _require(
            any(isinstance(timer, kind) for timer in timers.values()),
            "periodic_timer",
            f"no timer runs for the periodic check for {ids}",
        )
    for key, timer in timers.items():
        _require(
            not isinstance(timer, CompletionTimer) or key.endswith(timer.transactional_id),
            "timer_under_its_key",
            f"{key} is about {timer}",
        )


def _require(holds: bool, name: str, evidence: str) -> None:
    """Raise InvariantViolation of the invariant `name` unless it holds."""
    if not holds:
        raise InvariantViolation(name, evidence)
