"""The group-state lanes: the states of each group, with a row for each coordinator that it had.

A bar is the time in which a group was in one state, such as PreparingRebalance. While a group has
two coordinators, both rows of the group have bars at the same time. In the data of the chart, a bar
is an object with the keys of LANE's columns, and these:

- `a`, `b`: start and end of the bar in seconds
- `w`: colour of the coordinator
- `l`, `s`: the label of the bar, long and short
- `p`: the group; only in `group_detail`, which shows the rows of the group that the reader picks
"""

from collections.abc import Sequence

import altair as alt

from pipeline.report.charts.chart import GOOD, HATCHES, INK, PAPER, SERIES, Chart
from pipeline.report.columns import Column, moment
from pipeline.report.lanes.broker_fills import broker_fills
from pipeline.report.lanes.interval_lane import (
    IntervalLane,
    count_intervals,
    end_of,
    group_and_broker,
    pick_of_groups,
)
from pipeline.report.lanes.labels import group_prefix, moment_tip
from pipeline.report.lanes.marks import ROW_PX, Datum, kind_fill, picked, rows_y
from pipeline.report.lanes.spans import longest_first
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.outcomes import in_number_order
from pipeline.summary.story import counted

MANY_GROUPS = 8
"""Maximum number of groups that have rows in the lane. If there are more groups, the lane shows the
number of groups in each state, and a second lane (`group_detail`) shows one group, which the reader
picks.
"""
MAX_SHOWN = 800
"""Maximum number of bars in the lane if it shows all groups. If there are more, the longest bars
are shown.
"""
MAX_PICKED = 8_000
"""Maximum number of bars in the data of the second lane. The data has the bars of every group that
the reader can pick. So if all groups have more bars, the reader cannot pick each of them.
"""
_BROKER_PX = 4
"""Height of the stripe at the lower edge of a bar. The stripe has the colour of the coordinator."""
_PICK = "group_pick"
"""Name of Vega's parameter for the picked group."""
STATES = {
    "Stable": GOOD,
    "PreparingRebalance": HATCHES[1],
    "CompletingRebalance": SERIES[1],
    "Empty": PAPER,
}
"""The fill of each state of a group. Dead has none, because it is drawn as a cross."""
_DEAD = "Dead"
LANE = IntervalLane(
    id="lane-groups",
    title="Group states",
    about="In which state its coordinator had each group; a row is one group on one broker.",
    more="Where two rows of a group have bars at once, two coordinators served it. The number in a "
    "bar is the generation (in PreparingRebalance the one that ended, with the members at its "
    "beginning). Its lower edge has its coordinator's colour, as in the lane of the coordinators. "
    "A cross: Dead, the broker forgot the group.",
    source="group_states",
    folded="The groups' states as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column(group_and_broker, key="r", tip="group and coordinator"),
        Column("group", "group"),
        Column("broker", "coordinator"),
        Column("state", "state", "k", "state"),
        Column("generation", "generation", "g", "generation", numeric=True),
        Column("members", "members", "m", "members when it began", numeric=True),
        moment("from_us", "from (s)"),
        moment("to_us", "to (s)"),
        Column("leader_epoch", key="e", tip="leader epoch"),
        Column("cause", "because", "c", "because"),
    ),
)


def groups_lane(run: ReportInput) -> Chart | None:
    """Return the lane: the states of each group, or numbers of groups if there are many.

    Returns None if there was no group.
    """
    rows = run.tables.rows("group_states")
    groups = in_number_order({row["group"] for row in rows})
    if not groups:
        return None
    table = LANE.text(sorted(rows, key=lambda row: (row["group"], row["from_us"])))
    if len(groups) > MANY_GROUPS:
        fills = _fills(rows)
        # State -> the beginnings and ends of the intervals in which a group was in this state.
        spans = {
            state: [
                (row["from_us"], end_of(run, row["to_us"])) for row in rows if row["state"] == state
            ]
            for state in fills
        }
        return LANE.draw_counts(
            run,
            count_intervals(run, spans),
            fills,
            what="state",
            unit="groups",
            title=f"States of {len(groups):,} groups",
            about="How many groups were in which state.",
            more="A height of 1 is one group on one coordinator. A group that two brokers serve "
            "counts twice, one without a coordinator not at all.",
            table=table,
        )

    about = LANE.about
    if len(groups) == 1:
        about = f"In which state its coordinator had the group {groups[0]}; a row is one broker."
    names = in_number_order({group_and_broker(row) for row in rows})
    return LANE.draw(
        run,
        _layers(rows, rows_y(names, without=group_prefix(groups))),
        _data(run, longest_first(rows, MAX_SHOWN)),
        ROW_PX * len(names),
        about=about,
        table=table,
    )


