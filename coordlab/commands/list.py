"""`list`: the experiments that can be run by name, and past runs, also those that failed.

An entry of the list is one run, or all runs of one `run --seeds` (one experiment with several
seeds). If a run was analysed, it has a summary. Its entry then shows the commit gap: the longest
time for which a member had no acknowledged commit after a fault.
"""

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
from coordlab.seed_names import batch_of_seeds, seed_ranges, seeds_words
from pipeline.report.facts import Status
from pipeline.summary.caveats import caveats_of
from pipeline.summary.figures import RunSummary, duration_text
from pipeline.summary.summary_file import read_summary
from results_schema.results import EXIT_PASS, Verdict

DEFAULT_LIMIT = 20
COMMIT_GAP = "commit gap"
"""Heading of a column, and name of the measure in a summary. A summary has other measures too."""
_COLUMNS = ("runtime", "seed", "status", "verdict", COMMIT_GAP)
_UNBOUNDED = 10_000
"""A width that no table reaches, to measure how wide a table is without wrapping."""
_CAVEAT = "*"
"""Sign behind the verdict of a run that passed with a caveat."""
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
    past = find_past_runs(runs, limit=limit or None)  # 0 stands for no limit
    if json:
        print_document(console, _document(experiments, past))
    else:
        print_listing(console, experiments, past, runs)
    return EXIT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run.

    - `started_at`, `ended_at`: ISO 8601.
    - `verdict`, `exit_code`: None if the run has no results.
    - `problem`: the reason why the run's results cannot be read; None if they are readable or do
      not exist.
    - `commit_gap_us`: the longest commit gap of any member after any fault; None if the run was not
      analysed or no member had a gap.
    - `caveats`: clauses on what users of a group noticed in a run that was analysed and passed, for
      instance that records were processed again.
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
    """Runs in the order in which they began, the newest last.

    - `total`: the number of readable runs, including those that are not in `runs`.
    - `unreadable`: one sentence for each directory without a readable run, with the reason.
    """

    runs: tuple[ListedRun, ...]
    total: int
    unreadable: tuple[str, ...]


def find_past_runs(root: Path, *, limit: int | None = None) -> PastRuns:
    """Return the runs of the newest `limit` entries under `root`, and the unreadable directories.

    If `limit` is None, all runs are returned. Runs of one `run --seeds` are one entry.
    """
    past_runs: list[PastRun] = []
    unreadable: list[str] = []
    for run_or_error in scan_runs(root):
        if isinstance(run_or_error, PastRun):
            past_runs.append(run_or_error)
        else:
            unreadable.append(str(run_or_error))
    # `scan_runs` yields all runs of an experiment before any run of the next experiment.
    past_runs.sort(key=lambda past: past.manifest.started_at)
    shown = past_runs if limit is None else _newest_entries(past_runs, limit)
    return PastRuns(
        runs=tuple(_listed_run(past) for past in shown),
        total=len(past_runs),
        unreadable=tuple(unreadable),
    )


def _newest_entries(past_runs: Sequence[PastRun], limit: int) -> Sequence[PastRun]:
    """Return all runs of the newest `limit` entries; `past_runs` is in the order of time."""
    # The keys of the dict are the names of the entries, the newest first, each name once.
    newest_first = dict.fromkeys(_entry_of(past.manifest.run) for past in reversed(past_runs))
    newest = set(list(newest_first)[:limit])
    return [past for past in past_runs if _entry_of(past.manifest.run) in newest]


def _entry_of(run: str) -> str:
    """Return the name of the entry that has the run: the run, or all runs of its `run --seeds`."""
    return batch_of_seeds(run) or run


