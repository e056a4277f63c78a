"""The group-state lanes: in which state each coordinator had each group, and when."""

from collections.abc import Sequence

import altair as alt

from pipeline.report.charts.chart import GOOD, HATCHES, INK, PAPER, SERIES, Chart, Pick, TextTable
from pipeline.report.lanes.areas import area_rows, step_areas
from pipeline.report.lanes.broker_fills import broker_fills
from pipeline.report.lanes.labels import FROM_TO, Tip, group_prefix, moment_tip
from pipeline.report.lanes.marks import (
    ROW_PX,
    Datum,
    bars,
    bounded,
    clock_text,
    kind_fill,
    labels,
    moments,
    pickable,
    picked,
    rows_y,
    span,
    time_lane,
)
from pipeline.report.lanes.spans import concurrent, join_steps, longest_first, thinned
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.outcomes import in_number_order

MANY_GROUPS = 8
"""From more groups than these on, they are counted, and one is shown when it is picked."""
MAX_SHOWN = 800
MAX_PICKED = 8_000
"""Intervals in the page: of the groups that are shown at once, of all that can be picked."""
MAX_TABLE_ROWS = 200
AREA_PX = 150
_BROKER_PX = 4
"""The lower edge of a bar, in the colour of its coordinator."""

STATES = {
    "Stable": GOOD,
    "PreparingRebalance": HATCHES[1],
    "CompletingRebalance": SERIES[1],
    "Empty": PAPER,
}
_DEAD = "Dead"
_ABOUT = "In which state its coordinator had each group; a row is one group on one broker."
_ABOUT_ALONE = "In which state its coordinator had the group {}; a row is one broker."
_MORE = (
    "Where two rows of a group have bars at once, two coordinators served it. The number in a bar "
    "is the generation (in PreparingRebalance the one that ended, with the members at its "
    "beginning). Its lower edge has its coordinator's colour, as in the lane of the coordinators. "
    "A cross: Dead, the broker forgot the group."
)
_ABOUT_COUNTS = "How many groups were in which state."
_MORE_COUNTS = (
    "A height of 1 is one group on one coordinator. A group that two brokers serve counts twice, "
    "one without a coordinator not at all."
)
_ABOUT_PICKED = "One group, on each broker that was its coordinator; those with most changes first."
_TIPS = (
    Tip("r", "group and coordinator"),
    Tip("k", "state"),
    Tip("g", "generation"),
    Tip("m", "members when it began"),
    Tip("e", "leader epoch"),
    Tip("c", "because"),
)


def groups_lane(run: ReportInput) -> Chart | None:
    """Return the groups' states, or of many groups how many were in each; None without groups."""
    rows = run.tables.rows("group_states")
    groups = in_number_order({row["group"] for row in rows})
    if not groups:
        return None
    if len(groups) > MANY_GROUPS:
        return _counts(run, rows, len(groups))
    shown = _in_time(longest_first(rows, MAX_SHOWN))
    names = in_number_order({_row(row) for row in rows})
    return time_lane(
        run,
        lane_id="lane-groups",
        title="Group states",
        about=_ABOUT if len(groups) > 1 else _ABOUT_ALONE.format(groups[0]),
        more=_MORE,
        layers=_layers(rows, rows_y(names, without=group_prefix(groups))),
        data=_data(run, shown),
        height=ROW_PX * len(names),
        table=_table(rows),
    )


def group_detail(run: ReportInput) -> Chart | None:
    """Return the states of a group that is picked; None where `groups_lane` shows them all."""
    rows = run.tables.rows("group_states")
    changes: dict[str, int] = {}
    for row in rows:
        changes[row["group"]] = changes.get(row["group"], 0) + 1
    if len(changes) <= MANY_GROUPS:
        return None
    options: list[str] = []
    room = MAX_PICKED
    for group in sorted(in_number_order(changes), key=lambda each: -changes[each]):
        room -= changes[group]
        if room >= 0:
            options.append(group)
    known = set(options)
    pick = Pick(param="group_pick", label="Group", options=tuple(options))
    return time_lane(
        run,
        lane_id="lane-groups-one",
        title="States of one group",
        about=_ABOUT_PICKED + pickable("groups", len(options), len(changes), "group_states"),
        more=_MORE,
        layers=_layers(rows, rows_y(), where=picked("group_pick", "p")),
        data=_data(run, [row for row in _in_time(rows) if row["group"] in known], pick=True),
        height=alt.Step(ROW_PX),
        picks=(pick,),
    )


