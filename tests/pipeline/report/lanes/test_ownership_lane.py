"""The ownership lane: the owners, and members that owned a partition at the same time.

The lane is a chart of all partitions; its detail is a chart of the rows that the reader picks.
`rows` and `cells` return the data of a chart, whose columns have names of one letter:

- `r`: row; `a`, `b`: begin and end in seconds
- `m`: member; `w`, `e`: coordinator and its leader epoch; `c`: fill (colour or pattern)
- `h`: number of a range of partitions that a reader can pick
- `t`: 1 for remarkable rows, which are shown first
- `q`: number of the row among the rows of its member

Runs last 60 s if no event is later. `owned` makes an interval of ownership, with times in seconds.
An end of None means that the run ended first. By default broker-2 assigned the partition in
generation 1 (the number of the group's rebalance) and leader epoch 0 (the number of the
coordinator's leadership).
"""

from pipeline.report.charts.chart import Chart
from pipeline.report.lanes import ownership
from pipeline.report.lanes.ownership import ownership_detail, ownership_lane
from tests.support.builders.lane_rows import ownership as owned
from tests.support.builders.lane_rows import ownership_overlap
from tests.support.builders.report_inputs import report_input
from tests.support.vega import Datum, cells, compiled_without_warnings, rows


def _many(partitions: int) -> list[Datum]:
    """Return two intervals for each partition: it has an owner, then none, then the same owner."""
    intervals = []
    for index in range(partitions):
        name, member = f"orders-{index}", f"consumer-{index % 20}"
        intervals.append(owned(name, member, from_s=6, to_s=20))
        intervals.append(owned(name, member, from_s=25, to_s=None, generation=2))
    return intervals


def _lane_and_rows(tables: dict[str, list[Datum]]) -> tuple[Chart, Chart]:
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
    newer = {"generation": 2, "coordinator": "broker-0", "leader_epoch": 1}
    run = report_input(
        tables={
            "ownership": [
                owned("orders-0", "consumer-6", from_s=64.08, to_s=94, **newer),
                owned("orders-0", "consumer-0", from_s=6, to_s=93.2),
                owned("orders-1", "consumer-1", from_s=6, to_s=None),
            ],
            "ownership_overlaps": [
                ownership_overlap("orders-0", "consumer-0", "consumer-6", from_s=64.08, to_s=93.2)
            ],
        }
    )
    chart = ownership_lane(run)
    assert chart is not None
    vega = compiled_without_warnings(chart)

    # The intervals of consumer-0, consumer-1 and consumer-6.
    zero, one, six = sorted(rows(chart, "owners"), key=lambda owner: str(owner["m"]))
    assert (zero["r"], zero["a"], zero["b"]) == ("orders-0", 6.0, 93.2)
    assert six["r"] != zero["r"], "the second owner has a row of its own"
    assert (six["a"], six["b"], six["w"], six["e"]) == (64.08, 94.0, "broker-0", 1)
    assert (one["r"], one["b"]) == ("orders-1", 60.0), "still owned when the run ended"
    assert six["c"] != zero["c"], "another generation, another fill"
    assert one["c"] == zero["c"]

    # The bar of the overlap. Here `w` has the owners, `e` their generations and coordinators.
    (overlap,) = cells(chart, "twice", "r", "a", "b", "w", "e", "l")
    row, begin, end, owners, assigned_by, label = overlap
    assert (row, begin, end) == (six["r"], 64.08, 93.2)
    assert owners == "consumer-0 and consumer-6"
    assert assigned_by == (
        "generation 1 by broker-2 in leader epoch 0; generation 2 by broker-0 in leader epoch 1"
    )
    assert label == "two owners 29.12 s"

    # The names of the rows, and the table beneath.
    domain = next(scale for scale in vega["scales"] if scale["name"] == "y")["domain"]
    assert domain == ["orders-0", six["r"], "orders-1"]
    assert chart.table is not None
    assert chart.table.rows[0][:3] == (
        "orders-0",
        "consumer-0 (generation 1 by broker-2 in leader epoch 0)",
        "consumer-6 (generation 2 by broker-0 in leader epoch 1)",
    )


def test_ownership_table_is_in_the_order_of_partition_numbers() -> None:
    """Overlaps of one rebalance begin nearly together, so their order by time means nothing."""
    names = ["orders-10", "orders-2", "orders-1"]
    overlaps = [
        ownership_overlap(name, "consumer-0", "consumer-6", from_s=64 + at / 1_000, to_s=93)
        for at, name in enumerate(names)
    ]
    intervals = [owned(name, "consumer-0", from_s=6, to_s=None) for name in names]
    chart = ownership_lane(
        report_input(tables={"ownership": intervals, "ownership_overlaps": overlaps})
    )
    assert chart is not None
    assert chart.table is not None
    assert [(row[0], row[3]) for row in chart.table.rows] == [
        ("orders-1", "64.002"),
        ("orders-2", "64.001"),
        ("orders-10", "64.000"),
    ]


def test_ownership_lane_of_many_partitions_counts_those_with_one_owner_none_and_two() -> None:
    """A hundred partitions are shown as three numbers over time.

    The sum of the three is the number of partitions that ever had an owner.
    """
    intervals = [*_many(100), owned("orders-3", "consumer-99", from_s=10, to_s=15)]
    chart, _ = _lane_and_rows({"ownership": intervals})
    counts_at: dict[float, dict[str, int]] = {}
    for time_s, kind, number in cells(chart, "counts", "a", "k", "n"):
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
    overlap = ownership_overlap("orders-999", "consumer-19", "consumer-99", from_s=10, to_s=15)
    intervals = [*_many(1_000), owned("orders-999", "consumer-99", from_s=10, to_s=15)]
    _, detail = _lane_and_rows({"ownership": intervals, "ownership_overlaps": [overlap]})
    assert detail.picks[0].options[0].startswith("0: two owners")
    top = [owner for owner in rows(detail, "owners") if owner["t"]]
    assert any(str(owner["r"]).startswith("orders-999") for owner in top)
    # The partition with two owners takes two rows, so there can be one row more than partitions.
    assert len({owner["r"] for owner in top}) <= ownership.ROWS_AT_ONCE + 1
    assert [overlap["t"] for overlap in rows(detail, "twice")] == [1]


def test_ownership_rows_of_every_selection_are_few() -> None:
    """Whatever a reader selects, a range or a member, must fit a screen or two."""
    intervals = [
        owned(f"orders-{index}", "consumer-0", from_s=6, to_s=None) for index in range(1_000)
    ]
    _, detail = _lane_and_rows({"ownership": intervals})
    partitions, members = detail.picks
    assert partitions.options[0] == "1: orders-0 to 49", "nothing is remarkable: the first fifty"
    assert members.options == ("all members", "consumer-0")
    owners = rows(detail, "owners")
    ranges = {owner["h"] for owner in owners}
    # The remarkable partitions have an option, too, but no range.
    assert len(partitions.options) == len(ranges) + 1
    for number in ranges:
        rows_of_range = {owner["r"] for owner in owners if owner["h"] == number}
        assert len(rows_of_range) <= ownership.ROWS_AT_ONCE
    rows_of_member = [owner for owner in owners if owner["q"] < ownership.ROWS_AT_ONCE]
    assert len(rows_of_member) == ownership.ROWS_AT_ONCE


def test_ownership_in_the_page_is_bounded() -> None:
    """The page must stay small, whatever the size of the run."""
    _, detail = _lane_and_rows({"ownership": _many(6_000)})
    assert len(detail.data["owners"]) <= ownership.MAX_PICKED
