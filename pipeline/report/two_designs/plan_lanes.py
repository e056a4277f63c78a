"""Charts of the plans that members computed after a change, and of the views behind the plans.

The two designs are groups that coordinate themselves on ZooKeeper, and groups with a coordinator on
a broker. A change is an event that makes a group compute plans, such as a join. A `Cost` is one
change in one group of one run, with what the change cost; `cost.side` is the group. In a pair of
costs, the first is of the group on ZooKeeper.

A plan is an assignment of partitions to members; a view is the set of members from which a plan was
computed. In an attempt, a member reads a view, computes a plan and claims its partitions. A
generation is the number of a group's rebalance. A lane is a row of the chart with the marks of one
member:

- A light bar is a time in which the member owned no partition, and so read nothing.
- On ZooKeeper, a bar is an attempt. The disc on it is its view, with the number of members in it.
- With a coordinator, a disc is an assignment, with the number of members of its generation.
- Discs of the same colour have the same view, or the same generation.
"""

import json
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
"""Name of the charts' parameter, and of a column of their data: the change that the reader picked.
"""
_ROW_HEIGHT = 20
"""Height of a lane in pixels."""
_NAMES_WIDTH = 84
"""Width in pixels of the space to the left of the lanes, for the names of members."""
MAX_LANES = 24
"""Maximum number of members that have a lane. `_shown_members` chooses them."""
MAX_CHANGES = 12
"""Maximum number of changes that the reader can pick."""
_BEFORE_S, _AFTER_S = 0.4, 1.0
"""Seconds of the axis before the change, and after the end of its last attempt or rebalance."""
_SECOND = 1_000_000
"""One second in microseconds."""
_FILLS = {"done": SERIES[2], "no broker": SERIES[2], "conflict": WARN, "exception": BAD}
"""Colours of attempts by their outcome."""
_MAX_TABLE_ROWS = 200
"""Maximum number of attempts in the table beneath the charts."""

CostPair = tuple[Cost, Cost]
"""The costs of two corresponding changes: on ZooKeeper, and with a coordinator."""


def pairs_of(costs: Sequence[Cost]) -> list[CostPair]:
    """Return pairs of corresponding changes, if a plan was computed after at least one of the two.

    Two changes correspond if they have the same kind, and the same place among the changes of this
    kind in their groups: both are the second join, for example. If several changes correspond to
    one change, a change in the same run is preferred, then a change of a group of the same size.
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
        preferred = same_run or same_size or corresponding
        if preferred and (cost.counts.plans or preferred[0].counts.plans):
            pairs.append((cost, preferred[0]))
    return pairs


def _index_in_kind(cost: Cost) -> int:
    """Return the index of a cost's change among the group's changes of its kind."""
    of_kind = [change for change in cost.side.changes if change.kind == cost.change.kind]
    return of_kind.index(cost.change)


def plan_charts(pairs: Sequence[CostPair]) -> list[Chart]:
    """Return a chart of lanes for each design; both show the change that the reader picks."""
    # The charts have the height of the largest group, so its changes are chosen first.
    shown = sorted(pairs, key=lambda pair: -pair[0].change.members)[:MAX_CHANGES]
    if not shown:
        return []
    # The text by which the reader picks each change.
    options = _options(shown)
    pick = Pick(param=_PICKED, label="change", options=tuple(options))
    # For each change, the end of the axis in seconds, which is in the mark `span`. It is the same
    # in both charts, so the marks of the first one suffice.
    ends = {
        option: row["to"]
        for option, pair in zip(options, shown, strict=True)
        for row in _lane_rows(pair[0], pair)[0]
        if row["mark"] == "span"
    }

    charts = []
    for index, (design, about) in enumerate(_ABOUT.items()):
        rows: list[Row] = []
        lanes = 1
        for option, pair in zip(options, shown, strict=True):
            change_rows, change_lanes = _lane_rows(pair[index], pair)
            rows += [{**row, _PICKED: option} for row in change_rows]
            lanes = max(lanes, change_lanes)
        charts.append(
            Chart(
                id=f"designs-plans-{design}",
                title=_TITLES[design],
                about=about,
                spec=_spec(f"plans-{design}", lanes, ends),
                data={f"plans-{design}": rows},
                picks=(pick,),
                table=_table(shown) if design == "zookeeper" else None,
            )
        )
    return charts


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
    """Return a different name for each pair.

    The name is the label of the change. If two labels are equal, the size of the group follows, or
    its title, or the title and the time.
    """
    labels = [first.change.label for first, _ in pairs]
    if len(set(labels)) == len(labels):
        return labels
    sized = [f"{first.change.label}, in a group of {first.side.members}" for first, _ in pairs]
    if len(set(sized)) == len(sized):
        return sized
    names = [f"{first.change.label}: {first.side.title}" for first, _ in pairs]
    if len(set(names)) == len(names):
        return names
    return [
        f"{name}, at {clock_text(first.change.at_us)} s"
        for name, (first, _) in zip(names, pairs, strict=True)
    ]


def _lane_rows(cost: Cost, pair: CostPair) -> tuple[list[Row], int]:
    """Return the marks of one group's lanes as rows of the chart, and the number of lanes.

    `cost` is one of `pair`. The axis ends after the later end of both changes. A row has:

    - `mark`: `span` (the extent of the axis), `name`, `empty`, `attempt`, `disc` or `cross`;
    - `from`, `to`: times in seconds from the change;
    - `lane`, `top`, `bottom`: positions in pixels;
    - `says`: its tooltip.
    """
    # If neither group was settled, the axis ends as if both had been settled after a second.
    ends = [other.settled_us for other in pair if other.settled_us is not None]
    to_s = max(ends, default=_SECOND) / _SECOND + _AFTER_S

    side, at_us = cost.side, cost.change.at_us
    members = _shown_members(cost)
    rows: list[Row] = [{"mark": "span", "lane": 0.0, "from": -_BEFORE_S, "to": to_s}]
    marks = _attempt_marks(cost) if side.design == "zookeeper" else _assignment_marks(cost)

    for index, consumer in enumerate(members):
        lane = index * _ROW_HEIGHT + _ROW_HEIGHT / 2
        # A bar is 14 pixels high: 7 above and 7 below the middle of the lane.
        common = {"lane": lane, "top": lane - 7, "bottom": lane + 7}
        rows.append({**common, "mark": "name", "text": consumer.removeprefix("consumer-")})
        for row in (*_empty_bars(cost, consumer), *marks):
            if row["consumer"] != consumer:
                continue

            from_s = (row["from_us"] - at_us) / _SECOND
            end_s = (row["to_us"] - at_us) / _SECOND
            # A mark that is wholly beyond the axis is left out.
            if end_s < -_BEFORE_S or from_s > to_s:
                continue
            rows.append(
                {
                    **common,
                    **{
                        key: row[key]
                        for key in ("mark", "fill", "ring", "text", "says")
                        if key in row
                    },
                    "from": max(from_s, -_BEFORE_S),
                    "to": min(end_s, to_s),
                }
            )
    return rows, len(members)


def _shown_members(cost: Cost) -> tuple[str, ...]:
    """Return the members that have a lane.

    If there are more than MAX_LANES, they are chosen in this order:
    1. members with an attempt that did not end with `done`;
    2. newcomers: members that owned no partition before the change;
    3. the others, by their numbers.
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
    # False sorts before True: members with trouble come first, then newcomers.
    by_interest = sorted(consumers, key=lambda name: (name not in troubled, name not in newcomers))
    shown = set(by_interest[:MAX_LANES])
    return tuple(name for name in consumers if name in shown)


