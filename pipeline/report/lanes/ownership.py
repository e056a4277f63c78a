"""The ownership lane: which member owned which data partition, and where two owned the same."""

import json
from collections.abc import Sequence

import altair as alt

from pipeline.report.charts.chart import (
    BAD,
    BAD_HATCH,
    FROM_S,
    INK,
    PAPER,
    SERIES,
    TO_S,
    Chart,
    Pick,
    TextTable,
)
from pipeline.report.lanes.areas import area_rows, step_areas
from pipeline.report.lanes.labels import FROM_TO, Tip, common_prefix, prefix_note
from pipeline.report.lanes.marks import (
    NARROW,
    bars,
    bounded,
    clock_text,
    end_labels,
    labels,
    legend_columns,
    named_without,
    pickable,
    rows_y,
    time_lane,
)
from pipeline.report.lanes.ownership_rows import (
    Owned,
    by_partition,
    gantt,
    kind,
    kinds_of,
    number,
    owners_over_time,
    side,
)
from pipeline.report.lanes.spans import thinned
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order

MANY_PARTITIONS = 40
"""From more partitions than these on, they are counted, and some are picked."""
ROWS_AT_ONCE = 50
MAX_SHOWN = 900
MAX_PICKED = 8_000
"""Intervals in the page: shown at once, and of those that can be picked."""
MAX_LEGEND = 6
MAX_TABLE_ROWS = 200
ROW_PX = 18
AREA_PX = 150

ONCE, NOBODY, TWICE = "one owner", "nobody", "two owners or more"
COUNTS = {ONCE: SERIES[4], NOBODY: PAPER, TWICE: BAD_HATCH}
_ABOUT = "Who owned each partition, by what the members themselves did."
_MORE = (
    "From its assignment until it was revoked or lost, or the member died. The colour of a "
    "bar is that of the coordinator that assigned it, as in the lane of the coordinators; plain, "
    "hatched or pale: one generation each. Two bars with a striped "
    "edge between them: two members owned the partition at once, for the time at its end."
)
_ABOUT_COUNTS = "How many of the partitions had one owner, none, or two and more."
_MORE_COUNTS = (
    "By what the members themselves did. A partition counts from when it first had an owner."
)
_ABOUT_PICKED = "The owners of the partitions that are picked."
_ROWS_PICK, _MEMBER_PICK = "ownership_rows", "ownership_member"
_ALL_MEMBERS, _REMARKABLE = "all members", "0: two owners, or moved most"
_PICKED = (
    f"{_MEMBER_PICK} == '{_ALL_MEMBERS}' "
    f"? ({_ROWS_PICK} == '{_REMARKABLE}' ? datum.t == 1 : "
    f"datum.h == toNumber(split({_ROWS_PICK}, ':')[0])) "
    f": (datum.m == {_MEMBER_PICK} || datum.m2 == {_MEMBER_PICK}) && datum.q < {ROWS_AT_ONCE}"
)
_NAME_PX, _LENGTH_PX = 66, 52
_WIDE_ENOUGH = f"(datum._e - datum._x) / ({TO_S} - {FROM_S}) * width > {_NAME_PX + _LENGTH_PX}"
_RESERVED = f"datum.v ? ({NARROW} ? ({_WIDE_ENOUGH} ? {_LENGTH_PX} : 0) : 130) : 0"
"""Pixels at the end of a bar for how long its partition had two owners; its name goes before."""
_LENGTH_ROOM = f"({NARROW} ? datum._w - {_NAME_PX} : datum._w / 2)"
_TIPS = (
    Tip("r", "partition"),
    Tip("m", "member"),
    Tip("g", "generation"),
    Tip("w", "assigned by"),
    Tip("e", "in leader epoch"),
    Tip("x", "ended by"),
    Tip("z", "member paused"),
    Tip("n", "processed", "records", 0),
)
_TWICE_TIPS = (
    Tip("r", "partition"),
    Tip("w", "owned by"),
    Tip("e", "assigned in"),
    Tip("n", "processed by both", "records", 0),
)


def ownership_lane(run: ReportInput) -> Chart | None:
    """Return the owners of each partition, or of many how many had one; None without any."""
    owned = by_partition(run)
    if not owned:
        return None
    if len(owned) > MANY_PARTITIONS:
        return _counts(run, owned)
    names, data = gantt(run, owned, limit=MAX_SHOWN)
    prefix = _prefix(owned)
    return time_lane(
        run,
        lane_id="lane-ownership",
        title="Partition ownership",
        about=_ABOUT,
        more=_MORE + prefix_note(prefix),
        layers=_layers(rows_y(names), _fill(run, owned), prefix),
        data=data,
        height=ROW_PX * len(names),
        table=_table(run),
    )


def ownership_detail(run: ReportInput) -> Chart | None:
    """Return the owners of partitions that are picked; None where `ownership_lane` shows all."""
    owned = by_partition(run)
    if len(owned) <= MANY_PARTITIONS:
        return None
    by_interest = sorted(owned, key=lambda each: (-len(each.overlaps), -len(each.intervals)))
    kept, room = set(), MAX_PICKED
    for each in by_interest:
        room -= len(each.intervals)
        if room >= 0:
            kept.add(each.name)
    known = [each for each in owned if each.name in kept]
    names, data = gantt(run, known, limit=MAX_PICKED)
    chunks = [known[at : at + ROWS_AT_ONCE] for at in range(0, len(known), ROWS_AT_ONCE)]
    number(data, names, chunks, {each.name for each in by_interest[:ROWS_AT_ONCE]})
    members = in_number_order({str(datum["m"]) for datum in data["owners"]})
    ranges = [f"{index + 1}: {_title(chunk)}" for index, chunk in enumerate(chunks)]
    twice = any(each.overlaps for each in owned)  # otherwise the reader begins at the beginning
    options = (_REMARKABLE, *ranges) if twice else (*ranges, _REMARKABLE)
    prefix = _prefix(owned)
    picks = (
        Pick(param=_ROWS_PICK, label="Partitions", options=options),
        Pick(param=_MEMBER_PICK, label="Member", options=(_ALL_MEMBERS, *members)),
    )
    return time_lane(
        run,
        lane_id="lane-ownership-rows",
        title="Owners of some partitions",
        about=_ABOUT_PICKED + pickable("partitions", len(known), len(owned), "ownership"),
        more=_MORE + prefix_note(prefix),
        layers=_layers(rows_y(), _fill(run, owned), prefix, where=_PICKED),
        data=data,
        height=alt.Step(ROW_PX),
        picks=picks,
    )