def _layers(rows: Sequence[Row], y: alt.Y, where: str | None = None) -> list[alt.Chart]:
    tips = (*_TIPS, *FROM_TO)
    return [
        bars("states", y, tooltip=tips, fill=kind_fill("k", _fills(rows)), where=where),
        bars(
            "states",
            y,
            tooltip=tips,
            fill=alt.Fill("w:N", scale=None),
            where=where,
            height=_BROKER_PX,
            yOffset=(ROW_PX - _BROKER_PX) // 2 - 2,
            stroke=None,
        ),
        *labels("states", y, tooltip=tips, where=where),
        moments(
            "dead",
            y,
            tooltip=(*_TIPS, moment_tip("a", "at")),
            where=where,
            shape="cross",
            angle=45,
            fill=INK,
        ),
    ]


def _fills(rows: Sequence[Row]) -> dict[str, str]:
    """Return the fills of the states that occur: a legend names no others."""
    seen = {row["state"] for row in rows}
    return {state: fill for state, fill in STATES.items() if state in seen} or dict(STATES)


def _data(run: ReportInput, rows: Sequence[Row], *, pick: bool = False) -> dict[str, list[Datum]]:
    states, dead = [], []
    fills = broker_fills(run)
    for row in rows:
        said: Datum = {
            "r": _row(row),
            "k": row["state"],
            "g": row["generation"],
            "m": row["members"],
            "w": fills[row["broker"]],
            "e": row["leader_epoch"],
            "c": row["cause"],
        }
        if pick:
            said["p"] = row["group"]
        if row["state"] == _DEAD:
            dead.append(span(row["from_us"], row["from_us"], **said))
            continue
        said["s"] = f"{row['state']} {row['generation']}"
        said["l"] = _words(row)
        states.append(span(row["from_us"], _end(run, row), **said))
    return {"states": states, "dead": dead}


def _words(row: Row) -> str:
    members = row["members"]
    counted = "" if members is None else f" \u00b7 {members} member{'' if members == 1 else 's'}"
    if counted and row["state"] == "PreparingRebalance":
        counted += " at its beginning"
    return f"{row['state']} \u00b7 generation {row['generation']}{counted}"


def _row(row: Row) -> str:
    return f"{row['group']} \u00b7 {row['broker']}"


def _end(run: ReportInput, row: Row) -> int:
    end_us: int | None = row["to_us"]
    return run.end_us if end_us is None else end_us


def _in_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["group"], row["broker"], row["from_us"]))


def _counts(run: ReportInput, rows: Sequence[Row], groups: int) -> Chart:
    """Return how many groups were in each state, as areas over each other."""
    fills = _fills(rows)
    steps = [
        concurrent(
            [(row["from_us"], _end(run, row)) for row in rows if row["state"] == state],
            from_us=0,
            to_us=run.end_us,
        )
        for state in fills
    ]
    return time_lane(
        run,
        lane_id="lane-groups",
        title=f"States of {groups:,} groups",
        about=_ABOUT_COUNTS,
        more=_MORE_COUNTS,
        layers=[step_areas("counts", what="state", fills=fills, unit="groups")],
        data={"counts": area_rows(thinned(join_steps(*steps)), list(fills))},
        height=AREA_PX,
        table=_table(rows),
    )


def _table(rows: Sequence[Row]) -> TextTable:
    numeric = ("generation", "members", "from (s)", "to (s)")
    return TextTable(
        headings=("group", "coordinator", "state", *numeric, "because"),
        rows=tuple(
            (
                row["group"],
                row["broker"],
                row["state"],
                row["generation"],
                row["members"],
                clock_text(row["from_us"]),
                clock_text(row["to_us"]),
                row["cause"],
            )
            for row in sorted(rows, key=lambda row: (row["group"], row["from_us"]))[:MAX_TABLE_ROWS]
        ),
        numeric=numeric,
        caption=bounded("group_states", len(rows), MAX_TABLE_ROWS),
        folded="The groups' states as text",
    )
