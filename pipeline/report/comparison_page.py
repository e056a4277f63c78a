"""The page that compares several runs: their figures side by side, and the settings that differ.

A column of the page is one run, or all runs with the same settings. The page links to each run's
own report by a relative path. So the folder of runs can be moved as a whole.
"""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup

from pipeline.report.build import REPORT_FILE, write_report
from pipeline.report.charts.chart import Cell, Chart, Paragraph, Part, Pick, Section, TextTable
from pipeline.report.charts.comparison_chart import PICKED, comparison_chart, figure_lines
from pipeline.report.columns import Column, number, text_table
from pipeline.report.deploy_comparison import deploy_answers, deploy_costs, deploy_section
from pipeline.report.facts import RunFacts
from pipeline.report.page import Page, render
from pipeline.report.rendering import render_line, sentence
from pipeline.report.report_input import RunTables
from pipeline.report.run_names import column_names, settings_that_differ
from pipeline.report.sections.headline import Headline
from pipeline.report.two_designs.section import two_designs_sections
from pipeline.summary.comparison import (
    Comparison,
    ComparisonRow,
    compare_runs,
    comparison_notes,
)
from pipeline.summary.comparison_cells import NOTABLE_PERCENT, NOTABLE_US
from pipeline.summary.figures import MEASURES, RunSummary
from pipeline.summary.story import counted
from results_schema.results import Verdict

_SUBJECTS = {
    "broker": "offsets partition",
    "client": "member",
    "outcome": "run",
    "felt": "partition of data",
    "run": "run",
}
"""The texts in the column `per` of a table of figures. They say what has a value of a figure. For
example, each offsets partition has a value of a figure of the broker chain. The keys are the values
of `ComparisonRow.group`, except `gap`.
"""
_SUBJECTS_OF_GAPS = {measure.name: measure.subject_kind or "" for measure in MEASURES}
"""The texts for the figures of `gap`, by the name of the figure. For example, each member has a
commit gap, and each group has a time without a coordinator.
"""
MAX_RUNS_LISTED = 300
"""Maximum number of rows in the table of runs."""
MAX_SETTINGS = 200
"""Maximum number of rows in the table of settings."""
_MAX_EXPERIMENTS_NAMED = 2
"""Maximum number of experiments that the heading of the page names: `crash and pause`. With more
experiments, it has their number: `5 experiments`.
"""
_DIFFERS = "\N{BLACK DIAMOND} "
"""Mark of a figure that differs between columns."""

Runs = Sequence[tuple[RunFacts, RunSummary]]
"""The compared runs, each with its facts and its summary."""


def build_comparison(runs: Runs, output: Path) -> Path:
    """Write the page that compares runs to the file `output`, and return this path.

    Raises: ValueError if `runs` is empty.
    """
    if not runs:
        raise ValueError("no run to compare")
    html = comparison_html(runs, output)
    output.parent.mkdir(parents=True, exist_ok=True)
    return write_report(html, output)


def comparison_html(runs: Runs, output: Path) -> str:
    """Return the HTML of the page that compares runs; its links are relative to `output`."""
    facts_of_runs = [facts for facts, _ in runs]
    names = column_names(facts_of_runs)
    comparison = compare_runs(
        [summary for _, summary in runs],
        names=names,
        verdicts=[facts.ended_as for facts in facts_of_runs],
    )
    costs = deploy_costs(runs, comparison)
    answers = deploy_answers(costs, settings_that_differ(_first_runs(runs, comparison)))
    runs_with_tables = [(facts, RunTables(summary.directory)) for facts, summary in runs]
    sections = [
        deploy_section(costs),
        *two_designs_sections(runs_with_tables, names),
        _figures_section(comparison, [facts.manifest.runtime for facts in facts_of_runs]),
        _settings_section(comparison, runs),
        _runs_section(runs, comparison, output.parent),
    ]
    return render(
        Page(
            # The title is for the browser's tab, which has no room for more than three names.
            title=f"{', '.join(_experiments(facts_of_runs)[:3])}: {len(runs)} runs compared - "
            "coordlab",
            headline=_headline(facts_of_runs, comparison, answers),
            sections=[section for section in sections if section is not None],
        )
    )


