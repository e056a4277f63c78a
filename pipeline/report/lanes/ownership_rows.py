"""The data of the ownership lane, from rows of the tables `ownership` and `ownership_overlaps`.

A row of `ownership` is an interval in which one member owned one partition. The lane draws the
interval as a bar. If two members owned a partition at the same time, their bars would cover each
other. So the partition then has two rows in the lane. These rows are called slots: the bar of the
first owner is in slot 0, and the bar of the second owner is below it in slot 1. If a run has too
many partitions to draw, the lane only shows how many of them have one owner, no owner or several
owners.
"""

from collections import Counter
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


def assignment_text(row: Row) -> str:
    """Return the assignment by which a member owned a partition.

    For example, `generation 7 by broker-1 in leader epoch 3`. All bars of one assignment have the
    same fill.
    """
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
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column("row", key="r", tip="partition"),
        Column("name", key="u"),
        Column("partition", "partition"),
        Column("consumer", "member", "m", "member"),
        Column("generation", key="g", tip="generation"),
        Column("coordinator", key="w", tip="assigned by"),
        Column("leader_epoch", key="e", tip="in leader epoch"),
        Column(assignment_text, "assigned in"),
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
    """One data partition in one group, with its intervals and overlaps."""

    group: str
    name: str
    """The name of the partition's row in the lane: `orders-0`, or `readers · orders-0` if there are
    several groups."""
    intervals: list[Row] = field(default_factory=list)
    overlaps: list[Row] = field(default_factory=list)


def by_partition(run: ReportInput) -> list[Owned]:
    """Return each partition of each group that ever had an owner, in the order of their names."""
    owned: dict[tuple[str, str], Owned] = {}
    rows = run.tables.rows("ownership")
    has_one_group = len({row["group"] for row in rows}) == 1
    for row in rows:
        key = row["group"], row["partition"]
        if key not in owned:
            name = row["partition"]
            if not has_one_group:
                name = f"{row['group']} \u00b7 {name}"
            owned[key] = Owned(group=row["group"], name=name)
        owned[key].intervals.append(row)

    for row in run.tables.rows("ownership_overlaps"):
        if (row["group"], row["partition"]) in owned:
            owned[row["group"], row["partition"]].overlaps.append(row)

    by_name = {partition.name: partition for partition in owned.values()}
    return [by_name[name] for name in in_number_order(by_name)]


def gantt(
    run: ReportInput, owned: Sequence[Owned], limit: int
) -> tuple[list[str], dict[str, list[Datum]]]:
    """Return the names of the lane's rows, and the data `owners` and `twice`.

    `owners` has a bar for each of the `limit` longest intervals of all partitions. `twice` has the
    overlaps. An overlap is drawn as stripes on the bar of the second owner, and the stripes have a
    label of their own. So the bar of the second owner has the key `v`, which makes the label of the
    bar leave room for the label of the stripes.
    """
    names: list[str] = []
    data: dict[str, list[Datum]] = {"owners": [], "twice": []}
    fills = fills_of_assignments(run, owned)
    intervals = [row for partition in owned for row in partition.intervals]
    # A row is a dict, which cannot be in a set. So the set has the rows' identities (`id`).
    within_limit = {id(row) for row in longest_first(intervals, limit)}
    for partition in owned:
        shown = [row for row in partition.intervals if id(row) in within_limit]
        spans = [(row["from_us"], end_of(run, row["to_us"])) for row in shown]
        slots_of_shown = slots(spans)
        # The beginning of each bar -> the slot of the bar.
        slot_at = {row["from_us"]: slot for row, slot in zip(shown, slots_of_shown, strict=True)}
        overlaps = [(row["from_us"], end_of(run, row["to_us"])) for row in partition.overlaps]

        for row, slot, (start, end) in zip(shown, slots_of_shown, spans, strict=True):
            row_with_names = row | {"row": row_name(partition.name, slot), "name": partition.name}
            datum = LANE.datum(
                row_with_names, start, end, c=fills[row["group"]][assignment_text(row)]
            )
            # Stripes lie only on the bar of the second owner. The slot of this bar is never 0: when
            # it begins, the bar of the first owner is still in slot 0.
            has_overlap = any(from_us < end and start < to_us for from_us, to_us in overlaps)
            if slot > 0 and has_overlap:
                datum["v"] = 1
            data["owners"].append(datum)

        last_row = max(slots_of_shown, default=0)
        for row in partition.overlaps:
            # The stripes lie on the upper edge of the second owner's bar, which begins when the
            # overlap begins. But the limit may have left this bar out. Then the stripes are in slot
            # 1, or in the last row if the partition has no slot 1.
            second_owner_slot = max(1, slot_at.get(row["from_us"], 1))
            slot = min(last_row, second_owner_slot)
            data["twice"].append(_overlap_datum(run, row, partition, slot))
        names += [row_name(partition.name, slot) for slot in range(last_row + 1)]
    data["twice"] = data["twice"][:limit]
    return names, data


