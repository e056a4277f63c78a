"""`diff`: shows the first event in which two runs differ.

The command helps to find out why one run violates a promise and a similar run does not. The user
sees the last events that both runs have in common, and then the rows of both traces beside each
other:

    They part at 31.402118s, after 5,210 rows alike.
    how they go on:
    A: 31.402118s broker-1 leader_elected ...     B: 31.402118s broker-2 leader_elected ...

This works for two runs of the same seed. With another seed, every message takes another time. So
the traces differ from the first row on, and this difference shows no cause. Then the command
compares the stories of the runs. The story of a node is the sequence of its decisive events, such
as elections and rebalances, without times, offsets and ids. `chaos.results.trace_diff` does both
comparisons.

The two runs are called `one` and `other` in the code and in JSON, and A and B in the output.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.exploration.nearest_passing import nearest_passing
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.results.run_directory import EVENTS_FILE, NotARun
from chaos.results.trace_diff import (
    NodeParting,
    Parting,
    StoryParting,
    parting,
    parts_by_itself,
    story_parting,
)
from cluster.trace.parquet import TraceOutdated, read_parquet
from coordlab.console import clock, print_document, print_lines, row_words
from coordlab.options import (
    find_run,
    gather_into,
    json_option,
    runs_option,
    space_option,
    with_examples,
)
from coordlab.schedules import Schedule, named_schedule
from coordlab.signals import terminate_as_ctrl_c
from protocol.trace import MESSAGE_KINDS, TraceRow
from results_schema.manifest import Plan
from results_schema.results import EXIT_PASS, EXIT_UNKNOWN, EXIT_VIOLATED, Results

_MAX_NODES = 10
"""The largest number of nodes for which the first difference is printed."""
_NO_MORE = "(no more)"
"""This text stands in the column of the trace that has fewer rows."""
_ROW_COUNT = click.IntRange(min=0, max=10_000)
"""The type of --before and --after."""


class _TimedFinding(NamedTuple):
    """A violation that a run shows.

    The time is the first field. So `min` finds the earliest violation.
    """

    time_us: int
    check: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The arguments and options of `diff`.

    - `one`, `other`: the words with which the user names the runs. With `against_passing`, `other`
      is None, because the command itself searches for the second run.
    - `messages`: True to compare the rows about messages, too.
    - `before`, `after`: the numbers of rows to show before the first difference, and from the first
      difference on.
    """

    one: str
    other: str | None
    against_passing: bool
    space: str
    runs: Path
    messages: bool
    before: int
    after: int
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTrace:
    """The trace of one of the two runs.

    - `result`: `pass` or `violated` for instance; None for a run directory without results.
    - `claim`: the earliest violation of the run as a line, such as
      `31.402118s one_owner: orders-0 has two owners`; "" if there is none.
    """

    name: str
    rows: tuple[TraceRow, ...]
    result: str | None
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDifference:
    """The point at which two traces begin to differ.

    - `first_difference`: the first rows that differ; None if the traces are equal.
    - `shows_no_cause`: True if such a difference comes with any two seeds. For instance, the same
      event may come at another time.
    - `story_difference`: the point at which the stories of the nodes begin to differ; None if
      `shows_no_cause` is False, because then it is not needed.
    """

    one: ComparedTrace
    other: ComparedTrace
    first_difference: Parting | None
    shows_no_cause: bool
    story_difference: StoryParting | None


