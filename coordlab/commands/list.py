"""`list`: shows the experiments that can be run by name, and the past runs, the newest last.

    run                               runtime  seed   status     verdict             commit gap
    fencing/2026-01-31T12-00-00.000Z  virtual  1..20  completed  18 pass, 2 violated 3 s to 9 s

An entry is a single run, or all runs of one `run --seeds`, as in this example. The commit gap is
the longest time for which a member had no acknowledged commit. It tells how hard the faults hit the
consumers. It comes from the summary of a run, so it is known only for runs that were analysed.
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
"""The heading of a column, and the name of the measure in a summary that the column shows."""
_COLUMNS = ("runtime", "seed", "status", "verdict", COMMIT_GAP)
_MORE_THAN_ANY_WIDTH = 10_000
"""A table is measured at this width, to see how wide it is without wrapping."""
_CAVEAT_SIGN = "*"
"""The sign after the verdict of a run that passed with a caveat."""
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
    past_runs = find_past_runs(runs, limit=None if limit == 0 else limit)
    if json:
        print_document(console, _document(experiments, past_runs))
    else:
        print_listing(console, experiments, past_runs, runs)
    return EXIT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One past run, as JSON shows it.

    - `run`: its name, such as `fencing/2026-01-31T12-00-00.000Z`.
    - `started_at`, `ended_at`: times in the form of ISO 8601.
    - `verdict`, `exit_code`: None if the run has no results.
    - `commit_gap_us`: the longest commit gap of any member after any fault; None if no member had a
      gap, or if the run was not analysed.
    - `problem`: why the results of the run cannot be read; None if there is no such problem.
    - `caveats`: effects that users of a group noticed although the run passed, for instance that
      records were processed again. If the run was not analysed, this is ().
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
    """The past runs that are shown, the newest last.

    - `total`: the number of all readable runs, including runs that are not shown.
    - `unreadable`: a sentence for each directory that should have a run but cannot be read.
    """

    runs: tuple[ListedRun, ...]
    total: int
    unreadable: tuple[str, ...]


def find_past_runs(root: Path, *, limit: int | None = None) -> PastRuns:
    """Return the past runs in the folder `root`.

    `limit`: the number of entries to return, the newest ones; None for all. The runs of one
    `run --seeds` count as a single entry.
    """
    past_runs: list[PastRun] = []
    unreadable: list[str] = []
    for run_or_error in scan_runs(root):
        if isinstance(run_or_error, PastRun):
            past_runs.append(run_or_error)
        else:
            unreadable.append(str(run_or_error))
    # `scan_runs` yields first all runs of one experiment, then all runs of the next experiment.
    past_runs.sort(key=lambda run: run.manifest.started_at)
    shown = past_runs if limit is None else _newest_entries(past_runs, limit)
    return PastRuns(
        runs=tuple(_listed_run(run) for run in shown),
        total=len(past_runs),
        unreadable=tuple(unreadable),
    )


def _newest_entries(past_runs: Sequence[PastRun], limit: int) -> Sequence[PastRun]:
    """Return the runs of the newest `limit` entries; `past_runs` has the newest last."""
    # `dict.fromkeys` keeps each entry once, the newest entry first.
    newest_first = dict.fromkeys(_entry_name(run.manifest.run) for run in reversed(past_runs))
    newest = set(list(newest_first)[:limit])
    return [run for run in past_runs if _entry_name(run.manifest.run) in newest]


def _entry_name(run: str) -> str:
    """Return the name of the entry to which a run belongs.

    A run of `run --seeds` belongs to the entry of its batch: `fencing/2026-01-31T12-00-00.000Z` for
    `fencing/2026-01-31T12-00-00.000Z-seed-07`. Any other run is an entry of its own.
    """
    return batch_of_seeds(run) or run


def _listed_run(run: PastRun) -> ListedRun:
    """Return the facts about a run, read from its directory."""
    manifest = run.manifest
    problem = None
    try:
        results = run.results()
    except NotARun as error:
        results = None
        problem = str(error)
    summary = read_summary(run.path)
    # A caveat warns that "pass" is not the whole truth. Another verdict needs no warning.
    passed = results is not None and results.verdict is Verdict.PASS
    return ListedRun(
        run=manifest.run,
        directory=str(run.path),
        experiment=manifest.experiment,
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        runtime=manifest.runtime,
        seed=manifest.seed,
        status=status_of(run),
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
    """Yield the longest commit gap after each fault that was followed by a commit gap."""
    if summary is None:
        return
    for fault in summary.faults:
        gap = fault.distribution(COMMIT_GAP)
        if gap is not None and gap.maximum is not None:
            yield gap.maximum


def print_listing(
    console: Console, experiments: Sequence[ListedExperiment], past_runs: PastRuns, root: Path
) -> None:
    """Print the experiments, and then the runs below `root`, the newest last."""
    print_table(console, _experiments_table(experiments))
    console.print()
    if not past_runs.total:
        print_lines(console, [f"no runs in {root} yet"])
    else:
        _print_runs(console, past_runs.runs)
    entries = {_entry_name(run.run) for run in past_runs.runs}
    if len(entries) < len(past_runs.runs):  # some entry has several runs
        note = (
            "a run with several seeds is one `run --seeds`: its name means all of them, and their "
            "directories end in -seed-N"
        )
        print_lines(console, [note], style="dim")
    older = past_runs.total - len(past_runs.runs)
    if older > 0:
        runs = "1 older run" if older == 1 else f"{older:,} older runs"
        print_lines(console, [f"{runs} in {root}: --limit 0 shows all"], style="dim")
    if any(run.caveats for run in past_runs.runs):
        note = (
            f"{_CAVEAT_SIGN} passed, and felt two owners at once, no owner, or records processed "
            "again: its report says it"
        )
        print_lines(console, [note], style="dim")
    if any(run.commit_gap_us is not None for run in past_runs.runs):
        note = f"{COMMIT_GAP}: the longest of any member, of runs that were analysed"
        print_lines(console, [note], style="dim")
    problems = [run.problem for run in past_runs.runs if run.problem is not None]
    # Runs that cannot be read are not in the list. Tell the user about them.
    print_lines(console, (f"set aside: {why}" for why in (*problems, *past_runs.unreadable)))


def _document(experiments: Sequence[ListedExperiment], past_runs: PastRuns) -> dict[str, object]:
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
        "runs": past_runs.runs,
        "runs_total": past_runs.total,
        "unreadable": past_runs.unreadable,
    }


def _experiments_table(experiments: Sequence[ListedExperiment]) -> Table:
    """Return a table of the experiments, each with the question that it answers.

    If the file of an experiment has a mistake, the mistake stands in the place of the question.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("question")
    for listed in experiments:
        text = Text(listed.problem, style="red") if listed.problem else Text(listed.question)
        table.add_row(listed.name, text)
    return table