def _experiments(facts_of_runs: Sequence[RunFacts]) -> list[str]:
    """Return the names of the experiments, each once, in the order of the runs."""
    return list(dict.fromkeys(facts.manifest.experiment for facts in facts_of_runs))


def _headline(
    facts_of_runs: Sequence[RunFacts],
    comparison: Comparison,
    answers: tuple[tuple[str, Markup], ...],
) -> Headline:
    """Return the first screen: the number of runs, and how many of them broke a promise."""
    experiments = _experiments(facts_of_runs)
    title = f"{len(experiments)} experiments"
    if len(experiments) <= _MAX_EXPERIMENTS_NAMED:
        title = " and ".join(experiments)
    violated = sum(facts.verdict is Verdict.VIOLATED for facts in facts_of_runs)
    violated_text = str(violated) if violated else "none"
    return Headline(
        verdict=f"{len(facts_of_runs)} RUNS",
        tone="bad" if violated else "plain",
        kicker="comparison of runs",
        title=title,
        lead=f"{_extent(len(facts_of_runs), comparison)} {violated_text} of the runs broke a "
        "promise.",
        answers=answers,
    )


def _extent(runs: int, comparison: Comparison) -> str:
    """Return how much is compared: `6 runs in 2 columns. 11 of 40 figures differ;`.

    The caller appends how many of the runs broke a promise.
    """
    figures, columns = len(comparison.rows), len(comparison.columns)
    # If there is only one column, all runs have the same settings, and nothing is compared.
    if columns == 1:
        return f"{counted(runs, 'run')}, {figures} figures;"
    different = sum(row.differs for row in comparison.rows)
    return f"{runs} runs in {columns} columns. {different} of {figures} figures differ;"


def _figures_section(comparison: Comparison, runtimes: Iterable[str]) -> Section:
    """Return the section of all figures: how to read them, a chart, and a table per fault."""
    several = any(len(column.runs) > 1 for column in comparison.columns)
    how_to_read = render_line(
        "comparison", "how_to_read", NOTABLE_PERCENT, NOTABLE_US, several=several
    )
    parts: list[Part] = [Paragraph(html=how_to_read)]
    chart = _chart(comparison)
    if chart is not None:
        parts.append(chart)
    # Rows with the fault None are about the whole runs.
    for fault in (*comparison.faults, None):
        rows = [row for row in comparison.rows if row.fault == fault]
        if rows:
            parts.append(_table(fault, rows, comparison))

    lead = f"{_DIFFERS}marks what differs in effect. A column is a whole run with all its groups."
    for note in comparison_notes(comparison, runtimes):
        lead += f" {sentence(note)}"
    return Section(id="figures", title="Side by side", lead=lead, parts=tuple(parts))


def _chart(comparison: Comparison) -> Chart | None:
    """Return the chart of the main figures; None if no run has any of them."""
    lines = figure_lines(comparison)
    if not lines.rows:
        return None
    # If there is only one fault, there is nothing to pick.
    pick = Pick(param=PICKED, label="fault", options=lines.faults)
    return Chart(
        id="comparison-figures",
        title="The main figures",
        about="A line for each column: the dot is the median over members (partitions, groups), "
        "the line reaches to the longest. Of several runs: a ring for each run's median, the dot "
        "is the median of those. Logarithmic time from 0 on.",
        spec=comparison_chart("lines", lines),
        data={"lines": lines.rows},
        picks=(pick,) if len(lines.faults) > 1 else (),
    )


def _table(fault: str | None, rows: Sequence[ComparisonRow], comparison: Comparison) -> TextTable:
    """Return the figures after one fault as a table; the figures of the whole runs for None."""
    texts = [
        number(partial(_text_in_column, index), _heading(column.title))
        for index, column in enumerate(comparison.columns)
    ]
    return text_table(
        (Column(_marked_name, "figure"), *texts, Column(_subject_of, "per")),
        rows,
        caption="The runs as a whole" if fault is None else f"After the fault: {fault}",
    )


def _marked_name(row: ComparisonRow) -> str:
    """Return the name of a figure, with a mark if the figure differs between columns."""
    return f"{_DIFFERS if row.differs else ''}{row.label}"


