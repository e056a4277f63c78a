"""The page that compares several runs: their figures side by side, and the settings that differ.

A column of the page is one run, or the runs with the same settings. The page links to each run's
own report by a relative path, so that the folder of runs can be moved as a whole.
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

_SUBJECT_OF_PART = {
    "broker": "offsets partition",
    "client": "member",
    "outcome": "run",
    "felt": "partition of data",
    "run": "run",
}
"""The last column of a table of figures (`per`): a figure of the broker chain, for example, has a
value for each offsets partition. The keys are the parts of the comparison (`ComparisonRow.group`;
these are no consumer groups). The part `gap` is not here, because its figures differ:
_SUBJECT_OF_GAP has the text for each of them.
"""
_SUBJECT_OF_GAP = {measure.name: measure.subject_kind or "" for measure in MEASURES}
"""What a figure of the part `gap` has a value for: a member, a partition or a group."""
MAX_RUNS_LISTED = 300
"""Maximum number of rows in the table of runs."""
MAX_SETTINGS = 200
"""Maximum number of rows in the table of settings."""
_MAX_EXPERIMENTS_NAMED = 2
"""Up to this number of experiments, the heading of the page names them: `crash and pause`. If there
are more, it counts them: `5 experiments`.
"""
_DIFFERS = "\N{BLACK DIAMOND} "
"""Mark of a figure that differs between columns."""

Runs = Sequence[tuple[RunFacts, RunSummary]]
"""The compared runs. Each is a pair of its facts and its summary."""


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
    facts = [run for run, _ in runs]
    comparison = compare_runs(
        [summary for _, summary in runs],
        names=column_names(facts),
        verdicts=[run.ended_as for run in facts],
    )
    costs = deploy_costs(runs, comparison)
    answers = deploy_answers(costs, _settings_that_differ(runs, comparison))
    sections = [
        deploy_section(costs),
        *two_designs_sections(
            [(run, RunTables(summary.directory)) for run, summary in runs], column_names(facts)
        ),
        _figures_section(comparison, [run.manifest.runtime for run in facts]),
        _settings_section(comparison, runs),
        _runs_section(runs, comparison, output.parent),
    ]
    experiments = list(dict.fromkeys(run.manifest.experiment for run in facts))
    return render(
        Page(
            # The title is for the browser's tab, which has no room for more than three names.
            title=f"{', '.join(experiments[:3])}: {len(runs)} runs compared - coordlab",
            headline=_headline(facts, comparison, answers),
            sections=[section for section in sections if section is not None],
        )
    )


def _headline(
    facts: Sequence[RunFacts], comparison: Comparison, answers: tuple[tuple[str, Markup], ...]
) -> Headline:
    """Return the first screen: the number of runs, and how many of them broke a promise."""
    experiments = list(dict.fromkeys(run.manifest.experiment for run in facts))
    title = (
        " and ".join(experiments)
        if len(experiments) <= _MAX_EXPERIMENTS_NAMED
        else f"{len(experiments)} experiments"
    )
    violated = sum(run.verdict is Verdict.VIOLATED for run in facts)
    violated_text = str(violated) if violated else "none"
    return Headline(
        verdict=f"{len(facts)} RUNS",
        tone="bad" if violated else "plain",
        kicker="comparison of runs",
        title=title,
        lead=f"{_extent(facts, comparison)} {violated_text} of the runs broke a promise.",
        answers=answers,
    )


def _extent(facts: Sequence[RunFacts], comparison: Comparison) -> str:
    """Return the beginning of the page's first sentence, which says how much is compared.

    For example, `6 runs in 2 columns. 11 of 40 figures differ;`. The caller appends how many of the
    runs broke a promise.
    """
    figures, columns = len(comparison.rows), len(comparison.columns)
    # In a single column all runs have the same settings, and nothing is compared.
    if columns == 1:
        return f"{counted(len(facts), 'run')}, {figures} figures;"
    different = sum(row.differs for row in comparison.rows)
    return f"{len(facts)} runs in {columns} columns. {different} of {figures} figures differ;"


def _figures_section(comparison: Comparison, runtimes: Iterable[str]) -> Section:
    """Return the section of all figures: how to read them, a picture, and a table per fault."""
    parts: list[Part] = [
        Paragraph(
            html=render_line(
                "comparison",
                "how_to_read",
                NOTABLE_PERCENT,
                NOTABLE_US,
                several=any(len(column.runs) > 1 for column in comparison.columns),
            )
        )
    ]
    chart = _chart(comparison)
    if chart is not None:
        parts.append(chart)
    # Rows with the fault None are about the whole runs.
    for fault in (*comparison.faults, None):
        rows = [row for row in comparison.rows if row.fault == fault]
        if rows:
            parts.append(_table(fault, rows, comparison))
    notes = comparison_notes(comparison, runtimes)
    lead = " ".join(
        [
            f"{_DIFFERS}marks what differs in effect. A column is a whole run with all its groups.",
            *map(sentence, notes),
        ]
    )
    return Section(id="figures", title="Side by side", lead=lead, parts=tuple(parts))


def _chart(comparison: Comparison) -> Chart | None:
    """Return the picture of the main figures; None if no run has any of them."""
    lines = figure_lines(comparison)
    if not lines.rows:
        return None
    options = tuple(fault for fault in comparison.faults if fault in lines.faults)
    return Chart(
        id="comparison-figures",
        title="The main figures",
        about="A line for each column: the dot is the median over members (partitions, groups), "
        "the line reaches to the longest. Of several runs: a ring for each run's median, the dot "
        "is the median of those. Logarithmic time from 0 on.",
        spec=comparison_chart("lines", lines),
        data={"lines": lines.rows},
        picks=(Pick(param=PICKED, label="fault", options=options),) if len(options) > 1 else (),
    )


def _table(fault: str | None, rows: Sequence[ComparisonRow], comparison: Comparison) -> TextTable:
    """Return the figures after one fault as a table.

    If `fault` is None, they are the figures of the whole runs.
    """
    texts = [
        number(partial(_text_of, index), _heading(column.title))
        for index, column in enumerate(comparison.columns)
    ]
    return text_table(
        (Column(_named_figure, "figure"), *texts, Column(_subject_of, "per")),
        rows,
        caption="The runs as a whole" if fault is None else f"After the fault: {fault}",
    )


def _named_figure(row: ComparisonRow) -> str:
    """Return the name of a figure, with a mark if the figure differs between columns."""
    return f"{_DIFFERS if row.differs else ''}{row.label}"


def _text_of(index: int, row: ComparisonRow) -> Cell:
    """Return the text of a figure in the column number `index`, from 0."""
    return row.texts[index]


def _subject_of(row: ComparisonRow) -> str:
    """Return the subject of a figure, such as `member`.

    A run has one value for each subject; the figure is the median or the maximum of these values.
    """
    if row.group == "gap":
        return _SUBJECT_OF_GAP[row.name]
    # A felt figure without a statistic is one number for the whole run.
    if row.group == "felt" and not row.statistic:
        return "run"
    return _SUBJECT_OF_PART[row.group]


def _heading(title: str) -> str:
    """Return a column's title as a heading that differs from the headings `figure` and `per`."""
    return title if title not in {"figure", "per"} else f"{title} (run)"


