"""The section "Rebalances" of a report.

The section tells why each rebalance began, how long it took, and whom it removed. It has three
parts:

1. For each fault, lines such as "2 rebalances: session expiry of consumer-a-0 (readers)". Such a
   line is about rebalances of one group that one coordinator began for the same reason.
2. If there are many rebalances, a chart of their lengths. The chart has a row (a strip) for each
   reason, and in the row a dot for each rebalance.
3. A table of all rebalances. If there are many rebalances, the table is folded, and the lines of
   part 1 have more details instead.
"""

from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import SERIES, Chart, Paragraph, Part, Section, TextTable
from pipeline.report.charts.strips import Strip, axis_over, distribution_of, strip_chart, strip_rows
from pipeline.report.columns import Column, number, text_table
from pipeline.report.rendering import REBALANCES, moment_link, render_line
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import FaultSummary, duration_text
from pipeline.summary.outcomes import listed
from pipeline.summary.story import (
    coordinator_with_epoch,
    kept_text,
    moment_text,
    rebalances_statement,
)

MAX_ONE_BY_ONE = 12
"""Maximum number of rebalances in a table that is shown at once. A longer table is folded."""
MAX_LISTED = 300
"""Maximum number of rebalances in the table. If there are more, the table has only the earliest."""
MAX_FAULTS = 40
"""Maximum number of faults with lines. If there are more, only the first faults have lines."""
_MIN_FOR_CHART = 8
"""Minimum number of rebalances for a chart of their lengths."""
_LEAD = (
    "A rebalance begins when the coordinator asks its members to join again, and ends when the log "
    "has their new assignment. The reason is the coordinator's; in quotes, what the member said."
)


def rebalances_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run had neither a rebalance nor a fault."""
    rows = sorted(run.tables.rows("rebalances"), key=lambda row: (row["started_us"], row["group"]))
    if not rows and not run.summary.faults:
        return None
    # A rebalance has no `fault` if it began before the first fault, when its group started.
    after_faults = [row for row in rows if row["fault"] is not None]

    parts: list[Part] = []
    if run.summary.faults and not after_faults:
        parts.append(Paragraph(html=render_line("rebalances", "no_rebalance")))
    elif after_faults:
        table_is_folded = len(after_faults) > MAX_ONE_BY_ONE
        # A fault that affected no member and led to no rebalance needs no line here.
        faults = [fault for fault in run.summary.faults if fault.rebalances or fault.members]
        lines = [
            (fault, list(_lines(fault, with_details=table_is_folded)))
            for fault in faults[:MAX_FAULTS]
        ]
        parts.append(Paragraph(html=render_line("rebalances", "after_faults", lines)))

    chart = _chart(after_faults)
    if chart is not None:
        parts.append(chart)
    if rows:
        parts.append(_table(rows))
    return Section(id="rebalances", title="Rebalances", lead=_LEAD, parts=tuple(parts))


def _lines(fault: FaultSummary, *, with_details: bool) -> Iterator[str | None]:
    """Yield lines about the rebalances after a fault, then a line about members that kept their id.

    The line about members is None if there is nothing to say.
    """
    for rebalances in fault.rebalances:
        statement = rebalances_statement(rebalances, fault)
        # The first particular says when and where the rebalances began, and how long they took. All
        # later particulars are details: which members the rebalances removed and added.
        particulars = statement.particulars if with_details else statement.particulars[:1]
        yield "; ".join((f"{statement.headline} ({rebalances.group})", *particulars))
    yield kept_text(fault)


def _chart(rows: Sequence[Row]) -> Chart | None:
    """Return the chart of the lengths; None if there are only a few rebalances."""
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
    """Return the row of the chart for one reason, with a dot for each rebalance that ended.

    The note beside the row says how many rebalances did not end: `2 without an end`.
    """
    ended = [row for row in rows if row["length_us"] is not None]
    unended = len(rows) - len(ended)
    return Strip(
        name=reason,
        values=tuple(
            (f"{row['group']} at {moment_text(row['started_us'])}", row["length_us"])
            for row in ended
        ),
        figures=distribution_of(sorted(row["length_us"] for row in ended), missing=unended),
        subject="rebalance",
        note=f"{unended:,} without an end" if unended else "",
    )


def _table(rows: Sequence[Row]) -> TextTable:
    """Return the table of the first MAX_LISTED rebalances."""
    caption = (
        "Joining: until the next generation began. Until stable: until its assignment was stored."
    )
    left_out = len(rows) - MAX_LISTED
    if left_out > 0:
        caption += f" {left_out:,} more stand in the table rebalances."
    return text_table(
        _COLUMNS,
        rows[:MAX_LISTED],
        caption=caption,
        folded=f"All {len(rows):,} rebalances" if len(rows) > MAX_ONE_BY_ONE else None,
    )


def _began(row: Row) -> str:
    """Return when a rebalance began, as a link to this moment in the charts (lanes)."""
    text = moment_text(row["started_us"])
    return moment_link(row["started_us"], row["stable_us"], lane=REBALANCES, text=text)


def _reason(row: Row) -> str:
    """Return the reason of the rebalance: `leave of consumer-a-0, "the consumer is being closed"`.

    The text in quotes is the reason that the member itself sent in its request.
    """
    text: str = row["reason"]
    if row["consumer"]:
        text += f" of {row['consumer']}"
    if row["client_reason"]:
        text += f', "{row["client_reason"]}"'
    return text


def _generations(row: Row) -> str:
    """Return the generations before and after a rebalance: `3 to 4`, or `3 to none`."""
    new_generation = "none" if row["new_generation"] is None else row["new_generation"]
    return f"{row['generation']} to {new_generation}"


def _removed(row: Row) -> str | None:
    """Return `consumer-a-0 (session expiry)`; None if no member was removed."""
    if not row["removed"]:
        return None
    return f"{listed(row['removed'])} ({listed(row['removed_because'])})"


def _until_stable(row: Row) -> str:
    """Return the length of a rebalance as text, or that its assignment was not stored."""
    if row["length_us"] is not None:
        return duration_text(row["length_us"])
    if row["store_error"]:
        return f"not stored ({row['store_error']})"
    return "never"


_COLUMNS = (
    Column(_began, "began"),
    Column(lambda row: row["fault"] or "start of the group", "after"),
    Column("group", "group"),
    Column(_reason, "reason"),
    Column(lambda row: coordinator_with_epoch(row["broker"], row["leader_epoch"]), "coordinator"),
    Column(_generations, "generation"),
    Column(_removed, "removed"),
    Column(lambda row: listed(row["added"]) or None, "added"),
    number(
        lambda row: None if row["join_us"] is None else duration_text(row["join_us"]), "joining"
    ),
    number(_until_stable, "until stable"),
)
