"""The ownership lane of a report: which member owned which partition, over the time of the run.

The lane is a chart with a row for each partition. If there are many partitions, the lane only shows
how many of them have an owner. A second chart, the detail, then has rows of partitions. The reader
picks which: a range of fifty partitions, or the partitions of a member.

The page gets the data of a chart as JSON. To save room, each key has only one letter, and the
constants below name these keys. `rows` returns each bar as a dict, and `cells` returns some values
of each bar. A bar is the time in which a member owned a partition:

    cells(chart, "owners", ROW, MEMBER, BEGIN_S, END_S) -> [("orders-0", "consumer-0", 6.0, 53.2)]

`owned` makes a row of the table `ownership`, with times in seconds. The run ends at 60 s. If `to_s`
is None, the member still owned the partition then. By default broker-2 assigned the partition in
generation 1 and leader epoch 0.
"""

from pipeline.report.charts.chart import Chart
from pipeline.report.lanes import ownership
from pipeline.report.lanes.ownership import ownership_detail, ownership_lane
from tests.support.builders.lane_rows import ownership as owned
from tests.support.builders.lane_rows import ownership_overlap
from tests.support.builders.report_inputs import report_input
from tests.support.vega import Datum, cells, compiled_without_warnings, rows

# Keys of the data of a chart.
ROW = "r"
BEGIN_S, END_S = "a", "b"
MEMBER = "m"
COORDINATOR, LEADER_EPOCH = "w", "e"  # by which the partition was assigned
FILL = "c"  # a colour or a pattern
LABEL = "l"
RANGE = "h"  # number of the range of partitions that a reader can pick
ROW_OF_MEMBER = "q"  # number of the row among the rows of its member
SHOWN_FIRST = "t"  # 1 for the rows that the page shows before a reader picks any

# Two keys of the chart that counts partitions.
KIND = "k"  # which partitions are counted: those with one owner, with none, or with two
NUMBER = "n"  # number of partitions of this kind from BEGIN_S on

# In the data `twice`, a bar is the time in which a partition has two owners. There the letters of
# COORDINATOR and LEADER_EPOCH stand for texts about both owners.
OWNERS = "w"
ASSIGNED_BY = "e"


def _owned_lost_and_owned_again(partitions: int) -> list[Datum]:
    """Return rows of `ownership`: each partition has an owner from 6 to 20 s, and from 25 s on.

    Twenty members share the partitions: partition 0 is owned by consumer-0, partition 1 by
    consumer-1, and partition 20 by consumer-0 again.
    """
    intervals = []
    for index in range(partitions):
        name, member = f"orders-{index}", f"consumer-{index % 20}"
        intervals.append(owned(name, member, from_s=6, to_s=20))
        intervals.append(owned(name, member, from_s=25, to_s=None, generation=2))
    return intervals


def _lane_and_detail(tables: dict[str, list[Datum]]) -> tuple[Chart, Chart]:
    """Return the lane of a run with these tables, and its detail."""
    run = report_input(tables=tables)
    chart, detail = ownership_lane(run), ownership_detail(run)
    assert chart is not None
    assert detail is not None
    compiled_without_warnings(chart)
    compiled_without_warnings(detail)
    return chart, detail


def test_ownership_lane_without_owners_is_none() -> None:
    """Without an assignment there is no owner to show."""
    assert ownership_lane(report_input()) is None
    assert ownership_detail(report_input()) is None


def test_ownership_lane_of_two_owners_shows_both_and_for_how_long() -> None:
    """The lane shows the two owners of orders-0, their times and their coordinators."""
    by_new_coordinator = {"generation": 2, "coordinator": "broker-0", "leader_epoch": 1}
    run = report_input(
        tables={
            "ownership": [
                owned("orders-0", "consumer-6", from_s=34.08, to_s=54, **by_new_coordinator),
                owned("orders-0", "consumer-0", from_s=6, to_s=53.2),
                owned("orders-1", "consumer-1", from_s=6, to_s=None),
            ],
            "ownership_overlaps": [
                ownership_overlap("orders-0", "consumer-0", "consumer-6", from_s=34.08, to_s=53.2)
            ],
        }
    )
    chart = ownership_lane(run)
    assert chart is not None
    vega = compiled_without_warnings(chart)

    bar_0, bar_1, bar_6 = sorted(rows(chart, "owners"), key=lambda bar: str(bar[MEMBER]))
    assert (bar_0[ROW], bar_0[BEGIN_S], bar_0[END_S]) == ("orders-0", 6.0, 53.2)
    assert bar_6[ROW] != bar_0[ROW], "the second owner has a row of its own"
    assert (bar_6[BEGIN_S], bar_6[END_S], bar_6[COORDINATOR], bar_6[LEADER_EPOCH]) == (
        34.08,
        54.0,
        "broker-0",
        1,
    )
    assert (bar_1[ROW], bar_1[END_S]) == ("orders-1", 60.0), "still owned when the run ended"
    # Each generation has its own fill.
    assert bar_6[FILL] != bar_0[FILL]
    assert bar_1[FILL] == bar_0[FILL]

    # A bar of its own shows that there are two owners.
    (overlap,) = cells(chart, "twice", ROW, BEGIN_S, END_S, OWNERS, ASSIGNED_BY, LABEL)
    row, begin, end, owners, assigned_by, label = overlap
    assert (row, begin, end) == (bar_6[ROW], 34.08, 53.2)
    assert owners == "consumer-0 and consumer-6"
    assert assigned_by == (
        "generation 1 by broker-2 in leader epoch 0; generation 2 by broker-0 in leader epoch 1"
    )
    assert label == "two owners 19.12 s"

    # The rows from top to bottom, and the table below the chart.
    y_axis = next(scale for scale in vega["scales"] if scale["name"] == "y")
    assert y_axis["domain"] == ["orders-0", bar_6[ROW], "orders-1"]
    assert chart.table is not None
    assert chart.table.rows[0][:3] == (
        "orders-0",
        "consumer-0 (generation 1 by broker-2 in leader epoch 0)",
        "consumer-6 (generation 2 by broker-0 in leader epoch 1)",
    )


