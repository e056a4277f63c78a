"""`analyze`: computes the tables of runs with Spark, and prints the figures of each run.

The figures tell above all how long the phases of a recovery took, from the fault until the clients
consume again. They are in the summary that the analysis returns for each run. Several runs are then
printed side by side.
"""

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from coordlab.analysis import NoJava, analyze_runs, compare_side_by_side, java_notice, salvage
from coordlab.console import print_document, print_path
from coordlab.options import (
    json_option,
    master_option,
    named_runs,
    past_runs_argument,
    runs_option,
    with_examples,
)
from coordlab.report_facts import facts_of
from coordlab.views.comparison_view import print_comparison
from coordlab.views.summary_view import print_phases
from results_schema.results import EXIT_PASS


@click.command(
    "analyze",
    cls=with_examples(
        "analyze",
        "analyze runs/coordinator_crash",
        "analyze runs/coordinator_crash/2026-*",
    ),
)
@past_runs_argument
@runs_option
@master_option
@json_option("runs, each with its figures as tables/summary.json has them")
def analyze_command(
    run_directories: tuple[Path, ...], runs: Path, master: str | None, json: bool
) -> int:
    """Compute the tables of finished or interrupted runs with Spark, and print their phases.

    RUN is a run directory, or an experiment's folder, which means its latest run; without one, the
    latest run of all is analysed. Several runs are analysed together and then compared.
    """
    console = Console(stderr=True) if json else Console()
    past_runs = named_runs(run_directories, runs)
    # Without Java no run can be analysed. The notice names the first run as an example.
    notice = java_notice(past_runs[0].path)
    if notice is not None:
        raise NoJava(notice)
    for past_run in past_runs:
        # At the end of a run, its driver merges the rows of all nodes into a file for Spark. If the
        # driver was killed, `salvage` merges the rows.
        salvage(past_run, console)
    summaries = analyze_runs(console, [past_run.path for past_run in past_runs], master=master)
    if json:
        print_document(Console(), {"runs": summaries})
        return EXIT_PASS
    facts = [facts_of(past_run) for past_run in past_runs]
    pairs = list(zip(facts, summaries, strict=True))
    for run, summary in pairs:
        heading = f"\n{summary.run}: {summary.events:,} events"
        if run.status != "completed":
            heading += f" ({run.status})"
        console.print(Text(heading, style="bold"), soft_wrap=True)
        print_phases(console, summary)
        print_path(console, "tables", summary.directory / "tables")
    if len(past_runs) > 1:
        comparison = compare_side_by_side(pairs)
        print_comparison(console, comparison, (run.manifest.runtime for run in facts))
    return EXIT_PASS
