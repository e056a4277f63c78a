"""Analysing runs with Spark, where that is needed, and what happens without a Java for it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chaos.results.run_directory import EVENTS_FILE, TRACE_FOLDER, PastRun
from cluster.trace.salvage import salvage_trace
from pipeline.engine.java import JavaProblem, find_java
from pipeline.report.report_input import NotAnalysed
from pipeline.run import analyze
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import is_current, read_summary


class NoJava(Exception):
    """Runs have to be analysed and there is no Java for it; says what to do."""


def java_notice(run: Path) -> str | None:
    """Return why the analysis has to wait and how to do it later, None if Java is there."""
    java = find_java()
    if not isinstance(java, JavaProblem):
        return None
    return (
        f"Not analysed: Spark needs Java and found {java.found}.\n{java.advice}\n"
        f"Then: python -m coordlab analyze {run}"
    )


def salvage(past: PastRun, console: Console) -> None:
    """Give a run whose driver was killed the trace that its nodes had written, and say so."""
    if not past.incomplete or (past.events / EVENTS_FILE).exists():
        return
    found = salvage_trace(past.path / TRACE_FOLDER, past.events / EVENTS_FILE)
    if found is None:
        return
    console.print(
        f"{past.path}: its driver was killed; {found.rows:,} rows were left in {found.files} files",
        highlight=False,
        soft_wrap=True,
    )
    for damage in found.damaged:
        console.print(f"cut short: {damage}", highlight=False, soft_wrap=True)


def analyze_runs(
    console: Console, runs: Sequence[Path], *, master: str | None
) -> tuple[RunSummary, ...]:
    """Compute the tables of `runs` with Spark, telling what is being done.

    Raises: what pipeline.tables.analyze raises.
    """
    if not console.is_terminal:
        console.print("analysing with Spark")
        return analyze(runs, master=master)
    with console.status("analysing with Spark: starting") as status:
        return analyze(
            runs,
            master=master,
            progress=lambda table: status.update(f"analysing with Spark: {table}"),
        )


def analyse_if_needed(
    console: Console, past: Sequence[PastRun], *, master: str | None
) -> tuple[RunSummary, ...]:
    """Return the summaries of runs; those without tables, or with others' tables, are analysed.

    Raises: NoJava if that cannot be done; what pipeline.tables.analyze raises.
    """
    for each in past:
        salvage(each, console)
    waiting = [each for each in past if current_summary(each.path) is None]
    if waiting:
        notice = java_notice(waiting[0].path)
        if notice is not None:
            raise NoJava(notice)
        runs = "1 run has" if len(waiting) == 1 else f"{len(waiting)} runs have"
        console.print(f"{runs} no tables yet, or older ones", highlight=False, soft_wrap=True)
        analyze_runs(console, [each.path for each in waiting], master=master)
    return tuple(_summary(each.path) for each in past)


def _summary(run: Path) -> RunSummary:
    summary = read_summary(run)
    if summary is None:
        raise NotAnalysed(f"{run} has no summary of its tables, though it was analysed")
    return summary


def current_summary(run: Path) -> RunSummary | None:
    """Return the summary of a run whose tables are complete and made of its events as they are."""
    return read_summary(run) if is_current(run) else None
