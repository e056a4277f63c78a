"""The section "Phases": where the time of each failover went, and the gaps in service.

After a fault that moves a coordinator, two things happen at the same time. In the cluster, another
broker becomes the coordinator and loads the groups: the phases of the broker chain. Meanwhile the
members notice the loss and look for the new coordinator: the phases of the client chain. The chains
overlap in time, so the page shows them side by side and never adds them up.

For each fault the section has sentences, a picture, and a table of figures. A row of the picture is
a strip: one phase, with a dot for each partition or member. All strips of the section have the same
axis, so that the reader can compare faults.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from pipeline.report.charts.chain_order import lines_of, order_chart, order_rows
from pipeline.report.charts.chart import (
    SERIES,
    Beside,
    Chart,
    Paragraph,
    Part,
    Pick,
    Section,
    TextTable,
)
from pipeline.report.charts.fault_strips import CHAINS, FaultRows, rows_of_faults
from pipeline.report.charts.log_axis import LogAxis
from pipeline.report.charts.strips import Strip, axis_over, strip_chart, strip_rows
from pipeline.report.columns import Column, number, text_table
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Settings
from pipeline.report.sections.fault_overview import overview
from pipeline.report.sentences.chain_words import (
    broker_sentence,
    client_sentence,
    definitions,
    gap_sentence,
)
from pipeline.summary.figures import HEADER, Chain, FaultSummary, duration_text
from pipeline.summary.story import (
    CHAIN_HEADINGS,
    as_title,
    disturbance_texts,
    kept_text,
    leaving_texts,
    moment_text,
    noticed_text,
)

MAX_IN_FULL = 3
"""Up to this number of faults, each has charts of its own. More faults share the charts, which show
the fault that the reader picks."""
MAX_PICKED = 60
"""Maximum number of faults that the reader can pick, so that the page stays small. `_pickable`
chooses them.
"""
TITLES: dict[Chain, str] = {chain: as_title(text) for chain, text in CHAIN_HEADINGS.items()}
_ABOUT: dict[Chain, str] = {
    "broker": "What happens in the cluster: each dot is an offsets partition that moved.",
    "client": "What happens to the members of the affected groups: each dot is one of them.",
    "gap": (
        "Without an acknowledged commit, per member; without a record processed, per partition; "
        "without an active coordinator, per group."
    ),
}
_FILLS: dict[Chain, str] = {"broker": SERIES[0], "client": SERIES[1], "gap": SERIES[2]}
_LEAD = (
    "The two chains overlap in time and are never added up. Time is logarithmic here, from 0 on: "
    "each mark is ten times the one before. The thick line is the median, the thin ones are the "
    "90th percentile and the longest. Past 60 dots, a bar's height counts them."
)
_PICKED = "fault"
"""Name of the charts' parameter, and of a column of their data: the fault that the reader
picked."""


def phases_section(run: ReportInput) -> Section | None:
    """Return the section; None if no fault hit anything."""
    faults = list(rows_of_faults(run))
    if not faults:
        return None

    settings = Settings(run.facts.settings)
    parts: list[Part] = [definitions()]
    footnotes = disturbance_texts(run.summary)
    if len(faults) > 1:
        parts += overview(run.summary.faults)
    if any(figures.disturbed for fault in run.summary.faults for _, figures in fault.measures):
        parts += [Paragraph(html=render_line("words", "plain", note)) for note in footnotes]

    if len(faults) <= MAX_IN_FULL:
        axis = axis_over(strip for rows in faults for strip in _all_strips(rows))
        for rows in faults:
            parts += _fault_parts(rows, axis, settings)
    else:
        parts += _picked_parts(_pickable(faults))

    lead = _LEAD
    if (error_us := run.summary.clock_error_us) > 0:
        lead += f" Grey: shorter than the error of the clocks, {duration_text(error_us)}."
    return Section(
        id="phases", title="Where the time went, phase by phase", lead=lead, parts=tuple(parts)
    )


def _all_strips(rows: FaultRows) -> list[Strip]:
    """Return the strips of all chains after one fault."""
    return [strip for chain in CHAINS for strip in rows.strips(chain)]


def _fault_parts(rows: FaultRows, axis: LogAxis, settings: Settings) -> Iterator[Part]:
    """Yield the parts about one fault.

    First come sentences, then charts: the order of the phases, both chains, and the gaps.
    """
    fault = rows.fault

    yield Paragraph(html=render_line("words", "fault_heading", fault))
    chains = (
        broker_sentence(fault, rows.broker, settings),
        client_sentence(rows.client) if rows.client else None,
        gap_sentence(fault, rows.gap),
    )
    yield Paragraph(html=render_line("chains", "told", *chains))

    data = order_rows(rows)
    if data:
        yield Chart(
            id=f"phases-{fault.fault}-order",
            title="One after the other",
            about="The median partition and member of each chain, and the slowest: a linear axis, "
            "on which short phases vanish.",
            spec=order_chart("order", lines_of(data)),
            data={"order": data},
        )
    both_chains = [_chain_chart(rows, chain, axis) for chain in ("broker", "client")]
    shown = tuple(chart for chart in both_chains if chart is not None)
    if shown:
        yield Beside(parts=shown)
    gap = _chain_chart(rows, "gap", axis)
    if gap is not None:
        yield gap

    lines = [noticed_text(fault), *leaving_texts(fault), kept_text(fault)]
    if any(lines):
        yield Paragraph(html=render_line("words", "items", lines))


def _chain_chart(rows: FaultRows, chain: Chain, axis: LogAxis) -> Chart | None:
    """Return the chart of one chain's phases; None if the fault has no row about this chain."""
    strips = rows.strips(chain)
    if not strips:
        return None
    return Chart(
        id=f"phases-{rows.fault.fault}-{chain}",
        title=TITLES[chain],
        about=_ABOUT[chain],
        spec=strip_chart("strips", len(strips), axis, _FILLS[chain]),
        data={"strips": strip_rows(strips, axis)},
        table=figures_table(rows.fault, chain),
    )


