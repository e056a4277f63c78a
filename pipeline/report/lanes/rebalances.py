"""The rebalance lanes: when each rebalance began, why, and until when it kept its group waiting."""

from collections.abc import Mapping, Sequence

import altair as alt

from pipeline.report.charts.chart import BAD, HATCHES, SERIES, Chart, Pick, TextTable, axis_seconds
from pipeline.report.lanes.areas import area_rows, step_areas
from pipeline.report.lanes.labels import FROM_TO, Tip, common_prefix, group_prefix
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
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed

MANY_ROWS = 16
"""From more groups and coordinators than these on, they are counted, and one group is picked."""
MAX_SHOWN = 400
MAX_PICKED = 2_500
MAX_TABLE_ROWS = 200
AREA_PX = 120

JOINING, SYNCING, BROKEN_OFF = "joining", "syncing", "never completed"
PARTS = {JOINING: HATCHES[1], SYNCING: SERIES[1], BROKEN_OFF: "transparent"}
_FIRST = "datum.f == 1"
_ABOUT = (
    "A bar is a rebalance, from the moment the coordinator began it until the new assignment was "
    "stored."
)
_ABOUT_ALONE = " A row is a coordinator of the group {}."
_MORE = (
    "First a rebalance waits for its members to join, then for the leader's assignment. Inside a "
    "bar: why it began, by whom, and the generations. No fill: another rebalance, or the "
    "coordinator's end, came first. A cross: the log did not take the assignment."
)
_ABOUT_COUNTS = "How many groups had a rebalance under way, by what it was waiting for."
_ABOUT_PICKED = "The rebalances of one group; those with most of them first."
_TIPS = (
    Tip("r", "group and coordinator"),
    Tip("y", "reason"),
    Tip("w", "caused by"),
    Tip("q", "what the member said"),
    Tip("g", "generations"),
    Tip("t", "in all"),
    Tip("k", "this part"),
    Tip("o", "left out"),
    Tip("n", "new"),
    Tip("z", "assignment not stored"),
)


def rebalances_lane(run: ReportInput) -> Chart | None:
    """Return the rebalances of each group, or of many groups how many rebalance; None without."""
    rows = run.tables.rows("rebalances")
    if not rows:
        return None
    names = in_number_order({_row(row) for row in rows})
    if len(names) > MANY_ROWS:
        return _counts(run, rows)
    shown = longest_first(rows, MAX_SHOWN)
    groups = {row["group"] for row in rows}
    return time_lane(
        run,
        lane_id="lane-rebalances",
        title="Rebalances",
        about=_ABOUT if len(groups) > 1 else _ABOUT + _ABOUT_ALONE.format(*groups),
        more=_MORE,
        layers=_layers(rows_y(names, without=group_prefix(groups))),
        data=_data(run, shown),
        height=ROW_PX * len(names),
        table=_table(rows),
    )


def rebalance_detail(run: ReportInput) -> Chart | None:
    """Return the rebalances of a group that is picked; None where `rebalances_lane` shows all."""
    rows = run.tables.rows("rebalances")
    if len({_row(row) for row in rows}) <= MANY_ROWS:
        return None
    numbers: dict[str, int] = {}
    for row in rows:
        numbers[row["group"]] = numbers.get(row["group"], 0) + 1
    groups = sorted(in_number_order(numbers), key=lambda each: -numbers[each])
    known, room = [], MAX_PICKED
    for group in groups:
        room -= numbers[group]
        if room >= 0:
            known.append(group)
    shown = set(known)
    return time_lane(
        run,
        lane_id="lane-rebalances-one",
        title="Rebalances of one group",
        about=_ABOUT_PICKED + pickable("groups", len(known), len(groups), "rebalances"),
        more=f"{_ABOUT} {_MORE}",
        layers=_layers(rows_y(), where=picked("rebalances_pick", "p")),
        data=_data(run, [row for row in rows if row["group"] in shown], pick=True),
        height=alt.Step(ROW_PX),
        picks=(Pick(param="rebalances_pick", label="Group", options=tuple(known)),),
    )


def _layers(y: alt.Y, where: str | None = None) -> list[alt.Chart]:
    tips = (*_TIPS, *FROM_TO)
    first = _FIRST if where is None else f"{_FIRST} && {where}"
    not_stored = f"{first} && datum.z != null"
    return [
        bars("parts", y, tooltip=tips, fill=kind_fill("k", PARTS), where=where),
        *labels("parts", y, tooltip=tips, where=first, end="datum.u"),
        moments("parts", y, tooltip=_TIPS, where=not_stored, shape="cross", angle=45, fill=BAD),
    ]


def _data(run: ReportInput, rows: Sequence[Row], *, pick: bool = False) -> dict[str, list[Datum]]:
    """Return the parts of each rebalance; the first has the label of all, which end at `u`."""
    ends = _ends(run, rows)
    prefix = common_prefix(row["consumer"] for row in rows if row["consumer"] is not None)
    parts = []
    for row in rows:
        said = _rebalance_cells(row)
        if pick:
            said["p"] = row["group"]
        end_us = ends[_key(row)]
        first: Datum = {
            "f": 1,
            "u": axis_seconds(end_us),
            "l": _words(row, prefix),
            "s": _short(row),
        }
        for part, start, end in _parts(row, end_us):
            parts.append(span(start, end, **said, k=part, **first))
            first = {}
    return {"parts": parts}


