"""The two sections that the lanes form: what happened when, and what was said around each fault."""

from pipeline.report.charts.chart import Chart, Section
from pipeline.report.lanes import messages
from pipeline.report.lanes.availability import availability_lane
from pipeline.report.lanes.coordinators import coordinators_lane
from pipeline.report.lanes.faults import faults_lane
from pipeline.report.lanes.groups import group_detail, groups_lane
from pipeline.report.lanes.ownership import ownership_detail, ownership_lane
from pipeline.report.lanes.rebalances import rebalance_detail, rebalances_lane
from pipeline.report.report_input import ReportInput


def timeline(run: ReportInput) -> Section | None:
    """Return the lanes of the run from top to bottom; None if there is nothing to show."""
    charts: tuple[Chart | None, ...] = (
        faults_lane(run),
        coordinators_lane(run),
        groups_lane(run),
        group_detail(run),
        rebalances_lane(run),
        rebalance_detail(run),
        ownership_lane(run),
        ownership_detail(run),
        availability_lane(run),
    )
    drawn = tuple(chart for chart in charts if chart is not None)
    if not drawn:
        return None
    return Section(
        id="timeline",
        title="Timeline",
        lead="What happened when: all lanes share one time axis, and move and zoom together.",
        parts=drawn,
    )


def message_diagrams(run: ReportInput) -> Section | None:
    """Return the message diagrams; None without messages around a fault."""
    drawn = messages.lanes(run)
    if not drawn:
        return None
    more = messages.left_out(run)
    rest = f" {more:,} later faults have no diagram; tables/messages has theirs." if more else ""
    return Section(
        id="messages",
        title="Messages around each fault",
        lead=f"Who said what to whom: too much for one look. Begin with a link.{rest}",
        parts=drawn,
    )
