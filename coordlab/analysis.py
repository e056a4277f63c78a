"""Summaries of runs, their analysis with Spark, and the writing of their pages.

A summary has the figures of a run. `sum_up` computes it in memory, if the run is not too large.
An analysis computes it with Spark, together with tables. Spark needs Java. On a machine without
Java, the run can be analysed later.

While a run is played, its nodes write a trace, which has a row for each event. At the end of the
run, the driver (the process that conducts the run) merges the trace into one file of events. The
tables of a run are current if they are complete and not older than this file.

In all functions, `master` is Spark's master URL. If it is None, Spark runs on this machine.

Functions import PySpark, Altair and Vega in their bodies, because these imports take a second or
two.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.results.recording import RunDisk
from chaos.results.run_directory import EVENTS_FILE, TRACE_FOLDER, PastRun
from cluster.trace.salvage import salvage_trace
from coordlab.program import called_as
from coordlab.report_facts import facts_of
from pipeline.engine.java import JavaProblem, find_java
from pipeline.in_memory.summary import summarize_directory
from pipeline.report.facts import RunFacts
from pipeline.report.report_input import NotAnalysed
from pipeline.summary.comparison import Comparison, compare_runs
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import is_current, read_summary
from results_schema.results import Results, RunOutcome

COMPARISON_FILE = "comparison.html"
"""Name of the page that compares runs."""


class NoJava(Exception):
    """Runs have to be analysed, but Spark finds no Java; the message says what to install."""


def java_notice(run: Path) -> str | None:
    """Return why a run cannot be analysed now, and what to do; None if Java was found."""
    java = find_java()
    if not isinstance(java, JavaProblem):
        return None
    return (
        f"Not analysed: Spark needs Java and found {java.found}.\n{java.advice}\n"
        f"Then: {called_as()} analyze {run}"
    )


def salvage(past: PastRun, console: Console) -> None:
    """Collect the rows that the nodes of a run have written, if its driver was killed.

    Print the number of rows. If the run is complete, nothing happens. Rows that have been collected
    before are not collected again.
    """
    if not past.incomplete:
        return
    # A run reserves disk space for its results. A killed driver could not free the reserve.
    RunDisk(past.path).free_reserve()
    if (past.events / EVENTS_FILE).exists():
        return
    salvaged = salvage_trace(past.path / TRACE_FOLDER, past.events / EVENTS_FILE)
    # None: no node has written a row.
    if salvaged is None:
        return
    console.print(
        f"{past.path}: its driver was killed; {salvaged.rows:,} rows were left in "
        f"{salvaged.files} files",
        highlight=False,
        soft_wrap=True,
    )
    for damage in salvaged.damaged:
        console.print(f"cut short: {damage}", highlight=False, soft_wrap=True)


def sum_up(
    console: Console, run: Path, results: Results, *, max_rows: int | None = None
) -> RunSummary | None:
    """Return the summary of a run, computed without Spark; None if it was not computed.

    A run that was not completed has no summary. There is no summary either if the run has too many
    rows, or if a Ctrl-C interrupts the computation. In these two cases a message is printed.

    `max_rows`: the largest number of rows for which a summary is computed; None: the default. A
    caller that will compute Spark's tables anyway gives a smaller limit than the default.
    """
    if results.outcome is not RunOutcome.COMPLETED:
        return None
    try:
        summary = summarize_directory(run, max_rows=max_rows)
    except KeyboardInterrupt:
        console.print("summary interrupted; the run itself is complete")
        return None
    if summary is None:
        console.print("many rows: the figures come with Spark's tables", soft_wrap=True)
    return summary


def analyze_runs(
    console: Console, runs: Sequence[Path], *, master: str | None
) -> tuple[RunSummary, ...]:
    """Compute the tables of `runs` with Spark, and return their summaries.

    On a terminal a bar shows how much is done.
    Raises: the exceptions of pipeline.run.analyze.
    """
    from pipeline.run import AnalysisProgress, analyze  # noqa: PLC0415 - imports PySpark

    if not console.is_terminal:
        console.print("analysing with Spark")
        return analyze(runs, master=master)
    columns = (
        TextColumn("analysing with Spark"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        # Without a total the bar only pulses: Spark's start has no progress to show.
        task = bar.add_task("", total=None)

        def show(progress: AnalysisProgress) -> None:
            bar.update(
                task, total=progress.total, completed=progress.done, description=progress.part
            )

        return analyze(runs, master=master, progress=show)


def analyse_if_needed(
    console: Console, past: Sequence[PastRun], *, master: str | None
) -> tuple[RunSummary, ...]:
    """Return the summaries of runs; first analyse the runs whose tables are not current.

    Raises: NoJava if an analysis is needed and impossible; the exceptions of pipeline.run.analyze.
    """
    # `salvage` writes the file of events of a killed run. It must come before `current_summary`,
    # which compares the age of the tables with the age of this file.
    for run in past:
        salvage(run, console)
    to_analyse = [run for run in past if current_summary(run.path) is None]
    if to_analyse:
        # Java is missing for all runs or for none. The notice shows the command for the first run.
        notice = java_notice(to_analyse[0].path)
        if notice is not None:
            raise NoJava(notice)
        runs_have = "1 run has" if len(to_analyse) == 1 else f"{len(to_analyse)} runs have"
        console.print(f"{runs_have} no tables yet, or older ones", highlight=False, soft_wrap=True)
        analyze_runs(console, [run.path for run in to_analyse], master=master)
    return tuple(_summary(run.path) for run in past)


def _summary(run: Path) -> RunSummary:
    """Return the summary of a run that has been analysed, just now or earlier.

    Raises: NotAnalysed if the run has no summary.
    """
    summary = read_summary(run)
    if summary is None:
        raise NotAnalysed(f"{run} has no summary of its tables, though it was analysed")
    return summary


def current_summary(run: Path) -> RunSummary | None:
    """Return the summary of a run; None if its tables are incomplete or older than its events."""
    return read_summary(run) if is_current(run) else None


def write_run_report(console: Console, past: PastRun, *, output: Path | None = None) -> Path:
    """Write the report of an analysed run; return the path of the page.

    On a terminal a line shows that the report is being written.
    Raises: NotAnalysed if the run has no tables; OSError if the page cannot be written.
    """
    from pipeline.report.build import build_report  # noqa: PLC0415 - imports Altair

    if not console.is_terminal:
        return build_report(past.path, facts_of(past), output=output)
    with console.status(f"writing the report of {past.manifest.run}"):
        return build_report(past.path, facts_of(past), output=output)


def write_comparison(runs: Sequence[tuple[RunFacts, RunSummary]], output: Path) -> Path:
    """Write the page that compares runs; return its path.

    Raises: OSError if the page cannot be written.
    """
    from pipeline.report.comparison_page import build_comparison  # noqa: PLC0415 - imports Altair

    output.parent.mkdir(parents=True, exist_ok=True)
    return build_comparison(runs, output)


def compare_side_by_side(runs: Sequence[tuple[RunFacts, RunSummary]]) -> Comparison:
    """Compare runs, with the same names of columns as on the comparison page."""
    from pipeline.report.run_names import column_names  # noqa: PLC0415 - imports Altair

    facts = [run for run, _ in runs]
    return compare_runs(
        [summary for _, summary in runs],
        names=column_names(facts),
        verdicts=[run.ended_as for run in facts],
    )
