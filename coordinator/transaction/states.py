"""The states of a transactional id, under Kafka's names, and how each may be entered.

Source: Kafka `TransactionState`.
"""

from enum import Enum


class TransactionState(Enum):
    """A transactional id's state, by Kafka's printed name."""

    EMPTY = "Empty"
    """It has an id and an epoch, and no transaction."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """It is decided, and the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has its marker."""
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """It has not been used for transactional.id.expiration.ms: it is being forgotten."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Its producer is being fenced, so that its transaction can be aborted. Never stored."""


STATE_IDS: dict[TransactionState, int] = {
    state: number for number, state in enumerate(TransactionState)
}
"""How a state stands in the log."""
STATES_BY_ID = {number: state for state, number in STATE_IDS.items()}

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT}
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""Decided, and not complete."""
EXPIRABLE = VALID_PREVIOUS_STATES[TransactionState.DEAD]
"""Nothing is under way."""
