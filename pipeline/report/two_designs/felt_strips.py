"""The chart of what each partition went through, with a row of dots for each group.

The chart can show three times that users of a group can notice. They are called felt times:

- how long a partition had no owner;
- how long no member processed the waiting records of a partition;
- how long a partition had two owners.

The reader picks one of the three. Then each dot is a partition, at the length of the partition's
felt time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import SERIES, Chart, Pick
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.two_designs.sides import GroupSide

_PICKED = "felt"
"""Name of a parameter of the chart, and also of a column in the chart's data. The parameter is the
felt time that the reader picked. The chart draws the rows in which the column has the same felt
time.
"""
_COLUMNS: dict[str, str | None] = {
    "without an owner": "unowned_us",
    "no processing despite records": "waited_us",
    "with two owners": None,
}
"""The felt times, each with its column in the table `felt_partitions`. The time with two owners has
no column in this table: it is a sum over rows of the table `ownership_overlaps`.
"""
MAX_SIDES = 16
"""Maximum number of groups in the chart."""


def felt_chart(sides: Sequence[GroupSide]) -> Chart | None:
    """Return the chart; None if no group owned a partition."""
    shown = sides[:MAX_SIDES]
    # Felt time -> a strip for each group. A felt time without any value is left out: if the reader
    # picked it, the chart would be empty.
    strips: dict[str, list[Strip]] = {}
    for felt_time, column in _COLUMNS.items():
        of_groups = list(_strips(shown, column))
        if any(strip.values for strip in of_groups):
            strips[felt_time] = of_groups
    if not strips:
        return None

    axis = axis_over(strip for of_groups in strips.values() for strip in of_groups)
    return Chart(
        id="designs-felt",
        title="What each partition went through",
        about="A dot for each partition (bars, where there are many): how long in all, from the "
        "steady state to the end. The thick line is the median.",
        spec=strip_chart("felt", len(shown), axis, SERIES[0], picked=_PICKED),
        data={
            "felt": [
                row
                for felt_time, of_groups in strips.items()
                for row in strip_rows(of_groups, axis, **{_PICKED: felt_time})
            ]
        },
        picks=(Pick(param=_PICKED, label="how long", options=tuple(strips)),),
    )


def two_owners_us(side: GroupSide) -> dict[str, int]:
    """Return the time with two owners of each partition that had such a time."""
    by_partition: Counter[str] = Counter()
    for row in side.rows("ownership_overlaps"):
        by_partition[row["partition"]] += row["length_us"]
    return by_partition


def _felt_times_us(side: GroupSide, column: str | None) -> dict[str, int | None]:
    """Return one felt time of each partition of a group. `column` is an entry of _COLUMNS."""
    rows = side.rows("felt_partitions")
    if column is not None:
        return {row["partition"]: row[column] for row in rows}
    with_two_owners_us = two_owners_us(side)
    return {row["partition"]: with_two_owners_us.get(row["partition"], 0) for row in rows}


def _strips(sides: Sequence[GroupSide], column: str | None) -> Iterator[Strip]:
    """Yield a strip for each group, with one felt time of its partitions."""
    for side in sides:
        times_us = _felt_times_us(side, column)
        # `unowned_us` is None for a partition that never had an owner.
        known = tuple((name, time_us) for name, time_us in times_us.items() if time_us is not None)
        missing = len(times_us) - len(known)
        yield Strip(
            name=side.heading,
            values=known,
            figures=distribution_of(sorted(time_us for _, time_us in known), missing=missing),
            subject="partition",
            note=f"{missing} never owned" if missing else "",
        )
