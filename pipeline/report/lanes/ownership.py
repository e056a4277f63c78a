"""The ownership lane: which member owned which partition, and when a partition had two owners.

A bar is a time in which a member believed that it owned the partition. An overlap is a time in
which two members believed so. It has a striped bar in addition. In the data of the chart, a bar is
an object with the keys of LANE in `ownership_rows`, and these:

- `c`: fill of the bar
- `m`: the member; in an overlap, the second owner
- `m2`: the first owner; only in an overlap
- `v`: 1 for a bar with stripes on it, else the key is missing
- `o`, `h`, `t`, `q`: numbers by which the chart sorts and filters (`number_rows`)
- `_x`, `_e`: ends of the visible part of the bar in seconds; `_w`: its width in pixels. Vega, the
  library that draws the charts in the page, computes these three.
"""

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
from pipeline.report.columns import Column, moment, number, text_table
from pipeline.report.lanes.interval_lane import MAX_TABLE_ROWS, area_rows, pickable_note
from pipeline.report.lanes.labels import FROM_TO, Tip, common_prefix, prefix_note
from pipeline.report.lanes.marks import NARROW, Marks, legend_columns, named_without, rows_y
from pipeline.report.lanes.ownership_rows import (
    LANE,
    Owned,
    assignment_of_owner,
    by_partition,
    fills_of_assignments,
    gantt,
    number_rows,
    owners_over_time,
)
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order

MANY_PARTITIONS = 40
"""Maximum number of partitions that have rows of their own. If there are more partitions, the lane
shows how many of them have one owner, no owner or several owners. Then a second lane
(`ownership_detail`) shows the partitions that the reader picks.
"""
ROWS_AT_ONCE = 50
"""Number of partitions that the reader sees at once in the second lane."""
MAX_SHOWN = 900
"""Maximum number of bars in the lane if it shows all partitions. If there are more, the longest
bars are shown.
"""
MAX_PICKED = 8_000
"""Maximum number of bars in the data of the second lane. The data has the bars of every partition
that the reader can pick. So if all partitions have more bars than this, the reader cannot pick each
of them.
"""
MAX_LEGEND = 6
"""Maximum number of fills in a legend. A reader could not distinguish more fills."""
ROW_PX = 18
"""Height of a row in pixels."""

# The three numbers that the lane shows over time: of partitions with one owner, with none, and so
# on.
ONCE = "one owner"
NO_OWNER = "no owner"
TWICE = "two owners or more"
COUNTS = {ONCE: SERIES[4], NO_OWNER: PAPER, TWICE: BAD_HATCH}
"""Fills of the areas that show how many partitions have one owner, no owner, or several."""
_ROWS_PICK, _MEMBER_PICK = "ownership_rows", "ownership_member"
"""Vega parameters for the range of partitions and for the member that the reader picks."""
_ALL_MEMBERS = "all members"
"""The first option in the list of members."""
_REMARKABLE = "0: two owners, or moved most"
"""The option in the list of partitions for the partitions that are most worth looking at. Every
other option is a range of partitions, such as `2: orders-50 to 99`.
"""
# A Vega condition that is true for the bars that the second lane shows:
#
# 1. If all members and the remarkable partitions are picked, it shows the bars whose `t` is 1.
# 2. If all members and a range such as `2: orders-50 to 99` are picked, it shows the bars whose `h`
#    is the number of the range, which is 2.
# 3. If one member is picked, it shows the bars of the member's first partitions (`q`), whatever
#    range is picked.
#
# `number_rows` explains `t`, `h` and `q`.
_PICKED = (
    f"{_MEMBER_PICK} == '{_ALL_MEMBERS}' "
    f"? ({_ROWS_PICK} == '{_REMARKABLE}' ? datum.t == 1 : "
    f"datum.h == toNumber(split({_ROWS_PICK}, ':')[0])) "
    f": (datum.m == {_MEMBER_PICK} || datum.m2 == {_MEMBER_PICK}) && datum.q < {ROWS_AT_ONCE}"
)
_NAME_PX = 66
"""Width of a member's name on a phone, in pixels."""
_LENGTH_PX = 52
"""Width of the length of an overlap (`1.25 s`) on a phone, in pixels."""
# A Vega condition that is true if the visible part of a bar has room for both on a phone: the name
# of the member, and the length of an overlap.
_WIDE_ENOUGH = f"(datum._e - datum._x) / ({TO_S} - {FROM_S}) * width > {_NAME_PX + _LENGTH_PX}"
_RESERVED = f"datum.v ? ({NARROW} ? ({_WIDE_ENOUGH} ? {_LENGTH_PX} : 0) : 130) : 0"
"""A Vega expression for the pixels that the label leaves free at the end of a bar with stripes
(`v`). They are for the text about two owners. On a wide screen this text is `two owners 1.25 s`
(130 pixels). On a phone the text is only the length, or nothing if there is no room.
"""
_LENGTH_ROOM = f"({NARROW} ? datum._w - {_NAME_PX} : datum._w / 2)"
"""A Vega expression for the pixels of a bar that the length of an overlap can take."""
_OVERLAP_TIPS = (
    Tip("r", "partition"),
    Tip("w", "owned by"),
    Tip("e", "assigned in"),
    Tip("n", "processed by both", "records", 0),
    *FROM_TO,
)
"""The tooltip of an overlap."""
_OVERLAP_COLUMNS = (
    Column("partition", "partition"),
    Column(
        lambda row: f"{row['first_consumer']} ({assignment_of_owner(row, 'first')})", "owned by"
    ),
    Column(
        lambda row: f"{row['second_consumer']} ({assignment_of_owner(row, 'second')})", "and by"
    ),
    moment("from_us", "from (s)"),
    moment("to_us", "to (s)"),
    number(lambda row: duration_text(row["length_us"]), "for"),
    number("records_both", "processed by both"),
)
"""Columns of the table `ownership_overlaps`. If the table has rows, the text beneath the lane lists
these rows instead of the intervals."""


