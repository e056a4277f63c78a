"""The rebalance lane: when each rebalance began and ended, and why it began.

The bar of a rebalance has two parts. In the part `joining`, the coordinator waits until the members
of the group have joined again. In the part `syncing`, the coordinator waits for the assignment,
which one of the members computes. If the rebalance never ended, its last part is `never completed`.

In the data of the chart, a part is an object with the keys of LANE's columns, and these:

- `p`: the group; only in `rebalance_detail`, which shows the group that the reader picks

Only the first part of a rebalance has these keys:

- `f`: 1
- `u`: end of the last part in seconds
- `l`, `s`: the label of the whole rebalance, long and short
"""

from collections.abc import Mapping, Sequence

import altair as alt

from pipeline.report.charts.chart import BAD, HATCHES, SERIES, Chart, axis_seconds
from pipeline.report.columns import Column, moment
from pipeline.report.lanes.interval_lane import (
    IntervalLane,
    count_intervals,
    group_and_broker,
    pick_of_groups,
)
from pipeline.report.lanes.labels import common_prefix, group_prefix
from pipeline.report.lanes.marks import ROW_PX, Datum, kind_fill, picked, rows_y
from pipeline.report.lanes.spans import longest_first
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed

MANY_ROWS = 16
"""Maximum number of rows in the lane. A group has a row for each of its coordinators. If there
would be more rows, the lane only shows how many groups rebalance, and a second lane
(`rebalance_detail`) shows one group, which the reader picks.
"""
MAX_SHOWN = 400
"""Maximum number of rebalances in the lane if it shows all groups. If there are more, the longest
rebalances are shown.
"""
MAX_PICKED = 2_500
"""Maximum number of rebalances in the data of the second lane. The data has the rebalances of every
group that the reader can pick. So if all groups have more rebalances, the reader cannot pick each
of them.
"""
AREA_PX = 120
"""Height of the lane in pixels if it shows areas."""
_PICK = "rebalances_pick"
"""Name of Vega's parameter for the picked group."""
JOINING, SYNCING, BROKEN_OFF = "joining", "syncing", "never completed"
PARTS = {JOINING: HATCHES[1], SYNCING: SERIES[1], BROKEN_OFF: "transparent"}
"""Fill of each part of a rebalance."""
_FIRST = "datum.f == 1"
"""Vega condition for the first part of a rebalance."""


def _length(row: Row) -> str | None:
    """Return the length of a rebalance as text; None if it was not completed."""
    return None if row["length_us"] is None else duration_text(row["length_us"])


def _generations(row: Row) -> str:
    """Return `generation 3 to 4`.

    Returns `generation 3, no new one` if the rebalance was broken off before a new generation.
    """
    if row["new_generation"] is None:
        return f"generation {row['generation']}, no new one"
    return f"generation {row['generation']} to {row['new_generation']}"


LANE = IntervalLane(
    id="lane-rebalances",
    title="Rebalances",
    about="A bar is a rebalance, from the moment the coordinator began it until the new assignment "
    "was stored.",
    more="First a rebalance waits for its members to join, then for the leader's assignment. "
    "Inside a bar: why it began, by whom, and the generations. No fill: another rebalance, or the "
    "coordinator's end, came first. A cross: the log did not take the assignment.",
    source="rebalances",
    folded="The rebalances as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column(group_and_broker, key="r", tip="group and coordinator"),
        Column("group", "group"),
        Column("broker", "coordinator"),
        Column("reason", "reason", "y", "reason"),
        Column("consumer", "caused by", "w", "caused by"),
        Column("client_reason", key="q", tip="what the member said"),
        Column(_generations, "generations", "g", "generations"),
        moment("started_us", "began (s)"),
        moment("stable_us", "stable (s)"),
        Column(_length, "length", "t", "in all", numeric=True),
        Column(lambda row: row["part"], key="k", tip="this part"),
        Column(lambda row: listed(row["removed"]), "left out", "o", "left out"),
        Column(lambda row: listed(row["added"]), "new", "n", "new"),
        Column("store_error", key="z", tip="assignment not stored"),
    ),
)


def rebalances_lane(run: ReportInput) -> Chart | None:
    """Return the lane: each rebalance, or the number of groups that rebalance if there are many.

    Returns None if there was no rebalance.
    """
    rows = run.tables.rows("rebalances")
    if not rows:
        return None
    table = LANE.text(sorted(rows, key=lambda row: row["started_us"]))
    names = in_number_order({group_and_broker(row) for row in rows})
    if len(names) > MANY_ROWS:
        ends = _ends_us(run, rows)
        # All parts of all rebalances, and then the spans of the parts of each kind.
        parts = [part for row in rows for part in _parts(row, ends[_key(row)])]
        spans = {
            kind: [(start, end) for part, start, end in parts if part == kind] for kind in PARTS
        }
        return LANE.draw_counts(
            run,
            count_intervals(run, spans),
            # A bar of BROKEN_OFF has no fill, but an area without a fill would not be visible.
            PARTS | {BROKEN_OFF: HATCHES[7]},
            what="waiting for",
            unit="rebalances",
            height=AREA_PX,
            title=f"{len(rows):,} rebalances",
            about="How many groups had a rebalance under way, by what it was waiting for.",
            more="",
            table=table,
        )

    groups = {row["group"] for row in rows}
    about = LANE.about
    if len(groups) == 1:
        (group,) = groups
        about += f" A row is a coordinator of the group {group}."
    return LANE.draw(
        run,
        _layers(rows_y(names, without=group_prefix(groups))),
        _data(run, longest_first(rows, MAX_SHOWN)),
        ROW_PX * len(names),
        about=about,
        table=table,
    )


