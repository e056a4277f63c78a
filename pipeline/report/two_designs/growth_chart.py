"""The chart that shows how the cost of a join or a death grows with the size of the group.

On ZooKeeper, the number of requests grows with the square of the number of members. With a
coordinator, it grows only linearly. The chart shows this in three ways, on logarithmic axes:

- Dots are changes in the runs of the report.
- Rings are measurements of Kafka 1.1.1.
- Dashed lines are called laws: they are the numbers of reads by a formula (`reads_of_join` and
  `reads_of_death` in the module `measured`). The formula also depends on the numbers of topics,
  brokers and partitions. So clusters of different sizes have different lines.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import altair as alt

from pipeline.report.charts.chart import MUTED, PAPER, SERIES, Chart, Pick
from pipeline.report.report_input import Row
from pipeline.report.two_designs.costs import Cost
from pipeline.report.two_designs.measured import (
    MEASURED,
    MEASURED_BROKERS,
    NOTIFICATIONS,
    READS,
    REQUESTS,
    WRITES,
    reads_of_death,
    reads_of_join,
)
from pipeline.report.two_designs.sides import ChangeKind
from pipeline.summary.story import counted

_PICKED = "change"
"""Name of a parameter of the chart, and also of a column in the chart's data. The parameter is the
kind of change that the reader picked. The chart draws the rows in which the column has the same
kind.
"""
_OPTIONS: dict[ChangeKind, str] = {"join": "one member joins", "death": "one member dies"}
"""The kinds of change that the chart shows, each with the text by which the reader picks it."""
_COLOURS = {WRITES: SERIES[1], READS: SERIES[0], REQUESTS: SERIES[2], NOTIFICATIONS: SERIES[3]}
"""The colour of each series, in the order of the legend."""
_TICKS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of members at which the axis has ticks."""
_HEIGHT = 380
"""Height of the chart in pixels."""
_WIDE = 520
"""Least width in pixels of a chart that has room for the names of the laws, and for a legend in one
line.
"""
_NAME_AT_MEMBERS = 12
"""The name of a law is drawn at this number of members, where the lines of the laws are well apart.
"""
_LAW_NAMES: tuple[tuple[Literal["left", "right"], int, int], ...] = (
    ("left", 8, 14),
    ("right", -6, -10),
)
"""Positions of the names of the first two laws. All other laws have no name in the chart.

An entry has the alignment of the text, and the distances of the text from the line, to the right
and downwards, in pixels. So the first name stands to the right of its line and below it, and the
second name to the left of its line and above it.
"""
_LAW_TEXT = alt.ExprRef(f"width < {_WIDE} ? '' : datum.text")
"""The name of a law as an expression of Vega; empty in a chart that is not wide."""
_MAX_POINTS = 40
"""Number of points of the line of a law, roughly."""


class _ClusterSize(NamedTuple):
    """The sizes in the formula of the reads, in the order of the arguments of `reads_of_join`."""

    topics: int
    brokers: int
    partitions: int


_MEASURED_SIZE = _ClusterSize(topics=1, brokers=MEASURED_BROKERS, partitions=64)


def growth_chart(costs: Sequence[Cost]) -> Chart | None:
    """Return the chart; None if there was no join or death of a single member."""
    costs_by_kind = {kind: [cost for cost in costs if _is_shown(cost, kind)] for kind in _OPTIONS}
    kinds = [kind for kind, of_kind in costs_by_kind.items() if of_kind]
    if not kinds:
        return None
    rows = [row for kind in kinds for row in _rows(kind, costs_by_kind[kind])]
    options = tuple(_OPTIONS[kind] for kind in kinds)
    return Chart(
        id="designs-growth",
        title="What a change costs as the group grows",
        about="Both axes are logarithmic. Dots: these runs. Rings, joined by lines: measured on "
        "Kafka 1.1.1 with one broker, one topic, 64 partitions. Dashed: the reads if no claim "
        "meets another owner, C(C + T + 3B + 9) + P for C members, T topics, B brokers and P "
        "partitions (without a member that dies): in large groups the square decides. With a "
        "coordinator the requests grow as the members do.",
        spec=_spec("growth", rows),
        data={"growth": rows},
        picks=(Pick(param=_PICKED, label="change", options=options),),
    )


def _is_shown(cost: Cost, kind: ChangeKind) -> bool:
    """Return whether the chart of one kind of change shows a cost.

    The axis of members begins at two members, and the logarithmic axis of requests has no 0.
    """
    return cost.change.kind == kind and cost.change.members > 1 and cost.all_requests > 0


def _counts_by_series(cost: Cost) -> dict[str, int]:
    """Return the counts of a cost. Counts of 0 are left out, as a logarithmic axis has no 0."""
    counts = {
        WRITES: cost.counts.writes,
        READS: cost.counts.reads,
        REQUESTS: cost.counts.requests,
        NOTIFICATIONS: cost.counts.notifications,
    }
    return {name: count for name, count in counts.items() if count}