def ownership_lane(run: ReportInput) -> Chart | None:
    """Return the lane: the owners of each partition, or numbers of partitions if there are many.

    Returns None if no partition had an owner.
    """
    owned = by_partition(run)
    if not owned:
        return None
    if len(owned) > MANY_PARTITIONS:
        return _lane_of_counts(run, owned)
    names, data = gantt(run, owned, limit=MAX_SHOWN)
    prefix = _prefix(owned)
    return LANE.draw(
        run,
        _layers(rows_y(names), _fill(run, owned), prefix),
        data,
        ROW_PX * len(names),
        more=LANE.more + prefix_note(prefix),
        table=_table(run),
    )


def ownership_detail(run: ReportInput) -> Chart | None:
    """Return the lane of picked partitions; None where `ownership_lane` shows all partitions."""
    owned = by_partition(run)
    if len(owned) <= MANY_PARTITIONS:
        return None
    by_interest = sorted(
        owned, key=lambda partition: (-len(partition.overlaps), -len(partition.intervals))
    )
    # Take partitions until the next partition has too many bars. Less interesting partitions are
    # not taken after it, even if they have fewer bars. So the reader can pick the most interesting
    # ones.
    pickable_names, intervals_taken = set(), 0
    for partition in by_interest:
        intervals_taken += len(partition.intervals)
        if intervals_taken > MAX_PICKED:
            break
        pickable_names.add(partition.name)

    in_page = [partition for partition in owned if partition.name in pickable_names]
    names, data = gantt(run, in_page, limit=MAX_PICKED)
    # A chunk is a range of partitions that the reader can pick.
    starts = range(0, len(in_page), ROWS_AT_ONCE)
    chunks = [in_page[start : start + ROWS_AT_ONCE] for start in starts]
    remarkable = {partition.name for partition in by_interest[:ROWS_AT_ONCE]}
    number_rows(data, names, chunks, remarkable)

    members = in_number_order({str(datum["m"]) for datum in data["owners"]})
    ranges = [f"{index + 1}: {_title(chunk)}" for index, chunk in enumerate(chunks)]
    # The page first shows the first option. So the remarkable partitions are the first option if
    # there are overlaps.
    has_overlaps = any(partition.overlaps for partition in owned)
    options = (_REMARKABLE, *ranges) if has_overlaps else (*ranges, _REMARKABLE)

    prefix = _prefix(owned)
    picks = (
        Pick(param=_ROWS_PICK, label="Partitions", options=options),
        Pick(param=_MEMBER_PICK, label="Member", options=(_ALL_MEMBERS, *members)),
    )
    return LANE.draw(
        run,
        _layers(rows_y(), _fill(run, owned), prefix, where=_PICKED),
        data,
        alt.Step(ROW_PX),
        lane_id="lane-ownership-rows",
        title="Owners of some partitions",
        about="The owners of the partitions that are picked."
        + pickable_note("partitions", len(in_page), len(owned), LANE.source),
        more=LANE.more + prefix_note(prefix),
        picks=picks,
    )