def rebalance_detail(run: ReportInput) -> Chart | None:
    """Return the lane of a picked group; None where `rebalances_lane` shows all groups."""
    rows = run.tables.rows("rebalances")
    if len({group_and_broker(row) for row in rows}) <= MANY_ROWS:
        return None
    pick, note = pick_of_groups(rows, MAX_PICKED, _PICK, LANE.source)
    options = set(pick.options)
    return LANE.draw(
        run,
        _layers(rows_y(), where=picked(_PICK, "p")),
        _data(run, [row for row in rows if row["group"] in options], pick=True),
        alt.Step(ROW_PX),
        lane_id="lane-rebalances-one",
        title="Rebalances of one group",
        about=f"The rebalances of one group; those with most of them first.{note}",
        more=f"{LANE.about} {LANE.more}",
        picks=(pick,),
    )


def _layers(y: alt.Y, where: str | None = None) -> list[alt.Chart]:
    """Return the marks of the lane; `where` is a Vega condition for the rows that are drawn."""
    first = _FIRST if where is None else f"{_FIRST} && {where}"
    # `z` is the error with which the log refused the assignment. A rebalance with such an error
    # gets a cross.
    not_stored = LANE.marks("parts", y, f"{first} && datum.z != null", ())
    return [
        LANE.marks("parts", y, where).bars(kind_fill("k", PARTS)),
        *LANE.marks("parts", y, first).labels(end="datum.u"),
        not_stored.moments(shape="cross", angle=45, fill=BAD),
    ]


def _data(run: ReportInput, rows: Sequence[Row], *, pick: bool = False) -> dict[str, list[Datum]]:
    """Return the data of the lane, with an object for each part of each rebalance.

    The label of a rebalance extends over all its parts. So the object of the first part has the
    label, and `u`, the end of the last part.
    """
    ends = _ends_us(run, rows)
    prefix = common_prefix(row["consumer"] for row in rows if row["consumer"] is not None)

    parts = []
    for row in rows:
        end_us = ends[_key(row)]
        long, short = _labels(row, prefix)
        for index, (part, start, end) in enumerate(_parts(row, end_us)):
            cells: Datum = {"p": row["group"]} if pick else {}
            if index == 0:
                cells |= {"f": 1, "u": axis_seconds(end_us), "l": long, "s": short}
            parts.append(LANE.datum(row | {"part": part}, start, end, **cells))
    return {"parts": parts}


def _labels(row: Row, prefix: str) -> tuple[str, str]:
    """Return the long and the short label of a rebalance.

    For example, `join of a-2 · generation 3 to 4 · 1.25 s` and `join · 1.25 s`.
    """
    reason = row["reason"]
    if row["consumer"] is not None:
        reason += f" of {row['consumer'].removeprefix(prefix)}"
    long = [reason, _generations(row)]
    short = [row["reason"]]
    length = _length(row)
    if length is not None:
        long.append(length)
        short.append(length)
    return " \u00b7 ".join(long), " \u00b7 ".join(short)


def _parts(row: Row, end_us: int) -> list[tuple[str, int, int]]:
    """Return the parts of a rebalance that ended at `end_us`: kind, start and end of each."""
    if row["joined_us"] is None:
        return [(BROKEN_OFF, row["started_us"], end_us)]
    joining = (JOINING, row["started_us"], row["joined_us"])
    if row["stable_us"] is None:
        # If the run broke this rebalance off, `end_us` is the end of the run. But the nodes stop a
        # little later, so the members can have joined after this time.
        return [joining, (BROKEN_OFF, row["joined_us"], max(end_us, row["joined_us"]))]
    return [joining, (SYNCING, row["joined_us"], row["stable_us"])]


def _key(row: Row) -> tuple[str, str, int]:
    """Return what identifies a rebalance: its group, its coordinator and its start."""
    return row["group"], row["broker"], row["started_us"]


def _ends_us(run: ReportInput, rows: Sequence[Row]) -> dict[tuple[str, str, int], int]:
    """Return when each rebalance ended, by its `_key`.

    A rebalance that was not completed ended when its coordinator began the group's next rebalance,
    or when the coordinator was replaced.
    """
    tenure_ends = _tenure_ends(run)
    partitions = {row["group"]: row["partition"] for row in run.tables.rows("groups")}

    ends: dict[tuple[str, str, int], int] = {}
    next_starts: dict[tuple[str, str], int] = {}
    # The loop goes from the last rebalance to the first. So it knows when the next rebalance of the
    # group started on the same broker.
    for row in sorted(rows, key=lambda row: -row["started_us"]):
        group_on_broker = row["group"], row["broker"]
        if row["stable_us"] is not None:
            end_us = row["stable_us"]
        else:
            tenure = partitions.get(row["group"]), row["broker"], row["leader_epoch"]
            next_start_us = next_starts.get(group_on_broker, run.end_us)
            end_us = min(next_start_us, tenure_ends.get(tenure, run.end_us))
        # A rebalance can begin after the run's end, while the nodes are stopping. Its length is 0.
        ends[_key(row)] = max(end_us, row["started_us"])
        next_starts[group_on_broker] = row["started_us"]
    return ends


def _tenure_ends(run: ReportInput) -> Mapping[tuple[str | None, str, int | None], int]:
    """Return the end of each tenure, by partition, broker and leader epoch."""
    return {
        (row["partition"], row["broker"], row["leader_epoch"]): row["end_us"]
        for row in run.tables.rows("coordinator_tenures")
    }
