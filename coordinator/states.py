"""The five states of a group and their transition table.

Source: Kafka `GroupState` (scala) and its `validPreviousStates`; docs/kafka/BEHAVIOUR.md 1.
"""

from enum import Enum


class GroupState(Enum):
    """State of a group; values are the names that Kafka prints.

    Empty: no members; may hold offsets. Also a simple group, which never has members.
    PreparingRebalance: the join phase; heartbeats of the last generation's members are answered
    with REBALANCE_IN_PROGRESS, so that they rejoin.
    CompletingRebalance: every member has the new generation and waits for the leader's assignment.
    Stable: the assignment is stored; members heartbeat, commit and fetch.
    Dead: deleted, or this broker no longer coordinates it.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""Target state -> states from which a group may enter it. Dead to Dead is legal, as in Kafka."""

REBALANCE_FROM = VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]
"""The states in which a group can start a rebalance."""
