"""The fault lane: when each fault was injected, in force and healed, and on which node.

A fault that hits several nodes does not begin on all of them at once. So the bar of a fault has
three parts: the fault is being injected, then it is in force on all nodes, then it is being healed.
A momentary fault, such as an election, is a point. The lane also has accidents, which are not in
the run's plan: a machine was lost, or did not answer for a while. The first row of the lane shows
the parts of the run: before its steady state, with faults, and after the last healing.

In the data of the chart, a bar is an object with the keys of LANE's columns, and these:

- `r`: name of the row
- `p`: part of the fault, such as `in force`
- `x`: 1 for an accident, else the key is missing
- `l`, `s`: the label of the bar, long and short
"""

from collections.abc import Sequence

from pipeline.report.charts.chart import FAULT_HATCH, HATCHES, INK, MUTED, PAPER, WARN, Chart
from pipeline.report.columns import Column, clock_text, number, text_table
from pipeline.report.lanes.interval_lane import IntervalLane, end_of
from pipeline.report.lanes.labels import FROM_TO, Tip, moment_tip
from pipeline.report.lanes.marks import ROW_PX, Datum, Marks, row_name, rows_y, span
from pipeline.report.lanes.spans import slots
from pipeline.report.report_input import ReportInput
from pipeline.summary.figures import duration_text
from results_schema.journal import JournalEntry

MAX_ROWS = 30
"""Maximum number of faults that have rows of their own. If there are more, the faults of one kind
share rows.
"""
MAX_FAULTS = 400
"""Maximum number of faults in the lane. If there are more, the lane has only the earliest faults.
"""
_RUN_ROW = "the run"
"""Name of the first row, which shows the parts of the run."""
_ACCIDENT_HATCH = HATCHES[7]
"""Fill of the bars of accidents: a grey pattern."""
_PART = (Tip("p", "this part"),)
"""The line of a tooltip that tells which part of the fault the bar shows."""


def _label(fault: JournalEntry) -> str:
    """Return the long text in a fault's bar: `pause broker-1`, for example."""
    return f"by accident: {fault.note}" if fault.is_by_accident else f"{fault.fault} {fault.hit}"


def _short_label(fault: JournalEntry) -> str:
    """Return the short text in a fault's bar: `pause`, for example."""
    return "accident" if fault.is_by_accident else fault.fault


def _in_force(fault: JournalEntry) -> str | None:
    """Return how long the fault was in force, as text; None if that is not known."""
    start, end = fault.in_force_from_us, fault.in_force_until_us
    if start is None or end is None or fault.momentary:
        return None
    return duration_text(end - start)


LANE = IntervalLane(
    id="lane-faults",
    title="Faults",
    about="What was broken when. The same spans stand behind every lane below, from a dashed line "
    "(injected) to a dotted one (healed).",
    more="Hatched: the fault was in force on all that it hit; plain before and behind it: it was "
    "being injected or healed. A diamond: a fault of a moment. Grey: no fault of the plan, but a "
    "machine that was away by accident; figures of that time have a mark (*).",
    source="faults",
    folded="The faults as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column(_label, key="l", tip="fault"),
        Column(_short_label, key="s"),
        Column(lambda fault: fault.fault_id, "fault", "i", "id in the journal"),
        Column(lambda fault: fault.fault, "kind"),
        Column(lambda fault: fault.target, key="g", tip="target"),
        Column(lambda fault: fault.hit, "hit", "h", "hit"),
        number(lambda fault: clock_text(fault.injected_at_us), "injected (s)"),
        number(lambda fault: clock_text(fault.in_force_from_us), "in force (s)"),
        number(lambda fault: clock_text(fault.healed_at_us), "healed (s)"),
        number(_in_force, "in force for"),
    ),
)


