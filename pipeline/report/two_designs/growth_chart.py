"""The picture that shows how the cost of a change grows with the group.

A change is the join or the death of one member; its cost is a number of requests or notifications.
On ZooKeeper the cost grows with the square of the number of members, with a coordinator linearly.
Both axes are logarithmic. Dots are changes in the runs. Rings are measurements of Kafka 1.1.1.
Dashed lines are laws: formulas that give the number of reads from the sizes of the group and the
cluster (`measured`).
"""

from collections.abc import Iterator, Sequence
from typing import Literal

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
    SERIES_NAMES,
    WRITES,
    reads_of_death,
    reads_of_join,
)
from pipeline.report.two_designs.sides import ChangeKind
from pipeline.summary.story import counted

_PICKED = "change"
"""Name of the picture's parameter, and of a column of its data: the change that the reader
picked."""
_OPTIONS: dict[ChangeKind, str] = {"join": "one member joins", "death": "one member dies"}
"""The kinds of change that the picture shows, each with the text by which the reader picks it."""
_COLOURS = dict(zip(SERIES_NAMES, (SERIES[1], SERIES[0], SERIES[2], SERIES[3]), strict=True))
"""The colour of each series. The reads, which the laws are about, have the first colour."""
_TICKS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of members at which the axis has ticks."""
_HEIGHT = 380
"""Height of the picture in pixels."""
_WIDE = 520
"""A picture of at least this width in pixels has room for the names of the laws, and for a legend
in one line.
"""
_NAMED_AT = 12
"""Number of members at which the name of a law is drawn, because the lines of the laws are apart
there."""
_LAW_NAMES: tuple[tuple[Literal["left", "right"], int, int], ...] = (
    ("left", 8, 14),
    ("right", -6, -10),
)
"""Alignment of the names of the first two laws, and their distance from the line in pixels. The
first name is to the right of its line and below it, the second to the left and above."""
_LAW_TEXT = alt.ExprRef(f"width < {_WIDE} ? '' : datum.text")
"""The name of a law, in Vega's language; empty in a picture that is not wide."""
_MAX_POINTS = 40
"""The distance of the points on the line of a law, in members, is the size of the largest group
divided by this number, but at least 1.
"""


def growth_chart(costs: Sequence[Cost]) -> Chart | None:
    """Return the picture; None if no single member joined or died."""
    costs_by_kind = {kind: [cost for cost in costs if _is_shown(cost, kind)] for kind in _OPTIONS}
    kinds = [kind for kind, of_kind in costs_by_kind.items() if of_kind]
    if not kinds:
        return None
    rows = [row for kind in kinds for row in _rows(kind, costs_by_kind[kind])]
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
        picks=(
            Pick(param=_PICKED, label="change", options=tuple(_OPTIONS[kind] for kind in kinds)),
        ),
    )


def _is_shown(cost: Cost, kind: ChangeKind) -> bool:
    """Return whether the picture shows a cost. On its logarithmic axes, 0 has no place."""
    return cost.change.kind == kind and cost.change.members > 1 and cost.asked > 0


def counts_of(cost: Cost) -> dict[str, int]:
    """Return the counts of a cost by the names of their series. A count that is 0 is left out."""
    counts = {
        WRITES: cost.counts.writes,
        READS: cost.counts.reads,
        REQUESTS: cost.counts.requests,
        NOTIFICATIONS: cost.counts.notifications,
    }
    return {name: count for name, count in counts.items() if count}


def _rows(kind: ChangeKind, costs: Sequence[Cost]) -> Iterator[Row]:
    """Yield the data about one kind of change: measurements, the runs' dots, and laws."""
    option = _OPTIONS[kind]
    for series, counts in MEASURED[kind].items():
        for members, count in counts.items():
            says = f"Kafka 1.1.1, {members} members: {count:,} {series}"
            yield _row(option, "measured", series, members, count, says)
        # The label is at the last point, which has the most members.
        members, count = list(counts.items())[-1]
        yield _row(option, "label", series, members, count, "")

    for cost in costs:
        for series, count in counts_of(cost).items():
            says = f"{cost.side.heading}, {cost.change.members} members: {count:,} {series}"
            yield _row(option, "here", series, cost.change.members, count, says)
    # The lines of the laws reach to the largest group, and at least to 32 members. The first law is
    # that of the measurements: one topic and 64 partitions.
    most = max([32, *(cost.change.members for cost in costs)])
    # The groups can have the same size, so `fromkeys` keeps each size once, in the order of its
    # first use. Each size has a law.
    laws = dict.fromkeys([(1, MEASURED_BROKERS, 64), *(_size(cost) for cost in costs)])
    law = reads_of_join if kind == "join" else reads_of_death
    for number, size in enumerate(laws):
        for members in range(2, most + 1, max(1, most // _MAX_POINTS)):
            row = _row(option, "law", READS, members, law(members, *size), "")
            yield row | {"line": number}
        _, brokers, partitions = size
        text = f"law: {counted(brokers, 'broker')}, {counted(partitions, 'partition')}"
        name = _row(option, "law name", READS, _NAMED_AT, law(_NAMED_AT, *size), "")
        yield name | {"text": text, "line": number}


def _size(cost: Cost) -> tuple[int, int, int]:
    """Return the numbers of topics, brokers and partitions of a cost's group.

    They are the arguments of a law after the number of members.
    """
    config = cost.side.facts.manifest.config
    definition = config["groups"][cost.side.group]
    topics = config.get("topics", {})
    partitions = sum(int(topics[name]["partitions"]) for name in definition["topics"])
    return len(definition["topics"]), int(config["cluster"]["brokers"]), partitions


def _row(option: str, mark: str, series: str, members: int, count: int, says: str) -> Row:
    """Return the datum of one mark; `option` is the change to pick, `says` the mark's tooltip."""
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
    """Return the picture of the data with the name `data`.

    Its axes leave some room below the smallest and above the greatest values.
    """
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
        return base.transform_filter(alt.FieldEqualPredicate(field="mark", equal=mark))

    return (
        alt.layer(
            only("law")
            .mark_line(strokeWidth=1.2, stroke=MUTED, strokeDash=[4, 3])
            .encode(x=x, y=y, detail="line:N"),
            *(
                only("law name")
                .transform_filter(f"datum.line == {number}")
                .mark_text(align=align, dx=dx, dy=dy, fill=MUTED, fontSize=11, text=_LAW_TEXT)
                .encode(x=x, y=y)
                for number, (align, dx, dy) in enumerate(_LAW_NAMES)
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
