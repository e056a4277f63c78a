"""`list`: the experiments that have a name, and past runs, however badly they ended."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from chaos.experiment.loader import ListedExperiment, list_experiments
from chaos.results.run_directory import NotARun, PastRun, scan_runs
from coordlab.console import print_document, print_lines, print_table
from coordlab.options import json_option, runs_option, with_examples
from coordlab.report_facts import status_of
from coordlab.seed_names import group_of_seeds, seed_ranges, seeds_words
from pipeline.report.facts import Status
from pipeline.summary.caveats import caveats_of
from pipeline.summary.figures import RunSummary, duration_text
from pipeline.summary.summary_file import read_summary
from results_schema.results import EXIT_PASS, Verdict

DEFAULT_LIMIT = 20
COMMIT_GAP = "commit gap"
"""The measure that a list shows: what a group felt of a fault."""
_COLUMNS = ("runtime", "seed", "status", "verdict", COMMIT_GAP)
_UNBOUNDED = 10_000
_CAVEAT = "*"
_VERDICT_STYLES = {"pass": "green", "violated": "red", "unknown": "yellow"}
_STATUS_STYLES = {"completed": "", "running": "cyan"}


@click.command(
    "list",
    cls=with_examples("list", "list --limit 0 --runs /data/runs", "list --json"),
)
@runs_option
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Show this many of the newest runs, those of one `run --seeds` as one; 0 shows all.",
)
@json_option("experiments, runs, runs_total, unreadable")
def list_command(runs: Path, limit: int, json: bool) -> int:
    """List the experiments that can be run by name, and past runs, the newest last.

    A run that was analysed is shown with its longest commit gap: how long a member went without an
    acknowledged commit after a fault.
    """
    console = Console()
    experiments = list_experiments()
    past = find_past_runs(runs, limit=limit or None)
    if json:
        print_document(console, _document(experiments, past))
    else:
        print_listing(console, experiments, past, runs)
    return EXIT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run.

    Units: `started_at`, `ended_at` are ISO 8601. `verdict`, `exit_code` None: it has no results,
    and `problem` says why if they cannot be read. `commit_gap_us` is the longest of any member
    after any fault, None if the run was not analysed or has none. `caveats` say what a run that
    was analysed and passed felt all the same.
    """

    run: str
    directory: str
    experiment: str
    started_at: str
    ended_at: str | None
    runtime: str
    seed: int
    status: Status
    verdict: str | None
    exit_code: int | None
    commit_gap_us: int | None
    problem: str | None = None
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRuns:
    """Runs by the time they began, the newest last. `total` counts those left out too.

    `unreadable` says of each directory that holds no readable run what is wrong with it.
    """

    runs: tuple[ListedRun, ...]
    total: int
    unreadable: tuple[str, ...]


def find_past_runs(root: Path, *, limit: int | None = None) -> PastRuns:
    """Return the newest `limit` runs under `root` (None: all), and what could not be read.

    Runs of one `run --seeds` count as one.
    """
    found: list[PastRun] = []
    unreadable: list[str] = []
    for each in scan_runs(root):
        if isinstance(each, PastRun):
            found.append(each)
        else:
            unreadable.append(str(each))
    found.sort(key=lambda past: past.manifest.started_at)
    shown = found if limit is None else _newest(found, limit)
    return PastRuns(
        runs=tuple(_listed(past) for past in shown),
        total=len(found),
        unreadable=tuple(unreadable),
    )


def _newest(found: Sequence[PastRun], limit: int) -> Sequence[PastRun]:
    """Return the last runs of `found`, with all that belong to them, as `limit` entries."""
    entries = dict.fromkeys(_entry_of(past.manifest.run) for past in reversed(found))
    kept = set(list(entries)[:limit])
    return [past for past in found if _entry_of(past.manifest.run) in kept]


def _entry_of(run: str) -> str:
    """Return what a run is listed under: its own name, or the group of its `run --seeds`."""
    return group_of_seeds(run) or run


def _listed(past: PastRun) -> ListedRun:
    manifest = past.manifest
    problem = None
    try:
        results = past.results()
    except NotARun as error:
        results, problem = None, str(error)
    summary = read_summary(past.path)
    passed = results is not None and results.verdict is Verdict.PASS
    return ListedRun(
        run=manifest.run,
        directory=str(past.path),
        experiment=manifest.experiment,
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        runtime=manifest.runtime,
        seed=manifest.seed,
        status=status_of(past),
        verdict=None if results is None else results.verdict.value,
        exit_code=None if results is None else results.exit_code,
        commit_gap_us=longest_commit_gap_us(summary),
        problem=problem,
        caveats=caveats_of(summary) if passed else (),
    )


