"""Two charts of what a group did after a change: one for ZooKeeper, one for the coordinator.

The reader picks a change, such as "1 member joins". Each chart then has a row (a lane) for each
member of a group that met this change.

- On ZooKeeper, a bar is an attempt of the member to rebalance. In an attempt the member reads the
  group's members from ZooKeeper (its view), and computes an assignment (a plan) from its view. The
  disc on the bar shows the moment at which the member computed the plan. The number in the disc is
  the number of members in the view.
- With a coordinator, a disc is a member's assignment in a generation. The number in the disc is the
  number of members that got an assignment in this generation.
- Discs of the same colour have the same view, or the same generation.
- A light bar is a time in which the member owned no partition, and so read nothing.

The functions take a `Cost`. A Cost has the group (`side`), one change of this group, and what the
change cost, such as the number of plans. `pairs_of` pairs a change on ZooKeeper with the same
change in a group with a coordinator. The reader picks a pair, and each chart shows one half of the
pair.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from pipeline.report.charts.chart import (
    BAD,
    INK,
    LINE,
    MUTED,
    PAPER,
    SERIES,
    WARN,
    Chart,
    Pick,
    TextTable,
)
from pipeline.report.columns import clock_text, named, number, text_table
from pipeline.report.report_input import Row
from pipeline.report.two_designs.costs import FAILED, Cost
from pipeline.summary.story import counted

_PICKED = "change"
"""Name of a parameter of the charts, and also of a column in their data. The parameter is the
change that the reader picked. The charts draw the rows in which the column has the same change.
"""
_ROW_HEIGHT = 20
"""Height of a lane in pixels."""
_NAMES_WIDTH = 84
"""Width in pixels of the space to the left of the lanes, for the names of members."""
MAX_LANES = 24
"""Maximum number of members that have a lane."""
MAX_CHANGES = 12
"""Maximum number of changes that the reader can pick."""
_BEFORE_S = 0.4
"""Time in seconds that the axis shows before the change."""
_AFTER_S = 1.0
"""Time in seconds that the axis shows after both groups were settled. A group is settled when its
last attempt or rebalance has ended.
"""
_SECOND = 1_000_000  # in microseconds
_FILLS = {"done": SERIES[2], "no broker": SERIES[2], "conflict": WARN, "exception": BAD}
"""Colours of attempts by their outcome."""
_MAX_TABLE_ROWS = 200
"""Maximum number of attempts in the table beneath the charts."""

CostPair = tuple[Cost, Cost]
"""The costs of two corresponding changes: on ZooKeeper, and with a coordinator."""


def pairs_of(costs: Sequence[Cost]) -> list[CostPair]:
    """Return each change on ZooKeeper, with the corresponding change in a group with a coordinator.

    Two changes correspond if they are of the same kind and have the same place in their groups, for
    example if each of them is the second join of its group. If several changes correspond, a change
    in the same run is preferred, then a change of a group of the same size. A pair is left out if
    neither group computed a plan.
    """
    on_zookeeper = [cost for cost in costs if cost.side.design == "zookeeper"]
    with_coordinator = [cost for cost in costs if cost.side.design == "coordinator"]
    pairs = []
    for cost in on_zookeeper:
        corresponding = [
            other
            for other in with_coordinator
            if other.change.kind == cost.change.kind
            and _index_in_kind(other) == _index_in_kind(cost)
        ]
        same_run = [other for other in corresponding if other.side.facts is cost.side.facts]
        same_size = [
            other for other in corresponding if other.change.members == cost.change.members
        ]
        candidates = same_run or same_size or corresponding
        if not candidates:
            continue
        counterpart = candidates[0]
        if cost.counts.plans or counterpart.counts.plans:
            pairs.append((cost, counterpart))
    return pairs


def _index_in_kind(cost: Cost) -> int:
    """Return the place of a change among the changes of the same kind in its group, from 0."""
    of_kind = [change for change in cost.side.changes if change.kind == cost.change.kind]
    return of_kind.index(cost.change)


def plan_charts(pairs: Sequence[CostPair]) -> list[Chart]:
    """Return a chart of lanes for each design; both show the change that the reader picks."""
    # The charts are as high as the largest group needs. The page first shows the first change. The
    # changes of large groups come first, so this change fills the charts.
    shown = sorted(pairs, key=lambda pair: -pair[0].change.members)[:MAX_CHANGES]
    if not shown:
        return []
    # The text by which the reader picks each change.
    options = _options(shown)
    pick = Pick(param=_PICKED, label="change", options=tuple(options))
    axis_ends_s = {option: _axis_end_s(pair) for option, pair in zip(options, shown, strict=True)}

    charts = []
    for index, (design, about) in enumerate(_ABOUT.items()):
        rows: list[Row] = []
        most_lanes = 1
        for option, pair in zip(options, shown, strict=True):
            change_rows, lanes = _lane_rows(pair[index], axis_ends_s[option])
            rows += [{**row, _PICKED: option} for row in change_rows]
            most_lanes = max(most_lanes, lanes)
        charts.append(
            Chart(
                id=f"designs-plans-{design}",
                title=_TITLES[design],
                about=about,
                spec=_spec(f"plans-{design}", most_lanes, axis_ends_s),
                data={f"plans-{design}": rows},
                picks=(pick,),
                table=_table(shown) if design == "zookeeper" else None,
            )
        )
    return charts


def _axis_end_s(pair: CostPair) -> float:
    """Return the end of the axis in seconds from the change. Both charts have the same axis."""
    # If neither group was settled, the axis ends as if both had been settled after one second.
    settled_after_us = [cost.settled_after_us for cost in pair if cost.settled_after_us is not None]
    return max(settled_after_us, default=_SECOND) / _SECOND + _AFTER_S


_TITLES = {
    "zookeeper": "On ZooKeeper: each member computes its own plan",
    "coordinator": "With a coordinator: one plan for each generation",
}
_ABOUT = {
    "zookeeper": "A lane for each member, seconds from the change. Light: it reads nothing. A bar "
    "is an attempt (green: it ended well, amber: a claim conflicted, red: an exception), the disc "
    "the moment at which it computed, with the number of members that it saw and a ring if the "
    "attempt failed; discs of one colour saw the same members. A cross: it gave up.",
    "coordinator": "The same change on the same axis. A disc is an assignment, with the number of "
    "members that got one in its generation; discs of one colour are of one generation. A member "
    "learns of a rebalance from its next heartbeat. With an eager assignor it gives up its "
    "partitions then, and those that learn of it first wait for the last.",
}


def _options(pairs: Sequence[CostPair]) -> list[str]:
    """Return the texts by which the reader picks the changes. No two texts are equal.

    The first of these that gives different texts for all changes is taken:

    1. the label of the change, such as "1 member joins";
    2. the label and the size of the group;
    3. the label and the title of the group;
    4. the label, the title and the time of the change.
    """
    labels = [cost.change.label for cost, _ in pairs]
    if len(set(labels)) == len(labels):
        return labels
    with_sizes = [f"{cost.change.label}, in a group of {cost.side.members}" for cost, _ in pairs]
    if len(set(with_sizes)) == len(with_sizes):
        return with_sizes
    with_titles = [f"{cost.change.label}: {cost.side.title}" for cost, _ in pairs]
    if len(set(with_titles)) == len(with_titles):
        return with_titles
    return [
        f"{text}, at {clock_text(cost.change.at_us)} s"
        for text, (cost, _) in zip(with_titles, pairs, strict=True)
    ]


def _lane_rows(cost: Cost, axis_end_s: float) -> tuple[list[Row], int]:
    """Return the data of one group's lanes, and the number of lanes.

    A row of the data is one mark of the chart. Its columns are:

    - `mark`: `span` (the extent of the axis), `name`, `empty`, `attempt`, `disc` or `cross`;
    - `from`, `to`: times in seconds from the change;
    - `lane`, `top`, `bottom`: positions in pixels;
    - `fill`, `ring`: colours;
    - `text`: the text of a name or in a disc;
    - `says`: the tooltip.
    """
    at_us = cost.change.at_us
    members = _shown_members(cost)
    rows: list[Row] = [{"mark": "span", "lane": 0.0, "from": -_BEFORE_S, "to": axis_end_s}]
    marks = _attempt_marks(cost) if cost.side.design == "zookeeper" else _assignment_marks(cost)

    for index, consumer in enumerate(members):
        lane = index * _ROW_HEIGHT + _ROW_HEIGHT / 2
        # A bar is 14 pixels high: it reaches 7 pixels above and below the middle of the lane.
        position = {"lane": lane, "top": lane - 7, "bottom": lane + 7}
        rows.append({**position, "mark": "name", "text": consumer.removeprefix("consumer-")})
        of_member = [mark for mark in marks if mark["consumer"] == consumer]
        for mark in (*_empty_bars(cost, consumer), *of_member):
            from_s = (mark["from_us"] - at_us) / _SECOND
            to_s = (mark["to_us"] - at_us) / _SECOND
            # A mark that is wholly beyond the axis is left out.
            if to_s < -_BEFORE_S or from_s > axis_end_s:
                continue
            span = {"from": max(from_s, -_BEFORE_S), "to": min(to_s, axis_end_s)}
            look = {
                key: value
                for key, value in mark.items()
                if key in ("mark", "fill", "ring", "text", "says")
            }
            rows.append({**position, **look, **span})
    return rows, len(members)


def _shown_members(cost: Cost) -> tuple[str, ...]:
    """Return the members that have a lane.

    If the group has more than MAX_LANES members, members are chosen in this order:
    1. members with an attempt whose outcome was not `done`;
    2. newcomers: members that owned no partition before the change;
    3. all other members, by their numbers.
    """
    consumers = cost.side.consumers
    if len(consumers) <= MAX_LANES:
        return consumers
    # A group with a coordinator has no attempts.
    attempts = cost.side.rows("zookeeper_attempts") if cost.side.design == "zookeeper" else ()
    troubled = {
        row["consumer"]
        for row in attempts
        if cost.change.covers(row["started_us"]) and row["outcome"] != "done"
    }
    owned = cost.side.rows("ownership")
    owners_before = {row["consumer"] for row in owned if row["from_us"] < cost.change.at_us}
    newcomers = {
        row["consumer"] for row in owned if cost.change.covers(row["from_us"])
    } - owners_before
    # False sorts before True, so members with trouble come first, then newcomers.
    by_interest = sorted(consumers, key=lambda name: (name not in troubled, name not in newcomers))
    shown = set(by_interest[:MAX_LANES])
    return tuple(name for name in consumers if name in shown)


def _empty_bars(cost: Cost, consumer: str) -> Iterator[Row]:
    """Yield the bars of the times in which a living member owned no partition.

    There is no bar before the member's first partition, and no bar after its last one.
    """
    spans = sorted(
        (
            row["from_us"],
            cost.side.end_us if row["to_us"] is None else row["to_us"],
            row["ended_by"],
        )
        for row in cost.side.rows("ownership")
        if row["consumer"] == consumer
    )
    # The latest end of the intervals so far. It is None if the member's present process has owned
    # no partition yet: at the beginning, and after an interval in which a process was killed or
    # stopped.
    owned_until_us: int | None = None
    for from_us, to_us, ended_by in spans:
        if owned_until_us is not None and from_us > owned_until_us:
            length_s = (from_us - owned_until_us) / _SECOND
            yield {
                "consumer": consumer,
                "mark": "empty",
                "from_us": owned_until_us,
                "to_us": from_us,
                "says": f"{consumer} reads nothing for {length_s:.3f} s",
            }
        if ended_by in ("killed", "stopped"):
            owned_until_us = None
        else:
            owned_until_us = to_us if owned_until_us is None else max(owned_until_us, to_us)


def _attempt_marks(cost: Cost) -> list[Row]:
    """Return the marks of attempts: a bar, a disc for the view, a cross if the member gave up."""
    # Views get their colours in the order of time. So the attempts are sorted by the time of their
    # view. An attempt that failed before it had a view is sorted by the time of its start.
    rows = sorted(
        (
            row
            for row in cost.side.rows("zookeeper_attempts")
            if cost.change.covers(row["started_us"])
        ),
        key=lambda row: row["view_us"] or row["started_us"],
    )

    colours_by_view: dict[tuple[str, ...], str] = {}
    marks: list[Row] = []
    for row in rows:
        # An attempt that never ended is drawn to the end of the change's window.
        ended_us = row["ended_us"] or cost.change.until_us
        outcome = row["outcome"] or "cut off"
        says = f"{row['consumer']}, attempt {row['attempt']}: {outcome}"
        if row["conflicts"]:
            says += f", {counted(row['conflicts'], 'conflict')}"
        common = {"consumer": row["consumer"], "says": says}
        fill = _FILLS.get(outcome, MUTED)
        bar = {"mark": "attempt", "from_us": row["started_us"], "to_us": ended_us, "fill": fill}
        marks.append({**common, **bar})

        if row["view_us"] is not None:
            view = tuple(row["view"])
            next_colour = SERIES[len(colours_by_view) % len(SERIES)]
            colour = colours_by_view.setdefault(view, next_colour)
            text = (
                f"{says}; saw {counted(len(view), 'member')}, planned {len(row['plan'])} partitions"
            )
            marks.append(
                {
                    **common,
                    "mark": "disc",
                    "from_us": row["view_us"],
                    "to_us": row["view_us"],
                    "fill": colour,
                    "ring": fill if outcome in FAILED else PAPER,
                    "text": str(len(view)),
                    "says": text,
                }
            )

        if row["gave_up"] is not None:
            says = f"{row['consumer']} gave up ({row['gave_up']})"
            marks.append(
                {**common, "mark": "cross", "from_us": ended_us, "to_us": ended_us, "says": says}
            )
    return marks


def _assignment_marks(cost: Cost) -> list[Row]:
    """Return the marks of assignments: a disc for each member and generation."""
    marks: list[Row] = []
    # (generation, consumer) -> when the member got its first partition of this generation
    assigned_us: dict[tuple[int, str], int] = {}
    for row in cost.side.rows("ownership"):
        if cost.change.covers(row["from_us"]) and row["generation"] is not None:
            key = row["generation"], row["consumer"]
            assigned_us[key] = min(row["from_us"], assigned_us.get(key, row["from_us"]))

    members_of_generation = Counter(generation for generation, _ in assigned_us)
    generations = sorted(members_of_generation)
    for (generation, consumer), at_us in sorted(assigned_us.items()):
        index = generations.index(generation)
        marks.append(
            {
                "consumer": consumer,
                "mark": "disc",
                "from_us": at_us,
                "to_us": at_us,
                "fill": SERIES[index % len(SERIES)],
                "ring": PAPER,
                "text": str(members_of_generation[generation]),
                "says": f"{consumer}: its assignment of generation {generation}",
            }
        )
    return marks


def _table(pairs: Sequence[CostPair]) -> TextTable:
    """Return the table of the attempts after the changes, in the groups on ZooKeeper."""
    rows: list[Row] = []
    for on_zookeeper, _ in pairs:
        attempts = [
            row
            for row in on_zookeeper.side.rows("zookeeper_attempts")
            if on_zookeeper.change.covers(row["started_us"])
        ]
        rows += sorted(attempts, key=lambda row: row["started_us"])
    return text_table(
        (
            *named("group", "consumer"),
            number("attempt", "attempt"),
            number(lambda row: clock_text(row["started_us"]), "began at"),
            number(lambda row: clock_text(row["view_us"]), "computed at"),
            number(lambda row: None if row["view"] is None else len(row["view"]), "members seen"),
            number(lambda row: None if row["plan"] is None else len(row["plan"]), "planned"),
            number("conflicts", "conflicts"),
            *named("outcome", "gave_up"),
        ),
        rows,
        limit=_MAX_TABLE_ROWS,
        source="zookeeper_attempts",
        folded="Each attempt",
    )


def _spec(data: str, lanes: int, axis_ends_s: Mapping[str, float]) -> alt.TopLevelMixin:
    """Return the specification of a chart, whose data has the name `data`.

    `axis_ends_s` has the end of the axis for each change that the reader can pick.
    """
    # The expression looks up the end for the change that the reader picked:
    # `({"1 member joins": 2.5})[change] || 1`. For a change that is not in the mapping, the end is
    # 1, because an axis without an end could not be drawn.
    end_s = alt.ExprRef(f"({json.dumps(axis_ends_s)})[{_PICKED}] || 1")
    height = lanes * _ROW_HEIGHT
    y_scale = alt.Scale(domain=[0, height], reverse=True, nice=False, zero=False)
    y = alt.Y("lane:Q", scale=y_scale, axis=None)
    top = alt.Y("top:Q", scale=y_scale, axis=None)
    bottom = "bottom:Q"
    x = alt.X(
        "from:Q",
        title="seconds from the change",
        scale=alt.Scale(domain=[-_BEFORE_S, end_s], nice=False, zero=False),
        axis=alt.Axis(grid=True),
    )
    fill = alt.Fill("fill:N", scale=None)
    says = alt.Tooltip("says:N", title=" ")
    base = alt.Chart(alt.NamedData(data)).transform_filter(f"datum[{_PICKED!r}] == {_PICKED}")

    def only(mark: str) -> alt.Chart:
        """Return the rows of the data whose `mark` is this word."""
        return base.transform_filter(alt.FieldEqualPredicate(field="mark", equal=mark))

    return (
        alt.layer(
            only("span").mark_rule(opacity=0).encode(x=x, x2="to:Q", y=alt.value(0)),
            # An invisible line keeps the width of the names free in both charts. So the axes of
            # both charts are equally long.
            only("span")
            .mark_rule(opacity=0)
            .encode(x=alt.value(-_NAMES_WIDTH), x2=alt.value(0), y=alt.value(0)),
            only("name").mark_rule(stroke=LINE).encode(x=alt.value(0), x2=alt.value("width"), y=y),
            only("empty")
            .mark_rect(fill=LINE, opacity=0.9)
            .encode(x=x, x2="to:Q", y=top, y2=bottom, tooltip=says),
            only("attempt")
            .mark_rect(opacity=0.75, stroke=PAPER, strokeWidth=0.5)
            .encode(x=x, x2="to:Q", y=top, y2=bottom, fill=fill, tooltip=says),
            only("disc")
            .mark_circle(size=220, opacity=1, strokeWidth=2)
            .encode(x=x, y=y, fill=fill, stroke=alt.Stroke("ring:N", scale=None), tooltip=says),
            only("disc")
            .mark_text(fill=PAPER, fontSize=9, fontWeight="bold", baseline="middle", dy=0.5)
            .encode(x=x, y=y, text="text:N"),
            only("cross")
            .mark_point(shape="cross", angle=45, filled=True, fill=BAD, size=110, opacity=1)
            .encode(x=x, y=y, tooltip=says),
            only("name")
            .mark_text(
                align="right",
                dx=-8,
                fill=INK,
                fontSize=11,
                baseline="middle",
                limit=_NAMES_WIDTH - 10,
            )
            .encode(x=alt.value(0), y=y, text="text:N"),
        )
        .properties(width="container", height=height)
        .add_params(alt.param(name=_PICKED, value=next(iter(axis_ends_s))))
    )
