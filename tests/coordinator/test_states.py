"""The states of a group, and the transitions between them.

`transition_to` is the only method that changes the state of a group. It allows the transitions that
Kafka allows, and raises an error at any other transition.

A line such as "GM-05: ..." says which case of Kafka's GroupMetadataTest a test repeats
(docs/kafka/BEHAVIOUR.md 10.2).
"""

import pytest

from coordinator.group import Group
from coordinator.states import VALID_PREVIOUS_STATES, GroupState
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.errors import IllegalTransition
from protocol.trace import TraceEvent, TraceKind

# One letter for each state, so that the table LEGAL is short.
E, P, C, S, D = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)
LEGAL = {(P, E), (E, P), (C, P), (S, P), (P, C), (C, S), (E, D), (P, D), (C, D), (S, D), (D, D)}
"""Legal transitions (from, to), copied from docs/kafka/BEHAVIOUR.md 1."""


@pytest.mark.parametrize("source", list(GroupState))
@pytest.mark.parametrize("target", list(GroupState))
def test_transition_is_allowed_exactly_where_kafka_allows_it(
    source: GroupState, target: GroupState
) -> None:
    """A legal transition changes the state and writes a trace row.

    An illegal transition raises an error, and changes and writes nothing. In the cases below, "not"
    means that Kafka forbids the transition.

    GM-05: Empty to PreparingRebalance
    GM-06: Empty to Dead
    GM-07: CompletingRebalance to PreparingRebalance
    GM-08: PreparingRebalance to Dead
    GM-09: PreparingRebalance to Empty
    GM-10: Empty to Dead
    GM-11: CompletingRebalance to Stable
    GM-12: not Empty to Stable
    GM-13: not Stable to Stable
    GM-14: not Empty to CompletingRebalance
    GM-15: not PreparingRebalance to itself
    GM-16: not PreparingRebalance to Stable
    GM-17: not CompletingRebalance to itself
    GM-18: Dead to Dead
    GM-19: not Dead to Stable
    GM-20: not Dead to PreparingRebalance
    GM-21: not Dead to CompletingRebalance
    """
    group = Group("g", partition=0, state=source, now_us=1_000)
    trace: list[TraceEvent] = []
    # `transition_to` does not check that the cause fits the states, so one cause is enough for all
    # cases.
    cause = GroupStateCause.UNLOADED

    if (source, target) in LEGAL:
        group.transition_to(target, now_us=5_000, cause=cause, trace=trace)
        assert group.state is target
        assert group.current_state_timestamp_ms == 5
        (event,) = trace
        assert event.kind is TraceKind.GROUP_STATE
        assert event.cause == "unloaded"
        assert event.detail == {"from": source.value, "to": target.value}
    else:
        # The error message has the state of the group.
        with pytest.raises(IllegalTransition, match=source.value):
            group.transition_to(target, now_us=5_000, cause=cause, trace=trace)
        assert group.state is source
        assert group.current_state_timestamp_ms == 1  # the time of its creation
        assert trace == []


def test_can_rebalance_in_the_states_that_may_precede_preparing() -> None:
    """A rebalance can begin in the states Empty, CompletingRebalance and Stable.

    GM-01: a new group can rebalance
    GM-02: a completing group can rebalance
    GM-03: a preparing group cannot rebalance
    GM-04: a Dead group cannot rebalance
    """
    rebalancing = [
        state
        for state in GroupState
        if Group("g", partition=0, state=state, now_us=0).can_rebalance
    ]
    assert rebalancing == [E, C, S]


def test_states_print_as_kafka_prints_them() -> None:
    """Kafka's tools show these names to users, for example from the answers to DescribeGroups."""
    all_states = list(VALID_PREVIOUS_STATES)  # the keys of the table of transitions
    assert [state.value for state in all_states] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_illegal_transition_error_lists_the_history_of_the_group() -> None:
    """The error message has the transitions of the group so far, with their causes.

    Here the group cannot become Stable, because it is in PreparingRebalance.
    """
    group = Group("g", partition=0, state=E, now_us=0)
    group.transition_to(
        P, now_us=0, cause=RebalanceCause.JOIN, cause_text="member m joined", trace=[]
    )
    with pytest.raises(IllegalTransition, match=r"Empty -> PreparingRebalance \(member m joined\)"):
        group.transition_to(S, now_us=0, cause=GroupStateCause.ASSIGNMENT_STORED, trace=[])
