"""The five states of a group, and the table of transitions between them.

A group normally goes round in a circle: Stable, then PreparingRebalance when a rebalance begins,
then CompletingRebalance when all members have joined, and Stable again when the leader's assignment
is stored.

Source: Kafka `GroupState` (scala) and its `validPreviousStates`; docs/kafka/BEHAVIOUR.md 1.
"""

from enum import Enum


class GroupState(Enum):
    """State of a group. The values are the names that Kafka prints.

    Empty: the group has no members, but it may have offsets. A group whose clients only commit
    offsets and never join stays Empty.
    PreparingRebalance: the join phase. A member that heartbeats gets the answer
    REBALANCE_IN_PROGRESS, so that it rejoins.
    CompletingRebalance: every member has the new generation and waits for the leader's assignment.
    Stable: the assignment is stored. The members heartbeat, fetch records and commit offsets.
    Dead: the group was deleted, or this broker no longer coordinates it.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    # If the last member of a Stable group goes, the group does not become Empty directly. First a
    # join phase begins, which ends immediately because there are no members.
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""Target state -> states from which a group may enter the target state. As in Kafka, a Dead group
may become Dead again."""

REBALANCE_FROM = VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]
"""The states in which a group can start a rebalance."""
