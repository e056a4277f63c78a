"""The fault lane: what was broken when, whom it hit, and the parts of the run around it."""

from collections.abc import Sequence

from pipeline.report.charts.chart import FAULT_HATCH, INK, MUTED, PAPER, WARN, Chart, TextTable
from pipeline.report.lanes.labels import FROM_TO, Tip, moment_tip
from pipeline.report.lanes.marks import (
    ROW_PX,
    Datum,
    bars,
    clock_text,
    labels,
    moments,
    row_name,
    rows_y,
    span,
    time_lane,
)
from pipeline.report.lanes.spans import slots
from pipeline.report.report_input import ReportInput
from pipeline.summary.figures import duration_text
from results_schema.journal import JournalEntry

MAX_ROWS = 30
"""Up to so many faults have a row each; more share the rows of their kind."""
MAX_FAULTS = 400

_ABOUT = (
    "What was broken when. The same spans stand behind every lane below, from a dashed line "
    "(injected) to a dotted one (healed)."
)
_MORE = (
    "Hatched: the fault was in force on all that it hit; plain before and behind it: it was being "
    "injected or healed. A diamond: a fault of a moment."
)
_RUN_ROW = "the run"
_TIPS = (
    Tip("l", "fault"),
    Tip("i", "id in the journal"),
    Tip("g", "target"),
    Tip("h", "hit"),
    Tip("p", "this part"),
)


def faults_lane(run: ReportInput) -> Chart | None:
    """Return the lane of the faults; None if none was injected."""
    injected = [each for each in run.facts.faults if each.injected_at_us is not None]
    if not injected:
        return None
    injected.sort(key=lambda each: (each.injected_at_us or 0, each.fault_id))
    shown = injected[:MAX_FAULTS]
    rows = _rows(shown, run.end_us)
    parts = [
        part
        for fault in shown
        if not fault.momentary
        for part in _parts(fault, rows[fault.fault_id], run.end_us)
    ]
    points = [
        span(
            fault.injected_at_us or 0,
            run.end_us,  # its label may go so far
            **_fault_cells(fault, rows[fault.fault_id]),
            p="of a moment",
        )
        for fault in shown
        if fault.momentary
    ]
    names = [_RUN_ROW, *sorted(set(rows.values()), key=list(rows.values()).index)]
    y = rows_y(names)
    in_force = "datum.p == 'in force'"
    layers = [
        bars("run", y, tooltip=(Tip("l", "the run"), *FROM_TO), fill=PAPER, stroke=MUTED),
        *labels("run", y, tooltip=(Tip("l", "the run"), *FROM_TO)),
        bars("parts", y, tooltip=(*_TIPS, *FROM_TO), fill=PAPER, where=f"!({in_force})"),
        bars("parts", y, tooltip=(*_TIPS, *FROM_TO), fill=FAULT_HATCH, where=in_force),
        *labels("parts", y, tooltip=(*_TIPS, *FROM_TO), where=in_force, fontWeight="bold"),
        moments(
            "points",
            y,
            tooltip=(*_TIPS, moment_tip("a", "at")),
            shape="diamond",
            fill=WARN,
            stroke=INK,
            size=140,
        ),
        *labels("points", y, tooltip=(*_TIPS, moment_tip("a", "at")), dx=12, fontWeight="bold"),
    ]
    return time_lane(
        run,
        lane_id="lane-faults",
        title="Faults",
        about=_ABOUT,
        more=_MORE,
        layers=layers,
        data={"run": _run_parts(run), "parts": parts, "points": points},
        height=ROW_PX * len(names),
        table=_table(run.facts.faults),
    )


def _rows(faults: Sequence[JournalEntry], end_us: int) -> dict[str, str]:
    """Return the row of each fault: one each, or of many the first free row of their kind."""
    if len(faults) <= MAX_ROWS:
        return {fault.fault_id: fault.fault_id for fault in faults}
    rows: dict[str, str] = {}
    for kind in dict.fromkeys(fault.fault for fault in faults):
        alike = [fault for fault in faults if fault.fault == kind]
        taken = slots([(fault.injected_at_us or 0, _end(fault, end_us)) for fault in alike])
        for fault, slot in zip(alike, taken, strict=True):
            rows[fault.fault_id] = row_name(kind, slot)
    return rows


def _end(fault: JournalEntry, end_us: int) -> int:
    if fault.momentary:
        return (fault.injected_at_us or 0) + 1
    return end_us if fault.healed_at_us is None else fault.healed_at_us


def _parts(fault: JournalEntry, row: str, end_us: int) -> list[Datum]:
    """Return injection, time in force and healing of a fault, as far as they came."""
    bounds = (
        ("being injected", fault.injected_at_us, fault.in_force_from_us),
        ("in force", fault.in_force_from_us, fault.in_force_until_us),
        ("being healed", fault.in_force_until_us, fault.healed_at_us),
    )
    said = _fault_cells(fault, row)
    return [
        span(start, end_us if end is None else end, **said, p=part)
        for part, start, end in bounds
        if start is not None and start != end
    ]


def _fault_cells(fault: JournalEntry, row: str) -> Datum:
    return {
        "r": row,
        "i": fault.fault_id,
        "l": f"{fault.fault} {fault.hit}",
        "s": fault.fault,
        "g": fault.target,
        "h": fault.hit,
    }


def _run_parts(run: ReportInput) -> list[Datum]:
    """Return the run before its steady state, from there until all was healed, and after it."""
    results = run.facts.results_or_empty
    steady, healed = results.steady_at_us, results.healed_at_us
    bounds = (
        ("before the steady state", "start", 0, run.end_us if steady is None else steady),
        ("from the steady state: faults", "faults", steady, healed),
        ("all healed", "healed", healed, run.end_us),
    )
    return [
        span(start, run.end_us if end is None else end, r=_RUN_ROW, l=text, s=short)
        for text, short, start, end in bounds
        if start is not None and start != end
    ]


def _table(faults: Sequence[JournalEntry]) -> TextTable:
    rows = tuple(
        (
            fault.fault_id,
            fault.fault,
            fault.hit,
            clock_text(fault.injected_at_us),
            clock_text(fault.in_force_from_us),
            clock_text(fault.healed_at_us),
            None
            if fault.in_force_from_us is None or fault.in_force_until_us is None or fault.momentary
            else duration_text(fault.in_force_until_us - fault.in_force_from_us),
        )
        for fault in faults[:MAX_FAULTS]
    )
    times = ("injected (s)", "in force (s)", "healed (s)", "in force for")
    return TextTable(
        headings=("fault", "kind", "hit", *times),
        rows=rows,
        numeric=times,
        folded="The faults as text",
    )