def _print_runs(console: Console, runs: Sequence[ListedRun]) -> None:
    """Print the entries as a table. If the console is too narrow, print two lines for each entry.

    In both forms the name is never cut, so that the user can copy it.
    """
    entries: dict[str, list[ListedRun]] = {}
    for run in runs:
        entries.setdefault(_entry_name(run.run), []).append(run)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", *_COLUMNS):
        justify: JustifyMethod = "right" if heading == COMMIT_GAP else "left"
        table.add_column(heading, no_wrap=True, justify=justify)
    cells = {name: _entry_cells(runs_of_entry) for name, runs_of_entry in entries.items()}
    for name, columns in cells.items():
        table.add_row(Text(name, style="bold"), *columns)
    unbounded = console.options.update(max_width=_MORE_THAN_ANY_WIDTH)
    if console.measure(table, options=unbounded).maximum <= console.width:
        print_table(console, table)
        return
    for name, columns in cells.items():
        console.print(Text(name, style="bold"), soft_wrap=True)
        runtime, seeds, status, verdict, gap = columns  # in the order of _COLUMNS
        second_line = Text.assemble(
            "  ", runtime, f", {seeds_words(seeds.plain)}: ", status, ", ", verdict
        )
        if gap:
            second_line.append(f", {COMMIT_GAP} {gap}")
        console.print(second_line, soft_wrap=True)


def _entry_cells(runs: Sequence[ListedRun]) -> tuple[Text, ...]:
    """Return the cells of an entry in the order of _COLUMNS."""
    verdicts = _words_with_counts([run.verdict or "-" for run in runs], _VERDICT_STYLES, "dim")
    if any(run.caveats for run in runs):
        verdicts.append(f" {_CAVEAT_SIGN}")
    return (
        Text(runs[0].runtime),  # all runs of an entry have the same runtime
        Text(seed_ranges(run.seed for run in runs)),
        _words_with_counts([run.status for run in runs], _STATUS_STYLES, "yellow"),
        verdicts,
        Text(_range_of_gaps([run.commit_gap_us for run in runs if run.commit_gap_us is not None])),
    )


def _words_with_counts(words: Sequence[str], styles: Mapping[str, str], default_style: str) -> Text:
    """Return the words with their counts: `18 pass, 2 violated` for 20 words.

    If all words are the same, return the word without a count.
    """
    counts = Counter(words)
    if len(counts) == 1:
        return Text(words[0], style=styles.get(words[0], default_style))
    texts = (
        Text(f"{count} {word}", style=styles.get(word, default_style))
        for word, count in counts.items()
    )
    return Text(", ").join(texts)


def _range_of_gaps(gaps_us: Sequence[int]) -> str:
    """Return the range of the gaps: `2 s to 4 s`, `3 s` for a single gap, "" for none."""
    if not gaps_us:
        return ""
    shortest, longest = duration_text(min(gaps_us)), duration_text(max(gaps_us))
    return shortest if shortest == longest else f"{shortest} to {longest}"
