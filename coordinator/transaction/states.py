"""States of a transactional id, under Kafka's names, and the table of legal transitions.

A transaction normally goes from Empty to Ongoing when it gets its first partition, to PrepareCommit
when its producer commits it, and to CompleteCommit when a marker, the record that ends it, is in
each of its partitions.

Source: Kafka `TransactionState`.
"""

from enum import Enum


class TransactionState(Enum):
    """State of a transactional id; values are the names that Kafka prints."""

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
    """The transaction is about to be aborted, and its producer to be refused from now on.

    The log never has this state, because the abort takes its place immediately."""


STATE_IDS: dict[TransactionState, int] = {
    state: number for number, state in enumerate(TransactionState)
}
"""The number that stands for each state in a record: Empty is 0, Ongoing is 1, as in Kafka."""
STATES_BY_ID = {number: state for state, number in STATE_IDS.items()}

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    # A producer has got a new epoch. A transaction of the producer before must be over.
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
"""States without an unfinished transaction: only in these may a transactional id expire."""
