"""The section `rebalances`: the cause, length and removed members of each rebalance.

In a rebalance, the members of a group rejoin and get new partitions. Rebalances after one fault are
of the same kind if they have the same group, coordinator and reason. Each kind has a line. A table
lists the rebalances one by one. If there are many, the table is folded, and the lines have the
details. A picture shows the lengths of the rebalances. A strip is one row of the picture. It is
about one reason, and has a dot for each rebalance.
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
"""Up to this number of rebalances, the table is open and has their details. If there are more, the
table is folded, and the lines also have the details.
"""
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
    # Rebalances without a fault belong to the start of the groups.
    after = [row for row in rows if row["fault"] is not None]

    parts: list[Part] = []
    if run.summary.faults and not after:
        parts.append(Paragraph(html=render_line("rebalances", "no_rebalance")))
    elif after:
        grouped = len(after) > MAX_ONE_BY_ONE
        # A fault without members affected no group, and needs no line here.
        shown = [fault for fault in run.summary.faults if fault.rebalances or fault.members]
        lines = [(fault, list(_lines(fault, grouped=grouped))) for fault in shown[:MAX_FAULTS]]
        parts.append(Paragraph(html=render_line("rebalances", "after_faults", lines)))

    chart = _chart(after)
    if chart is not None:
        parts.append(chart)
    if rows:
        parts.append(_table(rows))
    return Section(id="rebalances", title="Rebalances", lead=_LEAD, parts=tuple(parts))


def _lines(fault: FaultSummary, *, grouped: bool) -> Iterator[str | None]:
    """Yield a line for each kind of rebalance after a fault, then one on the members that stayed.

    If `grouped` is True, the lines have all details. Otherwise they have only the first one,
    because the open table has the others.
    """
    for rebalances in fault.rebalances:
        statement = rebalances_statement(rebalances, fault)
        # The first particular is the time, place and length; the others are the changed members.
        particulars = statement.particulars if grouped else statement.particulars[:1]
        yield "; ".join((f"{statement.headline} ({rebalances.group})", *particulars))
    yield kept_text(fault)


def _chart(rows: Sequence[Row]) -> Chart | None:
    """Return a picture of the rebalances' lengths, by reason; None if there are only a few."""
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
    """Return the strip of the rebalances of one reason: a dot for each, at its length.

    A rebalance without an end has no dot; the strip's note counts such rebalances.
    """
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
    """Return the table of the first MAX_LISTED rebalances."""
    more = len(rows) - MAX_LISTED
    more_text = f" {more:,} more stand in the table rebalances." if more > 0 else ""
    return text_table(
        _COLUMNS,
        rows[:MAX_LISTED],
        caption="Joining: until the next generation began. Until stable: until its assignment was "
        f"stored.{more_text}",
        folded=f"All {len(rows):,} rebalances" if len(rows) > MAX_ONE_BY_ONE else None,
    )


def _began(row: Row) -> str:
    """Return the beginning of a rebalance, as a link to its time in the lanes."""
    text = moment_text(row["started_us"])
    return moment_link(row["started_us"], row["stable_us"], lane=REBALANCES, text=text)


def _reason(row: Row) -> str:
    """Return the coordinator's reason, the member that caused it, and what the member said."""
    quoted = f', "{row["client_reason"]}"' if row["client_reason"] else ""
    return f"{row['reason']}{' of ' + row['consumer'] if row['consumer'] else ''}{quoted}"


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