def _prefix(owned: Sequence[Owned]) -> str:
    """Return the common beginning of all owners' names, which the lane leaves out."""
    return common_prefix(row["consumer"] for partition in owned for row in partition.intervals)


def _title(chunk: Sequence[Owned]) -> str:
    """Return the title of a range: `orders-0 to 49`; with two topics, `orders-7 to payments-3`."""
    first, last = chunk[0].name, chunk[-1].name
    if len(chunk) == 1:
        return first
    stem, _, last_number = last.rpartition("-")
    if first.rpartition("-")[0] == stem:
        return f"{first} to {last_number}"
    return f"{first} to {last}"


def _fill(run: ReportInput, owned: Sequence[Owned]) -> alt.Fill:
    """Return the fill of a bar, with a legend if each fill means one assignment.

    A fill means several assignments in two cases: there are several groups, which use the same
    fills, or a group has more generations than there are fills.
    """
    fills_by_group = fills_of_assignments(run, owned)
    all_fills = (fill for of_group in fills_by_group.values() for fill in of_group.values())
    fills = list(dict.fromkeys(all_fills))
    encoded = alt.Fill("c:N", scale=alt.Scale(domain=fills, range=fills))
    if len(fills_by_group) > 1:
        return encoded.legend(None)

    (fills_of_group,) = fills_by_group.values()
    fills_are_shared = len(fills) < len(fills_of_group)
    if fills_are_shared or len(fills_of_group) > MAX_LEGEND:
        return encoded.legend(None)
    assignments_by_fill = {fill: assignment for assignment, fill in fills_of_group.items()}
    return encoded.legend(
        alt.Legend(
            title=None,
            symbolType="square",
            symbolSize=140,
            labelLimit=260,
            symbolStrokeColor=INK,
            labelExpr=f"{json.dumps(assignments_by_fill)}[datum.label]",
            columns=legend_columns(fills_of_group),
        )
    )


def _layers(y: alt.Y, fill: alt.Fill, prefix: str, where: str | None = None) -> list[alt.Chart]:
    """Return the marks of the lane; `where` is a Vega condition for the rows that are drawn."""
    member = named_without("datum.m", prefix)
    processed = Tip("n", "processed", "records", 0)
    owners = LANE.marks("owners", y, where, (processed, *FROM_TO))
    twice = Marks("twice", y, _OVERLAP_TIPS, where)
    return [
        owners.bars(fill),
        *owners.labels(
            keep_end=True,
            reserve=_RESERVED,
            long=f"{member} + ' \u00b7 generation ' + datum.g",
            short=member,
        ),
        # A stripe 7 pixels high, on the upper edge of the row.
        twice.bars(BAD_HATCH, stroke=BAD, height=7, yOffset=-ROW_PX // 2),
        *twice.end_labels(room=_LENGTH_ROOM, fontWeight="bold", fill=BAD),
    ]


def _lane_of_counts(run: ReportInput, owned: Sequence[Owned]) -> Chart:
    """Return the lane as numbers of partitions over time."""
    return LANE.draw_counts(
        run,
        area_rows(owners_over_time(run, owned), list(COUNTS)),
        COUNTS,
        what="had",
        unit="partitions with",
        title=f"Ownership of {len(owned):,} partitions",
        about="How many of the partitions had one owner, none, or two and more.",
        more="By what the members themselves did. A partition counts from when it first had an "
        "owner.",
        table=_table(run),
    )


def _table(run: ReportInput) -> TextTable:
    """Return the overlaps as text if there are any, otherwise the intervals."""
    overlaps = run.tables.rows("ownership_overlaps")
    if not overlaps:
        return LANE.text(_by_number(run.tables.rows("ownership")))
    return text_table(
        _OVERLAP_COLUMNS,
        _by_number(overlaps),
        limit=MAX_TABLE_ROWS,
        source="ownership_overlaps",
        folded="Partitions with two owners at once, as text",
    )


def _by_number(rows: Sequence[Row]) -> list[Row]:
    """Return rows sorted by the numbers of their partitions, then by time."""
    names = in_number_order({row["partition"] for row in rows})
    rank = {name: index for index, name in enumerate(names)}
    return sorted(rows, key=lambda row: (rank[row["partition"]], row["from_us"]))
