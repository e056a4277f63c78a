"""The end of `run`, when the run is over: print verdict and figures, make tables, write the report.

The figures come from the summary, which is computed from the run's trace. For a small trace, this
process computes the summary. For a large trace, Spark does it, because Spark reads the whole trace
anyway to make the tables.
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

    The run itself is complete and recorded. So if the disk is full, or if the user presses Ctrl-C,
    this function prints a line about it and goes on.

    Returns: the path of the report; None if it was not written.
    Raises: the other exceptions of the analysis and of the report.
    """
    # A large trace is left to Spark if the tables come next and Spark can run, for which it needs
    # Java. Otherwise the trace is summed up here, however large it is.
    spark_follows = analyze and java_notice(directory.path) is None
    max_rows = ROWS_AT_ONCE if spark_follows else None
    summary = _print_verdict_with_caveats(directory, results, console, max_rows=max_rows)
    print_figures(console, directory.manifest, results, summary)
    print_path(console, "run directory", directory.path)
    console.print(Text(f"again: {to_paste(directory.manifest.replay)}"), soft_wrap=True)
    if not analyze:
        return None
    summary_of_spark = _make_tables(directory, results, console, master=master)
    if summary_of_spark is None:
        return None
    if summary is None:
        # `print_figures` had no phases to print. Now they are known.
        print_phases(console, summary_of_spark)
    return _write_report(directory, console) if report else None


def _print_verdict_with_caveats(
    directory: RunDirectory, results: Results, console: Console, *, max_rows: int | None
) -> RunSummary | None:
    """Compute the summary of the run, print the verdict, and return the summary.

    A verdict `pass` is printed with its caveats. (A caveat says what users of a group noticed
    although the run passed, such as a long time without commits.) The caveats come from the
    summary, which can take a while. Meanwhile a terminal shows the verdict alone in a status line.
    If there is no summary, for instance because the user has pressed Ctrl-C, the verdict is printed
    without caveats.
    """
    summary = None
    status = verdict_text(results).append("  summing up the trace", style="dim")
    try:
        with console.status(status) if console.is_terminal else nullcontext():
            summary = sum_up(console, directory.path, results, max_rows=max_rows)
    finally:
        print_verdict(console, directory.manifest, results, summary)
    return summary


def _write_report(directory: RunDirectory, console: Console) -> Path | None:
    """Write the report, and return its path; None if it could not be written."""
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


def _make_tables(
    directory: RunDirectory, results: Results, console: Console, *, master: str | None
) -> RunSummary | None:
    """Have Spark make the tables, and return its summary; None if there are no tables."""
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
    """Print that the tables or the report could not be written, and how to try again.

    `command`: the command that makes only the tables or the report, such as `report`.
    """
    path = error.filename or directory.path
    console.print(
        Text(
            f"{path} cannot be written: {error.strerror or error}; the run itself is recorded. "
            f"Then: {called_as()} {command} {directory.path}"
        ),
        soft_wrap=True,
    )
