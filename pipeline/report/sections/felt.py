"""The section `felt`: what the users of the groups noticed in the whole run.

The section has a sentence for each group, the figures over all partitions, and a table of single
partitions. Users notice three things:

- Stored records wait until the group processes them. Waits below one second do not count.
- A partition has no owner, because it is assigned to no member.
- The lag of a partition grows. The lag is the number of records that wait.

A machine may be away by accident, that is, not because of a fault of the experiment. The figures of
such a time are called disturbed. They are marked with an asterisk (MARK), and a footnote explains
the mark.
"""

from functools import partial
from operator import itemgetter

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.columns import Column, named, number, text_table
from pipeline.report.rendering import moment_link, render_line
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.deploys import deploy_text, deploys_of
from pipeline.summary.felt import FELT_MEASURES, Felt, FeltMeasure
from pipeline.summary.figures import MARK, length_text
from pipeline.summary.story import (
    FELT,
    FELT_IN_ALL,
    NOTHING_FELT,
    as_title,
    disturbance_texts,
    felt_rows,
    felt_text,
)

MAX_GROUPS = 40
"""Maximum number of groups that have a sentence."""
MAX_PARTITIONS = 300
"""Maximum number of partitions in the table. If there are more, the table has the partitions with
the longest times without service.
"""
_HEADINGS = ("partitions", "p50", "p90", "max", "sum")
"""The headings of the cells that `felt_rows` returns."""
_LEAD = (
    "From the steady state to the end. A record waits when its producer was told that it is stored "
    "and the group has not processed it; a wait counts from one second on."
)


def felt_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run had no group."""
    felt = run.summary.felt
    if felt is None:
        return None
    shown_groups = list(felt.groups.items())[:MAX_GROUPS]
    sentences = [felt_text(name, figures) for name, figures in shown_groups]
    parts: list[Part] = [
        Paragraph(html=render_line("words", "items", sentences)),
        *_deploys(run),
        _figures_in_all(felt),
    ]
    if felt.disturbed:
        parts += [
            Paragraph(html=render_line("words", "plain", footnote))
            for footnote in disturbance_texts(run.summary)
        ]

    partitions = sorted(run.tables.rows("felt_partitions"), key=_worst_first)
    if partitions:
        parts.append(_table_of_partitions(partitions))
    return Section(id="felt", title=as_title(FELT), lead=_LEAD, parts=tuple(parts))


def _deploys(run: ReportInput) -> list[Part]:
    """Return a paragraph on what the run's rollouts cost; [] if the run had no rollout.

    A rollout, also called deploy, replaces the members of a group one after another. Its cost is
    what users noticed of it, such as times without an owner.
    """
    texts = [deploy_text(cost) for cost in deploys_of(run.facts.faults, run.summary.felt)]
    return [Paragraph(html=render_line("words", "items", texts))] if texts else []


def _figures_in_all(felt: Felt) -> Part:
    """Return the figures over all partitions of all groups."""
    # A row is the name of a figure and its cells: `("lag", {"partitions": "12", "p50": "3", ...})`.
    rows = felt_rows(felt.in_all)
    if not rows:
        return Paragraph(html=render_line("words", "plain", as_title(NOTHING_FELT)))
    cells = [number(partial(_cell_under, heading), heading) for heading in _HEADINGS]
    columns = (Column(itemgetter(0), "figure"), *cells)
    mark = MARK if felt.disturbed else ""
    return text_table(columns, rows, caption=f"{as_title(FELT_IN_ALL)}{mark}")


def _cell_under(heading: str, row: tuple[str, dict[str, str]]) -> str:
    """Return the cell of a row under a heading."""
    _, cells = row
    return cells[heading]


def _worst_first(row: Row) -> tuple[int, int, str, str]:
    """Return a sort key. The partitions with the longest times without service come first.

    The time without an owner and the waits are added up. If the sums are equal, the partition with
    the larger lag comes first.
    """
    # `unowned_us` is null for a partition that never had an owner. The null counts as 0.
    felt_us = (row["unowned_us"] or 0) + row["waited_us"]
    return -felt_us, -row["lag_peak"], row["group"], row["partition"]


def _table_of_partitions(rows: list[Row]) -> TextTable:
    """Return the table of single partitions. It is folded under the line "Each partition"."""
    shown = rows[:MAX_PARTITIONS]
    summary_line = "Each partition"
    left_out = len(rows) - len(shown)
    if left_out:
        summary_line += f"; {left_out:,} more in tables/felt_partitions"
    measures = [number(partial(_cell, measure), measure.name) for measure in FELT_MEASURES]
    columns = (*named("group", "partition"), *measures, Column(_moment_of_peak, "peak at"))
    return text_table(columns, shown, folded=summary_line)


def _cell(measure: FeltMeasure, row: Row) -> Cell:
    """Return a figure of a partition as text.

    The text is `never` if the partition never had an owner, or if its lag never came down again.
    """
    value = row[measure.column]
    if value is None:
        return "never"
    return length_text(value) if measure.is_time else f"{value:,}"


def _moment_of_peak(row: Row) -> str | None:
    """Return a link to the moment of the largest lag.

    Returns None if the lag was never larger than before the first fault.
    """
    return None if row["lag_peak_us"] is None else moment_link(row["lag_peak_us"])
