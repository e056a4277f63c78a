"""Invariants of the transaction coordinator. They are true whenever no input is handled.

The docstring of each check says what must be true. Otherwise the check raises InvariantViolation
with the invariant's name and evidence.

A step is a change of one transactional id, which is appended to the log. While a step is pending,
`pending_state` of the id is the state to which the step leads. The completion is the last step of a
transaction. It is appended after all markers are written, but it is pending already while the
markers are being written.
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
    """The coordinator's partitions, transactional ids, steps and timers agree with each other.

    - No partition is both loaded (`owned`) and being loaded.
    - Each transactional id is in the partition to which it hashes.
    - Each pending step is being appended.
    - No append belongs to an AddPartitionsToTxn that has been answered already.
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
        # If the append is for an AddPartitionsToTxn, `answer` is the unfinished answer to this
        # request. `answer.missing` is the number of transactions that have no outcome yet.
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

    An open transaction has the time of its beginning. Otherwise it would never time out.
    """
    # The transactional ids with a step that is being appended.
    under_way = {pending.transactional_id for pending in shared.in_flight.appends.values()}
    for name, metadata in owned.transactions.items():
        _require(
            metadata.transactional_id == name
            and partition_for(name, shared.num_partitions) == owned.partition,
            "id_in_its_partition",
            f"{metadata.transactional_id} is stored as {name} in partition {owned.partition}",
        )
        completion = shared.completions.get(name)
        # True if the transaction is being completed in the current leader epoch.
        is_completing = (
            completion is not None and completion.coordinator_epoch == owned.coordinator_epoch
        )
        # A pending completion need not be in an append. Its markers may still be on their way, or
        # the coordinator may have given it up, because a later coordinator has taken over.
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
