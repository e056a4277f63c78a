"""Analysing runs with Spark, and what happens when there is no Java for it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.figures import RunSummary
from pipeline.java import JavaProblem, find_java
from pipeline.tables import analyze


def java_notice(run: Path) -> str | None:
    """Return why the analysis has to wait and how to do it later, None if Java is there."""
    java = find_java()
    if not isinstance(java, JavaProblem):
        return None
    return (
        f"Not analysed: Spark needs Java and found {java.found}.\n{java.advice}\n"
        f"Then: python -m coordlab analyze {run}"
    )


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
