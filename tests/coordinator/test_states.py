"""The states of a group: the table of legal transitions, and `transition_to`, which obeys it.

`transition_to` is the only method that writes a group's state. Ids such as GM-05 are cases of
Kafka's GroupMetadataTest (docs/kafka/BEHAVIOUR.md 10.2). The arguments of `Group` are its id, its
offsets partition, its state and the time in microseconds.
"""

import pytest

from coordinator.group import Group
from coordinator.states import VALID_PREVIOUS_STATES, GroupState
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.errors import IllegalTransition
from protocol.trace import TraceEvent, TraceKind

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
    # The group was created at 1,000 us, which is 1 ms: see the last assertion.
    group = Group("g", 0, source, 1_000)
    trace: list[TraceEvent] = []
    # `transition_to` does not check that the cause fits the states, so one cause does for all.
    if (source, target) in LEGAL:
        group.transition_to(target, now_us=5_000, cause=GroupStateCause.UNLOADED, trace=trace)
        assert group.state is target
        assert group.current_state_timestamp_ms == 5  # now_us in milliseconds
        assert [(e.kind, e.cause, e.detail) for e in trace] == [
            (TraceKind.GROUP_STATE, "unloaded", {"from": source.value, "to": target.value})
        ]
    else:
        # The error message names the state of the group.
        with pytest.raises(IllegalTransition, match=source.value):
            group.transition_to(target, now_us=5_000, cause=GroupStateCause.UNLOADED, trace=trace)
        assert (group.state, group.current_state_timestamp_ms, trace) == (source, 1, [])


def test_can_rebalance_in_the_states_that_may_precede_preparing() -> None:
    """A rebalance can begin in Empty, CompletingRebalance and Stable (E, C, S).

    GM-01: a new group can rebalance
    GM-02: a completing group can rebalance
    GM-03: a preparing group cannot rebalance
    GM-04: a Dead group cannot rebalance
    """
    rebalancing = [state for state in GroupState if Group("g", 0, state, 0).can_rebalance]
    assert rebalancing == [E, C, S]


def test_states_print_as_kafka_prints_them() -> None:
    """ListGroups, DescribeGroups and the trace (the run's recorded events) use these names."""
    # The keys of this table are all states.
    assert [state.value for state in VALID_PREVIOUS_STATES] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_illegal_transition_error_lists_the_history_of_the_group() -> None:
    """The error message has the transitions of the group so far, with their causes."""
    group = Group("g", 0, E, 0)
    group.transition_to(
        P, now_us=0, cause=RebalanceCause.JOIN, cause_text="member m joined", trace=[]
    )
    # A group in PreparingRebalance cannot become Stable.
    with pytest.raises(IllegalTransition, match=r"Empty -> PreparingRebalance \(member m joined\)"):
        group.transition_to(S, now_us=0, cause=GroupStateCause.ASSIGNMENT_STORED, trace=[])