def _first_runs(runs: Runs, comparison: Comparison) -> list[RunFacts]:
    """Return the first run of each column."""
    by_run = {summary.run: run for run, summary in runs}
    return [by_run[column.runs[0]] for column in comparison.columns]


def _settings_that_differ(
    runs: Runs, comparison: Comparison
) -> tuple[tuple[str, str, tuple[str | None, ...]], ...]:
    """Return the settings in which the first runs of the columns differ."""
    return settings_that_differ(_first_runs(runs, comparison))


def _settings_section(comparison: Comparison, runs: Runs) -> Section | None:
    """Return the settings in which the first runs of the columns differ.

    All runs of a column have the same settings, so the first one is enough.
    """
    manifests = [run.manifest for run in _first_runs(runs, comparison)]
    differing = _settings_that_differ(runs, comparison)
    # Also list what differs in how the runs were started. These facts are no settings of an
    # experiment, so the column `section` is empty for them.
    facts_of_runs = [
        ("", "runtime", tuple(manifest.runtime for manifest in manifests)),
        ("", "time_scale", tuple(f"{manifest.time_scale:g}" for manifest in manifests)),
        ("", "seed", tuple(str(manifest.seed) for manifest in manifests)),
        (
            "",
            "git commit",
            tuple(_short_commit(manifest.git_commit) for manifest in manifests),
        ),
    ]
    rows = [
        (section, name, *values) for section, name, values in facts_of_runs if len(set(values)) > 1
    ]
    rows += [(section, name, *values) for section, name, values in differing[:MAX_SETTINGS]]
    if not rows:
        same = Paragraph(html=render_line("comparison", "same_settings"))
        return Section(id="settings", title="Settings", parts=(same,))
    more = len(differing) - MAX_SETTINGS
    return Section(
        id="settings",
        title="What differs in their settings",
        lead="A dash: the run does not have that setting."
        + (f" {more:,} more settings differ." if more > 0 else ""),
        parts=(
            TextTable(
                headings=("section", "setting", *(column.title for column in comparison.columns)),
                rows=tuple(rows),
            ),
        ),
    )


def _short_commit(git_commit: str | None) -> str | None:
    """Return the first 12 characters, which identify a commit; None if the commit is not known."""
    return git_commit[:12] if git_commit else None


def _runs_section(runs: Runs, comparison: Comparison, folder: Path) -> Section:
    """Return the list of runs, with a link to the report of each."""
    titles = {run: column.title for column in comparison.columns for run in column.runs}
    shown = runs[:MAX_RUNS_LISTED]
    more = len(runs) - len(shown)
    return Section(
        id="runs",
        title="The runs",
        lead=f"{more:,} more are not listed." if more else "",
        parts=(
            text_table(
                (
                    Column(lambda run: _link(run[0], run[1], folder), "run"),
                    Column(lambda run: titles.get(run[1].run), "column"),
                    Column(lambda run: run[0].ended_as, "verdict"),
                    Column(lambda run: run[0].manifest.runtime, "runtime"),
                    number(lambda run: run[0].manifest.seed, "seed"),
                    Column(lambda run: run[0].manifest.started_at, "started"),
                ),
                shown,
            ),
        ),
    )


def _link(facts: RunFacts, summary: RunSummary, folder: Path) -> str:
    """Return a link to a run's own report; the run's name alone if it has no report."""
    report = summary.directory / REPORT_FILE
    if not report.exists():
        return facts.manifest.run
    relative = os.path.relpath(report.resolve(), folder.resolve())
    return render_line("comparison", "run_link", Path(relative).as_posix(), facts.manifest.run)
