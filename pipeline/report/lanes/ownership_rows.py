"""Who owned which partition, as rows of a chart: intervals, overlaps, and how many owners when.

Pure data: the tables `ownership` and `ownership_overlaps` in, rows of a chart out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pipeline.report.charts.chart import LINE, Cell, soft
from pipeline.report.columns import Column, moment
from pipeline.report.lanes.broker_fills import broker_fill, coordinator_brokers
from pipeline.report.lanes.interval_lane import IntervalLane, end_of
from pipeline.report.lanes.marks import Datum, row_name, span
from pipeline.report.lanes.spans import Steps, longest_first, slots
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order


def kind(row: Row) -> str:
    """Return by what the bars of one fill belong together: generation, coordinator and epoch."""
    if row["coordinator"] is None:
        return f"generation {row['generation']}"
    epoch = "unknown" if row["leader_epoch"] is None else row["leader_epoch"]
    return f"generation {row['generation']} by {row['coordinator']} in leader epoch {epoch}"


LANE = IntervalLane(
    id="lane-ownership",
    title="Partition ownership",
    about="Who owned each partition, by what the members themselves did.",
    more="From its assignment until it was revoked or lost, or the member died. The colour of a "
    "bar is that of the coordinator that assigned it, as in the lane of the coordinators; plain, "
    "hatched or pale: one generation each. Two bars with a striped edge between them: two members "
    "owned the partition at once, for the time at its end.",
    source="ownership",
    folded="The owners as text",
    columns=(
        Column("row", key="r", tip="partition"),
        Column("name", key="u"),
        Column("partition", "partition"),
        Column("consumer", "member", "m", "member"),
        Column("generation", key="g", tip="generation"),
        Column("coordinator", key="w", tip="assigned by"),
        Column("leader_epoch", key="e", tip="in leader epoch"),
        Column(kind, "assigned in"),
        moment("from_us", "from (s)"),
        moment("to_us", "to (s)"),
        Column("ended_by", "ended by", "x", "ended by"),
        Column(
            lambda row: duration_text(row["paused_us"]) if row["paused_us"] else None,
            key="z",
            tip="member paused",
        ),
        Column("records", "records processed", "n", numeric=True),
    ),
)


@dataclass(eq=False)
class Owned:
    """One data partition in one group, with everybody who owned it."""

    group: str
    name: str  # of its row: the partition's, with the group's where there are several
    intervals: list[Row] = field(default_factory=list)
    overlaps: list[Row] = field(default_factory=list)


def by_partition(run: ReportInput) -> list[Owned]:
    """Return each partition of each group that anybody owned, in the order of their names."""
    owned: dict[tuple[str, str], Owned] = {}
    rows = run.tables.rows("ownership")
    alone = len({row["group"] for row in rows}) == 1
    for row in rows:
        key = row["group"], row["partition"]
        if key not in owned:
            name = row["partition"] if alone else f"{row['group']} \u00b7 {row['partition']}"
            owned[key] = Owned(group=row["group"], name=name)
        owned[key].intervals.append(row)
    for row in run.tables.rows("ownership_overlaps"):
        if (row["group"], row["partition"]) in owned:
            owned[row["group"], row["partition"]].overlaps.append(row)
    by_name = {each.name: each for each in owned.values()}
    return [by_name[name] for name in in_number_order(by_name)]


def gantt(
    run: ReportInput, owned: Sequence[Owned], limit: int
) -> tuple[list[str], dict[str, list[Datum]]]:
    """Return the names of the rows, and the data: intervals and overlaps, the longest of many."""
    names: list[str] = []
    data: dict[str, list[Datum]] = {"owners": [], "twice": []}
    kinds = kinds_of(run, owned)
    intervals = [row for each in owned for row in each.intervals]
    room = {id(row) for row in longest_first(intervals, limit)}
    for each in owned:
        shown = [row for row in each.intervals if id(row) in room]
        spans = [(row["from_us"], end_of(run, row["to_us"])) for row in shown]
        taken = slots(spans)
        rows = {row["from_us"]: slot for row, slot in zip(shown, taken, strict=True)}
        doubled = [(row["from_us"], end_of(run, row["to_us"])) for row in each.overlaps]
        for row, slot, (start, end) in zip(shown, taken, spans, strict=True):
            named = row | {"row": row_name(each.name, slot), "name": each.name}
            datum = LANE.datum(named, start, end, c=kinds[row["group"]][kind(row)])
            if slot and any(first < end and start < last for first, last in doubled):
                datum["v"] = 1
            data["owners"].append(datum)
        last_row = max(taken, default=0)
        for row in each.overlaps:  # drawn on the edge above the second owner's bar
            slot = min(last_row, max(1, rows.get(row["from_us"], 1)))
            data["twice"].append(_twice(run, row, each, slot))
        names += [row_name(each.name, slot) for slot in range(last_row + 1)]
    data["twice"] = data["twice"][:limit]
    return names, data


def _twice(run: ReportInput, row: Row, each: Owned, slot: int) -> Datum:
    end = end_of(run, row["to_us"])
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
        e=f"{side(row, 'first')}; {side(row, 'second')}",
        n=row["records_both"],
        l=f"two owners {length}",
        s=length,
    )


def number_rows(
    data: dict[str, list[Datum]],
    names: Sequence[str],
    chunks: Sequence[Sequence[Owned]],
    remarkable: Collection[str],
) -> None:
    """Say of each datum where its row stands, and by which picks it is shown.

    `o`: the order of its row; `h`: which of `chunks`, from 1; `t`: 1 if it is remarkable; `q`: its
    place among the rows of its member, so that a member with very many shows the first of them.
    """
    order = {name: index for index, name in enumerate(names)}
    chunk_of = {each.name: index + 1 for index, chunk in enumerate(chunks) for each in chunk}
    places: dict[Cell, dict[Cell, int]] = {}
    for datum in sorted((*data["owners"], *data["twice"]), key=lambda each: order[str(each["r"])]):
        name = str(datum.pop("u"))
        rows = places.setdefault(datum["m"], {})
        datum["o"] = order[str(datum["r"])]
        datum["h"] = chunk_of[name]
        datum["t"] = int(name in remarkable)
        datum["q"] = rows.setdefault(name, len(rows))


def owners_over_time(run: ReportInput, partitions: Sequence[Owned]) -> Steps:
    """Count the partitions with one owner, with none, and with more, from 0 to the run's end.

    Shape: the counts of a step are in this order. A partition counts from its first owner.
    """
    changes: dict[int, list[tuple[int, int]]] = {0: [], run.end_us: []}
    for index, each in enumerate(partitions):
        for row in each.intervals:
            changes.setdefault(row["from_us"], []).append((index, 1))
            changes.setdefault(end_of(run, row["to_us"]), []).append((index, -1))
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


def kinds_of(run: ReportInput, owned: Sequence[Owned]) -> dict[str, dict[str, str]]:
    """Return for each group the fill of what its intervals were assigned in, as they began.

    Its colour is the coordinator's; the looks of it change with each generation or epoch.
    """
    brokers = {broker: at for at, broker in enumerate(coordinator_brokers(run))}
    kinds: dict[str, dict[str, str]] = {}
    variants: dict[tuple[str, str | None], int] = {}
    intervals = [row for each in owned for row in each.intervals]
    for row in sorted(intervals, key=lambda row: row["from_us"]):
        known = kinds.setdefault(row["group"], {})
        if kind(row) not in known:
            by = row["group"], row["coordinator"]
            variant = variants[by] = variants.get(by, -1) + 1
            at = brokers.get(row["coordinator"])
            known[kind(row)] = soft(LINE if at is None else broker_fill(at, variant))
    return kinds


def side(row: Row, which: str) -> str:
    """Return what the `first` or `second` owner of an overlap was assigned it in."""
    by = row[f"{which}_coordinator"]
    assigned = "" if by is None else f" by {by} in leader epoch {row[f'{which}_epoch']}"
    return f"generation {row[f'{which}_generation']}{assigned}"
