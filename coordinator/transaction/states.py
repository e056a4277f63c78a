"""States of a transactional id, under Kafka's names, and the table of legal transitions.

A transactional id is the name of a producer, which it keeps over restarts. A transaction writes
records to partitions. A marker is the record that ends the transaction in one partition, by a
commit or an abort.

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
    """The producer is being fenced (refused from now on), so that its transaction can be aborted.

    The log never has this state."""


STATE_IDS: dict[TransactionState, int] = {
    state: number for number, state in enumerate(TransactionState)
}
"""The number of each state in a record. Kafka's numbers follow the order of the members above."""
STATES_BY_ID = {number: state for state, number in STATE_IDS.items()}

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    # A producer begins: InitProducerId gives it a new epoch. The former transaction must be over.
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
    # PrepareEpochFence is listed as in Kafka. No transactional id ever is in this state here: it is
    # only the target of a step that another step replaces.
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
"""States in which the end is decided and markers are missing."""
EXPIRABLE = VALID_PREVIOUS_STATES[TransactionState.DEAD]
"""States without an open or decided transaction, from which a transactional id may expire."""
