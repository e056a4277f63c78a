"""The first difference of two traces: the row, the nodes, and the steps before it."""

from msgspec.structs import replace

from chaos.results.trace_diff import (
    differs_by_time_only,
    is_before_steady_state,
    parting,
    parts_by_itself,
    story_parting,
)
from cluster.lives import ADMIN_NODE
from protocol.trace import TraceKind, TraceRow

STEADY = TraceRow("a", 0, 0, 0, "driver", 0, "run_stage", detail='{"stage":"steady"}')


def row(time_us: int, node: str, kind: TraceKind = TraceKind.HIGH_WATERMARK) -> TraceRow:
    return TraceRow("a", time_us, time_us, 0, node, 0, kind.value, partition="orders-0")


def test_traces_that_differ_in_run_and_row_numbers_are_equal() -> None:
    """The id of a run is no event; numbers differ where messages were not traced."""
    one = [row(1, "x"), row(2, "y")]

    assert parting(one, [replace(each, run="b", seq=9) for each in one]) is None


def test_first_different_row_is_reported_with_its_context() -> None:
    """The context is the rows before it, and the next rows of both."""
    one = [row(time_us, "x") for time_us in range(10)]
    other = [*one[:6], *(replace(each, offset=7) for each in one[6:])]
    parts = parting(one, other, before=2, after=3)

    assert parts is not None
    assert parts.rows_alike == 6
    assert parts.before == tuple(one[4:6])
    assert parts.one == tuple(one[6:9])
    assert parts.other == tuple(other[6:9])


def test_shorter_trace_differs_at_its_end() -> None:
    """It has no next rows."""
    one = [row(1, "x"), row(2, "x")]
    parts = parting(one, one[:1])

    assert parts is not None
    assert (parts.one, parts.other) == ((one[1],), ())
    assert not differs_by_time_only(parts)
    (node,) = parts.nodes
    assert (node.node, node.one, node.other) == ("x", one[1], None)


def test_nodes_are_listed_in_the_order_of_their_first_difference() -> None:
    """A node that is equal to the end is not listed."""
    one = [row(1, "a"), row(2, "b"), row(3, "c"), row(4, "b"), row(5, "a"), row(6, "c")]
    other = [one[0], replace(one[1], offset=1), one[2], one[3], replace(one[4], offset=1), one[5]]
    parts = parting(one, other)

    assert parts is not None
    assert [(each.node, each.time_us) for each in parts.nodes] == [("b", 2), ("a", 5)]


def test_same_event_at_another_time_differs_only_by_time() -> None:
    """Two seeds differ like this at their first message."""
    later, another = row(2, "x"), row(1, "x", TraceKind.LEADER_ELECTED)
    by_time, by_event = parting([row(1, "x")], [later]), parting([row(1, "x")], [another])

    assert by_time is not None
    assert by_event is not None
    assert differs_by_time_only(by_time)
    assert not differs_by_time_only(by_event)


def test_row_counts_as_before_the_steady_state_until_that_is_reached() -> None:
    """Groups form in an order that depends on the latencies."""
    rows = [row(0, "x"), STEADY, row(1, "x")]

    assert [is_before_steady_state(rows, index) for index in range(4)] == [True, True, False, False]


def test_steps_are_equal_if_only_times_numbers_and_repetitions_differ() -> None:
    """Records, watermarks and repeated failures vary with time."""
    elected = row(5, "c", TraceKind.LEADER_ELECTED)
    failed = row(6, "m", TraceKind.COMMIT_FAILED)
    one = [row(1, "c", TraceKind.LOAD_STARTED), STEADY, row(4, "c"), elected, failed, failed]
    other = [STEADY, replace(elected, time_us=9, offset=3), replace(failed, member="m-1")]

    assert story_parting(one, other).nodes == ()


def test_steps_differ_at_the_first_step_that_the_other_run_lacks() -> None:
    """Each node is compared by itself, the earliest difference first."""
    elected, loaded = row(5, "c", TraceKind.LEADER_ELECTED), row(3, "b", TraceKind.LOAD_COMPLETED)
    one = [STEADY, loaded, elected]
    other = [STEADY, replace(loaded, leader_epoch=4), replace(elected, peer="broker-1")]
    story = story_parting(one, other)

    assert [(each.node, each.one, each.other) for each in story.nodes] == [
        ("b", loaded, other[1]),
        ("c", elected, other[2]),
    ]


def test_different_step_is_reported_with_the_steps_before_it() -> None:
    """They may be of any node; steps of the verifying client are left out."""
    fenced, elected = row(3, "c", TraceKind.BROKER_FENCED), row(5, "b", TraceKind.BECAME_LEADER)
    admin = row(4, ADMIN_NODE, TraceKind.NODE_STARTED)
    story = story_parting([STEADY, fenced, admin, elected], [STEADY, fenced], before=4)

    assert story.before == (fenced,)
    assert [(each.node, each.one, each.other) for each in story.nodes] == [("b", elected, None)]


def test_row_of_an_earlier_healing_is_no_difference_of_its_own() -> None:
    """Without its last fault a run heals earlier: the effects of that fault are missing."""
    healing = replace(STEADY, time_us=2, detail='{"stage":"healing"}')
    one, other = [STEADY, row(3, "x")], [STEADY, healing, row(3, "x")]
    ended, parted = parting(one, other), parting(one, [STEADY, row(3, "y")])

    assert ended is not None
    assert parted is not None
    assert parts_by_itself(one, ended)
    assert not parts_by_itself(one, parted)
