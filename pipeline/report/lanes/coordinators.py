"""The coordinator lanes: which broker was in office on each offsets partition that has groups."""

from collections.abc import Sequence

from pipeline.report.charts.chart import (
    BAD,
    BAD_HATCH,
    FAULT_HATCH,
    WARN,
    Chart,
    TextTable,
    soft,
)
from pipeline.report.lanes.broker_fills import broker_fills
from pipeline.report.lanes.labels import FROM_TO, Tip
from pipeline.report.lanes.marks import (
    ROW_PX,
    Datum,
    bars,
    bounded,
    clock_text,
    kind_fill,
    labels,
    row_name,
    rows_y,
    span,
    time_lane,
)
from pipeline.report.lanes.spans import free, slots
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order

MAX_PARTITIONS = 50
"""Offsets partitions shown, those that moved first: as many as Kafka's default has."""
MAX_TENURES = 600
MAX_TABLE_ROWS = 200

_ABOUT = "Which broker was the coordinator, on each offsets partition that has groups."
_MORE = (
    "A bar is a tenure: one broker in one leader epoch, from loaded to unloaded or dead. Dashed: "
    "nobody was in office; the load of the next one ends it (a bar of its own, as you zoom in). A "
    "hatched lower edge: paused or cut off, yet still in office. Striped: two were in office at "
    "once."
)
_LOADING = "a load of the new coordinator"
_TENURE = (
    Tip("r", "partition"),
    Tip("w", "broker"),
    Tip("e", "leader epoch"),
    Tip("i", "incarnation"),
    Tip("c", "commits acknowledged"),
    Tip("x", "ended by"),
)
_LOAD = (
    Tip("l", "new coordinator"),
    Tip("n", "records read"),
    Tip("k", "bytes read"),
    Tip("g", "waited for the loads before it"),
)