@click.command(
    "diff",
    cls=with_examples(
        "diff findings/fencing-1.yaml --against-passing",
        "diff 4711 4712 --space standard",
        "diff runs/mine/latest runs/mine/2026-01-31T12-00-00.000Z --messages",
    ),
    epilog="Exit codes: 0 equal, 1 they differ, 2 no passing run was found, 130 interrupted, 254 "
    "bad arguments or experiment file, 255 internal error.",
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@click.option(
    "--against-passing",
    is_flag=True,
    help="Compare A with the nearest run that passes: the same schedule with a neighbouring "
    "network seed, or else with some faults left out.",
)
@space_option()
@runs_option
@click.option("--messages", is_flag=True, help="Compare messages too, of two run directories.")
@click.option("--before", type=_ROW_COUNT, default=8, show_default=True, help="Rows shown before.")
@click.option("--after", type=_ROW_COUNT, default=8, show_default=True, help="Rows shown behind.")
@json_option("one, other, equal, rows_alike, parts, by_itself, story")
@gather_into(DiffOptions)
def diff_command(options: DiffOptions) -> int:
    """Show the first event in which two runs differ, the events before it, and those after.

    A and B are experiment or replay files or seeds, which are played in virtual time, or run
    directories, which are read. Under two seeds latencies differ from the first message on. The
    command then shows the first step that differs, node by node and without times.
    """
    has_second_run = options.other is not None
    if has_second_run == options.against_passing:  # both are given, or neither
        raise click.UsageError("expected two runs, or one with --against-passing")
    console = Console()
    with terminate_as_ctrl_c():
        one, other = _traces_to_compare(options)
    if other is None:
        # No passing run was found near A.
        if options.json:
            print_document(console, _document_without_second(one), indented=True)
        else:
            console.print("no run that passes was found near it: nothing to hold it against")
        return EXIT_UNKNOWN
    # The first row that differs is needed even with `--after 0`: the output has the time of this
    # row, and the row decides whether the stories must be compared.
    difference = compare_sides(one, other, before=options.before, after=max(options.after, 1))
    if options.json:
        print_document(console, _document(difference), indented=True)
    else:
        print_difference(console, difference)
    # 0 if the runs are equal, 1 if they differ, as for the `diff` of Unix.
    return EXIT_PASS if difference.first_difference is None else EXIT_VIOLATED


def compare_sides(
    one: ComparedTrace, other: ComparedTrace, *, before: int, after: int
) -> TraceDifference:
    """Compare two traces row by row. If this shows no cause, compare the stories of the runs."""
    first_difference = parting(one.rows, other.rows, before=before, after=after)
    shows_no_cause = first_difference is not None and parts_by_itself(one.rows, first_difference)
    story_difference = (
        story_parting(one.rows, other.rows, before=before) if shows_no_cause else None
    )
    return TraceDifference(
        one=one,
        other=other,
        first_difference=first_difference,
        shows_no_cause=shows_no_cause,
        story_difference=story_difference,
    )


def _traces_to_compare(options: DiffOptions) -> tuple[ComparedTrace, ComparedTrace | None]:
    """Return the two traces to compare; the second is None if no passing run was found."""
    if options.other is not None:
        return _trace_named(options.one, options), _trace_named(options.other, options)
    if _names_a_run(options.one):
        raise click.UsageError("--against-passing plays schedules: name a file or a seed")
    schedule = named_schedule(options.one, options.space)
    failed, one = _play_and_trace(schedule.name, schedule)
    if failed.result is PlayResult.PASS:
        raise click.UsageError(f"{schedule.name} passes itself: there is nothing to explain")
    # The attempts are printed on standard error, because with --json standard output has only the
    # document.
    stderr_console = Console(stderr=True)
    neighbour = nearest_passing(
        schedule.experiment,
        failed,
        trying=lambda change: stderr_console.print(f"trying {change}", highlight=False),
    )
    if neighbour is None:
        return one, None
    change = neighbour.change  # such as `network seed 7` or `without crash-1`
    if not change.startswith("without"):
        change = f"with {change}"
    _, other = _play_and_trace(
        f"the same {change}",
        schedule,
        seed=neighbour.seed,
        plan=neighbour.plan,
    )
    return one, other


def _trace_named(name: str, options: DiffOptions) -> ComparedTrace:
    """Return the trace of the run that the user has named.

    If the name is that of a run directory, its trace is read. If it is a schedule (a file or a
    seed), the schedule is played now.
    """
    if not _names_a_run(name):
        # A schedule is played without messages in its trace.
        if options.messages:
            raise click.UsageError("--messages: only run directories hold messages")
        schedule = named_schedule(name, options.space)
        _run, trace = _play_and_trace(schedule.name, schedule)
        return trace
    run = find_run(Path(name), options.runs)
    path = run.events / EVENTS_FILE
    if not path.exists():
        raise NotARun(f"{run.path} has no trace: {path.name} is missing")
    results = run.results()
    try:
        rows = tuple(_rows_to_compare(read_parquet(path), messages=options.messages))
    except TraceOutdated as error:
        raise NotARun(str(error)) from error
    if results is None:
        return ComparedTrace(name=name, rows=rows, result=None)
    claim = _earliest_finding(_findings_in(results))
    return ComparedTrace(name=name, rows=rows, result=results.verdict.value, claim=claim)


def _names_a_run(name: str) -> bool:
    """Return True if a name is that of a run, and False if it is that of a schedule.

    A run is named by its directory, or in the form of `list`: `fencing/2026-01-31T12-00-00.000Z`.
    """
    is_path_of_schedule = name.endswith((".yaml", ".yml"))
    return Path(name).is_dir() or ("/" in name and not is_path_of_schedule)


def _findings_in(results: Results) -> Iterable[_TimedFinding]:
    for check in results.checks:
        for finding in check.findings:
            yield _TimedFinding(finding.time_us, check.check, finding.summary)


def _rows_to_compare(rows: Iterable[TraceRow], *, messages: bool) -> Iterable[TraceRow]:
    """Return the rows to compare. If `messages` is False, leave out the rows about messages."""
    if messages:
        return rows
    return (row for row in rows if row.kind not in MESSAGE_KINDS)


def _play_and_trace(
    name: str, schedule: Schedule, *, seed: int | None = None, plan: Plan | None = None
) -> tuple[PlayedRun, ComparedTrace]:
    """Play a schedule in virtual time, and return the run and its trace.

    `seed` and `plan` replace the seed and the plan of the schedule, unless they are None.
    """
    if seed is None:
        seed = schedule.seed
    rows: list[TraceRow] = []
    played = play(schedule.experiment, seed, observers=(rows.append,), plan=plan)
    if played.result is PlayResult.INTERRUPTED:
        # After a Ctrl-C, `play` raises nothing, but returns this result. End the command now.
        raise KeyboardInterrupt
    claim = _earliest_finding(
        _TimedFinding(finding.time_us, finding.signature.check, finding.summary)
        for finding in played.findings
    )
    trace = ComparedTrace(name=name, rows=tuple(rows), result=played.result.value, claim=claim)
    return played, trace


def _earliest_finding(findings: Iterable[_TimedFinding]) -> str:
    """Return the earliest finding as a line; "" if there are no findings."""
    earliest = min(findings, default=None)
    if earliest is None:
        return ""
    return f"{clock(earliest.time_us)} {earliest.check}: {earliest.summary}"


def _document(difference: TraceDifference) -> dict[str, object]:
    """Return the document of `--json`."""
    first_difference, story_difference = difference.first_difference, difference.story_difference
    rows_alike = len(difference.one.rows)  # if the traces are equal, all rows are alike
    parts_document: dict[str, object] | None = None
    if first_difference is not None:
        rows_alike = first_difference.rows_alike
        parts_document = {
            "before": _row_documents(first_difference.before),
            "one": _row_documents(first_difference.one),
            "other": _row_documents(first_difference.other),
            "nodes": _node_documents(first_difference.nodes),
        }
    story_document: dict[str, object] | None = None
    if story_difference is not None:
        story_document = {
            "before": _row_documents(story_difference.before),
            "nodes": _node_documents(story_difference.nodes),
        }
    return {
        "one": _trace_document(difference.one),
        "other": _trace_document(difference.other),
        "equal": first_difference is None,
        "rows_alike": rows_alike,
        "parts": parts_document,
        "by_itself": difference.shows_no_cause,
        "story": story_document,
    }


def _document_without_second(one: ComparedTrace) -> dict[str, object]:
    """Return the document of `--json` if no passing run was found.

    The document has the same keys as that of `_document`, but only the first run has a value.
    """
    keys = ("other", "equal", "rows_alike", "parts", "by_itself", "story")
    return {"one": _trace_document(one), **dict.fromkeys(keys, None)}


def _trace_document(trace: ComparedTrace) -> dict[str, object]:
    return {"name": trace.name, "result": trace.result, "claim": trace.claim}


def _row_documents(rows: Iterable[TraceRow | None]) -> list[dict[str, object] | None]:
    """Return rows as dicts. A trace that has ended has None in the place of a row."""
    return [None if row is None else _filled_columns(row) for row in rows]


def _filled_columns(row: TraceRow) -> dict[str, object]:
    """Return the columns of a row that have a value. Most columns are None, and are left out."""
    columns = msgspec.structs.asdict(row)
    return {name: value for name, value in columns.items() if value is not None}


def _node_documents(nodes: Iterable[NodeParting]) -> list[dict[str, object]]:
    """Return the first different rows of each node as dicts."""
    documents: list[dict[str, object]] = []
    for node in nodes:
        one, other = _row_documents((node.one, node.other))
        documents.append({"node": node.node, "time_us": node.time_us, "one": one, "other": other})
    return documents


def print_difference(console: Console, difference: TraceDifference) -> None:
    """Print the two runs, and then where their traces or their stories begin to differ."""
    one, other, first_difference = difference.one, difference.other, difference.first_difference
    print_lines(console, [*_lines_about("A", one), *_lines_about("B", other)])
    if first_difference is None:
        print_lines(console, [f"equal: {len(one.rows):,} rows"], style="bold green")
        return
    if difference.story_difference is None:
        _print_first_rows_that_differ(console, first_difference)
        _print_nodes(console, "where each node parts:", first_difference.nodes)
        return
    _print_story(console, difference.story_difference)
    time, rows_alike = _first_time(first_difference), first_difference.rows_alike
    print_lines(
        console,
        [
            f"The first row that differs is at {time}, after {rows_alike:,} rows alike. "
            "It tells nothing: the same came at another time, or the cluster was still "
            "starting, or one plan ended earlier. --json has it."
        ],
        style="dim",
    )


def _print_story(console: Console, story_difference: StoryParting) -> None:
    """Print the events before the stories part, and then each node's next step in both runs."""
    if not story_difference.nodes:
        print_lines(
            console,
            ["Both tell the same story: no node takes another step from the steady state on."],
            style="bold green",
        )
        return
    first = story_difference.nodes[0]
    print_lines(
        console,
        [f"The first step that differs is at {clock(first.time_us)}, on {first.node}."],
        style="bold red",
    )
    print_lines(
        console,
        ["Each node's steps are compared from the steady state on, without times, offsets, ids."],
        style="dim",
    )
    if story_difference.before:
        print_lines(console, ["what led to it, at the times of A:"], style="bold")
        print_lines(console, [f"  {row_words(row)}" for row in story_difference.before])
    _print_nodes(console, "the first step of each node that differs:", story_difference.nodes)


def _lines_about(letter: str, trace: ComparedTrace) -> Iterable[str]:
    """Yield a line such as `A: fencing-1.yaml: 9,120 rows, violated`, then the violation."""
    result = "" if trace.result is None else f", {trace.result}"
    yield f"{letter}: {trace.name}: {len(trace.rows):,} rows{result}"
    if trace.claim:
        yield f"   {trace.claim}"


def _print_first_rows_that_differ(console: Console, first_difference: Parting) -> None:
    """Print the rows before the first difference, and then the rows of both traces in columns."""
    time, rows_alike = _first_time(first_difference), first_difference.rows_alike
    print_lines(
        console, [f"They part at {time}, after {rows_alike:,} rows alike."], style="bold red"
    )
    if first_difference.before:
        print_lines(console, ["what both have before:"], style="bold")
        for row in first_difference.before:
            print_lines(console, [f"  {row_words(row)}"])
    print_lines(console, ["how they go on:"], style="bold")
    pairs = list(zip_longest(first_difference.one, first_difference.other))
    console.print(_side_by_side(pairs))


def _first_time(first_difference: Parting) -> str:
    """Return the time at which the traces begin to differ."""
    # A trace that has already ended has no rows here. But the other trace has rows.
    first_rows = [rows[0] for rows in (first_difference.one, first_difference.other) if rows]
    return clock(min(row.time_us for row in first_rows))


def _print_nodes(console: Console, heading: str, nodes: Sequence[NodeParting]) -> None:
    """Print the first row of each node that differs, in A and in B."""
    print_lines(console, [heading], style="bold")
    console.print(_side_by_side([(node.one, node.other) for node in nodes[:_MAX_NODES]]))
    if len(nodes) > _MAX_NODES:
        print_lines(console, [f"and {len(nodes) - _MAX_NODES} more nodes"])


def _side_by_side(pairs: Iterable[tuple[TraceRow | None, TraceRow | None]]) -> Table:
    """Return a table with the rows of A and B beside each other. Rows that differ are bold."""
    table = Table(expand=True, pad_edge=False)
    table.add_column("A", ratio=1, overflow="fold")
    table.add_column("B", ratio=1, overflow="fold")
    for one, other in pairs:
        style = "" if _reads_alike(one, other) else "bold"
        table.add_row(_cell(one, style), _cell(other, style))
    return table


def _cell(row: TraceRow | None, style: str) -> Text:
    if row is None:
        return Text(_NO_MORE, style="dim")
    return Text(row_words(row), style=style)


def _reads_alike(one: TraceRow | None, other: TraceRow | None) -> bool:
    """Return whether two rows have the same text.

    Rows with the same text can differ in columns that are not printed, such as the id of the run.
    """
    return one is not None and other is not None and row_words(one) == row_words(other)