def _overlap_datum(run: ReportInput, row: Row, partition: Owned, slot: int) -> Datum:
    """Return the bar of an overlap, in the row of the second owner."""
    end = end_of(run, row["to_us"])
    length = duration_text(end - row["from_us"])
    first, second = row["first_consumer"], row["second_consumer"]
    return span(
        row["from_us"],
        end,
        r=row_name(partition.name, slot),
        u=partition.name,
        m=second,
        m2=first,
        w=f"{first} and {second}",
        e=f"{assignment_of_owner(row, 'first')}; {assignment_of_owner(row, 'second')}",
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
    """Replace the key `u` (the partition's name) in each bar by four numbers.

    The chart sorts bars by these numbers, and filters them.

    - `o`: the number of the row in the lane.
    - `h`: the number of the chunk (a range of partitions) in which the partition is, from 1.
    - `t`: 1 if the partition is in `remarkable`, else 0.
    - `q`: the number of the partition among the partitions of its member, from 0. If a member owned
      `orders-3` and `orders-8`, their numbers are 0 and 1. With `q`, the chart shows only the first
      partitions of a member that owned very many.
    """
    row_numbers = {name: index for index, name in enumerate(names)}
    # The name of a partition -> the number of its chunk.
    chunk_numbers = {
        partition.name: index for index, chunk in enumerate(chunks, 1) for partition in chunk
    }

    numbers_by_member: dict[Cell, dict[Cell, int]] = {}
    bars = (*data["owners"], *data["twice"])
    for bar in sorted(bars, key=lambda bar: row_numbers[str(bar["r"])]):
        name = str(bar.pop("u"))
        numbers_of_member = numbers_by_member.setdefault(bar["m"], {})
        bar["o"] = row_numbers[str(bar["r"])]
        bar["h"] = chunk_numbers[name]
        bar["t"] = int(name in remarkable)
        bar["q"] = numbers_of_member.setdefault(name, len(numbers_of_member))


def owners_over_time(run: ReportInput, partitions: Sequence[Owned]) -> Steps:
    """Return how many partitions have one owner, no owner, or several, at each time of the run.

    For example, eight partitions have one owner at 2 s, one partition has no owner, and one
    partition has two owners. Then the step at 2 s has the counts (8, 1, 1). A partition counts from
    the time of its first owner on.
    """
    # Time -> the changes at this time. (3, 1) means that partition number 3 gets an owner, and (3,
    # -1) means that it loses an owner.
    changes: dict[int, list[tuple[int, int]]] = {0: [], run.end_us: []}
    for index, partition in enumerate(partitions):
        for row in partition.intervals:
            changes.setdefault(row["from_us"], []).append((index, 1))
            changes.setdefault(end_of(run, row["to_us"]), []).append((index, -1))

    owner_counts: dict[int, int] = {}  # by the number of the partition
    with_one = without = with_several = 0
    times, counts = [], []
    for time_us in sorted(changes):
        for index, change in changes[time_us]:
            # With None, the partition had no owner yet, so it is in none of the three counts.
            owners_before = owner_counts.get(index)
            owners_after = (owners_before or 0) + change
            owner_counts[index] = owners_after
            # The partition no longer counts under its former number of owners, but under the
            # present one. Each of the three terms is 1, 0 or -1.
            with_one += (owners_after == 1) - (owners_before == 1)
            without += (owners_after == 0) - (owners_before == 0)
            with_several += (owners_after > 1) - ((owners_before or 0) > 1)
        times.append(time_us)
        counts.append((with_one, without, with_several))
    return Steps(tuple(times), tuple(counts))


def fills_of_assignments(run: ReportInput, owned: Sequence[Owned]) -> dict[str, dict[str, str]]:
    """Return the fill of each assignment of each group.

    For example, `{"readers": {"generation 7 by broker-1 in leader epoch 3": "var(--c1)"}}`. The
    fill has the colour of the coordinator. The successive assignments of a coordinator are plain,
    hatched and pale in turn. So the reader can distinguish them.
    """
    numbers = {broker: number for number, broker in enumerate(coordinator_brokers(run))}
    fills_by_group: dict[str, dict[str, str]] = {}
    # (group, coordinator) -> the number of fills of the coordinator that have been used so far
    used: Counter[tuple[str, str | None]] = Counter()
    intervals = [row for partition in owned for row in partition.intervals]
    for row in sorted(intervals, key=lambda row: row["from_us"]):
        fills = fills_by_group.setdefault(row["group"], {})
        assignment = assignment_text(row)
        if assignment in fills:
            continue
        coordinator = row["group"], row["coordinator"]
        number = numbers.get(row["coordinator"])
        fill = LINE if number is None else broker_fill(number, variant=used[coordinator])
        fills[assignment] = soft(fill)
        used[coordinator] += 1
    return fills_by_group


def assignment_of_owner(overlap: Row, side: str) -> str:
    """Return the assignment of one owner of an overlap; `side` is `first` or `second`.

    For example, `generation 7 by broker-1 in leader epoch 3`.
    """
    generation = f"generation {overlap[f'{side}_generation']}"
    coordinator = overlap[f"{side}_coordinator"]
    if coordinator is None:
        return generation
    epoch = overlap[f"{side}_epoch"]
    return f"{generation} by {coordinator} in leader epoch {epoch}"
