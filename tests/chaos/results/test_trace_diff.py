"""The first difference between the traces of two runs. At this difference the runs part.

A trace has a row for each recorded event of a run. Two functions compare traces:

- `parting` compares all rows, with their times. It is for two runs that should be equal.
- `story_parting` compares only the steps that change the course of a run, such as an election, and
  ignores their times. It is for runs of two seeds, whose messages never have the same latencies.

In a result of `parting`, `one` and `other` have the rows of the two traces from the difference on.
In both results `nodes` has the first different row of each node, in each trace.
"""

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

# The row with which a run enters its stage "steady".
STEADY = TraceRow(
    run="a",
    time_us=0,
    node_time_us=0,
    seq=0,
    node="driver",
    incarnation=0,
    kind="run_stage",
    detail='{"stage":"steady"}',
)


def row(time_us: int, node: str, kind: TraceKind = TraceKind.HIGH_WATERMARK) -> TraceRow:
    """Return a row. By default it is about a change of the high watermark, which is no step."""
    return TraceRow(
        run="a",
        time_us=time_us,
        node_time_us=time_us,
        seq=0,
        node=node,
        incarnation=0,
        kind=kind.value,
        partition="orders-0",
    )


def test_traces_that_differ_in_run_and_row_numbers_are_equal() -> None:
    """Two runs never have the same id. And their rows may be numbered differently.

    The numbers differ if only one of the two runs was played with rows of messages.
    """
    one = [row(1, "x"), row(2, "y")]
    other = [replace(same_row, run="b", seq=9) for same_row in one]

    assert parting(one, other) is None


def test_first_different_row_is_reported_with_its_context() -> None:
    """The traces have ten rows, and differ from row 6 on.

    The result has the two rows before row 6, and three rows of each trace from row 6 on.
    """
    one = [row(time_us, "x") for time_us in range(10)]
    other = [*one[:6], *(replace(changed_row, offset=7) for changed_row in one[6:])]
    parts = parting(one, other, before=2, after=3)

    assert parts is not None
    assert parts.rows_alike == 6
    assert parts.before == tuple(one[4:6])
    assert parts.one == tuple(one[6:9])
    assert parts.other == tuple(other[6:9])


def test_shorter_trace_differs_at_its_end() -> None:
    """The shorter trace has no row at the difference, so node x has None in place of a row."""
    one = [row(1, "x"), row(2, "x")]
    parts = parting(one, one[:1])

    assert parts is not None
    assert (parts.one, parts.other) == ((one[1],), ())
    assert not differs_by_time_only(parts)
    (node,) = parts.nodes
    assert (node.node, node.one, node.other) == ("x", one[1], None)


def test_nodes_are_listed_in_the_order_of_their_first_difference() -> None:
    """The rows of b differ at 2 µs, and those of a at 5 µs. All rows of c are equal."""
    one = [row(1, "a"), row(2, "b"), row(3, "c"), row(4, "b"), row(5, "a"), row(6, "c")]
    other = [one[0], replace(one[1], offset=1), one[2], one[3], replace(one[4], offset=1), one[5]]
    parts = parting(one, other)

    assert parts is not None
    assert [(node.node, node.time_us) for node in parts.nodes] == [("b", 2), ("a", 5)]


def test_same_event_at_another_time_differs_only_by_time() -> None:
    """Runs of two seeds usually differ first in the latency of a message.

    Such a difference says little. `differs_by_time_only` returns whether a difference is of this
    kind.
    """
    original = row(1, "x")
    same_event_later = row(2, "x")
    another_event = row(1, "x", TraceKind.LEADER_ELECTED)
    by_time = parting([original], [same_event_later])
    by_event = parting([original], [another_event])

    assert by_time is not None
    assert by_event is not None
    assert differs_by_time_only(by_time)
    assert not differs_by_time_only(by_event)


def test_rows_up_to_the_steady_state_count_as_before_it() -> None:
    """Before the steady state, differences are usual: latencies decide how the groups form.

    The row STEADY itself, which has the index 1, still counts as before the steady state. Index 3
    is behind the last row. This is where two traces differ if one of them is longer.
    """
    rows = [row(0, "x"), STEADY, row(1, "x")]

    assert [is_before_steady_state(rows, index) for index in range(4)] == [True, True, False, False]


def test_steps_are_equal_if_only_times_numbers_and_repetitions_differ() -> None:
    """Differences that follow only from the latencies of messages do not count.

    Here `one` has a row before the steady state, a row of a high watermark, and the same failure
    twice. The election of `other` has another time and offset, and its failure has another member.
    """
    elected = row(5, "c", TraceKind.LEADER_ELECTED)
    failed = row(6, "m", TraceKind.COMMIT_FAILED)
    one = [row(1, "c", TraceKind.LOAD_STARTED), STEADY, row(4, "c"), elected, failed, failed]
    other = [STEADY, replace(elected, time_us=9, offset=3), replace(failed, member="m-1")]

    assert story_parting(one, other).nodes == ()


def test_steps_differ_at_the_first_step_that_the_other_run_lacks() -> None:
    """Each node is compared by itself. The node with the earliest difference is listed first."""
    elected = row(5, "c", TraceKind.LEADER_ELECTED)
    loaded = row(3, "b", TraceKind.LOAD_COMPLETED)
    one = [STEADY, loaded, elected]
    other = [STEADY, replace(loaded, leader_epoch=4), replace(elected, peer="broker-1")]
    story = story_parting(one, other)

    assert [(node.node, node.one, node.other) for node in story.nodes] == [
        ("b", loaded, other[1]),
        ("c", elected, other[2]),
    ]


def test_different_step_is_reported_with_the_steps_before_it() -> None:
    """The steps before the difference may be of any node except the administrator (ADMIN_NODE)."""
    fenced = row(3, "c", TraceKind.BROKER_FENCED)
    elected = row(5, "b", TraceKind.BECAME_LEADER)
    admin = row(4, ADMIN_NODE, TraceKind.NODE_STARTED)
    story = story_parting([STEADY, fenced, admin, elected], [STEADY, fenced], before=4)

    assert story.before == (fenced,)
    assert [(node.node, node.one, node.other) for node in story.nodes] == [("b", elected, None)]


def test_row_of_an_earlier_healing_is_no_difference_of_its_own() -> None:
    """A user compares a run with the same run without its last fault.

    The run without the fault is over sooner, so it enters the stage "healing" earlier. If the
    traces first differ at the row of this stage, the difference says nothing about Kafka. We say
    that the traces part "by themselves".
    """
    healing = replace(STEADY, time_us=2, detail='{"stage":"healing"}')
    one = [STEADY, row(3, "x")]
    at_healing = parting(one, [STEADY, healing, row(3, "x")])
    at_another_node = parting(one, [STEADY, row(3, "y")])

    assert at_healing is not None
    assert at_another_node is not None
    assert parts_by_itself(one, at_healing)
    assert not parts_by_itself(one, at_another_node)
