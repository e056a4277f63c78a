"""Deploys on the page that compares runs: which of two ways to deploy costs less.

A deploy replaces the members of a group by new members. The cost of a deploy is what users of the
group notice meanwhile: partitions have no owner for a while, and records wait or are processed
twice. A column of the page is one run, or several runs with the same settings. The page shows the
cost for each column. If a column has several runs, this is the median of their costs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from pipeline.report.charts.chart import Cell, Section
from pipeline.report.columns import Column, number, text_table
from pipeline.report.facts import RunFacts
from pipeline.report.rendering import render_line
from pipeline.report.run_names import DifferingSetting
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
"""The cost of the deploy in each column, by the title of the column."""
MAX_DIFFERENCES = 3
"""Maximum number of settings that the first screen names one by one."""


class _Row(NamedTuple):
    """A row of the table, such as `_Row("members replaced", {"eager": "12", "cooperative": "12"})`.

    `texts` has the text of the figure in each column, by the title of the column.
    """

    figure: str
    texts: Mapping[str, str | None]


_LEAD = (
    "Each run replaced the members of a group. Felt from the steady state to the end of the run; "
    "times over all partitions are partition-seconds, and less is better."
)


def deploy_costs(runs: Sequence[tuple[RunFacts, RunSummary]], comparison: Comparison) -> Costs:
    """Return the cost of the deploy of each column; {} if the runs do not compare deploys.

    Runs compare deploys if each of them had exactly one deploy, which replaced a member, and if
    there are several columns.
    """
    by_run = {summary.run: deploys_of(facts.faults, summary.felt) for facts, summary in runs}
    by_title = {}
    for column in comparison.columns:
        costs = [cost for run in column.runs for cost in by_run[run]]
        if len(costs) != len(column.runs) or not all(cost.replaced for cost in costs):
            return {}
        by_title[column.title] = typical_cost(costs)
    return by_title if len(by_title) > 1 else {}


def deploy_answers(
    costs: Costs, settings: Sequence[DifferingSetting]
) -> tuple[tuple[str, Markup], ...]:
    """Return the questions of the first screen with their answers, such as "Why?".

    The answers compare two columns. If there are not exactly two columns, the result is empty.
    `settings` are the settings in which the columns differ.
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


def _differences(titles: tuple[str, str], settings: Sequence[DifferingSetting]) -> tuple[str, ...]:
    """Return a sentence for each setting that differs, or one sentence with their number.

    There is only one sentence if more than MAX_DIFFERENCES settings differ.
    For example, `The setting groups.a.members: 3 in small, 10 in large`.
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
    rows = [_Row("members replaced", replaced), _Row("time that it took", lengths)]
    for measure in COST_MEASURES:
        rows += _rows_of(measure, costs)
    cells = [number(partial(_text_in_column, title), title) for title in costs]
    return Section(
        id="deploys",
        title="What the deploy cost",
        lead=_LEAD,
        parts=(text_table((Column(lambda row: row.figure, "figure"), *cells), rows),),
    )


def _rows_of(measure: CostMeasure, costs: Costs) -> list[_Row]:
    """Return the rows of one measure: its total and, where this makes sense, its value per member.

    A measure that is 0 in all columns has no row.
    """
    if not any(measure.value_of(cost) for cost in costs.values()):
        return []
    totals = {title: measure.text(cost) for title, cost in costs.items()}
    rows = [_Row(measure.name, totals)]
    if measure.per_member:
        per_member = {title: measure.text_per_member(cost) for title, cost in costs.items()}
        rows.append(_Row(f"{measure.name}, for each replaced member", per_member))
    return rows


def _text_in_column(title: str, row: _Row) -> Cell:
    """Return the text of a row in the column with this title."""
    return row.texts[title]
