"""The section `felt`: the effects that clients felt, for the whole run, each group, each partition.

The effects are of three kinds:

- waits: a stored record waits until the group processes it. Waits below one second do not count.
- times without an owner: the partition was assigned to no member.
- lag: the number of records that wait.

If a machine was away by accident, and not by a fault of the experiment, the figures of that time
are disturbed. They are marked with an asterisk (MARK), and a footnote explains it.
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
"""Maximum number of partitions in the table. Those with the longest times without an owner and
waits are chosen.
"""
_HEADINGS = ("partitions", "p50", "p90", "max", "sum")
"""Headings of the figures in `story.felt_rows`."""
# The text under the section's title. In the steady state, all groups have all their members and
# partitions.
_LEAD = (
    "From the steady state to the end. A record waits when its producer was told that it is stored "
    "and the group has not processed it; a wait counts from one second on."
)


def felt_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run had no group."""
    felt = run.summary.felt
    if felt is None:
        return None
    groups = list(felt.groups.items())[:MAX_GROUPS]  # pairs: a group's name and its figures
    parts: list[Part] = [
        Paragraph(html=render_line("words", "items", [felt_text(*group) for group in groups])),
        *_deploys(run),
        _in_all(felt),
    ]
    if felt.disturbed:
        footnotes = disturbance_texts(run.summary)
        parts += [Paragraph(html=render_line("words", "plain", note)) for note in footnotes]

    partitions = sorted(run.tables.rows("felt_partitions"), key=_worst_first)
    if partitions:
        parts.append(_by_partition(partitions))
    return Section(id="felt", title=as_title(FELT), lead=_LEAD, parts=tuple(parts))


def _deploys(run: ReportInput) -> list[Part]:
    """Return a paragraph on the costs of the run's rollouts; [] if no rollout has a cost.

    A rollout (deploy) replaces the members of a group one after another. Its cost is what the
    group's clients felt meanwhile, such as times without an owner.
    """
    texts = [deploy_text(cost) for cost in deploys_of(run.facts.faults, run.summary.felt)]
    return [Paragraph(html=render_line("words", "items", texts))] if texts else []


def _in_all(felt: Felt) -> Part:
    """Return the figures over all partitions of all groups."""
    # Each row is a pair: the name of a figure, and its cells by heading.
    rows = felt_rows(felt.in_all)
    if not rows:
        return Paragraph(html=render_line("words", "plain", as_title(NOTHING_FELT)))
    # A column is the function that gets its cell from a row, and its heading.
    cells = [number(partial(_cell_under, name), name) for name in _HEADINGS]
    columns = (Column(itemgetter(0), "figure"), *cells)
    mark = MARK if felt.disturbed else ""
    return text_table(columns, rows, caption=f"{as_title(FELT_IN_ALL)}{mark}")


def _cell_under(heading: str, row: tuple[str, dict[str, str]]) -> str:
    """Return a cell of a row of `felt_rows`."""
    _, cells = row
    return cells[heading]


def _worst_first(row: Row) -> tuple[int, int, str, str]:
    """Return a sort key. Partitions with the longest waits and times without an owner come first.

    The two times are added up. The largest lag decides between equal sums.
    """
    # `unowned_us` is null for a partition that never had an owner. It counts as 0.
    felt_us = (row["unowned_us"] or 0) + row["waited_us"]
    return -felt_us, -row["lag_peak"], row["group"], row["partition"]


def _by_partition(rows: list[Row]) -> TextTable:
    """Return the table of single partitions. Partitions with the longest times come first.

    The table is folded: the page shows it when the reader clicks on its summary line.
    """
    shown = rows[:MAX_PARTITIONS]
    more = len(rows) - len(shown)
    measures = [number(partial(_cell, measure), measure.name) for measure in FELT_MEASURES]
    summary_line = "Each partition"
    if more:
        summary_line += f"; {more:,} more in tables/felt_partitions"
    # `named` makes columns whose headings are the names of the row's columns.
    columns = (*named("group", "partition"), *measures, Column(_peak, "peak at"))
    return text_table(columns, shown, folded=summary_line)


def _cell(measure: FeltMeasure, row: Row) -> Cell:
    """Return a figure of a partition as text.

    `never` stands for null: the partition never had an owner, or its lag never came down again.
    """
    value = row[measure.column]
    if value is None:
        return "never"
    return length_text(value) if measure.is_time else f"{value:,}"


def _peak(row: Row) -> str | None:
    """Return a link to the moment of the largest lag.

    None if the lag was never larger than usual, that is, than before the first fault.
    """
    return None if row["lag_peak_us"] is None else moment_link(row["lag_peak_us"])
