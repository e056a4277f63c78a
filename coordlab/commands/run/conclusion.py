"""The steps after a run: print verdict and figures, make Spark's tables, write the report.

The figures come from a summary of the trace (the run's recorded events). It is computed in memory;
only if the trace has too many rows, Spark computes it together with the tables.
"""

from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.text import Text

from chaos.results.run_directory import RunDirectory, open_run
from coordlab.analysis import analyze_runs, java_notice, sum_up, write_run_report
from coordlab.console import print_path
from coordlab.program import called_as, to_paste
from coordlab.views.summary_view import print_figures, print_phases, print_verdict, verdict_text
from pipeline.in_memory.summary import ROWS_AT_ONCE
from pipeline.summary.figures import RunSummary
from results_schema.results import Results, RunOutcome


def conclude_run(
    console: Console,
    directory: RunDirectory,
    results: Results,
    *,
    analyze: bool,
    report: bool,
    master: str | None,
) -> Path | None:
    """Print verdict and figures, make the tables, and write the report.

    If the disk refuses a write, or the user presses Ctrl-C, this function prints that and goes on,
    because the run itself is complete.

    Returns: the path of the report; None if it was not written.
    Raises: the other exceptions of the analysis and of the report.
    """
    # If Spark computes the figures afterwards anyway, a trace is summed up in memory only if it is
    # small. Spark can run if there is no notice that Java is missing.
    spark_follows = analyze and java_notice(directory.path) is None
    max_rows = ROWS_AT_ONCE if spark_follows else None
    summary = _sum_up(directory, results, console, max_rows=max_rows)
    print_figures(console, directory.manifest, results, summary)
    print_path(console, "run directory", directory.path)
    console.print(Text(f"again: {to_paste(directory.manifest.replay)}"), soft_wrap=True)
    analysed = _analyze(directory, results, console, master=master) if analyze else None
    # If there was no summary, `print_figures` could not print the phases. Spark has computed them.
    if analysed is not None and summary is None:
        print_phases(console, analysed)
    return _report(directory, console) if report and analysed is not None else None


def _sum_up(
    directory: RunDirectory, results: Results, console: Console, *, max_rows: int | None
) -> RunSummary | None:
    """Compute the summary, then print the verdict with the caveats that the summary shows.

    A caveat says what users of a group noticed although the run passed. While the summary is
    computed, a terminal shows the verdict in a status line. If an exception ends the computation,
    the verdict is printed nevertheless.
    """
    summary = None
    status = verdict_text(results).append("  summing up the trace", style="dim")
    try:
        with console.status(status) if console.is_terminal else nullcontext():
            summary = sum_up(console, directory.path, results, max_rows=max_rows)
    finally:
        print_verdict(console, directory.manifest, results, summary)
    return summary


def _report(directory: RunDirectory, console: Console) -> Path | None:
    """Write the report and return its path; None if it was not written."""
    try:
        path = write_run_report(console, open_run(directory.path))
    except OSError as error:
        _print_not_written(console, directory, "report", error)
        return None
    except KeyboardInterrupt:
        console.print(f"report interrupted: {called_as()} report {directory.path}")
        return None
    print_path(console, "report", path)
    return path


def _analyze(
    directory: RunDirectory, results: Results, console: Console, *, master: str | None
) -> RunSummary | None:
    """Make the tables and return their summary; None if they were not made."""
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        return None
    if results.outcome is RunOutcome.INTERRUPTED:
        console.print(f"to analyse it: {called_as()} analyze {directory.path}", soft_wrap=True)
        return None
    notice = java_notice(directory.path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return None
    try:
        return analyze_runs(console, [directory.path], master=master)[0]
    except OSError as error:
        _print_not_written(console, directory, "analyze", error)
        return None
    except KeyboardInterrupt:
        console.print("analysis interrupted; the run itself is complete")
        return None


def _print_not_written(
    console: Console, directory: RunDirectory, command: str, error: OSError
) -> None:
    """Print that the tables or the report could not be written. The run's verdict stays valid."""
    path = error.filename or directory.path
    console.print(
        Text(
            f"{path} cannot be written: {error.strerror or error}; the run itself is recorded. "
            f"Then: {called_as()} {command} {directory.path}"
        ),
        soft_wrap=True,
    )
