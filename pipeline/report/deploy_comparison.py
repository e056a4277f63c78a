"""Deploys on the page that compares runs: the cost of each deploy, and the better one of two.

A deploy replaces the members of a group by successors. Its cost is what the users of the group
notice: for a while partitions have no owner, and records wait or are processed twice. The page says
which of two ways to deploy costs less.

A column of the page is one run, or several runs with the same settings. Each figure in a column is
the median over the column's runs.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup

from pipeline.report.charts.chart import Cell, Section
from pipeline.report.columns import Column, number, text_table
from pipeline.report.facts import RunFacts
from pipeline.report.rendering import render_line
from pipeline.summary.comparison import Comparison
from pipeline.summary.deploys import (
    COST_MEASURES,
    CostMeasure,
    DeployCost,
    better_texts,
    deploys_of,
    reason_text,
    typical_cost,
)
from pipeline.summary.figures import RunSummary, length_text

Costs = Mapping[str, DeployCost]
"""The cost of a deploy, by the title of a column."""
MAX_DIFFERENCES = 3
"""Maximum number of settings that the first screen names one by one."""
_Row = tuple[str, Mapping[str, str | None]]
"""A row of the table: the name of a figure, and its text by the title of a column. For example,
("members replaced", {"eager": "12", "cooperative": "12"}).
"""
_LEAD = (
    "Each run replaced the members of a group. Felt from the steady state to the end of the run; "
    "times over all partitions are partition-seconds, and less is better."
)


def deploy_costs(runs: Sequence[tuple[RunFacts, RunSummary]], comparison: Comparison) -> Costs:
    """Return the cost of the deploy of each column.

    There must be several columns, and each run must have had one deploy that replaced a member.
    Otherwise the result is empty.
    """
    by_run = {summary.run: deploys_of(facts.faults, summary.felt) for facts, summary in runs}
    by_title = {}
    for column in comparison.columns:
        costs = [cost for run in column.runs for cost in by_run[run]]
        if len(costs) != len(column.runs) or not all(cost.replaced for cost in costs):
            return {}
        by_title[column.title] = typical_cost(costs)
    # A single column has nothing to be compared with.
    return by_title if len(by_title) > 1 else {}


def deploy_answers(
    costs: Costs, settings: Sequence[tuple[str, str, tuple[str | None, ...]]]
) -> tuple[tuple[str, Markup], ...]:
    """Return the answers of the first screen: which of two deploys is better, how much, and why.

    The answers compare two columns. If there are not exactly two, the result is empty. `settings`
    are the settings in which the columns differ, as `settings_that_differ` returns them.
    """
    if len(costs) != 2:
        return ()
    (first, first_cost), (second, second_cost) = costs.items()
    answers = (
        ("What differs?", _differences((first, second), settings)),
        ("Which deploy costs less?", better_texts(first, first_cost, second, second_cost)),
        ("Why?", (reason_text(first, first_cost), reason_text(second, second_cost))),
    )
    return tuple(
        (question, render_line("words", "items", texts)) for question, texts in answers if texts
    )


def _differences(
    titles: tuple[str, str], settings: Sequence[tuple[str, str, tuple[str | None, ...]]]
) -> tuple[str, ...]:
    """Return a sentence for each setting that differs.

    If more than MAX_DIFFERENCES settings differ, one sentence says how many. All of them are in the
    page's section `settings`.
    """
    if len(settings) > MAX_DIFFERENCES:
        return (f"{len(settings)} settings, listed below",)
    sentences = []
    for section, name, values in settings:
        values_by_title = [
            f"{'not set' if value is None else value} in {title}"
            for title, value in zip(titles, values, strict=True)
        ]
        sentences.append(f"The setting {section}.{name}: {', '.join(values_by_title)}")
    return tuple(sentences)


def deploy_section(costs: Costs) -> Section | None:
    """Return the section with the costs of all columns; None if there are no costs."""
    if not costs:
        return None
    replaced = {title: f"{cost.replaced:,}" for title, cost in costs.items()}
    lengths = {
        title: None if cost.length_us is None else length_text(cost.length_us)
        for title, cost in costs.items()
    }
    rows: list[_Row] = [("members replaced", replaced), ("time that it took", lengths)]
    for measure in COST_MEASURES:
        rows += _rows_of(measure, costs)
    cells = [number(partial(_text_in_column, title), title) for title in costs]
    return Section(
        id="deploys",
        title="What the deploy cost",
        lead=_LEAD,
        parts=(text_table((Column(_name, "figure"), *cells), rows),),
    )


def _rows_of(measure: CostMeasure, costs: Costs) -> list[_Row]:
    """Return the rows of one measure: its total, and its value for each replaced member.

    The second row is left out if it has no meaning. A measure that is 0 in all columns has no row.
    """
    if not any(measure.value_of(cost) for cost in costs.values()):
        return []
    rows: list[_Row] = [(measure.name, {name: measure.text(cost) for name, cost in costs.items()})]
    if measure.per_member:
        per_member = {name: measure.text_per_member(cost) for name, cost in costs.items()}
        rows.append((f"{measure.name}, for each replaced member", per_member))
    return rows


def _name(row: _Row) -> Cell:
    return row[0]


def _text_in_column(title: str, row: _Row) -> Cell:
    return row[1][title]