def _empty_bars(cost: Cost, consumer: str) -> Iterator[Row]:
    """Yield the bars of the times in which a living member owned no partition.

    The times before its first partition and after its last partition have no bar.
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
    # Until when the member has owned partitions; None if it has owned none yet in the present life
    # of its process.
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
    # Views get their colours in the order of these rows, so the rows are sorted by the time of the
    # view. An attempt without a view needs no colour, and is sorted by its start.
    rows = sorted(
        (
            row
            for row in cost.side.rows("zookeeper_attempts")
            if cost.change.covers(row["started_us"])
        ),
        key=lambda row: row["view_us"] or row["started_us"],
    )

    colours: dict[tuple[str, ...], str] = {}  # by view
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
            colour = colours.setdefault(view, SERIES[len(colours) % len(SERIES)])
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
    # The time at which each member got its first partition of a generation.
    starts: dict[tuple[int, str], int] = {}  # by generation and member
    for row in cost.side.rows("ownership"):
        if cost.change.covers(row["from_us"]) and row["generation"] is not None:
            key = row["generation"], row["consumer"]
            starts[key] = min(row["from_us"], starts.get(key, row["from_us"]))

    generations = sorted({generation for generation, _ in starts})
    for (generation, consumer), at_us in sorted(starts.items()):
        size = sum(other == generation for other, _ in starts)
        index = generations.index(generation)
        marks.append(
            {
                "consumer": consumer,
                "mark": "disc",
                "from_us": at_us,
                "to_us": at_us,
                "fill": SERIES[index % len(SERIES)],
                "ring": PAPER,
                "text": str(size),
                "says": f"{consumer}: its assignment of generation {generation}",
            }
        )
    return marks


def _table(pairs: Sequence[CostPair]) -> TextTable:
    """Return the table of the attempts after the changes, in the groups on ZooKeeper."""
    rows = [
        row
        for first, _ in pairs
        for row in sorted(
            first.side.rows("zookeeper_attempts"), key=lambda attempt: attempt["started_us"]
        )
        if first.change.covers(row["started_us"])
    ]
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


def _spec(data: str, lanes: int, ends: Mapping[str, float]) -> alt.TopLevelMixin:
    """Return the chart of the data named `data`.

    `ends` has, for each change that the reader can pick, the end of the axis in seconds.
    """
    # The end of the axis is given, because data without any visible mark would have no extent. It
    # is 1 s if `ends` lacks the picked change. `_PICKED` in the expression is the reader's pick.
    end_s = alt.ExprRef(f"({json.dumps(ends)})[{_PICKED}] || 1")
    height = lanes * _ROW_HEIGHT
    y_scale = alt.Scale(domain=[0, height], reverse=True, nice=False, zero=False)
    y = alt.Y("lane:Q", scale=y_scale, axis=None)
    top, bottom = alt.Y("top:Q", scale=y_scale, axis=None), "bottom:Q"
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
        return base.transform_filter(alt.FieldEqualPredicate(field="mark", equal=mark))

    return (
        alt.layer(
            only("span").mark_rule(opacity=0).encode(x=x, x2="to:Q", y=alt.value(0)),
            # An invisible line reserves the width of the names, so that the axes of both charts are
            # equally long.
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
        .add_params(alt.param(name=_PICKED, value=next(iter(ends))))
    )