def group_detail(run: ReportInput) -> Chart | None:
    """Return the lane of a picked group; None where `groups_lane` shows all groups."""
    rows = run.tables.rows("group_states")
    if len({row["group"] for row in rows}) <= MANY_GROUPS:
        return None
    pick, note = pick_of_groups(rows, MAX_PICKED, _PICK, LANE.source)
    options = set(pick.options)
    return LANE.draw(
        run,
        _layers(rows, rows_y(), where=picked(_PICK, "p")),
        _data(run, [row for row in rows if row["group"] in options], pick=True),
        alt.Step(ROW_PX),
        lane_id="lane-groups-one",
        title="States of one group",
        about="One group, on each broker that was its coordinator; those with most changes first."
        + note,
        picks=(pick,),
    )


def _layers(rows: Sequence[Row], y: alt.Y, where: str | None = None) -> list[alt.Chart]:
    """Return the marks of the lane; `where` is a Vega condition for the rows that are drawn."""
    states = LANE.marks("states", y, where)
    dead = LANE.marks("dead", y, where, (moment_tip("a", "at"),))
    return [
        states.bars(kind_fill("k", _fills(rows))),
        states.bars(
            alt.Fill("w:N", scale=None),
            height=_BROKER_PX,
            # The distance from the middle of the row down to the middle of the stripe. With this
            # distance, the stripe ends 2 px above the lower edge of the row: at the lower edge of
            # the bar.
            yOffset=(ROW_PX - _BROKER_PX) // 2 - 2,
            stroke=None,
        ),
        *states.labels(),
        dead.moments(shape="cross", angle=45, fill=INK),
    ]


def _fills(rows: Sequence[Row]) -> dict[str, str]:
    """Return the fills of the states that occur. The legend names only these states.

    If only Dead occurs, all fills are returned, because a legend needs at least one entry.
    """
    seen = {row["state"] for row in rows}
    fills = {state: fill for state, fill in STATES.items() if state in seen}
    return fills or dict(STATES)


def _data(run: ReportInput, rows: Sequence[Row], *, pick: bool = False) -> dict[str, list[Datum]]:
    """Return the data sets `states` and `dead`. With `pick`, each object has its group in `p`."""
    data: dict[str, list[Datum]] = {"states": [], "dead": []}
    fills = broker_fills(run)
    for row in sorted(rows, key=lambda row: (row["group"], row["broker"], row["from_us"])):
        cells = {"w": fills[row["broker"]]}
        if pick:
            cells["p"] = row["group"]
        start = row["from_us"]
        # A broker forgets a group as soon as the group is Dead. So this state is a moment.
        if row["state"] == _DEAD:
            data["dead"].append(LANE.datum(row, start, start, **cells))
            continue
        cells |= {"s": f"{row['state']} {row['generation']}", "l": _label(row)}
        data["states"].append(LANE.datum(row, start, end_of(run, row["to_us"]), **cells))
    return data


def _label(row: Row) -> str:
    """Return the long label of an interval: `Stable · generation 3 · 5 members`."""
    parts = [row["state"], f"generation {row['generation']}"]
    if row["members"] is not None:
        began = " at its beginning" if row["state"] == "PreparingRebalance" else ""
        parts.append(counted(row["members"], "member") + began)
    return " \u00b7 ".join(parts)
