"""What `coordlab groups` prints about groups, their members and offsets, and their rebalances.

Each function `page_...` makes up an answer of a cluster, and returns what the command prints then.
The last test compares all these texts, each below the docstring of its function, with
pages/groups.txt, which a person has reviewed.
"""

import io
from collections.abc import Callable

from rich.console import Console

from coordlab.commands.groups.facts import (
    CoordinatedGroup,
    GroupFacts,
    GroupList,
    GroupMember,
    GroupOffset,
    OffsetReset,
)
from coordlab.commands.groups.rebalance_view import rebalance_lines
from coordlab.commands.groups.view import (
    print_list,
    print_members,
    print_offsets,
    print_reset,
    print_states,
)
from pipeline.in_memory.rebalances import Rebalance, RebalanceLog
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind, stamp
from tests.support.harness.golden import Golden, sections


def printed(print_on: Callable[[Console], None], width: int = 200) -> str:
    """Return what a function prints on a terminal of this width."""
    file = io.StringIO()
    print_on(Console(file=file, width=width))
    return file.getvalue()


def member(index: int, *, instance: str | None = None) -> GroupMember:
    """Return a member that owns two partitions; with an instance id it is a static member."""
    return GroupMember(
        member_id=f"consumer-{index}-id",
        group_instance_id=instance,
        client_id=f"consumer-{index}",
        host=f"host-{index}",
        assigned=(
            TopicPartition("orders", 2 * index),
            TopicPartition("orders", 2 * index + 1),
        ),
    )


def group(**changes: object) -> GroupFacts:
    """Return a Stable group of two members; `changes` replace its fields."""
    fields: dict[str, object] = {
        "group": "g",
        "state": "Stable",
        "coordinator": 1,
        "assignment_strategy": "range",
        "members": (member(0), member(1)),
    }
    return GroupFacts(**(fields | changes))  # type: ignore[arg-type]  # a test may change any field


def rebalance(**changes: object) -> Rebalance:
    """Return a rebalance in progress, which began because the session of member `m` expired."""
    fields: dict[str, object] = {
        "group": "g",
        "coordinator": "broker-1",
        "incarnation": 0,
        "generation": 3,
        "new_generation": None,
        "reason": "session expiry",
        "cause": "member m expired: no heartbeat",
        "client_reason": None,
        "member": "m",
        "added": (),
        "removed": ("m",),
        "removed_because": ("session expiry",),
        "store_error": None,
        "started_us": 1_000_000,
        "joined_us": None,
        "stable_us": None,
        "cut_short_us": None,
        "cut_short_by": None,
    }
    return Rebalance(**(fields | changes))  # type: ignore[arg-type]  # a test may change any field


def page_group_that_two_brokers_claim_is_listed_twice() -> str:
    """A split brain must be visible; Kafka's tool would hide one of the two."""
    listed = tuple(
        CoordinatedGroup(
            group="g", type="classic", protocol_type="consumer", state="Stable", coordinator=broker
        )
        for broker in (0, 2)
    )
    answer = GroupList(groups=listed, failures={1: "TIMED_OUT"})
    return printed(lambda console: print_list(console, answer))


def page_lines_are_never_broken_however_narrow_the_terminal() -> str:
    """A member id in two pieces can be neither searched nor copied."""
    return printed(lambda console: print_members(console, group(), verbose=True), width=30)


def page_static_members_have_a_column_for_their_instances() -> str:
    """The column exists only if a member has an instance id, as in Kafka's tool."""
    one_static = group(members=(member(0, instance="i-0"), member(1)))
    return printed(lambda console: print_members(console, one_static, verbose=False))


def page_unknown_value_of_an_offset_is_a_dash_with_the_reason_below() -> str:
    """Cases: no commit; a log without a leader."""
    offset = GroupOffset(
        topic="orders",
        partition=3,
        current_offset=None,
        log_end_offset=None,
        lag=None,
        member_id=None,
        host=None,
        client_id=None,
        error="LEADER_NOT_AVAILABLE",
    )
    empty = group(state="Empty", members=(), offsets=(offset,))
    return printed(lambda console: print_offsets(console, empty))


def page_group_that_rebalances_is_not_read_as_one_without_assignments() -> str:
    """Its coordinator returns no assignments during a rebalance."""
    rebalancing = group(state="CompletingRebalance", offsets=())
    return printed(lambda console: print_offsets(console, rebalancing))


def page_group_with_an_error_does_not_hide_the_others() -> str:
    """The strategy of a group that is not Stable is not known."""
    groups = (
        group(assignment_strategy="", state="Empty", members=()),
        GroupFacts(group="h", error="GROUP_ID_NOT_FOUND", state="Dead", coordinator=1),
        GroupFacts(group="i", error="TIMED_OUT, still after 5 s"),
    )
    return printed(lambda console: print_states(console, groups))


def page_some_of_many_members_that_prevent_a_reset_are_named() -> str:
    """A group of a thousand members must not fill the screen."""
    reset = OffsetReset(
        group="g",
        executed=False,
        error="NON_EMPTY_GROUP",
        state="Stable",
        held_by=tuple(member(index) for index in range(8)),
    )
    return printed(lambda console: print_reset(console, reset, execute=True), width=400)


def page_reset_of_a_group_that_committed_nothing_says_so() -> str:
    """With --all-topics there is no topic to choose."""
    reset = OffsetReset(group="g", executed=False, error=None, state="Empty")
    return printed(lambda console: print_reset(console, reset, execute=True))


def page_rebalance_has_its_course_its_reason_and_its_added_and_removed_members() -> str:
    """Member ids are replaced by their clients, where the trace has them."""
    log = RebalanceLog()
    added = TraceEvent(
        kind=TraceKind.MEMBER_ADDED, group="g", member="m", detail={"client_id": "consumer-7"}
    )
    log.observe(
        stamp(added, run="r", time_us=1, node_time_us=1, seq=0, node="broker-1", incarnation=0)
    )
    ended = rebalance(
        new_generation=4,
        joined_us=3_000_000,
        stable_us=3_250_000,
        added=("n",),
        store_error="X",
        client_reason="gone",
    )
    return "\n".join(rebalance_lines(ended, log))


def page_rebalance_without_an_end_was_cut_short_or_is_in_progress() -> str:
    """The first one ended with its coordinator; the second goes on."""
    log = RebalanceLog()
    cut_short = rebalance(cut_short_us=1_500_000, cut_short_by="broker-1 was killed", removed=())
    in_progress = rebalance(member=None, removed=())
    return "\n".join((*rebalance_lines(cut_short, log), *rebalance_lines(in_progress, log)))


PAGES = (
    page_group_that_two_brokers_claim_is_listed_twice,
    page_lines_are_never_broken_however_narrow_the_terminal,
    page_static_members_have_a_column_for_their_instances,
    page_unknown_value_of_an_offset_is_a_dash_with_the_reason_below,
    page_group_that_rebalances_is_not_read_as_one_without_assignments,
    page_group_with_an_error_does_not_hide_the_others,
    page_some_of_many_members_that_prevent_a_reset_are_named,
    page_reset_of_a_group_that_committed_nothing_says_so,
    page_rebalance_has_its_course_its_reason_and_its_added_and_removed_members,
    page_rebalance_without_an_end_was_cut_short_or_is_in_progress,
)


def test_pages_equal_the_reviewed_ones(golden: Golden) -> None:
    """A person reviews each change of an output, as its users will see it."""
    golden.check("pages/groups.txt", sections(PAGES))