def test_ownership_table_is_in_the_order_of_partition_numbers() -> None:
    """Overlaps of a rebalance begin at nearly the same time, so an order by time means nothing."""
    begins_s = {"orders-10": 34.000, "orders-2": 34.001, "orders-1": 34.002}
    overlaps = [
        ownership_overlap(name, "consumer-0", "consumer-6", from_s=begin_s, to_s=53)
        for name, begin_s in begins_s.items()
    ]
    intervals = [owned(name, "consumer-0", from_s=6, to_s=None) for name in begins_s]
    chart = ownership_lane(
        report_input(tables={"ownership": intervals, "ownership_overlaps": overlaps})
    )
    assert chart is not None
    assert chart.table is not None
    begins = [(partition, begin) for partition, _, _, begin, *_ in chart.table.rows]
    assert begins == [
        ("orders-1", "34.002"),
        ("orders-2", "34.001"),
        ("orders-10", "34.000"),
    ]


def test_ownership_lane_of_many_partitions_counts_those_with_one_owner_none_and_two() -> None:
    """A hundred partitions are shown as three numbers over time.

    The sum of the three is the number of partitions that ever had an owner.
    """
    intervals = [
        *_owned_lost_and_owned_again(100),
        owned("orders-3", "consumer-99", from_s=10, to_s=15),
    ]
    chart, _ = _lane_and_detail({"ownership": intervals})
    counts_at: dict[float, dict[str, int]] = {}
    for time_s, kind, number in cells(chart, "counts", BEGIN_S, KIND, NUMBER):
        counts_at.setdefault(time_s, {})[kind] = number

    once, no_owner, twice = ownership.ONCE, ownership.NO_OWNER, ownership.TWICE
    assert counts_at[0.0] == {once: 0, no_owner: 0, twice: 0}
    assert counts_at[6.0] == {once: 100, no_owner: 0, twice: 0}
    assert counts_at[10.0] == {once: 99, no_owner: 0, twice: 1}  # consumer-99 owns orders-3, too
    assert counts_at[15.0] == {once: 100, no_owner: 0, twice: 0}
    assert counts_at[20.0] == {once: 0, no_owner: 100, twice: 0}
    assert counts_at[25.0] == {once: 100, no_owner: 0, twice: 0}


def test_ownership_rows_of_many_partitions_show_the_remarkable_first() -> None:
    """The first rows show the partition with two owners, not the first fifty partitions by name."""
    # From 6 to 20 s, orders-999 is owned by consumer-19, because 999 % 20 = 19.
    overlap = ownership_overlap("orders-999", "consumer-19", "consumer-99", from_s=10, to_s=15)
    intervals = [
        *_owned_lost_and_owned_again(1_000),
        owned("orders-999", "consumer-99", from_s=10, to_s=15),
    ]
    _, detail = _lane_and_detail({"ownership": intervals, "ownership_overlaps": [overlap]})
    # The first choice of a reader is "two owners", and the page shows it at first.
    assert detail.picks[0].options[0].startswith("0: two owners")
    shown_first = [bar for bar in rows(detail, "owners") if bar[SHOWN_FIRST]]
    assert any(str(bar[ROW]).startswith("orders-999") for bar in shown_first)
    # The partition with two owners takes two rows, so there can be one row more than partitions.
    assert len({bar[ROW] for bar in shown_first}) <= ownership.ROWS_AT_ONCE + 1
    assert [bar[SHOWN_FIRST] for bar in rows(detail, "twice")] == [1]


def test_ownership_rows_of_every_selection_are_few() -> None:
    """Whatever a reader selects, a range of partitions or a member, must fit a screen or two."""
    intervals = [
        owned(f"orders-{index}", "consumer-0", from_s=6, to_s=None) for index in range(1_000)
    ]
    _, detail = _lane_and_detail({"ownership": intervals})
    partitions, members = detail.picks
    # No partition had two owners, so the page first shows the first range. The last choice is for
    # the partitions that moved most, although here none has moved.
    assert partitions.options[0] == "1: orders-0 to 49"
    assert members.options == ("all members", "consumer-0")
    bars = rows(detail, "owners")
    ranges = {bar[RANGE] for bar in bars}
    assert partitions.options[-1] == "0: two owners, or moved most"
    assert len(partitions.options) == len(ranges) + 1
    for number in ranges:
        rows_of_range = {bar[ROW] for bar in bars if bar[RANGE] == number}
        assert len(rows_of_range) <= ownership.ROWS_AT_ONCE
    # The only member has a thousand rows, and the page shows the first fifty.
    bars_shown_of_member = [bar for bar in bars if bar[ROW_OF_MEMBER] < ownership.ROWS_AT_ONCE]
    assert len(bars_shown_of_member) == ownership.ROWS_AT_ONCE


def test_ownership_in_the_page_is_bounded() -> None:
    """The page must stay small, whatever the size of the run."""
    _, detail = _lane_and_detail({"ownership": _owned_lost_and_owned_again(6_000)})
    assert len(detail.data["owners"]) <= ownership.MAX_PICKED
