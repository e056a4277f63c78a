"""The section "Phases" of a run's page: where the time of each failover went.

After a fault that moves a coordinator, two things happen at the same time:

- The broker chain: in the cluster, another broker becomes the coordinator and loads the groups.
- The client chain: the members notice the loss and look for the new coordinator.

Each chain has several phases, such as `detect`.

The two chains overlap in time. So the page shows them side by side and never adds them up. Below
the chains, the page shows the gaps: the times in which members, partitions and groups had no
service.

For each fault, the section has sentences, charts, and tables of figures. A chart consists of
strips, one below another. Each strip shows one phase, with a dot for each partition or member. All
strips of the section have the same axis, so the reader can compare faults.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

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
"""Maximum number of faults that have charts of their own. If there are more faults, the section has
only one set of charts, with a list from which the reader picks a fault."""
MAX_PICKED = 60
"""Maximum number of faults from which the reader picks. The limit keeps the page small."""
TITLES: dict[Chain, str] = {chain: as_title(text) for chain, text in CHAIN_HEADINGS.items()}
"""The titles of the three charts."""
_ABOUT: dict[Chain, str] = {
    "broker": "What happens in the cluster: each dot is an offsets partition that moved.",
    "client": "What happens to the members of the affected groups: each dot is one of them.",
    "gap": (
        "Without an acknowledged commit, per member; without a record processed, per partition; "
        "without an active coordinator, per group."
    ),
}
_FILLS: dict[Chain, str] = {"broker": SERIES[0], "client": SERIES[1], "gap": SERIES[2]}
"""The colour of the dots in the charts of each chain."""
_LEAD = (
    "The two chains overlap in time and are never added up. Time is logarithmic here, from 0 on: "
    "each mark is ten times the one before. The thick line is the median, the thin ones are the "
    "90th percentile and the longest. Past 60 dots, a bar's height counts them."
)
_PICKED = "fault"
"""Name of a parameter of the charts, and also of a column in their data. The parameter is the fault
that the reader picked. A chart draws the rows in which the column has the same fault.
"""


def phases_section(run: ReportInput) -> Section | None:
    """Return the section; None if no fault hit anything."""
    faults = list(rows_of_faults(run))
    if not faults:
        return None

    settings = Settings(run.facts.settings)
    parts: list[Part] = [definitions()]
    if len(faults) > 1:
        parts += overview(run.summary.faults)
    # A figure is disturbed if a machine was lost by accident while the figure was measured.
    # Disturbed figures are marked with `*`. These paragraphs explain the mark before the reader
    # meets it.
    if any(figures.disturbed for fault in run.summary.faults for _, figures in fault.measures):
        for text in disturbance_texts(run.summary):
            parts.append(Paragraph(html=render_line("words", "plain", text)))

    if len(faults) <= MAX_IN_FULL:
        axis = axis_over(strip for rows in faults for strip in _all_strips(rows))
        for rows in faults:
            parts += _parts_about_one_fault(rows, axis, settings)
    else:
        parts += _charts_of_the_picked_fault(_pickable(faults))

    lead = _LEAD
    error_us = run.summary.clock_error_us
    if error_us > 0:
        lead += f" Grey: shorter than the error of the clocks, {duration_text(error_us)}."
    return Section(
        id="phases", title="Where the time went, phase by phase", lead=lead, parts=tuple(parts)
    )


def _all_strips(rows: FaultRows) -> list[Strip]:
    """Return the strips of all chains after one fault."""
    return [strip for chain in CHAINS for strip in rows.strips(chain)]


def _parts_about_one_fault(rows: FaultRows, axis: LogAxis, settings: Settings) -> Iterator[Part]:
    """Yield a heading, a paragraph, the charts, and a list of sentences about the members.

    The first chart shows the phases in their order. The next charts show both chains and the gaps.
    """
    fault = rows.fault

    yield Paragraph(html=render_line("words", "fault_heading", fault))
    chain_sentences = (
        broker_sentence(fault, rows.broker, settings),
        client_sentence(rows.client) if rows.client else None,
        gap_sentence(fault, rows.gap),
    )
    yield Paragraph(html=render_line("chains", "told", *chain_sentences))

    data = order_rows(rows)
    if data:
        # The field `fault.fault` is the fault's id, such as `kill-1`.
        yield Chart(
            id=f"phases-{fault.fault}-order",
            title="One after the other",
            about="The median partition and member of each chain, and the slowest: a linear axis, "
            "on which short phases vanish.",
            spec=order_chart("order", lines_of(data)),
            data={"order": data},
        )
    yield from _arranged({chain: _chain_chart(rows, chain, axis) for chain in CHAINS})

    # How members noticed the loss of their coordinator, how long they stayed with the old
    # coordinator, and how many members kept their member id and generation.
    member_sentences = [noticed_text(fault), *leaving_texts(fault), kept_text(fault)]
    if any(member_sentences):
        yield Paragraph(html=render_line("words", "items", member_sentences))


def _arranged(charts: Mapping[Chain, Chart | None]) -> Iterator[Part]:
    """Yield the charts of the broker chain and of the client chain side by side, then the gaps."""
    chain_charts = (charts["broker"], charts["client"])
    side_by_side = [chart for chart in chain_charts if chart is not None]
    if side_by_side:
        yield Beside(parts=tuple(side_by_side))
    gap_chart = charts["gap"]
    if gap_chart is not None:
        yield gap_chart


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

    A row has the same cells as on the terminal, such as `("detect", "3", "", "1.20 s", ...)`: the
    name of a measure, then a cell for each heading in HEADER.
    """
    rows = fault.rows(chain)
    columns = [
        number(itemgetter(cell), heading)
        # The headings begin with cell 1, because cell 0 is the measure's name.
        for cell, heading in enumerate(HEADER, 1)
        if any(row[cell] for row in rows)
    ]
    return text_table((Column(itemgetter(0)), *columns), rows, folded="The figures")