def faults_lane(run: ReportInput) -> Chart | None:
    """Return the lane of the faults; None if none was injected."""
    injected = [fault for fault in run.facts.faults if fault.injected_at_us is not None]
    if not injected:
        return None
    # Here and below, `or 0` only satisfies the type checker: all these faults have been injected.
    injected.sort(key=lambda fault: (fault.injected_at_us or 0, fault.fault_id))
    shown = injected[:MAX_FAULTS]
    rows = _rows(shown, run.end_us)

    data: dict[str, list[Datum]] = {"run": _run_parts(run), "parts": [], "points": []}
    # The label of a momentary fault has room until the next fault in its row. To know the next
    # fault, the loop goes from the last fault to the first. It inserts the data of each fault at
    # the beginning of a list. So in the end the list is in time order.
    next_in_row: dict[str, int] = {}
    for fault in reversed(shown):
        row = rows[fault.fault_id]
        start = fault.injected_at_us or 0
        label_end = next_in_row.get(row, run.end_us)
        next_in_row[row] = start
        if fault.momentary:
            data["points"].insert(0, LANE.datum(fault, start, label_end, r=row, p="of a moment"))
        else:
            # The slice [:0] inserts at the beginning.
            data["parts"][:0] = _parts(fault, row, run.end_us)

    names = [_RUN_ROW, *dict.fromkeys(rows.values())]
    y = rows_y(names)
    run_parts = Marks("run", y, (Tip("l", "the run"), *FROM_TO))
    before_and_after = LANE.marks("parts", y, "datum.p != 'in force'", (*_PART, *FROM_TO))
    in_force = LANE.marks("parts", y, "datum.p == 'in force'", (*_PART, *FROM_TO))
    accidents = LANE.marks("parts", y, "datum.x", (*_PART, *FROM_TO))
    points = LANE.marks("points", y, tail=(*_PART, moment_tip("a", "at")))
    has_accidents = any("x" in part for part in data["parts"])
    layers = [
        run_parts.bars(PAPER, stroke=MUTED),
        *run_parts.labels(),
        before_and_after.bars(PAPER),
        in_force.bars(FAULT_HATCH),
        *([accidents.bars(_ACCIDENT_HATCH)] if has_accidents else []),
        *in_force.labels(fontWeight="bold"),
        points.moments(shape="diamond", fill=WARN, stroke=INK, size=140),
        # The label of a diamond begins 12 pixels to the right of the moment.
        *points.labels(dx=12, fontWeight="bold"),
    ]

    faults = run.facts.faults[:MAX_FAULTS]
    table = text_table(LANE.columns, faults, folded=LANE.folded)
    return LANE.draw(run, layers, data, ROW_PX * len(names), table=table)


def _rows(faults: Sequence[JournalEntry], end_us: int) -> dict[str, str]:
    """Return the name of the row in which each fault is drawn.

    If there are at most MAX_ROWS faults, each has a row of its own:
    `{"kill-1": "kill-1", "cut-1": "cut-1"}`. If there are more, the faults of one kind share a row,
    unless they overlap: `{"kill-1": "kill", "kill-2": "kill"}`.
    """
    if len(faults) <= MAX_ROWS:
        return {fault.fault_id: fault.fault_id for fault in faults}
    rows: dict[str, str] = {}
    for kind in dict.fromkeys(fault.fault for fault in faults):
        of_kind = [fault for fault in faults if fault.fault == kind]
        spans = [(fault.injected_at_us or 0, _end(fault, end_us)) for fault in of_kind]
        for fault, slot in zip(of_kind, slots(spans), strict=True):
            rows[fault.fault_id] = row_name(kind, slot)
    return rows


def _end(fault: JournalEntry, end_us: int) -> int:
    """Return the end of a fault, which decides whether two faults of a kind overlap."""
    if fault.momentary:
        # With a length of 0, two momentary faults at the same moment would not overlap. Then they
        # would share a row, and cover each other.
        return (fault.injected_at_us or 0) + 1
    return end_us if fault.healed_at_us is None else fault.healed_at_us


def _parts(fault: JournalEntry, row: str, end_us: int) -> list[Datum]:
    """Return the parts of a fault: injection, time in force, healing; only parts that began."""
    parts = (
        ("being injected", fault.injected_at_us, fault.in_force_from_us),
        ("in force", fault.in_force_from_us, fault.in_force_until_us),
        ("being healed", fault.in_force_until_us, fault.healed_at_us),
    )
    accident = {"x": 1} if fault.is_by_accident else {}
    return [
        LANE.datum(fault, start, end_us if end is None else end, r=row, p=part, **accident)
        for part, start, end in parts
        # A part without length would be a bar without width.
        if start is not None and start != end
    ]


def _run_parts(run: ReportInput) -> list[Datum]:
    """Return the parts of the run: before its steady state, with faults, after the last healing."""
    results = run.facts.results_or_empty
    steady, healed = results.steady_at_us, results.healed_at_us
    parts = (
        ("before the steady state", "start", 0, end_of(run, steady)),
        ("from the steady state: faults", "faults", steady, healed),
        ("all healed", "healed", healed, run.end_us),
    )
    return [
        span(start, end_of(run, end), r=_RUN_ROW, l=text, s=short)
        for text, short, start, end in parts
        if start is not None and start != end
    ]