def _rows(kind: ChangeKind, costs: Sequence[Cost]) -> Iterator[Row]:
    """Yield the data about one kind of change: the measurements, the runs' dots, and the laws."""
    option = _OPTIONS[kind]
    for series, counts in MEASURED[kind].items():
        for members, count in counts.items():
            says = f"Kafka 1.1.1, {members} members: {count:,} {series}"
            yield _row(option, "measured", series, members, count, says)
        # The label is at the last point, which has the most members.
        members, count = list(counts.items())[-1]
        yield _row(option, "label", series, members, count, "")

    for cost in costs:
        for series, count in _counts_by_series(cost).items():
            says = f"{cost.side.heading}, {cost.change.members} members: {count:,} {series}"
            yield _row(option, "here", series, cost.change.members, count, says)

    # The lines of the laws reach to the largest group, and at least to 32 members.
    most_members = max([32, *(cost.change.members for cost in costs)])
    members_per_point = max(1, most_members // _MAX_POINTS)
    reads_by_law = reads_of_join if kind == "join" else reads_of_death
    # Several groups can have clusters of the same size. `dict.fromkeys` removes duplicates.
    sizes = dict.fromkeys([_MEASURED_SIZE, *(_size(cost) for cost in costs)])
    for line, size in enumerate(sizes):
        for members in range(2, most_members + 1, members_per_point):
            row = _row(option, "law", READS, members, reads_by_law(members, *size), "")
            yield row | {"line": line}
        text = f"law: {counted(size.brokers, 'broker')}, {counted(size.partitions, 'partition')}"
        reads = reads_by_law(_NAME_AT_MEMBERS, *size)
        name = _row(option, "law name", READS, _NAME_AT_MEMBERS, reads, "")
        yield name | {"text": text, "line": line}


def _size(cost: Cost) -> _ClusterSize:
    """Return the sizes of the cluster and of the topics that a group consumed."""
    config = cost.side.facts.manifest.config
    definition = config["groups"][cost.side.group]
    topics = config.get("topics", {})
    partitions = sum(int(topics[name]["partitions"]) for name in definition["topics"])
    return _ClusterSize(
        topics=len(definition["topics"]),
        brokers=int(config["cluster"]["brokers"]),
        partitions=partitions,
    )


def _row(option: str, mark: str, series: str, members: int, count: int, says: str) -> Row:
    """Return the data of one mark of the chart.

    `option` is the pick of the reader with which the mark is drawn, and `says` is its tooltip.
    `mark` is one of these kinds: `measured` (a ring), `label`, `here` (a dot), `law` (a point of a
    line) and `law name`.
    """
    return {
        _PICKED: option,
        "mark": mark,
        "series": series,
        "members": members,
        "count": max(1, count),  # a logarithmic axis has no 0
        "says": says,
        "line": 0,
    }


def _spec(data: str, rows: Sequence[Row]) -> alt.TopLevelMixin:
    """Return the specification of the chart, whose data has the name `data`."""
    # The axes leave some room below the smallest and above the greatest values.
    most = max(row["members"] for row in rows)
    highest = max(row["count"] for row in rows)
    x = alt.X(
        "members:Q",
        title="members of the group",
        scale=alt.Scale(type="log", base=2, domain=[1.8, most * 1.12], nice=False),
        axis=alt.Axis(values=[tick for tick in _TICKS if tick <= most], format="d", grid=True),
    )
    y = alt.Y(
        "count:Q",
        title="requests, or notifications, of one change",
        scale=alt.Scale(type="log", domain=[0.8, highest * 1.5], nice=False),
        axis=alt.Axis(values=[1, 10, 100, 1_000, 10_000, 100_000], format=",d", grid=True),
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())),
        legend=alt.Legend(
            title=None,
            orient="top",
            direction="horizontal",
            columns=alt.ExprRef(f"width < {_WIDE} ? 2 : 4"),
            symbolType="circle",
            symbolOpacity=1,
            labelLimit=0,
        ),
    )
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data)).transform_filter(f"datum[{_PICKED!r}] == {_PICKED}")

    def only(mark: str) -> alt.Chart:
        """Return the rows of the data whose `mark` is this word."""
        return base.transform_filter(alt.FieldEqualPredicate(field="mark", equal=mark))

    return (
        alt.layer(
            only("law")
            .mark_line(strokeWidth=1.2, stroke=MUTED, strokeDash=[4, 3])
            .encode(x=x, y=y, detail="line:N"),
            *(
                only("law name")
                .transform_filter(f"datum.line == {line}")
                .mark_text(align=align, dx=dx, dy=dy, fill=MUTED, fontSize=11, text=_LAW_TEXT)
                .encode(x=x, y=y)
                for line, (align, dx, dy) in enumerate(_LAW_NAMES)
            ),
            only("measured").mark_line(strokeWidth=1, opacity=0.5).encode(x=x, y=y, color=colour),
            only("measured")
            .mark_point(filled=True, fill=PAPER, size=70, opacity=1, strokeWidth=2)
            .encode(x=x, y=y, stroke=colour, tooltip=says),
            only("here")
            .mark_point(filled=True, size=95, opacity=0.9, stroke=PAPER, strokeWidth=1)
            .encode(x=x, y=y, fill=colour, tooltip=says),
        )
        .properties(width="container", height=_HEIGHT)
        .add_params(alt.param(name=_PICKED, value=""))
    )
