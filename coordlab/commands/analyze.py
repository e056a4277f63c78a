"""`analyze`: the tables of runs, their phases, and what differs between several."""

from pathlib import Path

import click
from rich.console import Console

from chaos.manifest import RunStatus
from chaos.verdict import EXIT_BAD_ARGUMENTS, EXIT_PASS
from coordlab.analysis import analyze_runs, java_notice, salvage
from coordlab.commands.options import (
    master_option,
    named_runs,
    past_runs_argument,
    runs_option,
    with_examples,
)
from coordlab.summary_view import print_phases


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
def analyze_command(run_directories: tuple[Path, ...], runs: Path, master: str | None) -> int:
    """Compute the tables of finished or interrupted runs with Spark, and print their phases.

    RUN is a run directory, or an experiment's folder, which means its latest run; without one, the
    latest run of all is analysed.
    """
    console = Console()
    past = named_runs(run_directories, runs)
    notice = java_notice(past[0].path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    ended_badly = {
        each.path.resolve(): each.manifest.status
        for each in past
        if each.manifest.status in {RunStatus.INTERRUPTED, RunStatus.FAILED}
    }
    for each in past:
        salvage(each, console)
    for summary in analyze_runs(console, [each.path for each in past], master=master):
        heading = f"\n{summary.run}: {summary.events:,} events"
        if (status := ended_badly.get(summary.directory.resolve())) is not None:
            heading += f" ({status})"
        console.print(heading, style="bold", highlight=False)
        print_phases(console, summary)
        console.print(f"tables: {summary.directory / 'tables'}", highlight=False, soft_wrap=True)
    return EXIT_PASS