def coordinators_lane(run: ReportInput) -> Chart | None:
    """Return the lanes of the coordinators; None if no group's coordinator is known."""
    groups = _groups(run)
    rows = run.tables.rows("coordinator_tenures")
    tenures = [each for each in rows if each["partition"] in groups]
    if not tenures:
        return None
    tenures.sort(key=lambda each: (each["start_us"], each["leader_epoch"] or 0))
    partitions = _most_moved_first(tenures)
    shown = in_number_order(partitions[:MAX_PARTITIONS])
    names: list[str] = []
    data: dict[str, list[Datum]] = {
        "tenures": [],
        "stalled": [],
        "nobody": [],
        "loads": [],
        "twice": [],
    }
    for partition in shown:
        own = [each for each in tenures if each["partition"] == partition]
        names += _partition(run, partition, own[: MAX_TENURES // len(shown) + 1], data)
    y = rows_y(names)
    seen = {each["broker"] for each in tenures}
    fills = {broker: fill for broker, fill in broker_fills(run).items() if broker in seen}
    if data["loads"]:
        fills[_LOADING] = WARN
    layers = [
        bars(
            "nobody",
            y,
            tooltip=(Tip("l", "partition"), *FROM_TO),
            fill="transparent",
            stroke=BAD,
            strokeDash=[3, 3],
        ),
        *labels("nobody", y, tooltip=(Tip("l", "partition"), *FROM_TO), fill=BAD),
        bars("tenures", y, tooltip=(*_TENURE, *FROM_TO), fill=kind_fill("w", fills)),
        bars(
            "stalled",
            y,
            tooltip=(Tip("l", "broker"), *FROM_TO),
            fill=FAULT_HATCH,
            height=5,
            yOffset=7,
        ),
        bars("loads", y, tooltip=(*_LOAD, *FROM_TO), fill=soft(WARN), height=12),
        *labels("loads", y, tooltip=(*_LOAD, *FROM_TO), long="datum.q"),
        *labels("tenures", y, tooltip=(*_TENURE, *FROM_TO)),
        bars("twice", y, tooltip=(Tip("l", "at once"), *FROM_TO), fill=BAD_HATCH, stroke=BAD),
        *labels("twice", y, tooltip=(Tip("l", "at once"), *FROM_TO), fontWeight="bold"),
    ]
    return time_lane(
        run,
        lane_id="lane-coordinators",
        title="Coordinators",
        about=_ABOUT + _left_out(len(partitions) - len(shown)),
        more=_MORE,
        layers=layers,
        data=data,
        height=ROW_PX * len(names),
        table=_table(tenures, groups),
    )


def _groups(run: ReportInput) -> dict[str, list[str]]:
    """Return the consumer groups of each offsets partition."""
    groups: dict[str, list[str]] = {}
    for row in run.tables.rows("groups"):
        if row["partition"] is not None:
            groups.setdefault(row["partition"], []).append(row["group"])
    return groups


def _most_moved_first(tenures: Sequence[Row]) -> list[str]:
    """Return the partitions: those with two in office first, then those with most tenures."""
    counts: dict[str, tuple[int, int]] = {}
    for each in tenures:
        overlap_us, number = counts.get(each["partition"], (0, 0))
        counts[each["partition"]] = (overlap_us + each["overlap_us"], number + 1)
    known = in_number_order(counts)
    return sorted(known, key=lambda partition: counts[partition], reverse=True)


def _partition(
    run: ReportInput, partition: str, tenures: Sequence[Row], data: dict[str, list[Datum]]
) -> list[str]:
    """Add what happened on one partition to `data`, and return the names of its rows."""
    taken = slots([(each["start_us"], each["end_us"]) for each in tenures])
    loads = {
        (load["new_leader"], load["leader_epoch"]): load
        for load in run.tables.rows("broker_phases")
        if load["partition"] == partition
    }
    rows: dict[tuple[str, int | None], str] = {}
    for each, slot in zip(tenures, taken, strict=True):
        office = each["broker"], each["leader_epoch"]
        row = rows[office] = row_name(partition, slot)
        data["tenures"].append(_tenure(each, row, loads.get(office)))
        data["stalled"] += _stalled(each, row)
    first, last = tenures[0]["start_us"], run.end_us
    for start, end in free([(each["start_us"], each["end_us"]) for each in tenures], first, last):
        text = f"nobody in office for {duration_text(end - start)}"
        data["nobody"].append(span(start, end, r=row_name(partition), l=text, s="nobody"))
    for office, load in loads.items():
        data["loads"] += _load(load, rows.get(office, row_name(partition)))
    names = [row_name(partition, slot) for slot in range(max(taken) + 1)]
    overlaps = [
        each for each in run.tables.rows("tenure_overlaps") if each["partition"] == partition
    ]
    if overlaps:
        free_rows = slots([(each["from_us"], each["to_us"]) for each in overlaps])
        twice = [row_name(partition, len(names) + slot, "two in office") for slot in free_rows]
        data["twice"] += [_overlap(each, row) for each, row in zip(overlaps, twice, strict=True)]
        names += sorted(set(twice))
    return names


def _tenure(each: Row, row: str, load: Row | None) -> Datum:
    epoch = "unknown" if each["leader_epoch"] is None else each["leader_epoch"]
    label = f"{each['broker']} \u00b7 leader epoch {epoch}"
    said = [text for _, _, text in _stalls(each)]
    if load is not None and load["load_us"] is not None:
        said.insert(0, f"loaded in {duration_text(load['load_us'])}")
    return span(
        each["start_us"],
        each["end_us"],
        r=row,
        w=each["broker"],
        e=epoch,
        i=each["incarnation"],
        c=each["commits"],
        x=each["end_reason"],
        l=" \u00b7 ".join([label, *said]),
        s=label,
    )


def _stalls(each: Row) -> list[tuple[int, int, str]]:
    """Return when a tenure's broker was stopped or cut off: from, to, and in words."""
    return [
        (each[f"{how}_from_us"], each[f"{how}_to_us"], f"{text} {duration_text(each[f'{how}_us'])}")
        for how, text in (("paused", "paused"), ("cut", "cut off"))
        if each[f"{how}_from_us"] is not None
    ]


def _stalled(each: Row, row: str) -> list[Datum]:
    return [
        span(start, end, r=row, l=f"{each['broker']} {text}") for start, end, text in _stalls(each)
    ]


def _load(load: Row, row: str) -> list[Datum]:
    if load["load_started_us"] is None or load["active_us"] is None:
        return []
    said = f"{load['new_leader']} loads, epoch {load['leader_epoch']}"
    return [
        span(
            load["load_started_us"],
            load["active_us"],
            r=row,
            l=said,
            q=f"load {duration_text(load['active_us'] - load['load_started_us'])}",
            s="load",
            n=load["records"],
            k=load["bytes"],
            g=duration_text(load["load_wait_us"] or 0),
        )
    ]


def _overlap(each: Row, row: str) -> Datum:
    older = f"{each['older_broker']} (leader epoch {each['older_epoch']})"
    newer = f"{each['newer_broker']} (leader epoch {each['newer_epoch']})"
    length = duration_text(each["length_us"])
    return span(
        each["from_us"], each["to_us"], r=row, l=f"{older} and {newer} for {length}", s=length
    )


def _left_out(number: int) -> str:
    return (
        f" {number} more partitions, which moved least, are in the tables only."
        if number > 0
        else ""
    )


def _table(tenures: Sequence[Row], groups: dict[str, list[str]]) -> TextTable:
    numeric = ("leader epoch", "from (s)", "to (s)", "commits acknowledged")
    return TextTable(
        headings=(
            "partition",
            "groups",
            "broker",
            *numeric[:3],
            "ended by",
            numeric[3],
            "with another in office",
        ),
        rows=tuple(
            (
                each["partition"],
                ", ".join(groups[each["partition"]][:3]),
                each["broker"],
                each["leader_epoch"],
                clock_text(each["start_us"]),
                clock_text(each["end_us"]),
                each["end_reason"],
                each["commits"],
                duration_text(each["overlap_us"]) if each["overlap_us"] else None,
            )
            for each in tenures[:MAX_TABLE_ROWS]
        ),
        numeric=numeric,
        caption=bounded("coordinator_tenures", len(tenures), MAX_TABLE_ROWS),
        folded="The coordinators as text",
    )