def figures_table(fault: FaultSummary, chain: Chain) -> TextTable:
    """Return the figures of a chain as a folded table, without empty columns.

    A row is the name of a measure and its cells in the order of HEADER, as on the terminal.
    """
    rows = fault.rows(chain)
    # Cell 0 of a row is the measure's name. The cells of HEADER follow, so HEADER[0] is for cell 1.
    filled = [index for index, _ in enumerate(HEADER, 1) if any(row[index] for row in rows)]
    columns = [number(itemgetter(index), HEADER[index - 1]) for index in filled]
    return text_table((Column(itemgetter(0)), *columns), rows, folded="The figures")


def _pickable(faults: Sequence[FaultRows]) -> list[FaultRows]:
    """Return the faults that the reader can pick, in time order.

    If there are more than MAX_PICKED, the faults with the longest gaps are chosen.
    """

    def longest_us(rows: FaultRows) -> int:
        gaps = [
            figures.maximum or 0
            for measure, figures in rows.fault.measures
            if measure.chain == "gap"
        ]
        return max(gaps, default=0)

    if len(faults) <= MAX_PICKED:
        return list(faults)
    longest = sorted(faults, key=longest_us, reverse=True)[:MAX_PICKED]
    return sorted(longest, key=lambda rows: (rows.fault.injected_us, rows.fault.fault))


def _picked_parts(faults: Sequence[FaultRows]) -> Iterator[Part]:
    """Yield charts that show one fault at a time, which the reader picks."""
    axis = axis_over(strip for rows in faults for strip in _all_strips(rows))
    # The text by which the reader picks each fault.
    names = {rows.fault.fault: _option(rows.fault) for rows in faults}
    both_chains = [_picked_chart(faults, names, chain, axis) for chain in ("broker", "client")]
    shown = tuple(chart for chart in both_chains if chart is not None)
    if shown:
        yield Beside(parts=shown)
    gap = _picked_chart(faults, names, "gap", axis)
    if gap is not None:
        yield gap


def _option(fault: FaultSummary) -> str:
    """Return the text by which the reader picks a fault: `kill-1: broker-0 at 12.000 s`."""
    return f"{fault.fault}: {fault.node or 'no node'} at {moment_text(fault.injected_us)}"


def _picked_chart(
    faults: Sequence[FaultRows], names: dict[str, str], chain: Chain, axis: LogAxis
) -> Chart | None:
    """Return a chart of the picked fault's strips; None if no fault has a strip of this chain."""
    # The data has the rows of all faults. The chart draws the rows of the fault that is picked.
    strips = {rows.fault.fault: rows.strips(chain) for rows in faults}
    # The chart has room for the fault with the most strips.
    most = max(len(of_fault) for of_fault in strips.values())
    if not most:
        return None
    data = [
        row
        for rows in faults
        for row in strip_rows(strips[rows.fault.fault], axis, **{_PICKED: names[rows.fault.fault]})
    ]
    return Chart(
        id=f"phases-{chain}",
        title=TITLES[chain],
        about=_ABOUT[chain],
        spec=strip_chart("strips", most, axis, _FILLS[chain], picked=_PICKED),
        data={"strips": data},
        picks=(Pick(param=_PICKED, label="fault", options=tuple(names.values())),),
    )