def longest_commit_gap_us(summary: RunSummary | None) -> int | None:
    """Return the longest time that any member of a run went without an acknowledged commit."""
    return max(_commit_gaps_us(summary), default=None)


def _commit_gaps_us(summary: RunSummary | None) -> Iterator[int]:
    for fault in () if summary is None else summary.faults:
        gap = fault.distribution(COMMIT_GAP)
        if gap is not None and gap.maximum is not None:
            yield gap.maximum


def print_listing(
    console: Console, experiments: Sequence[ListedExperiment], past: PastRuns, root: Path
) -> None:
    """Print the experiments, then the runs below `root`, the newest last."""
    print_table(console, _experiments_table(experiments))
    console.print()
    if not past.total:
        print_lines(console, [f"no runs in {root} yet"])
    else:
        _print_runs(console, past.runs)
    if len({_entry_of(run.run) for run in past.runs}) < len(past.runs):
        said = (
            "a run with several seeds is one `run --seeds`: its name means all of them, and their "
            "directories end in -seed-N"
        )
        print_lines(console, [said], style="dim")
    older = past.total - len(past.runs)
    if older > 0:
        runs = "1 older run" if older == 1 else f"{older:,} older runs"
        print_lines(console, [f"{runs} in {root}: --limit 0 shows all"], style="dim")
    if any(run.caveats for run in past.runs):
        said = (
            f"{_CAVEAT} passed, and felt two owners at once, no owner, or records processed again: "
            "its report says it"
        )
        print_lines(console, [said], style="dim")
    if any(run.commit_gap_us is not None for run in past.runs):
        said = f"{COMMIT_GAP}: the longest of any member, of runs that were analysed"
        print_lines(console, [said], style="dim")
    problems = [run.problem for run in past.runs if run.problem is not None]
    print_lines(console, (f"set aside: {why}" for why in (*problems, *past.unreadable)))


def _document(experiments: Sequence[ListedExperiment], past: PastRuns) -> dict[str, object]:
    return {
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


def _experiments_table(experiments: Sequence[ListedExperiment]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("question")
    for listed in experiments:
        said = Text(listed.problem, style="red") if listed.problem else Text(listed.question)
        table.add_row(listed.name, said)
    return table


def _print_runs(console: Console, runs: Sequence[ListedRun]) -> None:
    """Print a line for each entry; two where a name and the columns do not fit beside each other.

    A name is never cut: it is there to be copied.
    """
    entries: dict[str, list[ListedRun]] = {}
    for run in runs:
        entries.setdefault(_entry_of(run.run), []).append(run)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", *_COLUMNS):
        justify: JustifyMethod = "right" if heading == COMMIT_GAP else "left"
        table.add_column(heading, no_wrap=True, justify=justify)
    cells = {name: _cells(of_entry) for name, of_entry in entries.items()}
    for name, columns in cells.items():
        table.add_row(Text(name, style="bold"), *columns)
    unbounded = console.options.update(max_width=_UNBOUNDED)
    if console.measure(table, options=unbounded).maximum <= console.width:
        print_table(console, table)
        return
    for name, columns in cells.items():
        console.print(Text(name, style="bold"), soft_wrap=True)
        runtime, seeds, status, verdict, gap = columns
        words = ("  ", runtime, f", {seeds_words(seeds.plain)}: ", status, ", ", verdict)
        told = Text.assemble(*words, f", {COMMIT_GAP} {gap}" if gap else "")
        console.print(told, soft_wrap=True)


def _cells(runs: Sequence[ListedRun]) -> tuple[Text, ...]:
    """Return the cells of _COLUMNS of the runs of one entry."""
    verdicts = _counted([run.verdict or "-" for run in runs], _VERDICT_STYLES, "dim")
    return (
        Text(runs[0].runtime),
        Text(seed_ranges(run.seed for run in runs)),
        _counted([run.status for run in runs], _STATUS_STYLES, "yellow"),
        verdicts.append(f" {_CAVEAT}" if any(run.caveats for run in runs) else ""),
        Text(_gaps([run.commit_gap_us for run in runs if run.commit_gap_us is not None])),
    )


def _counted(words: Sequence[str], styles: Mapping[str, str], style: str) -> Text:
    """Return a word that all share, or each with how many say it."""
    counts = Counter(words)
    if len(counts) == 1:
        return Text(words[0], style=styles.get(words[0], style))
    texts = (
        Text(f"{count} {word}", style=styles.get(word, style)) for word, count in counts.items()
    )
    return Text(", ").join(texts)


def _gaps(gaps_us: Sequence[int]) -> str:
    """Return the one commit gap, or the smallest and the largest; "" without any."""
    ends = [duration_text(gap_us) for gap_us in sorted(gaps_us)]
    return " to ".join(dict.fromkeys((ends[0], ends[-1]))) if ends else ""
