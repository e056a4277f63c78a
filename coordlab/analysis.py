"""Functions that several commands call for a run that is over.

- `sum_up` computes the summary of a run (its figures) in this process, for runs of a usual size.
- `analyze_runs` has Spark compute the tables and the summary of runs. Spark needs Java. If there is
  no Java, `java_notice` tells the user what to install. The run can be analysed later.
- `write_run_report` and `write_comparison` make web pages from the tables.

PySpark and Altair are imported only in the functions that need them, because each import takes a
second or two. The parameter `master` always is the address of a Spark master; None means Spark on
this machine.
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
"""The file name of the page that compares runs."""


class NoJava(Exception):
    """A run has to be analysed, but Spark finds no Java. The message says what to install."""


def java_notice(run: Path) -> str | None:
    """Return why a run cannot be analysed now, and what to do; None if Java is installed."""
    java = find_java()
    if not isinstance(java, JavaProblem):
        return None
    return (
        f"Not analysed: Spark needs Java and found {java.found}.\n{java.advice}\n"
        f"Then: {called_as()} analyze {run}"
    )


def salvage(past: PastRun, console: Console) -> None:
    """Make the file of events of a run whose driver was killed, and print how much was saved.

    During a run, each node writes its events into files of its own. At the end the driver (the
    process that started the run) merges these files into a single file of events, which Spark
    reads. If the run is complete, or was salvaged before, this function does nothing.
    """
    if not past.incomplete:
        return
    # A run reserves disk space, so that it can write its results even to a full disk. A driver that
    # was killed has left this reserve behind.
    RunDisk(past.path).free_reserve()
    if (past.events / EVENTS_FILE).exists():
        return
    salvaged = salvage_trace(past.path / TRACE_FOLDER, past.events / EVENTS_FILE)
    if salvaged is None:  # no node had written anything
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
    """Compute the summary of a run without Spark, and return it.

    Return None if the run was not completed. If the trace of the run has too many rows, or if the
    user presses Ctrl-C, print the reason and return None.

    `max_rows`: the largest number of rows; None for the default. A caller can set a lower limit if
    Spark computes the summary later.
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
    """Have Spark compute the tables of several runs, and return their summaries.

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
        # While Spark starts, there is no progress to show. Without a total, the bar only pulses.
        task = bar.add_task("", total=None)

        def show(progress: AnalysisProgress) -> None:
            bar.update(
                task, total=progress.total, completed=progress.done, description=progress.part
            )

        return analyze(runs, master=master, progress=show)


def analyze_if_needed(
    console: Console, past: Sequence[PastRun], *, master: str | None
) -> tuple[RunSummary, ...]:
    """Analyse the runs whose tables are missing or old, and return the summaries of all runs.

    Raises: NoJava if a run has to be analysed but Java is missing; the exceptions of
        pipeline.run.analyze.
    """
    # Tables are old if the file of events is newer. So `salvage` must write this file first.
    for run in past:
        salvage(run, console)
    to_analyse = [run for run in past if current_summary(run.path) is None]
    if to_analyse:
        # Without Java no run can be analysed. The notice names the first run as an example.
        notice = java_notice(to_analyse[0].path)
        if notice is not None:
            raise NoJava(notice)
        runs_have = "1 run has" if len(to_analyse) == 1 else f"{len(to_analyse)} runs have"
        console.print(f"{runs_have} no tables yet, or older ones", highlight=False, soft_wrap=True)
        analyze_runs(console, [run.path for run in to_analyse], master=master)
    return tuple(_summary_of_analysed(run.path) for run in past)


def _summary_of_analysed(run: Path) -> RunSummary:
    """Return the summary of a run that was analysed.

    Raises: NotAnalysed if the run has no summary.
    """
    summary = read_summary(run)
    if summary is None:
        raise NotAnalysed(f"{run} has no summary of its tables, though it was analysed")
    return summary


def current_summary(run: Path) -> RunSummary | None:
    """Return the summary of a run; None if its tables are incomplete, or older than its events."""
    return read_summary(run) if is_current(run) else None


def write_run_report(console: Console, past: PastRun, *, output: Path | None = None) -> Path:
    """Write the report of a run that was analysed, and return the path of the page.

    Raises: NotAnalysed if the run has no tables; OSError if the page cannot be written.
    """
    from pipeline.report.build import build_report  # noqa: PLC0415 - imports Altair

    if not console.is_terminal:
        return build_report(past.path, facts_of(past), output=output)
    with console.status(f"writing the report of {past.manifest.run}"):
        return build_report(past.path, facts_of(past), output=output)


def write_comparison(runs: Sequence[tuple[RunFacts, RunSummary]], output: Path) -> Path:
    """Write the page that compares runs, and return its path.

    Raises: OSError if the page cannot be written.
    """
    from pipeline.report.comparison_page import build_comparison  # noqa: PLC0415 - imports Altair

    output.parent.mkdir(parents=True, exist_ok=True)
    return build_comparison(runs, output)


def compare_side_by_side(runs: Sequence[tuple[RunFacts, RunSummary]]) -> Comparison:
    """Compare runs for the terminal, with the same columns as on the page."""
    from pipeline.report.run_names import column_names  # noqa: PLC0415 - imports Altair

    facts = [run for run, _ in runs]
    return compare_runs(
        [summary for _, summary in runs],
        names=column_names(facts),
        verdicts=[run.ended_as for run in facts],
    )
