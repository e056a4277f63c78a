"""The coordinator lane: which broker served the groups of each partition of `__consumer_offsets`.

Each partition that stores groups has a row. A bar in the row is a tenure: the time in which one
broker served these groups in one leader epoch. Before its tenure, a new leader reads the groups
into memory. This is called a load, and has a bar, too. If two tenures of a partition overlap, its
groups have two coordinators at once.

In the data of the chart, a bar is an object with the keys of LANE's columns and these:

- `r`: name of the row, which is the partition
- `l`, `s`: the label of the bar, long and short
- `q`: a label of middle length; only loads have this key
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import altair as alt

from pipeline.report.charts.chart import BAD, BAD_HATCH, FAULT_HATCH, WARN, Chart, soft
from pipeline.report.columns import Column, moment, number
from pipeline.report.lanes.broker_fills import broker_fills
from pipeline.report.lanes.interval_lane import IntervalLane
from pipeline.report.lanes.labels import FROM_TO, Tip
from pipeline.report.lanes.marks import ROW_PX, Datum, Marks, kind_fill, row_name, rows_y, span
from pipeline.report.lanes.spans import free, slots
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order

MAX_PARTITIONS = 50
"""Maximum number of partitions in the lane: Kafka's default number of offsets partitions. If a run
has more, the lane shows the partitions that had two coordinators for the longest time, or moved
most often.
"""
MAX_TENURES = 600
"""Maximum number of tenures in the lane. With 50 partitions, for example, each partition has at
most 600 / 50 + 1 = 13 tenures in the lane.
"""
_LOADING = "a load of the new coordinator"
"""Text of the legend for the bars of loads."""
_DATA = ("tenures", "stalled", "vacant", "loads", "twice")
"""Names of the chart's data sets.

- `stalled`: times in which the coordinator was paused or cut off.
- `vacant`: times without an active coordinator.
- `twice`: times with two coordinators.
"""


def _epoch(row: Row) -> str | int:
    """Return the leader epoch of a tenure; `unknown` if the trace does not tell it."""
    epoch: int | None = row["leader_epoch"]
    return "unknown" if epoch is None else epoch


LANE = IntervalLane(
    id="lane-coordinators",
    title="Coordinators",
    about="Which broker was the coordinator, on each offsets partition that has groups.",
    more="A bar is a tenure: one broker in one leader epoch, from loaded to unloaded or dead. "
    "Dashed: no active coordinator, until the next one has loaded (the load is a bar of its own, "
    "as you zoom in). A hatched lower edge: paused or cut off, yet still the coordinator. Striped: "
    "two coordinators at once.",
    source="coordinator_tenures",
    folded="The coordinators as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column("row", key="r", tip="partition"),
        Column("partition", "partition"),
        Column(lambda row: ", ".join(row["groups"][:3]), "groups"),
        Column("broker", "broker", "w", "broker"),
        number("leader_epoch", "leader epoch"),
        Column(_epoch, key="e", tip="leader epoch"),
        Column("incarnation", key="i", tip="incarnation"),
        moment("start_us", "from (s)"),
        moment("end_us", "to (s)"),
        Column("end_reason", "ended by"),
        Column("commits", "commits acknowledged", "c", "commits acknowledged", numeric=True),
        Column("end_reason", key="x", tip="ended by"),
        Column(
            lambda row: duration_text(row["overlap_us"]) if row["overlap_us"] else None,
            "with another coordinator",
        ),
    ),
)
_LOAD_TIPS = (
    Tip("l", "new coordinator"),
    Tip("n", "records read"),
    Tip("k", "bytes read"),
    Tip("g", "waited for the loads before it"),
    *FROM_TO,
)
"""The tooltip of a load."""


def coordinators_lane(run: ReportInput) -> Chart | None:
    """Return the lane of the coordinators; None if no group's coordinator is known."""
    groups = _groups_by_partition(run)
    rows = run.tables.rows("coordinator_tenures")
    tenures = [
        row | {"groups": groups[row["partition"]]} for row in rows if row["partition"] in groups
    ]
    if not tenures:
        return None
    # Tenures with the same start are sorted by epoch. An unknown epoch (None) counts as 0.
    tenures.sort(key=lambda tenure: (tenure["start_us"], tenure["leader_epoch"] or 0))
    partitions = _longest_overlap_first(tenures)
    shown = in_number_order(partitions[:MAX_PARTITIONS])

    names: list[str] = []
    data: dict[str, list[Datum]] = {name: [] for name in _DATA}
    for partition in shown:
        of_partition = [tenure for tenure in tenures if tenure["partition"] == partition]
        limit = MAX_TENURES // len(shown) + 1
        names += _add_partition(run, partition, of_partition[:limit], data)

    coordinators = {tenure["broker"] for tenure in tenures}
    fills = {broker: fill for broker, fill in broker_fills(run).items() if broker in coordinators}
    if data["loads"]:
        fills[_LOADING] = WARN
    about = LANE.about
    left_out = len(partitions) - len(shown)
    if left_out > 0:
        about += f" {left_out} more partitions, which moved least, are in the tables only."
    return LANE.draw(
        run,
        _layers(rows_y(names), fills),
        data,
        ROW_PX * len(names),
        about=about,
        table=LANE.text(tenures),
    )


