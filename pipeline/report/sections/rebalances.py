"""The section `rebalances`: each rebalance, who caused it and why, whom it cost, how long it took.

A few are listed one by one; many of one kind after one fault are a line, as in the terminal, with
the single ones folded away beneath.
"""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from pipeline.report.charts.chart import SERIES, Cell, Chart, Paragraph, Part, Section, TextTable
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.report_input import ReportInput, Row
from pipeline.report.sentences.markup import items, moment_link
from pipeline.summary.figures import FaultSummary, duration_text
from pipeline.summary.outcomes import listed
from pipeline.summary.story import (
    counted,
    kept_text,
    moment_text,
    office_name,
    rebalances_statement,
)

MAX_ONE_BY_ONE = 12
"""Up to so many rebalances are told by the table alone; more are summed up first."""
MAX_LISTED = 300
"""So many rebalances are listed, the first ones."""
MAX_FAULTS = 40
"""The rebalances after so many faults are told, the first ones."""
_MIN_FOR_CHART = 8
_LEAD = (
    "A rebalance begins when the coordinator asks its members to join again, and ends when the log "
    "has their new assignment. The reason is the coordinator's; in quotes, what the member said."
)
_NONE = (
    "No rebalance after a fault: members, generation and assignment stayed as they were. A "
    "failover of a Stable group needs none, as the coordinator loads its members from the log."
)


def rebalances_section(run: ReportInput) -> Section | None:
    """Return the run's rebalances; None: there was no group to have one."""
    rows = sorted(run.tables.rows("rebalances"), key=lambda row: (row["started_us"], row["group"]))
    if not rows and not run.summary.faults:
        return None
    after = [row for row in rows if row["fault"] is not None]
    parts: list[Part] = []
    if run.summary.faults and not after:
        parts.append(Paragraph(html=Markup("<p>{}</p>").format(_NONE)))
    elif after:
        parts.append(
            Paragraph(
                html=_fault_paragraphs(run.summary.faults, grouped=len(after) > MAX_ONE_BY_ONE)
            )
        )
    chart = _chart(after)
    if chart is not None:
        parts.append(chart)
    if rows:
        parts.append(_table(rows))
    return Section(id="rebalances", title="Rebalances", lead=_LEAD, parts=tuple(parts))


def _fault_paragraphs(faults: Sequence[FaultSummary], *, grouped: bool) -> Markup:
    """Return the rebalances after each fault: in full where the table is too long to read."""
    shown = [fault for fault in faults if fault.rebalances or fault.members][:MAX_FAULTS]
    return Markup("").join(
        Markup("<h3>After {}: {}</h3>{}").format(
            fault.fault, _number(fault), items(_lines(fault, grouped=grouped))
        )
        for fault in shown
    )


def _number(fault: FaultSummary) -> str:
    return counted(fault.rebalance_count, "rebalance") if fault.rebalance_count else "no rebalance"


def _lines(fault: FaultSummary, *, grouped: bool) -> Iterator[str | None]:
    for rebalances in fault.rebalances:
        told = rebalances_statement(rebalances, fault)
        particulars = told.particulars if grouped else told.particulars[:1]
        yield "; ".join((f"{told.headline} ({rebalances.group})", *particulars))
    yield kept_text(fault)


def _chart(rows: Sequence[Row]) -> Chart | None:
    """Return how long rebalances took, by reason; None: they are few enough to be read."""
    if len(rows) < _MIN_FOR_CHART:
        return None
    reasons = sorted({row["reason"] for row in rows})
    strips = [
        _strip(reason, [row for row in rows if row["reason"] == reason]) for reason in reasons
    ]
    axis = axis_over(strips)
    return Chart(
        id="rebalance-lengths",
        title="How long they took",
        about="From the start of a rebalance until its assignment was stored, by reason; "
        "logarithmic. Each dot is a rebalance after a fault.",
        spec=strip_chart("strips", len(strips), axis, SERIES[3]),
        data={"strips": strip_rows(strips, axis)},
    )


def _strip(reason: str, rows: Sequence[Row]) -> Strip:
    lengths = sorted(row["length_us"] for row in rows if row["length_us"] is not None)
    without = len(rows) - len(lengths)
    return Strip(
        name=reason,
        values=tuple(
            (f"{row['group']} at {moment_text(row['started_us'])}", row["length_us"])
            for row in rows
            if row["length_us"] is not None
        ),
        figures=distribution_of(lengths, missing=without),
        subject="rebalance",
        note=f"{without:,} without an end" if without else "",
    )


def _table(rows: Sequence[Row]) -> TextTable:
    more = len(rows) - MAX_LISTED
    many = len(rows) > MAX_ONE_BY_ONE
    return TextTable(
        headings=(
            "began",
            "after",
            "group",
            "reason",
            "coordinator",
            "generation",
            "removed",
            "added",
            "joining",
            "until stable",
        ),
        rows=tuple(_cells(row) for row in rows[:MAX_LISTED]),
        caption="Joining: until the next generation began. Until stable: until its assignment was "
        "stored." + (f" {more:,} more stand in the table rebalances." if more > 0 else ""),
        numeric=("joining", "until stable"),
        folded=f"All {len(rows):,} rebalances" if many else None,
    )


def _cells(row: Row) -> tuple[Cell, ...]:
    new = "none" if row["new_generation"] is None else row["new_generation"]
    removed = None
    if row["removed"]:
        removed = f"{listed(row['removed'])} ({listed(row['removed_because'])})"
    return (
        moment_link(row["started_us"], row["stable_us"], lane="lane-rebalances", text=_began(row)),
        row["fault"] or "start of the group",
        row["group"],
        _reason(row),
        office_name(row["broker"], row["leader_epoch"]),
        f"{row['generation']} to {new}",
        removed,
        listed(row["added"]) if row["added"] else None,
        _length(row["join_us"]),
        _length(row["length_us"]) or _unended(row),
    )


def _began(row: Row) -> str:
    return moment_text(row["started_us"])


def _reason(row: Row) -> str:
    said = f', "{row["client_reason"]}"' if row["client_reason"] else ""
    return f"{row['reason']}{' of ' + row['consumer'] if row['consumer'] else ''}{said}"


def _length(value_us: int | None) -> str | None:
    return None if value_us is None else duration_text(value_us)


def _unended(row: Row) -> str:
    return f"not stored ({row['store_error']})" if row["store_error"] else "never"