def _listed_run(past: PastRun) -> ListedRun:
    """Return the facts of one run from its manifest, and from its results and summary if any."""
    manifest = past.manifest
    problem = None
    try:
        results = past.results()
    except NotARun as error:
        results, problem = None, str(error)
    summary = read_summary(past.path)
    # A caveat says that "pass" is not the whole truth. A run with another verdict needs none.
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
    """Yield the longest commit gap after each fault; nothing if the run has no summary."""
    if summary is None:
        return
    for fault in summary.faults:
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
    # There are fewer entries than runs if some entry has several runs.
    if len({_entry_of(run.run) for run in past.runs}) < len(past.runs):
        note = (
            "a run with several seeds is one `run --seeds`: its name means all of them, and their "
            "directories end in -seed-N"
        )
        print_lines(console, [note], style="dim")
    older = past.total - len(past.runs)
    if older > 0:
        runs = "1 older run" if older == 1 else f"{older:,} older runs"
        print_lines(console, [f"{runs} in {root}: --limit 0 shows all"], style="dim")
    if any(run.caveats for run in past.runs):
        note = (
            f"{_CAVEAT} passed, and felt two owners at once, no owner, or records processed again: "
            "its report says it"
        )
        print_lines(console, [note], style="dim")
    if any(run.commit_gap_us is not None for run in past.runs):
        note = f"{COMMIT_GAP}: the longest of any member, of runs that were analysed"
        print_lines(console, [note], style="dim")
    problems = [run.problem for run in past.runs if run.problem is not None]
    # "set aside": a file of the run cannot be read, and the list ignores it.
    print_lines(console, (f"set aside: {why}" for why in (*problems, *past.unreadable)))


def _document(experiments: Sequence[ListedExperiment], past: PastRuns) -> dict[str, object]:
    """Return the document that `--json` prints."""
    return {
        "experiments": [
            {
                "name": experiment.name,
                "path": str(experiment.path),
                "question": experiment.question,
                "problem": experiment.problem,
            }
            for experiment in experiments
        ],
        "runs": past.runs,
        "runs_total": past.total,
        "unreadable": past.unreadable,
    }


def _experiments_table(experiments: Sequence[ListedExperiment]) -> Table:
    """Return a table with the question of each experiment, or why its file cannot be read."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("question")
    for listed in experiments:
        text = Text(listed.problem, style="red") if listed.problem else Text(listed.question)
        table.add_row(listed.name, text)
    return table


def _print_runs(console: Console, runs: Sequence[ListedRun]) -> None:
    """Print the entries as a table, or as two lines each if the table is wider than the console.

    A name is never cut, so that the user can copy it.
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
        runtime, seeds, status, verdict, gap = columns  # in the order of _COLUMNS
        words = ("  ", runtime, f", {seeds_words(seeds.plain)}: ", status, ", ", verdict)
        second_line = Text.assemble(*words, f", {COMMIT_GAP} {gap}" if gap else "")
        console.print(second_line, soft_wrap=True)


def _cells(runs: Sequence[ListedRun]) -> tuple[Text, ...]:
    """Return one cell for each of _COLUMNS; `runs` are the runs of one entry."""
    verdicts = _counted([run.verdict or "-" for run in runs], _VERDICT_STYLES, "dim")
    if any(run.caveats for run in runs):
        verdicts.append(f" {_CAVEAT}")
    return (
        Text(runs[0].runtime),  # the same for all seeds
        Text(seed_ranges(run.seed for run in runs)),
        _counted([run.status for run in runs], _STATUS_STYLES, "yellow"),
        verdicts,
        Text(_gaps([run.commit_gap_us for run in runs if run.commit_gap_us is not None])),
    )


def _counted(words: Sequence[str], styles: Mapping[str, str], style: str) -> Text:
    """Return the only word in `words`, or each different word after its count.

    `styles`: style of a word; `style`: the style of all other words.
    """
    counts = Counter(words)
    if len(counts) == 1:
        return Text(words[0], style=styles.get(words[0], style))
    texts = (
        Text(f"{count} {word}", style=styles.get(word, style)) for word, count in counts.items()
    )
    return Text(", ").join(texts)


def _gaps(gaps_us: Sequence[int]) -> str:
    """Return the range of commit gaps as text, such as `2 s to 4 s`; "" if there are none."""
    if not gaps_us:
        return ""
    shortest, longest = duration_text(min(gaps_us)), duration_text(max(gaps_us))
    return shortest if shortest == longest else f"{shortest} to {longest}"