def _prefix(owned: Sequence[Owned]) -> str:
    return common_prefix(row["consumer"] for each in owned for row in each.intervals)


def _title(chunk: Sequence[Owned]) -> str:
    """Return `orders-0 to 49`: what the two names share is said once."""
    first, last = chunk[0].name, chunk[-1].name
    if len(chunk) == 1:
        return first
    stem, _, number = last.rpartition("-")
    return f"{first} to {number if first.rpartition('-')[0] == stem else last}"


def _fill(run: ReportInput, owned: Sequence[Owned]) -> alt.Fill:
    """Return the fill of a bar, with a legend where few have to be told apart."""
    names = kinds_of(run, owned)
    of_group = next(iter(names.values()))
    fills = list(dict.fromkeys(fill for known in names.values() for fill in known.values()))
    encoded = alt.Fill("c:N", scale=alt.Scale(domain=fills, range=fills))
    if len(names) > 1 or len(of_group) > MAX_LEGEND or len(fills) < len(of_group):
        return encoded.legend(None)
    by_fill = {fill: name for name, fill in of_group.items()}
    return encoded.legend(
        alt.Legend(
            title=None,
            symbolType="square",
            symbolSize=140,
            labelLimit=260,
            symbolStrokeColor=INK,
            labelExpr=f"{json.dumps(by_fill)}[datum.label]",
            columns=legend_columns(of_group),
        )
    )


def _layers(y: alt.Y, fill: alt.Fill, prefix: str, where: str | None = None) -> list[alt.Chart]:
    member = named_without("datum.m", prefix)
    return [
        bars("owners", y, tooltip=(*_TIPS, *FROM_TO), fill=fill, where=where),
        *labels(
            "owners",
            y,
            tooltip=(*_TIPS, *FROM_TO),
            where=where,
            keep_end=True,
            reserve=_RESERVED,
            long=f"{member} + ' \u00b7 generation ' + datum.g",
            short=member,
        ),
        bars(
            "twice",
            y,
            tooltip=(*_TWICE_TIPS, *FROM_TO),
            fill=BAD_HATCH,
            where=where,
            stroke=BAD,
            height=7,
            yOffset=-ROW_PX // 2,
        ),
        *end_labels(
            "twice",
            y,
            tooltip=(*_TWICE_TIPS, *FROM_TO),
            where=where,
            room=_LENGTH_ROOM,
            fontWeight="bold",
            fill=BAD,
        ),
    ]


def _counts(run: ReportInput, owned: Sequence[Owned]) -> Chart:
    steps = thinned(owners_over_time(run, owned))
    return time_lane(
        run,
        lane_id="lane-ownership",
        title=f"Ownership of {len(owned):,} partitions",
        about=_ABOUT_COUNTS,
        more=_MORE_COUNTS,
        layers=[step_areas("counts", what="had", fills=COUNTS, unit="partitions with")],
        data={"counts": area_rows(steps, list(COUNTS))},
        height=AREA_PX,
        table=_table(run),
    )


def _table(run: ReportInput) -> TextTable:
    """Return the overlaps as text if there are any, otherwise the intervals."""
    overlaps = run.tables.rows("ownership_overlaps")
    numeric = ("from (s)", "to (s)")
    if overlaps:
        ordered = _by_number(overlaps)
        return TextTable(
            headings=("partition", "owned by", "and by", *numeric, "for", "processed by both"),
            rows=tuple(
                (
                    row["partition"],
                    f"{row['first_consumer']} ({side(row, 'first')})",
                    f"{row['second_consumer']} ({side(row, 'second')})",
                    clock_text(row["from_us"]),
                    clock_text(row["to_us"]),
                    duration_text(row["length_us"]),
                    row["records_both"],
                )
                for row in ordered[:MAX_TABLE_ROWS]
            ),
            numeric=(*numeric, "for", "processed by both"),
            caption=bounded("ownership_overlaps", len(overlaps), MAX_TABLE_ROWS),
            folded="Partitions with two owners at once, as text",
        )
    rows = _by_number(run.tables.rows("ownership"))
    return TextTable(
        headings=("partition", "member", "assigned in", *numeric, "ended by", "records processed"),
        rows=tuple(
            (
                row["partition"],
                row["consumer"],
                kind(row),
                clock_text(row["from_us"]),
                clock_text(row["to_us"]),
                row["ended_by"],
                row["records"],
            )
            for row in rows[:MAX_TABLE_ROWS]
        ),
        numeric=(*numeric, "records processed"),
        caption=bounded("ownership", len(rows), MAX_TABLE_ROWS),
        folded="The owners as text",
    )


def _by_number(rows: Sequence[Row]) -> list[Row]:
    """Return rows by their partitions' numbers, those of one partition in the order of time."""
    place = {
        name: at for at, name in enumerate(in_number_order({row["partition"] for row in rows}))
    }
    return sorted(rows, key=lambda row: (place[row["partition"]], row["from_us"]))
