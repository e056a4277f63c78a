"""How `groups` shows what it was told: columns, what is missing, who holds a group, and why."""

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


def printed(show: Callable[[Console], None], width: int = 200) -> list[str]:
    """Return what `show` prints on a terminal of a width."""
    file = io.StringIO()
    show(Console(file=file, width=width))
    return file.getvalue().splitlines()


def member(index: int, *, instance: str | None = None) -> GroupMember:
    return GroupMember(
        member_id=f"consumer-{index}-id",
        group_instance_id=instance,
        client_id=f"consumer-{index}",
        host=f"host-{index}",
        assigned=tuple(TopicPartition("orders", 2 * index + each) for each in range(2)),
    )


def group(**changes: object) -> GroupFacts:
    fields: dict[str, object] = {
        "group": "g",
        "state": "Stable",
        "coordinator": 1,
        "assignment_strategy": "range",
        "members": (member(0), member(1)),
    }
    return GroupFacts(**(fields | changes))  # type: ignore[arg-type]  # a test's own words


def rebalance(**changes: object) -> Rebalance:
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
    return Rebalance(**(fields | changes))  # type: ignore[arg-type]  # a test's own words


def test_group_that_two_brokers_claim_stands_in_the_list_twice() -> None:
    """A split brain is what this lab is for; Kafka's tool would hide one of the two."""
    listed = tuple(
        CoordinatedGroup(
            group="g", type="classic", protocol_type="consumer", state="Stable", coordinator=broker
        )
        for broker in (0, 2)
    )
    assert printed(
        lambda to: print_list(to, GroupList(groups=listed, failures={1: "TIMED_OUT"}))
    ) == [
        "GROUP TYPE    STATE  COORDINATOR (ID)",
        "g     classic Stable broker-0 (0)",
        "g     classic Stable broker-2 (2)",
        "Error: the list of broker-1: TIMED_OUT",
    ]


def test_lines_are_never_broken_however_narrow_the_terminal() -> None:
    """A member id in two pieces can be neither searched nor copied."""
    lines = printed(lambda to: print_members(to, group(), verbose=True), width=30)
    assert lines == [
        "GROUP CONSUMER-ID   HOST   CLIENT-ID  #PARTITIONS ASSIGNMENT",
        "g     consumer-0-id host-0 consumer-0 2           orders(0,1)",
        "g     consumer-1-id host-1 consumer-1 2           orders(2,3)",
    ]


def test_static_members_have_a_column_for_their_instances() -> None:
    """Only where there is one, as in Kafka's tool."""
    some = group(members=(member(0, instance="i-0"), member(1)))
    lines = printed(lambda to: print_members(to, some, verbose=False))
    assert [line.split() for line in lines] == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "consumer-0-id", "i-0", "host-0", "consumer-0", "2"],
        ["g", "consumer-1-id", "-", "host-1", "consumer-1", "2"],
    ]


def test_what_is_not_known_of_an_offset_is_a_dash_and_its_reason_below() -> None:
    """Nothing committed; a log that nobody leads."""
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
    lines = printed(
        lambda to: print_offsets(to, group(state="Empty", members=(), offsets=(offset,)))
    )
    assert lines[0] == "group g has no members"
    assert lines[2].split() == ["g", "orders", "3", "-", "-", "-", "-", "-", "-"]
    assert lines[3] == "Error: the log of orders-3: LEADER_NOT_AVAILABLE"


def test_group_that_rebalances_is_not_read_as_one_without_assignments() -> None:
    """Its coordinator gives no assignments out then."""
    lines = printed(lambda to: print_offsets(to, group(state="CompletingRebalance", offsets=())))
    assert lines == [
        "group g is rebalancing: CompletingRebalance",
        "group g has committed nothing",
    ]


def test_group_with_an_error_is_told_and_the_others_are_shown() -> None:
    """The strategy of a group that is not Stable is not known."""
    shown = (
        group(assignment_strategy="", state="Empty", members=()),
        GroupFacts(group="h", error="GROUP_ID_NOT_FOUND", state="Dead", coordinator=1),
        GroupFacts(group="i", error="TIMED_OUT, still after 5 s"),
    )
    assert printed(lambda to: print_states(to, shown)) == [
        "GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS",
        "g     broker-1 (1)     -                   Empty 0",
        "Error: group h does not exist: GROUP_ID_NOT_FOUND",
        "Error: group i: TIMED_OUT, still after 5 s",
    ]


def test_of_many_members_that_hold_a_group_some_are_named() -> None:
    """A group of a thousand must not fill the screen."""
    reset = OffsetReset(
        group="g",
        executed=False,
        error="NON_EMPTY_GROUP",
        state="Stable",
        held_by=tuple(member(index) for index in range(8)),
    )
    (line,) = printed(lambda to: print_reset(to, reset, execute=True), width=400)
    assert line.startswith("Error: offsets of g cannot be reset: NON_EMPTY_GROUP, it is Stable, ")
    assert line.endswith("consumer-4-id on host-4 and 3 more")


def test_reset_of_a_group_that_committed_nothing_says_so() -> None:
    """With --all-topics there is nothing to choose from."""
    reset = OffsetReset(group="g", executed=False, error=None, state="Empty")
    assert printed(lambda to: print_reset(to, reset, execute=True)) == [
        "group g has committed nothing that could be reset"
    ]


def test_rebalance_is_told_with_its_course_its_reason_and_who_came_and_went() -> None:
    """Member ids become the clients behind them, where the trace tells who they are."""
    log = RebalanceLog()
    added = TraceEvent(
        kind=TraceKind.MEMBER_ADDED, group="g", member="m", detail={"client_id": "consumer-7"}
    )
    log.observe(
        stamp(added, run="r", time_us=1, node_time_us=1, seq=0, node="broker-1", incarnation=0)
    )
    whole = rebalance(
        new_generation=4,
        joined_us=3_000_000,
        stable_us=3_250_000,
        added=("n",),
        store_error="X",
        client_reason="gone",
    )
    assert list(rebalance_lines(whole, log)) == [
        "1.000000s on broker-1: generation 3 to 4 in 2.250 s (join 2.000 s, sync 0.250 s)",
        "  because: session expiry of consumer-7; it says: gone",
        "  came: n; went: consumer-7 (session expiry)",
        "  its assignment was not stored: X",
    ]


def test_rebalance_without_an_end_says_what_became_of_it() -> None:
    """Cut short, or still on its way."""
    log = RebalanceLog()
    cut = rebalance(cut_short_us=1_500_000, cut_short_by="broker-1 was killed", removed=())
    first, *_ = rebalance_lines(cut, log)
    assert first == (
        "1.000000s on broker-1: generation 3, cut short after 0.500 s: broker-1 was killed"
    )
    going, because = rebalance_lines(rebalance(member=None, removed=()), log)
    assert going.endswith("generation 3, not over yet")
    assert because == "  because: session expiry (member m expired: no heartbeat)"
