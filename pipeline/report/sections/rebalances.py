"""The section "Rebalances" of a report: why each one began, how long it took, whom it removed.

The section has three parts:

1. For each fault, a line such as "2 rebalances: session expiry of consumer-a-0 (readers)". A line
   is about the rebalances that have the group, the coordinator and the reason in common.
2. If there are many rebalances, a picture of their lengths: a row for each reason (a strip), and in
   it a dot for each rebalance.
3. A table of all rebalances, one by one. With few of them it is open, and has the details. With
   many it is folded, and the lines of part 1 have the details.
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
"""Maximum number of rebalances for which the table is open."""
MAX_LISTED = 300
"""Maximum number of rebalances in the table. If there are more, it has the first ones."""
MAX_FAULTS = 40
"""Maximum number of faults whose rebalances have a line. If there are more, the first ones have."""
_MIN_FOR_CHART = 8
"""Minimum number of rebalances for a picture of their lengths."""
_LEAD = (
    "A rebalance begins when the coordinator asks its members to join again, and ends when the log "
    "has their new assignment. The reason is the coordinator's; in quotes, what the member said."
)


def rebalances_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run had neither a rebalance nor a fault."""
    rows = sorted(run.tables.rows("rebalances"), key=lambda row: (row["started_us"], row["group"]))
    if not rows and not run.summary.faults:
        return None
    # The others belong to the start of the groups, before the first fault.
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
    """Yield a line for each kind of rebalance after a fault, then one about members that stayed.

    The last line is None if there is nothing to say about such members.
    """
    for rebalances in fault.rebalances:
        statement = rebalances_statement(rebalances, fault)
        # The first particular says when and where the rebalances began, and how long they took.
        # The details are the particulars after it: which members they removed and added.
        particulars = statement.particulars if with_details else statement.particulars[:1]
        yield "; ".join((f"{statement.headline} ({rebalances.group})", *particulars))
    yield kept_text(fault)


def _chart(rows: Sequence[Row]) -> Chart | None:
    """Return the picture of the lengths; None if there are only a few rebalances."""
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
    """Return the row of the picture for one reason, with a dot for each rebalance that ended.

    The note beside the row says how many did not end: `2 without an end`.
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
    """Return the beginning of a rebalance, as a link to its time in the lanes."""
    text = moment_text(row["started_us"])
    return moment_link(row["started_us"], row["stable_us"], lane=REBALANCES, text=text)


def _reason(row: Row) -> str:
    """Return the coordinator's reason, the member that gave it, and that member's own words.

    Example: `leave of consumer-a-0, "the consumer is being closed"`.
    """
    text: str = row["reason"]
    if row["consumer"]:
        text += f" of {row['consumer']}"
    if row["client_reason"]:
        text += f', "{row["client_reason"]}"'
    return text


def _generations(row: Row) -> str:
    new = row["new_generation"]
    return f"{row['generation']} to {'none' if new is None else new}"


def _removed(row: Row) -> str | None:
    """Return the removed members and the causes of their removal; None if none was removed."""
    if not row["removed"]:
        return None
    return f"{listed(row['removed'])} ({listed(row['removed_because'])})"


def _until_stable(row: Row) -> str:
    """Return the length of a rebalance as text, or why it was not completed."""
    if row["length_us"] is not None:
        return duration_text(row["length_us"])
    return f"not stored ({row['store_error']})" if row["store_error"] else "never"


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
