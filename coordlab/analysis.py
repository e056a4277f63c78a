"""Summaries of runs, their analysis with Spark, and the writing of their pages.

A summary has the figures of a run. There are two ways to it: `sum_up` computes it in memory, for a
run that is not too large; an analysis with Spark computes it together with tables. Spark needs
Java; if the machine has none, the run can be analysed later. Functions import PySpark, Altair and
Vega in their bodies, because these imports take a second or two.

- The driver is the process that conducts a run.
- A PastRun is the directory of a run that is over, perhaps because its driver was killed.
- Its events are the run's trace, merged into one file; the trace has a row for each event.
- Its tables are current if they are complete and not older than the events.
- The parameter `master` is Spark's master URL; None means the default one.
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

    Print the number of rows. Nothing happens if the run is complete, or if the rows have been
    collected before.
    """
    if not past.incomplete:
        return
    # A run reserves disk space for its results. A killed driver could not free the reserve.
    RunDisk(past.path).free_reserve()
    if (past.events / EVENTS_FILE).exists():
        return
    salvaged = salvage_trace(past.path / TRACE_FOLDER, past.events / EVENTS_FILE)
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

    It is not computed if the run was not completed. It is not computed either if the run has too
    many rows, or if a Ctrl-C interrupts the computation; a line then says so.

    `max_rows`: a smaller limit than the default one, for callers that will compute Spark's tables
    anyway.
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
    # First, because salvaging writes the file of events with which the tables are compared.
    for run in past:
        salvage(run, console)
    to_analyse = [run for run in past if current_summary(run.path) is None]
    if to_analyse:
        notice = java_notice(to_analyse[0].path)
        if notice is not None:
            raise NoJava(notice)
        runs_have = "1 run has" if len(to_analyse) == 1 else f"{len(to_analyse)} runs have"
        console.print(f"{runs_have} no tables yet, or older ones", highlight=False, soft_wrap=True)
        analyze_runs(console, [run.path for run in to_analyse], master=master)
    return tuple(_summary(run.path) for run in past)


def _summary(run: Path) -> RunSummary:
    """Return the summary that an analysis has just written.

    Raises: NotAnalysed if there is no summary.
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