def _pickable(faults: Sequence[FaultRows]) -> list[FaultRows]:
    """Return the faults that the reader can pick, in time order.

    If there are more than MAX_PICKED, the faults with the longest gaps are chosen.
    """

    def longest_gap_us(rows: FaultRows) -> int:
        """Return the longest gap of any kind after a fault."""
        gaps = [
            figures.maximum or 0
            for measure, figures in rows.fault.measures
            if measure.chain == "gap"
        ]
        return max(gaps, default=0)

    if len(faults) <= MAX_PICKED:
        return list(faults)
    chosen = sorted(faults, key=longest_gap_us, reverse=True)[:MAX_PICKED]
    return sorted(chosen, key=lambda rows: (rows.fault.injected_us, rows.fault.fault))


def _charts_of_the_picked_fault(faults: Sequence[FaultRows]) -> Iterator[Part]:
    """Yield charts that show one fault at a time, which the reader picks."""
    axis = axis_over(strip for rows in faults for strip in _all_strips(rows))
    yield from _arranged({chain: _picked_chart(faults, chain, axis) for chain in CHAINS})


def _picked_chart(faults: Sequence[FaultRows], chain: Chain, axis: LogAxis) -> Chart | None:
    """Return a chart of the picked fault's strips; None if no fault has a strip of this chain."""
    # The chart's data has the rows of all faults, and each row says to which fault it belongs.
    data: list[dict[str, Any]] = []
    most_strips = 0
    for rows in faults:
        strips = rows.strips(chain)
        most_strips = max(most_strips, len(strips))
        fault_of_rows = {_PICKED: _option(rows.fault)}
        data += strip_rows(strips, axis, **fault_of_rows)
    if not most_strips:
        return None

    options = tuple(_option(rows.fault) for rows in faults)
    return Chart(
        id=f"phases-{chain}",
        title=TITLES[chain],
        about=_ABOUT[chain],
        # The chart has room for the fault with the most strips.
        spec=strip_chart("strips", most_strips, axis, _FILLS[chain], picked=_PICKED),
        data={"strips": data},
        picks=(Pick(param=_PICKED, label="fault", options=options),),
    )


def _option(fault: FaultSummary) -> str:
    """Return the text by which the reader picks a fault: `kill-1: broker-0 at 12.000 s`."""
    return f"{fault.fault}: {fault.node or 'no node'} at {moment_text(fault.injected_us)}"