def _layers(y: alt.Y, fills: Mapping[str, str]) -> list[alt.Chart]:
    """Return the marks of the lane in the order of drawing; later marks cover earlier ones."""
    tenures = LANE.marks("tenures", y)
    loads = Marks("loads", y, _LOAD_TIPS)
    vacant = Marks("vacant", y, (Tip("l", "partition"), *FROM_TO))
    stalled = Marks("stalled", y, (Tip("l", "broker"), *FROM_TO))
    twice = Marks("twice", y, (Tip("l", "at once"), *FROM_TO))
    return [
        vacant.bars("transparent", stroke=BAD, strokeDash=[3, 3]),
        *vacant.labels(fill=BAD),
        tenures.bars(kind_fill("w", fills)),
        # A stripe 5 pixels high, 7 pixels below the middle of the row.
        stalled.bars(FAULT_HATCH, height=5, yOffset=7),
        loads.bars(soft(WARN), height=12),
        *loads.labels(long="datum.q"),
        *tenures.labels(),
        twice.bars(BAD_HATCH, stroke=BAD),
        *twice.labels(fontWeight="bold"),
    ]


def _groups_by_partition(run: ReportInput) -> dict[str, list[str]]:
    """Return the consumer groups of each offsets partition that stores groups."""
    groups: dict[str, list[str]] = {}
    for row in run.tables.rows("groups"):
        if row["partition"] is not None:
            groups.setdefault(row["partition"], []).append(row["group"])
    return groups


def _longest_overlap_first(tenures: Sequence[Row]) -> list[str]:
    """Return the partitions, sorted by the time in which they had two coordinators, longest first.

    If these times are equal, the partition with more tenures comes first.
    """
    overlap_us: Counter[str] = Counter()
    number_of_tenures: Counter[str] = Counter()
    for tenure in tenures:
        overlap_us[tenure["partition"]] += tenure["overlap_us"]
        number_of_tenures[tenure["partition"]] += 1
    return sorted(
        in_number_order(number_of_tenures),
        key=lambda partition: (overlap_us[partition], number_of_tenures[partition]),
        reverse=True,
    )


