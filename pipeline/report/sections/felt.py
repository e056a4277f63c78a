"""The section `felt`: what the run cost its groups, in all, by group and by partition."""

from markupsafe import Markup

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.report_input import ReportInput, Row
from pipeline.report.sentences.markup import items, moment_link
from pipeline.summary.felt import FELT_MEASURES, FeltGroup
from pipeline.summary.figures import length_text
from pipeline.summary.story import FELT, FELT_IN_ALL, NOTHING_FELT, as_title, felt_rows, felt_text

MAX_GROUPS = 40
MAX_PARTITIONS = 300
"""So many partitions are listed, those without an owner or waiting for longest."""
_HEADINGS = ("partitions", "p50", "p90", "max", "sum")
_LEAD = (
    "From the steady state to the end. A record waits when its producer was told that it is stored "
    "and the group has not processed it; a wait counts from one second on."
)


def felt_section(run: ReportInput) -> Section | None:
    """Return what was felt; None: the run had no group."""
    felt = run.summary.felt
    if felt is None:
        return None
    groups = list(felt.groups.items())[:MAX_GROUPS]
    parts: list[Part] = [
        Paragraph(html=items(felt_text(group, counts) for group, counts in groups)),
        _in_all(felt.in_all),
    ]
    partitions = sorted(run.tables.rows("felt_partitions"), key=_worst_first)
    if partitions:
        parts.append(_by_partition(partitions))
    return Section(id="felt", title=as_title(FELT), lead=_LEAD, parts=tuple(parts))


def _in_all(group: FeltGroup) -> Part:
    """Return the figures over all partitions of all groups."""
    rows = felt_rows(group)
    if not rows:
        return Paragraph(html=Markup("<p>{}</p>").format(f"{as_title(NOTHING_FELT)}."))
    return TextTable(
        headings=("figure", *_HEADINGS),
        rows=tuple((name, *(cells[heading] for heading in _HEADINGS)) for name, cells in rows),
        caption=as_title(FELT_IN_ALL),
        numeric=_HEADINGS,
    )


def _worst_first(row: Row) -> tuple[int, int, str, str]:
    felt_us = (row["unowned_us"] or 0) + row["waited_us"]
    return -felt_us, -row["lag_peak"], row["group"], row["partition"]


def _by_partition(rows: list[Row]) -> TextTable:
    shown = rows[:MAX_PARTITIONS]
    more = len(rows) - len(shown)
    names = tuple(measure.name for measure in FELT_MEASURES)
    return TextTable(
        headings=("group", "partition", *names, "peak at"),
        rows=tuple(
            (
                row["group"],
                row["partition"],
                *(_cell(row[each.column], is_time=each.is_time) for each in FELT_MEASURES),
                None if row["lag_peak_us"] is None else moment_link(row["lag_peak_us"]),
            )
            for row in shown
        ),
        numeric=names,
        folded=f"Each partition{f'; {more:,} more in tables/felt_partitions' if more else ''}",
    )


def _cell(value: int | None, *, is_time: bool) -> Cell:
    if value is None:
        return "never"
    return length_text(value) if is_time else f"{value:,}"