def _parts(row: Row, end_us: int) -> list[tuple[str, int, int]]:
    if row["joined_us"] is None:
        return [(BROKEN_OFF, row["started_us"], end_us)]
    joining = (JOINING, row["started_us"], row["joined_us"])
    if row["stable_us"] is None:
        return [joining, (BROKEN_OFF, row["joined_us"], max(end_us, row["joined_us"]))]
    return [joining, (SYNCING, row["joined_us"], row["stable_us"])]


def _key(row: Row) -> tuple[str, str, int]:
    return row["group"], row["broker"], row["started_us"]


def _ends(run: ReportInput, rows: Sequence[Row]) -> dict[tuple[str, str, int], int]:
    """Return when each rebalance ended: completed, overtaken by the next, with its coordinator."""
    tenures = _tenure_ends(run)
    partitions = {row["group"]: row["partition"] for row in run.tables.rows("groups")}
    ends: dict[tuple[str, str, int], int] = {}
    following: dict[tuple[str, str], int] = {}
    for row in sorted(rows, key=lambda each: -each["started_us"]):
        place = row["group"], row["broker"]
        if row["stable_us"] is not None:
            end_us = row["stable_us"]
        else:
            tenure = partitions.get(row["group"]), row["broker"], row["leader_epoch"]
            end_us = min(following.get(place, run.end_us), tenures.get(tenure, run.end_us))
        ends[_key(row)] = max(end_us, row["started_us"])
        following[place] = row["started_us"]
    return ends


def _tenure_ends(run: ReportInput) -> Mapping[tuple[str | None, str, int | None], int]:
    return {
        (row["partition"], row["broker"], row["leader_epoch"]): row["end_us"]
        for row in run.tables.rows("coordinator_tenures")
    }


def _rebalance_cells(row: Row) -> Datum:
    return {
        "r": _row(row),
        "y": row["reason"],
        "w": row["consumer"],
        "q": row["client_reason"],
        "g": _generations(row),
        "t": None if row["length_us"] is None else duration_text(row["length_us"]),
        "o": listed(row["removed"]),
        "n": listed(row["added"]),
        "z": row["store_error"],
    }


def _words(row: Row, prefix: str) -> str:
    who = "" if row["consumer"] is None else f" of {row['consumer'].removeprefix(prefix)}"
    length = "" if row["length_us"] is None else f" \u00b7 {duration_text(row['length_us'])}"
    return f"{row['reason']}{who} \u00b7 {_generations(row)}{length}"


def _short(row: Row) -> str:
    length = "" if row["length_us"] is None else f" \u00b7 {duration_text(row['length_us'])}"
    return f"{row['reason']}{length}"


def _generations(row: Row) -> str:
    if row["new_generation"] is None:
        return f"generation {row['generation']}, no new one"
    return f"generation {row['generation']} to {row['new_generation']}"


def _row(row: Row) -> str:
    return f"{row['group']} \u00b7 {row['broker']}"


def _counts(run: ReportInput, rows: Sequence[Row]) -> Chart:
    ends = _ends(run, rows)
    parts = [part for row in rows for part in _parts(row, ends[_key(row)])]
    steps = [
        concurrent(
            [(start, end) for part, start, end in parts if part == kind],
            from_us=0,
            to_us=run.end_us,
        )
        for kind in PARTS
    ]
    fills = {**PARTS, BROKEN_OFF: HATCHES[7]}
    return time_lane(
        run,
        lane_id="lane-rebalances",
        title=f"{len(rows):,} rebalances",
        about=_ABOUT_COUNTS,
        layers=[step_areas("counts", what="waiting for", fills=fills, unit="rebalances")],
        data={"counts": area_rows(thinned(join_steps(*steps)), list(PARTS))},
        height=AREA_PX,
        table=_table(rows),
    )


def _table(rows: Sequence[Row]) -> TextTable:
    numeric = ("began (s)", "stable (s)")
    ordered = sorted(rows, key=lambda row: row["started_us"])
    return TextTable(
        headings=(
            "group",
            "coordinator",
            "reason",
            "caused by",
            "generations",
            *numeric,
            "length",
            "left out",
            "new",
        ),
        rows=tuple(
            (
                row["group"],
                row["broker"],
                row["reason"],
                row["consumer"],
                _generations(row),
                clock_text(row["started_us"]),
                clock_text(row["stable_us"]),
                None if row["length_us"] is None else duration_text(row["length_us"]),
                listed(row["removed"]),
                listed(row["added"]),
            )
            for row in ordered[:MAX_TABLE_ROWS]
        ),
        numeric=(*numeric, "length"),
        caption=bounded("rebalances", len(rows), MAX_TABLE_ROWS),
        folded="The rebalances as text",
    )
