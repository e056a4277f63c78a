"""The sections of a report that compare two designs of a consumer group.

Before Kafka had group coordinators, the members of a group divided the partitions among themselves
through ZooKeeper. A run can have groups of both designs, which meet the same faults. The report
then has three sections:

1. What users noticed: how long a partition had no owner, how long no member processed its records,
   and how long it had two owners.
2. What each change of a group's members cost, such as requests and the time until the group was
   stable.
3. Who computed which assignment (called a plan), as marks on a time axis.
"""

from collections.abc import Sequence

from pipeline.report.charts.chart import Cell, Part, Section, TextTable
from pipeline.report.columns import Column, number, text_table
from pipeline.report.facts import RunFacts
from pipeline.report.report_input import ReportInput, RunTables
from pipeline.report.two_designs.answers import (
    FACTOR,
    ComparedFigure,
    compared_figures,
    compared_size,
)
from pipeline.report.two_designs.costs import Cost, costs_of
from pipeline.report.two_designs.felt_strips import felt_chart
from pipeline.report.two_designs.growth_chart import growth_chart
from pipeline.report.two_designs.plan_lanes import pairs_of, plan_charts
from pipeline.report.two_designs.sides import sides_of
from pipeline.summary.figures import length_text

_TITLE = "ZooKeeper beside a coordinator"
_LEAD = (
    "What each partition went through, from the steady state to the end of the run; then the "
    "figures of both designs. What the coordinator changed differs by a factor of "
    f"{FACTOR} or more, for the better or for the worse."
)


def two_designs_sections(
    runs: Sequence[tuple[RunFacts, RunTables]], titles: Sequence[str]
) -> list[Section]:
    """Return the sections; none if no group of the runs is on ZooKeeper.

    `titles` are the names of the runs on the page.
    """
    sides = sides_of(runs, titles)
    if not sides:
        return []
    costs = [cost for side in sides for cost in costs_of(side)]
    sections = (
        _felt_section(felt_chart(sides), compared_figures(sides, costs), compared_size(sides)),
        _cost_section(costs),
        _plan_section(plan_charts(pairs_of(costs))),
    )
    return [section for section in sections if section is not None]


def designs_section(run: ReportInput) -> Section | None:
    """Return all parts of `two_designs_sections` as one section, for the report of one run.

    Returns None if no group is on ZooKeeper.
    """
    sections = two_designs_sections([(run.facts, run.tables)], [run.facts.manifest.run])
    if not sections:
        return None
    parts = tuple(part for section in sections for part in section.parts)
    return Section(id="designs", title=_TITLE, lead=_LEAD, parts=parts)


def _felt_section(
    chart: Part | None, figures: Sequence[ComparedFigure], group_size: int | None
) -> Section | None:
    """Return the section on what users noticed; None if there is nothing to show.

    The section has the chart of `felt_strips` and two tables. The first table has the figures that
    differ between the designs by FACTOR or more, and the second table has all other figures.
    `group_size` is the number of members of the compared groups; None if groups of all sizes are
    compared.
    """
    parts: list[Part] = [] if chart is None else [chart]
    changed = [figure for figure in figures if figure.is_changed]
    alike = [figure for figure in figures if not figure.is_changed]
    in_group = "" if group_size is None else f", in a group of {group_size}"
    if changed:
        parts.append(_figures_table(f"What the coordinator changed{in_group}", changed))
    if alike:
        caption = f"What it did not change{in_group} (less than a factor of {FACTOR})"
        parts.append(_figures_table(caption, alike))
    if not parts:
        return None
    return Section(id="designs", title=_TITLE, lead=_LEAD, parts=tuple(parts))


def _figures_table(caption: str, figures: Sequence[ComparedFigure]) -> TextTable:
    """Return a table of figures, with the values of both designs and the factor between them."""
    return text_table(
        (
            Column(lambda figure: figure.name, "figure"),
            number(lambda figure: figure.zookeeper_text, "ZooKeeper"),
            number(lambda figure: figure.coordinator_text, "coordinator"),
            number(lambda figure: figure.factor_text, "factor"),
        ),
        figures,
        caption=caption,
    )


def _cost_section(costs: Sequence[Cost]) -> Section | None:
    """Return the section about the cost of each change; None if no group changed."""
    if not costs:
        return None
    growth = growth_chart(costs)
    # In this order, the two rows about one change in both designs follow each other.
    costs = sorted(costs, key=lambda cost: (cost.change.label, cost.change.at_us))
    parts: list[Part] = [] if growth is None else [growth]
    parts.append(
        text_table(
            (
                Column(lambda cost: cost.change.label, "change"),
                Column(lambda cost: cost.side.heading, "group"),
                number(lambda cost: _time(cost.settled_after_us), "until stable"),
                number(lambda cost: _time(cost.unowned_us), "partition-s unowned"),
                number(lambda cost: cost.counts.notifications, "notifications"),
                number(lambda cost: cost.counts.reads, "reads"),
                number(lambda cost: cost.counts.writes, "writes"),
                number(lambda cost: cost.counts.requests, "requests"),
                number(lambda cost: cost.counts.views, "views"),
                number(lambda cost: cost.counts.failed, "failed"),
                number(lambda cost: cost.counts.conflicts, "conflicts"),
                number(lambda cost: cost.counts.members_gave_up, "gave up"),
            ),
            costs,
            caption="Each change, until the next one",
            blocks=[len(block) for block in _blocks(costs)],
        )
    )
    return Section(
        id="design-costs",
        title="What a change of the members costs",
        lead="Notifications, reads and writes are ZooKeeper's; requests to the coordinator are "
        "without heartbeats and commits, which come anyway. Partition-seconds unowned: summed over "
        "the partitions until the group is stable. Views: different sets of members from which an "
        "assignment was computed. Failed: attempts in which the claim of a partition met another "
        "owner (a conflict) or an exception came; rebalances that led to no stable generation. "
        "Gave up: members that had no try left (rebalance.max.retries).",
        parts=tuple(parts),
    )


def _blocks(costs: Sequence[Cost]) -> list[list[Cost]]:
    """Divide the costs into blocks of one or two, for a page on a phone.

    On a phone, the page shows each block as a table of its own, with a column for each cost. So the
    costs of the same change in both designs are one block, if they follow each other in `costs`.
    """
    blocks: list[list[Cost]] = []
    for cost in costs:
        if blocks and len(blocks[-1]) == 1 and _is_same_change(blocks[-1][0], cost):
            blocks[-1].append(cost)
        else:
            blocks.append([cost])
    return blocks


def _is_same_change(cost: Cost, other: Cost) -> bool:
    """Return whether two groups of the same size but of different designs met the same change."""
    return (
        cost.change.label == other.change.label
        and cost.side.members == other.side.members
        and cost.side.design != other.side.design
    )


def _time(length_us: int | None) -> Cell:
    """Return a length of time as text; None, for an empty cell, if it is not known."""
    return None if length_us is None else length_text(length_us)


def _plan_section(charts: Sequence[Part]) -> Section | None:
    """Return the section with the charts of the plans; None if there are no charts."""
    if not charts:
        return None
    return Section(
        id="design-plans",
        title="Who computed which plan, from which view",
        lead="One change as both designs met it: the lanes of both charts have the same axis.",
        parts=tuple(charts),
    )
