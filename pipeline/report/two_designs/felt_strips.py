"""The picture of the felt times of partitions, with a dot for each partition of each group.

A time is felt if users of the group notice it. There are three felt times of a partition: without
an owner, without processing although records wait, and with two owners. The reader picks one of
them. A strip is the row of dots of one group.
"""

from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import SERIES, Chart, Pick
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.two_designs.sides import GroupSide

_PICKED = "felt"
"""Name of the chart's parameter, and of a column of its data: the felt time that the reader picked.
"""
_MEASURES = {
    "without an owner": "unowned_us",
    "no processing despite records": "waited_us",
    "with two owners": "",
}
"""The felt times, each with its column in the table `felt_partitions`. The column "" stands for a
time that is computed from the table `ownership_overlaps`.
"""
MAX_SIDES = 16
"""Maximum number of sides (groups of one run) in the picture."""


def felt_chart(sides: Sequence[GroupSide]) -> Chart | None:
    """Return the picture; None if no group owned a partition."""
    shown = sides[:MAX_SIDES]
    every_strip = {name: list(_strips(shown, column)) for name, column in _MEASURES.items()}
    # A felt time without any value cannot be picked, because its picture would be empty.
    strips = {
        name: of_measure
        for name, of_measure in every_strip.items()
        if any(strip.values for strip in of_measure)
    }
    if not strips:
        return None
    axis = axis_over(strip for of_measure in strips.values() for strip in of_measure)
    return Chart(
        id="designs-felt",
        title="What each partition went through",
        about="A dot for each partition (bars, where there are many): how long in all, from the "
        "steady state to the end. The thick line is the median.",
        spec=strip_chart("felt", len(shown), axis, SERIES[0], picked=_PICKED),
        data={
            "felt": [
                row
                for name, of_measure in strips.items()
                for row in strip_rows(of_measure, axis, **{_PICKED: name})
            ]
        },
        picks=(Pick(param=_PICKED, label="how long", options=tuple(strips)),),
    )


def two_owners_us(side: GroupSide) -> dict[str, int]:
    """Return the time with two owners of each partition that had such a time."""
    by_partition: dict[str, int] = {}
    for row in side.rows("ownership_overlaps"):
        earlier_us = by_partition.get(row["partition"], 0)
        by_partition[row["partition"]] = earlier_us + row["length_us"]
    return by_partition


def _strips(sides: Sequence[GroupSide], column: str) -> Iterator[Strip]:
    """Yield a strip for each group: the times of its partitions in `column` of `felt_partitions`.

    With `column` "", these are the times with two owners.
    """
    for side in sides:
        with_two_owners_us = {} if column else two_owners_us(side)
        rows = side.rows("felt_partitions")
        values = [
            (
                row["partition"],
                row[column] if column else with_two_owners_us.get(row["partition"], 0),
            )
            for row in rows
        ]
        # `unowned_us` is None for a partition that never had an owner.
        known = tuple((name, value) for name, value in values if value is not None)
        missing = len(values) - len(known)
        yield Strip(
            name=side.heading,
            values=known,
            figures=distribution_of(sorted(value for _, value in known), missing=missing),
            subject="partition",
            note=f"{missing} never owned" if missing else "",
        )
