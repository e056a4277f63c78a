"""How `list` shows experiments and past runs: as tables, and as one JSON document."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.experiment.loader import ListedExperiment
from coordlab.commands.list.past_runs import ListedRun, PastRuns
from coordlab.console import print_lines
from pipeline.summary.figures import duration_text

_WIDE = 110
"""From this width on a run's name fits beside the other columns."""
_VERDICT_STYLES = {"pass": "green", "violated": "red", "unknown": "yellow"}
_STATUS_STYLES = {"completed": "", "running": "cyan"}


def print_listing(
    console: Console, experiments: Sequence[ListedExperiment], past: PastRuns, root: Path
) -> None:
    """Print the experiments, then the runs below `root`, the newest last."""
    console.print(_experiments_table(experiments))
    console.print()
    if not past.total:
        print_lines(console, [f"no runs in {root} yet"])
    else:
        console.print(_runs_table(past.runs, wide=console.width >= _WIDE))
    older = past.total - len(past.runs)
    if older > 0:
        runs = "1 older run" if older == 1 else f"{older:,} older runs"
        print_lines(console, [f"{runs} in {root}: --limit 0 shows all"], style="dim")
    problems = [run.problem for run in past.runs if run.problem is not None]
    print_lines(console, (f"set aside: {why}" for why in (*problems, *past.unreadable)))


def listing_document(experiments: Sequence[ListedExperiment], past: PastRuns) -> bytes:
    """Return the same as JSON: experiments, runs, runs_total, unreadable."""
    return msgspec.json.encode(
        {
            "experiments": [
                {
                    "name": each.name,
                    "path": str(each.path),
                    "question": each.question,
                    "problem": each.problem,
                }
                for each in experiments
            ],
            "runs": past.runs,
            "runs_total": past.total,
            "unreadable": past.unreadable,
        }
    )


def _experiments_table(experiments: Sequence[ListedExperiment]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("question")
    for listed in experiments:
        said = Text(listed.problem, style="red") if listed.problem else Text(listed.question)
        table.add_row(listed.name, said)
    return table


def _runs_table(runs: Sequence[ListedRun], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", style="bold", no_wrap=wide)
    for heading in ("runtime", "seed", "status", "verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("commit gap", justify="right", no_wrap=True)
    for run in runs:
        verdict = run.verdict or "-"
        gap = "" if run.commit_gap_us is None else duration_text(run.commit_gap_us)
        table.add_row(
            run.run if wide else run.run.replace("/", "/\n", 1),
            run.runtime,
            str(run.seed),
            Text(run.status, style=_STATUS_STYLES.get(run.status, "yellow")),
            Text(verdict, style=_VERDICT_STYLES.get(verdict, "dim")),
            gap,
        )
    return table