def _text_in_column(index: int, row: ComparisonRow) -> Cell:
    """Return the text of a figure in one of the columns, which are numbered from 0."""
    return row.texts[index]


def _subject_of(row: ComparisonRow) -> str:
    """Return what has a value of a figure, such as `member`.

    The figure `commit gap p50`, for example, is the median of the commit gaps of all members.
    """
    if row.group == "gap":
        return _SUBJECTS_OF_GAPS[row.name]
    # A felt figure without a statistic is one number for the whole run.
    if row.group == "felt" and not row.statistic:
        return "run"
    return _SUBJECTS[row.group]


def _heading(title: str) -> str:
    """Return a column's title as a heading that differs from the headings `figure` and `per`."""
    return title if title not in {"figure", "per"} else f"{title} (run)"


def _first_runs(runs: Runs, comparison: Comparison) -> list[RunFacts]:
    """Return the first run of each column. All runs of a column have the same settings."""
    by_run = {summary.run: facts for facts, summary in runs}
    return [by_run[column.runs[0]] for column in comparison.columns]


def _settings_section(comparison: Comparison, runs: Runs) -> Section | None:
    """Return the section of the settings in which the columns differ."""
    first_runs = _first_runs(runs, comparison)
    manifests = [facts.manifest for facts in first_runs]
    # The runs can also differ in how they were started. These values are no settings of an
    # experiment, so the first cell of their rows, the section, is empty.
    starts: dict[str, tuple[str | None, ...]] = {
        "runtime": tuple(manifest.runtime for manifest in manifests),
        "time_scale": tuple(f"{manifest.time_scale:g}" for manifest in manifests),
        "seed": tuple(str(manifest.seed) for manifest in manifests),
        "git commit": tuple(_short_commit(manifest.git_commit) for manifest in manifests),
    }
    differing = settings_that_differ(first_runs)
    rows = [("", name, *values) for name, values in starts.items() if len(set(values)) > 1]
    rows += [(section, name, *values) for section, name, values in differing[:MAX_SETTINGS]]
    if not rows:
        same = Paragraph(html=render_line("comparison", "same_settings"))
        return Section(id="settings", title="Settings", parts=(same,))

    lead = "A dash: the run does not have that setting."
    left_out = len(differing) - MAX_SETTINGS
    if left_out > 0:
        lead += f" {left_out:,} more settings differ."
    headings = ("section", "setting", *(column.title for column in comparison.columns))
    return Section(
        id="settings",
        title="What differs in their settings",
        lead=lead,
        parts=(TextTable(headings=headings, rows=tuple(rows)),),
    )


def _short_commit(git_commit: str | None) -> str | None:
    """Return the first 12 characters, which identify a commit; None if the commit is not known."""
    return git_commit[:12] if git_commit else None


def _runs_section(runs: Runs, comparison: Comparison, folder: Path) -> Section:
    """Return the list of runs, with a link to the report of each."""
    # The name of a run -> the title of the run's column.
    titles = {run: column.title for column in comparison.columns for run in column.runs}
    shown = runs[:MAX_RUNS_LISTED]
    left_out = len(runs) - len(shown)
    # A row of the table is a pair: the facts of a run, and the summary of the run.
    columns = (
        Column(lambda row: _link(row[0], row[1], folder), "run"),
        Column(lambda row: titles.get(row[1].run), "column"),
        Column(lambda row: row[0].ended_as, "verdict"),
        Column(lambda row: row[0].manifest.runtime, "runtime"),
        number(lambda row: row[0].manifest.seed, "seed"),
        Column(lambda row: row[0].manifest.started_at, "started"),
    )
    return Section(
        id="runs",
        title="The runs",
        lead=f"{left_out:,} more are not listed." if left_out else "",
        parts=(text_table(columns, shown),),
    )


def _link(facts: RunFacts, summary: RunSummary, folder: Path) -> str:
    """Return a link to a run's own report; the run's name alone if it has no report."""
    report = summary.directory / REPORT_FILE
    if not report.exists():
        return facts.manifest.run
    relative = os.path.relpath(report.resolve(), folder.resolve())
    return render_line("comparison", "run_link", Path(relative).as_posix(), facts.manifest.run)