def _add_partition(
    run: ReportInput, partition: str, tenures: Sequence[Row], data: dict[str, list[Datum]]
) -> list[str]:
    """Add the bars of one partition to `data`, and return the names of its rows.

    Tenures that overlap are in different rows. The times with two coordinators have rows of their
    own, below the rows of the tenures.
    """
    spans = [(tenure["start_us"], tenure["end_us"]) for tenure in tenures]
    # The number of the row of each tenure, from 0.
    slots_of_tenures = slots(spans)
    loads = {
        (load["new_leader"], load["leader_epoch"]): load
        for load in run.tables.rows("broker_phases")
        if load["partition"] == partition
    }

    # Broker and leader epoch of a tenure -> the name of the tenure's row in the lane.
    rows: dict[tuple[str, int | None], str] = {}
    for tenure, slot in zip(tenures, slots_of_tenures, strict=True):
        # A broker has one tenure in an epoch, and one load, which precedes the tenure.
        serving_epoch = tenure["broker"], tenure["leader_epoch"]
        row = row_name(partition, slot)
        rows[serving_epoch] = row
        data["tenures"].append(_tenure_datum(tenure, row, loads.get(serving_epoch)))
        data["stalled"] += [
            span(start, end, r=row, l=f"{tenure['broker']} {text}")
            for start, end, text in _stalls(tenure)
        ]

    for start, end in free(spans, tenures[0]["start_us"], run.end_us):
        text = f"no coordinator for {duration_text(end - start)}"
        data["vacant"].append(span(start, end, r=row_name(partition), l=text, s="none"))
    for serving_epoch, load in loads.items():
        if load["load_started_us"] is not None and load["active_us"] is not None:
            # If the tenure after the load was left out, the load is in the partition's first row.
            row = rows.get(serving_epoch, row_name(partition))
            data["loads"].append(_load_datum(load, row))

    names = [row_name(partition, slot) for slot in range(max(slots_of_tenures) + 1)]
    overlaps = [row for row in run.tables.rows("tenure_overlaps") if row["partition"] == partition]
    overlap_slots = slots([(overlap["from_us"], overlap["to_us"]) for overlap in overlaps])
    overlap_rows = [
        row_name(partition, len(names) + slot, "two coordinators") for slot in overlap_slots
    ]
    data["twice"] += [
        _overlap_datum(overlap, row) for overlap, row in zip(overlaps, overlap_rows, strict=True)
    ]
    return [*names, *sorted(set(overlap_rows))]


def _tenure_datum(tenure: Row, row: str, load: Row | None) -> Datum:
    """Return the bar of a tenure in a row of the lane. `load` is the load before it, if known."""
    label = f"{tenure['broker']} \u00b7 leader epoch {_epoch(tenure)}"
    parts = [label]
    if load is not None and load["load_us"] is not None:
        parts.append(f"loaded in {duration_text(load['load_us'])}")
    parts += [text for _, _, text in _stalls(tenure)]
    start_us, end_us = tenure["start_us"], tenure["end_us"]
    return LANE.datum(tenure | {"row": row}, start_us, end_us, l=" \u00b7 ".join(parts), s=label)


def _stalls(tenure: Row) -> list[tuple[int, int, str]]:
    """Return the times in which a tenure's broker was paused or cut off.

    For example, `[(2_000_000, 5_500_000, "paused 3.5 s")]`: start, end and text.
    """
    stalls = []
    # The columns of the table are `paused_from_us`, `cut_from_us` and so on.
    for column_prefix, text in (("paused", "paused"), ("cut", "cut off")):
        from_us = tenure[f"{column_prefix}_from_us"]
        if from_us is not None:
            length = duration_text(tenure[f"{column_prefix}_us"])
            stalls.append((from_us, tenure[f"{column_prefix}_to_us"], f"{text} {length}"))
    return stalls


def _load_datum(load: Row, row: str) -> Datum:
    """Return the bar of a load.

    - `n`, `k`: the numbers of records and bytes that the load read.
    - `g`: for how long the load waited, because a broker loads one partition after another.
    """
    return span(
        load["load_started_us"],
        load["active_us"],
        r=row,
        l=f"{load['new_leader']} loads, epoch {load['leader_epoch']}",
        q=f"load {duration_text(load['active_us'] - load['load_started_us'])}",
        s="load",
        n=load["records"],
        k=load["bytes"],
        g=duration_text(load["load_wait_us"] or 0),
    )


def _overlap_datum(overlap: Row, row: str) -> Datum:
    """Return the bar of a time with two coordinators, in the row `row`."""
    older = f"{overlap['older_broker']} (leader epoch {overlap['older_epoch']})"
    newer = f"{overlap['newer_broker']} (leader epoch {overlap['newer_epoch']})"
    length = duration_text(overlap["length_us"])
    text = f"{older} and {newer} for {length}"
    return span(overlap["from_us"], overlap["to_us"], r=row, l=text, s=length)
