"""States of a transactional id, under Kafka's names, and the table of legal transitions.

Normally the state changes from Empty to Ongoing when a transaction gets its first partition, and to
PrepareCommit when the producer commits the transaction. Then a marker, which is a record that ends
the transaction, is written to each partition of the transaction. When all markers are written, the
state is CompleteCommit.

Source: Kafka `TransactionState`.
"""

from enum import Enum


class TransactionState(Enum):
    """State of a transactional id. The values are the names that Kafka prints."""

    EMPTY = "Empty"
    """The producer has an id and an epoch, and no transaction yet."""
    ONGOING = "Ongoing"
    """The transaction has at least one partition."""
    PREPARE_COMMIT = "PrepareCommit"
    """The commit is decided; markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    """The abort is decided; markers are being written."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has the marker of the commit."""
    COMPLETE_ABORT = "CompleteAbort"
    """Every partition has the marker of the abort."""
    DEAD = "Dead"
    """The transactional id has expired; its tombstone is being written."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The transaction is about to be aborted. From now on the requests of its producer are refused.

    The log never has this state, because the abort takes its place immediately."""


STATE_IDS: dict[TransactionState, int] = {
    state: number for number, state in enumerate(TransactionState)
}
"""The number that stands for each state in a record: Empty is 0, Ongoing is 1, as in Kafka."""
STATES_BY_ID = {number: state for state, number in STATE_IDS.items()}

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    # A producer has got a new epoch. The last transaction of the previous producer must be over.
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
    # Kafka lists PrepareEpochFence here. But no transactional id is ever in this state: the step
    # that leads to it is replaced by the abort.
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
"""States in which the end of the transaction is decided, but some markers are missing."""
EXPIRABLE = VALID_PREVIOUS_STATES[TransactionState.DEAD]
"""States without an unfinished transaction. A transactional id may expire only in these states."""
