"""The ownership lane: which member owned which data partition, and where two owned the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import altair as alt

from pipeline.figures import duration_text
from pipeline.outcomes import in_number_order
from pipeline.report.chart import (
    BAD,
    BAD_HATCH,
    PAPER,
    SERIES,
    Chart,
    Pick,
    TextTable,
    seconds,
)
from pipeline.report.lanes.marks import (
    FILLS,
    FROM_TO,
    Cell,
    Datum,
    area_rows,
    bars,
    bounded,
    end_labels,
    fill_of,
    kind_fill,
    labels,
    row_name,
    rows_y,
    span,
    step_areas,
    time_lane,
    tip,
)
from pipeline.report.lanes.spans import Steps, longest_first, slots, thinned
from pipeline.report.report_input import ReportInput
from pipeline.report.run_tables import Row

MANY_PARTITIONS = 40
"""From more partitions than these on, they are counted, and some are picked."""
ROWS_AT_ONCE = 50
MAX_SHOWN = 900
MAX_PICKED = 12_000
"""Intervals in the page: shown at once, and of those that can be picked."""
MAX_LEGEND = 6
MAX_TABLE_ROWS = 200
ROW_PX = 18
AREA_PX = 150

ONCE, NOBODY, TWICE = "one owner", "nobody", "two owners or more"
COUNTS = {ONCE: SERIES[4], NOBODY: PAPER, TWICE: BAD_HATCH}
_ABOUT = (
    "Who owned each partition, by what the members themselves did: from its assignment until it "
    "was revoked or lost, or the member died. Bars of one pattern were assigned in one generation, "
    "by one coordinator in one epoch. Two bars with a striped edge between them: two members owned "
    "the partition at once, for the time at its end."
)
_ABOUT_COUNTS = (
    "How many of the partitions had one owner, none, or two and more, by what the members "
    "themselves did. A partition counts from when it first had an owner."
)
_ABOUT_PICKED = (
    "The owners of the partitions that are picked; those first that two owned or that moved most. "
)
_ROWS_PICK, _MEMBER_PICK = "ownership_rows", "ownership_member"
_ALL_MEMBERS, _REMARKABLE = "all members", "0: owned twice, or moved most"
_PICKED = (
    f"{_MEMBER_PICK} == '{_ALL_MEMBERS}' "
    f"? ({_ROWS_PICK} == '{_REMARKABLE}' ? datum.t == 1 : "
    f"datum.h == toNumber(split({_ROWS_PICK}, ':')[0])) "
    f": (datum.m == {_MEMBER_PICK} || datum.m2 == {_MEMBER_PICK}) && datum.q < {ROWS_AT_ONCE}"
)
_RESERVED = "datum.v ? (containerSize()[0] < 560 ? 60 : 130) : 0"
"""Pixels at the end of a bar for how long its partition had two owners."""
_TIPS = (
    tip("r", "partition"),
    tip("m", "member"),
    tip("k", "assigned in"),
    tip("x", "ended by"),
    tip("z", "member paused"),
    tip("n", "processed", "records"),
)
_TWICE_TIPS = (
    tip("r", "partition"),
    tip("w", "owned by"),
    tip("e", "assigned in"),
    tip("n", "processed by both", "records"),
)


@dataclass
class _Owned:
    """One data partition in one group, with everybody who owned it."""

    group: str
    name: str  # of its row: the partition's, with the group's where there are several
    intervals: list[Row] = field(default_factory=list)
    overlaps: list[Row] = field(default_factory=list)


def lane(run: ReportInput) -> Chart | None:
    """Return the owners of each partition, or of many how many had one; None without any."""
    owned = _by_partition(run)
    if not owned:
        return None
    if len(owned) > MANY_PARTITIONS:
        return _counts(run, owned)
    names, data = _gantt(run, owned, limit=MAX_SHOWN)
    return time_lane(
        run,
        lane_id="lane-ownership",
        title="Partition ownership",
        about=_ABOUT,
        layers=_layers(rows_y(names), _fill(data)),
        data=data,
        height=ROW_PX * len(names),
        table=_table(run),
    )


def detail(run: ReportInput) -> Chart | None:
    """Return the owners of partitions that are picked; None where `lane` shows all of them."""
    owned = _by_partition(run)
    if len(owned) <= MANY_PARTITIONS:
        return None
    by_interest = sorted(owned, key=lambda each: (-len(each.overlaps), -len(each.intervals)))
    known, room = [], MAX_PICKED
    for each in by_interest:
        room -= len(each.intervals)
        if room >= 0:
            known.append(each)
    known.sort(key=owned.index)
    names, data = _gantt(run, known, limit=MAX_PICKED)
    chunks = [known[at : at + ROWS_AT_ONCE] for at in range(0, len(known), ROWS_AT_ONCE)]
    _number(data, names, known, chunks, {id(each) for each in by_interest[:ROWS_AT_ONCE]})
    members = in_number_order({str(datum["m"]) for datum in data["owners"]})
    ranges = [f"{index + 1}: {_title(chunk)}" for index, chunk in enumerate(chunks)]
    picks = (
        Pick(param=_ROWS_PICK, label="Partitions", options=(_REMARKABLE, *ranges)),
        Pick(param=_MEMBER_PICK, label="Member", options=(_ALL_MEMBERS, *members)),
    )
    return time_lane(
        run,
        lane_id="lane-ownership-rows",
        title="Owners of some partitions",
        about=_ABOUT_PICKED + _ABOUT,
        layers=_layers(rows_y(), _fill(data), where=_PICKED),
        data=data,
        height=alt.Step(ROW_PX),
        picks=picks,
    )


def _number(
    data: dict[str, list[Datum]],
    names: Sequence[str],
    known: Sequence[_Owned],
    chunks: Sequence[Sequence[_Owned]],
    remarkable: set[int],
) -> None:
    """Say of each datum where its row stands, and by which picks it is shown.

    `o`: the order of its row; `h`: which of `chunks`, from 1; `t`: 1 if it is remarkable; `q`: its
    place among the rows of its member, so that a member with very many shows the first of them.
    """
    order = {name: index for index, name in enumerate(names)}
    chunk_of = {each.name: index + 1 for index, chunk in enumerate(chunks) for each in chunk}
    top = {each.name for each in known if id(each) in remarkable}
    places: dict[Cell, dict[Cell, int]] = {}
    for datum in sorted((*data["owners"], *data["twice"]), key=lambda each: order[str(each["r"])]):
        name = str(datum["u"])
        rows = places.setdefault(datum["m"], {})
        datum["o"] = order[str(datum["r"])]
        datum["h"] = chunk_of[name]
        datum["t"] = int(name in top)
        datum["q"] = rows.setdefault(name, len(rows))


def _by_partition(run: ReportInput) -> list[_Owned]:
    """Return each partition of each group that anybody owned, in the order of their names."""
    owned: dict[tuple[str, str], _Owned] = {}
    rows = run.tables.rows("ownership")
    alone = len({row["group"] for row in rows}) == 1
    for row in rows:
        key = row["group"], row["partition"]
        if key not in owned:
            name = row["partition"] if alone else f"{row['group']} \u00b7 {row['partition']}"
            owned[key] = _Owned(group=row["group"], name=name)
        owned[key].intervals.append(row)
    for row in run.tables.rows("ownership_overlaps"):
        if (row["group"], row["partition"]) in owned:
            owned[row["group"], row["partition"]].overlaps.append(row)
    by_name = {each.name: each for each in owned.values()}
    return [by_name[name] for name in in_number_order(by_name)]


def _gantt(
    run: ReportInput, owned: Sequence[_Owned], limit: int
) -> tuple[list[str], dict[str, list[Datum]]]:
    """Return the names of the rows, and the data: intervals and overlaps, the longest of many."""
    names: list[str] = []
    data: dict[str, list[Datum]] = {"owners": [], "twice": []}
    kinds: dict[str, dict[str, int]] = {}
    intervals = [row for each in owned for row in each.intervals]
    for row in sorted(intervals, key=lambda row: row["from_us"]):
        known = kinds.setdefault(row["group"], {})
        known.setdefault(_kind(row), len(known))
    room = {id(row) for row in longest_first(intervals, limit)}
    for each in owned:
        shown = [row for row in each.intervals if id(row) in room]
        spans = [(row["from_us"], _end(run, row)) for row in shown]
        taken = slots(spans)
        rows = {row["from_us"]: slot for row, slot in zip(shown, taken, strict=True)}
        doubled = [(row["from_us"], _end(run, row)) for row in each.overlaps]
        for row, slot, (start, end) in zip(shown, taken, spans, strict=True):
            datum = _owner(row, each, slot, start, end)
            datum["c"] = str(kinds[row["group"]][_kind(row)] % len(FILLS))
            if slot and any(first < end and start < last for first, last in doubled):
                datum["v"] = 1
            data["owners"].append(datum)
        data["twice"] += [
            _twice(run, row, each, max(1, rows.get(row["from_us"], 1))) for row in each.overlaps
        ]
        names += [row_name(each.name, slot) for slot in range(max(taken, default=0) + 1)]
    data["twice"] = data["twice"][:limit]
    return names, data


def _owner(row: Row, each: _Owned, slot: int, start: int, end: int) -> Datum:
    paused = row["paused_us"]
    return span(
        start,
        end,
        r=row_name(each.name, slot),
        u=each.name,
        m=row["consumer"],
        k=_kind(row),
        x=row["ended_by"],
        z=duration_text(paused) if paused else None,
        n=row["records"],
        l=f"{row['consumer']} \u00b7 generation {row['generation']}",
        s=row["consumer"],
    )


def _kind(row: Row) -> str:
    """Return by what the bars of one fill belong together: generation, coordinator and epoch."""
    if row["coordinator"] is None:
        return f"generation {row['generation']}"
    epoch = "unknown" if row["leader_epoch"] is None else row["leader_epoch"]
    return f"generation {row['generation']} by {row['coordinator']} in epoch {epoch}"


def _twice(run: ReportInput, row: Row, each: _Owned, slot: int) -> Datum:
    end = _end(run, row)
    length = duration_text(end - row["from_us"])
    first, second = row["first_consumer"], row["second_consumer"]
    return span(
        row["from_us"],
        end,
        r=row_name(each.name, slot),
        u=each.name,
        m=second,
        m2=first,
        w=f"{first} and {second}",
        e=f"{_side(row, 'first')}; {_side(row, 'second')}",
        n=row["records_both"],
        l=f"two owners {length}",
        s=length,
    )


def _side(row: Row, side: str) -> str:
    by = row[f"{side}_coordinator"]
    assigned = "" if by is None else f" by {by} in epoch {row[f'{side}_epoch']}"
    return f"generation {row[f'{side}_generation']}{assigned}"


def _end(run: ReportInput, row: Row) -> int:
    end_us: int | None = row["to_us"]
    return run.end_us if end_us is None else end_us


def _title(chunk: Sequence[_Owned]) -> str:
    return chunk[0].name if len(chunk) == 1 else f"{chunk[0].name} to {chunk[-1].name}"


def _fill(data: dict[str, list[Datum]]) -> alt.Fill:
    """Return the fill of a bar: by name with a legend, where the names are few, or by number."""
    kinds = {str(datum["k"]): str(datum["c"]) for datum in data["owners"]}
    if len(kinds) <= MAX_LEGEND and len(set(kinds.values())) == len(kinds):
        ordered = sorted(kinds, key=lambda kind: int(kinds[kind]))
        return kind_fill("k", {kind: fill_of(int(kinds[kind])) for kind in ordered})
    numbered = {str(index): fill_of(index) for index in range(len(FILLS))}
    return kind_fill("c", numbered).legend(None)


def _layers(y: alt.Y, fill: alt.Fill, where: str | None = None) -> list[alt.Chart]:
    return [
        bars("owners", y, tooltip=(*_TIPS, *FROM_TO), fill=fill, where=where),
        *labels("owners", y, where=where, keep_end=True, reserve=_RESERVED),
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
        *end_labels("twice", y, where=where, fontWeight="bold", fill=BAD),
    ]


def _counts(run: ReportInput, owned: Sequence[_Owned]) -> Chart:
    steps = thinned(owners_over_time(owned_intervals(run, owned), run.end_us))
    return time_lane(
        run,
        lane_id="lane-ownership",
        title=f"Ownership of {len(owned):,} partitions",
        about=_ABOUT_COUNTS,
        layers=[step_areas("counts", what="had", fills=COUNTS, unit="partitions with")],
        data={"counts": area_rows(steps, list(COUNTS))},
        height=AREA_PX,
        table=_table(run),
    )


def owned_intervals(run: ReportInput, owned: Sequence[_Owned]) -> list[list[tuple[int, int]]]:
    """Return the intervals of each partition."""
    return [[(row["from_us"], _end(run, row)) for row in each.intervals] for each in owned]


def owners_over_time(partitions: Sequence[Sequence[tuple[int, int]]], end_us: int) -> Steps:
    """Count the partitions with one owner, with none, and with more, from 0 to `end_us`.

    Shape: the counts of a step are in the order of COUNTS. A partition counts from its first owner.
    """
    changes: dict[int, list[tuple[int, int]]] = {0: [], end_us: []}
    for index, intervals in enumerate(partitions):
        for start, end in intervals:
            changes.setdefault(start, []).append((index, 1))
            changes.setdefault(min(end, end_us), []).append((index, -1))
    owners: dict[int, int] = {}
    once = nobody = twice = 0
    times, counts = [], []
    for time_us in sorted(changes):
        for index, change in changes[time_us]:
            before = owners.get(index)
            after = owners[index] = (before or 0) + change
            once += (after == 1) - (before == 1)
            nobody += (after == 0) - (before == 0)
            twice += (after > 1) - ((before or 0) > 1)
        times.append(time_us)
        counts.append((once, nobody, twice))
    return Steps(tuple(times), tuple(counts))


def _table(run: ReportInput) -> TextTable:
    """Return the overlaps as text if there are any, otherwise the intervals."""
    overlaps = run.tables.rows("ownership_overlaps")
    numeric = ("from (s)", "to (s)")
    if overlaps:
        ordered = sorted(overlaps, key=lambda row: (row["from_us"], row["partition"]))
        return TextTable(
            headings=("partition", "owned by", "and by", *numeric, "for", "processed by both"),
            rows=tuple(
                (
                    row["partition"],
                    f"{row['first_consumer']} ({_side(row, 'first')})",
                    f"{row['second_consumer']} ({_side(row, 'second')})",
                    seconds(row["from_us"]),
                    seconds(row["to_us"]),
                    duration_text(row["length_us"]),
                    row["records_both"],
                )
                for row in ordered[:MAX_TABLE_ROWS]
            ),
            numeric=(*numeric, "for", "processed by both"),
            caption=bounded("ownership_overlaps", len(overlaps), MAX_TABLE_ROWS),
            folded="Partitions with two owners at once, as text",
        )
    rows = sorted(run.tables.rows("ownership"), key=lambda row: (row["from_us"], row["partition"]))
    return TextTable(
        headings=("partition", "member", "assigned in", *numeric, "ended by", "records processed"),
        rows=tuple(
            (
                row["partition"],
                row["consumer"],
                _kind(row),
                seconds(row["from_us"]),
                seconds(row["to_us"]),
                row["ended_by"],
                row["records"],
            )
            for row in rows[:MAX_TABLE_ROWS]
        ),
        numeric=(*numeric, "records processed"),
        caption=bounded("ownership", len(rows), MAX_TABLE_ROWS),
        folded="The owners as text",
    )
