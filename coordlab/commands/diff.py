"""`diff`: the first event in which two runs differ, played or read from run directories.

The command line names the two runs `one` and `other`; the output calls them A and B. A trace has
one row for each event of a run. A parting is the place where two traces, or the rows of one node in
them, begin to differ.

A seed determines all random choices of a run, also the latency of each message. So under two seeds
all times differ, and a comparison row by row shows nothing. The command then compares the stories
of the two runs. A story has the steps of each node in their order, without times, offsets and ids.
A step is an event such as an election or a rebalance. A story begins when the cluster and its
groups have started (the steady state).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

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
    as_one,
    find_run,
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
"""Limit of the nodes whose first difference is printed."""
_NO_MORE = "(no more)"
"""Text in the column of a trace that has ended before the other trace."""
_Claim = tuple[int, str, str]
"""The time, the check and the summary of a finding."""
_ROWS = click.IntRange(min=0, max=10_000)
"""Type of --before and --after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of a comparison.

    - `other`: the second run. It is None if `against_passing` is True, because the command then
      searches for the second run.
    - `before`, `after`: numbers of rows to show before the first difference, and from it on.
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
class Side:
    """One of the two traces.

    - `result`: name of the result; None for a run directory without a result.
    - `claim`: the claim of the run's earliest finding, as a line; "" without findings.
    """

    name: str
    rows: tuple[TraceRow, ...]
    result: str | None
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDifference:
    """The comparison of two traces.

    - `parts`: the place where the traces begin to differ; None if they are equal.
    - `by_itself`: True if the first rows that differ show no cause, because any two seeds differ
      like this (see `parts_by_itself`).
    - `story`: the first step in which each node differs; None unless `by_itself`.
    """

    one: Side
    other: Side
    parts: Parting | None
    by_itself: bool
    story: StoryParting | None


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
@click.option("--before", type=_ROWS, default=8, show_default=True, help="Rows shown before.")
@click.option("--after", type=_ROWS, default=8, show_default=True, help="Rows shown behind.")
@json_option("one, other, equal, rows_alike, parts, by_itself, story")
@as_one(DiffOptions)
def diff_command(options: DiffOptions) -> int:
    """Show the first event in which two runs differ, the events before it, and those after.

    A and B are experiment or replay files or seeds, which are played in virtual time, or run
    directories, which are read. Under two seeds latencies differ from the first message on. The
    command then shows the first step that differs, node by node and without times.
    """
    # Either B or --against-passing says what A is compared with, but not both.
    if (options.other is None) != options.against_passing:
        raise click.UsageError("expected two runs, or one with --against-passing")
    console = Console()
    with terminate_as_ctrl_c():
        one, other = _sides(options)
    if other is None:
        if options.json:
            print_document(console, _lone_document(one), indented=True)
        else:
            console.print("no run that passes was found near it: nothing to hold it against")
        return EXIT_UNKNOWN
    # With `--after 0`, one row of each trace is needed nevertheless: the first row that differs. It
    # decides whether the difference shows a cause (`by_itself`), and the output has its time.
    difference = compare_sides(one, other, before=options.before, after=max(options.after, 1))
    if options.json:
        print_document(console, _document(difference), indented=True)
    else:
        print_difference(console, difference)
    # EXIT_VIOLATED is 1, which means "they differ", as for the `diff` of Unix.
    return EXIT_PASS if difference.parts is None else EXIT_VIOLATED


def compare_sides(one: Side, other: Side, *, before: int, after: int) -> TraceDifference:
    """Compare two traces."""
    parts = parting(one.rows, other.rows, before=before, after=after)
    by_itself = parts is not None and parts_by_itself(one.rows, parts)
    story = story_parting(one.rows, other.rows, before=before) if by_itself else None
    return TraceDifference(one=one, other=other, parts=parts, by_itself=by_itself, story=story)


def _sides(options: DiffOptions) -> tuple[Side, Side | None]:
    """Return the two traces to compare; the second is None if no passing run was found."""
    if options.other is not None:
        return _side(options.one, options), _side(options.other, options)
    if _is_run(options.one):
        raise click.UsageError("--against-passing plays schedules: name a file or a seed")
    schedule = named_schedule(options.one, options.space)
    failed, one = _played(schedule.name, schedule)
    if failed.result is PlayResult.PASS:
        raise click.UsageError(f"{schedule.name} passes itself: there is nothing to explain")
    # On standard error, because with --json standard output has only the document.
    errors = Console(stderr=True)
    neighbour = nearest_passing(
        schedule.experiment,
        failed,
        trying=lambda how: errors.print(f"trying {how}", highlight=False),
    )
    if neighbour is None:
        return one, None
    # `change` is a phrase such as `network seed 7` or `without crash-1`. The second would give
    # "with without".
    _, other = _played(
        f"the same with {neighbour.change}".replace("with without", "without"),
        schedule,
        seed=neighbour.seed,
        plan=neighbour.plan,
    )
    return one, other


def _side(word: str, options: DiffOptions) -> Side:
    """Return the side that a word of the command line names.

    A run directory is read; a schedule (a file or a seed) is played.
    """
    if not _is_run(word):
        # `play` records no messages.
        if options.messages:
            raise click.UsageError("--messages: only run directories hold messages")
        schedule = named_schedule(word, options.space)
        _run, side = _played(schedule.name, schedule)
        return side
    past = find_run(Path(word), options.runs)
    path = past.events / EVENTS_FILE
    if not path.exists():
        raise NotARun(f"{past.path} has no trace: {path.name} is missing")
    results = past.results()
    try:
        rows = tuple(_wanted(read_parquet(path), messages=options.messages))
    except TraceOutdated as error:
        raise NotARun(str(error)) from error
    return Side(
        name=word,
        rows=rows,
        result=None if results is None else results.verdict.value,
        claim="" if results is None else _first_claim(_findings(results)),
    )


def _is_run(word: str) -> bool:
    """Return whether a word names a run: a directory, or a name such as `list` prints."""
    # `list` prints EXPERIMENT/START. The path of a schedule's file can contain a `/`, too.
    return Path(word).is_dir() or ("/" in word and not word.endswith((".yaml", ".yml")))


def _findings(results: Results) -> Iterable[_Claim]:
    """Yield the claims of a run's findings."""
    for check in results.checks:
        for finding in check.findings:
            yield finding.time_us, check.check, finding.summary


def _wanted(rows: Iterable[TraceRow], *, messages: bool) -> Iterable[TraceRow]:
    """Return the rows to compare: all of them, or those that are not about messages."""
    return rows if messages else (row for row in rows if row.kind not in MESSAGE_KINDS)


def _played(
    name: str, schedule: Schedule, *, seed: int | None = None, plan: Plan | None = None
) -> tuple[PlayedRun, Side]:
    """Play a schedule in virtual time; return the run and its side of the comparison."""
    rows: list[TraceRow] = []
    played = play(
        schedule.experiment,
        schedule.seed if seed is None else seed,
        observers=(rows.append,),
        plan=plan,
    )
    if played.result is PlayResult.INTERRUPTED:
        # After a Ctrl-C, `play` raises nothing, but returns this result. This ends the command.
        raise KeyboardInterrupt
    claims = (
        (finding.time_us, finding.signature.check, finding.summary) for finding in played.findings
    )
    claim = _first_claim(claims)
    return played, Side(name=name, rows=tuple(rows), result=played.result.value, claim=claim)


def _first_claim(claims: Iterable[_Claim]) -> str:
    """Return the earliest claim as a line; "" if there are no claims."""
    # A claim begins with its time, so the smallest claim is the earliest.
    first = min(claims, default=None)
    if first is None:
        return ""
    time_us, check, summary = first
    return f"{clock(time_us)} {check}: {summary}"


def _document(difference: TraceDifference) -> dict[str, object]:
    """Return the comparison as the JSON document of `--json`."""
    parts, story = difference.parts, difference.story
    parts_document: dict[str, object] | None = None
    if parts is not None:
        parts_document = {
            "before": _rows(parts.before),
            "one": _rows(parts.one),
            "other": _rows(parts.other),
            "nodes": _nodes(parts.nodes),
        }
    story_document: dict[str, object] | None = None
    if story is not None:
        story_document = {"before": _rows(story.before), "nodes": _nodes(story.nodes)}
    return {
        "one": _side_document(difference.one),
        "other": _side_document(difference.other),
        "equal": parts is None,
        "rows_alike": len(difference.one.rows) if parts is None else parts.rows_alike,
        "parts": parts_document,
        "by_itself": difference.by_itself,
        "story": story_document,
    }


def _lone_document(one: Side) -> dict[str, object]:
    """Return the JSON document if there is no second run.

    It has the keys of `_document`. All values but that of `one` are None.
    """
    keys = ("other", "equal", "rows_alike", "parts", "by_itself", "story")
    return {"one": _side_document(one), **dict.fromkeys(keys, None)}


def _side_document(side: Side) -> dict[str, object]:
    return {"name": side.name, "result": side.result, "claim": side.claim}


def _rows(rows: Iterable[TraceRow | None]) -> list[dict[str, object] | None]:
    """Return rows as plain data; None stands for a trace that has ended."""
    return [None if row is None else _filled_columns(row) for row in rows]


def _filled_columns(row: TraceRow) -> dict[str, object]:
    """Return the columns of a row, without those that are None, which are most of them."""
    columns = msgspec.structs.asdict(row)
    return {name: value for name, value in columns.items() if value is not None}


def _nodes(nodes: Iterable[NodeParting]) -> list[dict[str, object]]:
    """Return the first different rows of each node as plain data."""
    documents: list[dict[str, object]] = []
    for node in nodes:
        one, other = _rows((node.one, node.other))
        documents.append({"node": node.node, "time_us": node.time_us, "one": one, "other": other})
    return documents


def print_difference(console: Console, difference: TraceDifference) -> None:
    """Print the two runs, and then their first difference, or that their traces are equal.

    If the traces differ by themselves (`by_itself`), print the first different step instead.
    """
    one, other, parts = difference.one, difference.other, difference.parts
    print_lines(console, [*_side_lines("A", one), *_side_lines("B", other)])
    if parts is None:
        print_lines(console, [f"equal: {len(one.rows):,} rows"], style="bold green")
        return
    if difference.story is None:
        _print_exact(console, parts)
        _print_nodes(console, "where each node parts:", parts.nodes)
        return
    _print_story(console, difference.story)
    print_lines(
        console,
        [
            f"The first row that differs is at {_first_time(parts)}, after {parts.rows_alike:,} "
            "rows alike. It tells nothing: the same came at another time, or the cluster was still "
            "starting, or one plan ended earlier. --json has it."
        ],
        style="dim",
    )


def _print_story(console: Console, story: StoryParting) -> None:
    """Print the steps that led to the first difference, then each node's first different step."""
    if not story.nodes:
        print_lines(
            console,
            ["Both tell the same story: no node takes another step from the steady state on."],
            style="bold green",
        )
        return
    first = story.nodes[0]
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
    if story.before:
        print_lines(console, ["what led to it, at the times of A:"], style="bold")
        print_lines(console, [f"  {row_words(row)}" for row in story.before])
    _print_nodes(console, "the first step of each node that differs:", story.nodes)


def _side_lines(letter: str, side: Side) -> Iterable[str]:
    """Yield the lines about one side: its name, number of rows and result, then its claim."""
    result = "" if side.result is None else f", {side.result}"
    yield f"{letter}: {side.name}: {len(side.rows):,} rows{result}"
    if side.claim:
        yield f"   {side.claim}"


def _print_exact(console: Console, parts: Parting) -> None:
    """Print the rows around the first difference, both sides beside each other."""
    print_lines(
        console,
        [f"They part at {_first_time(parts)}, after {parts.rows_alike:,} rows alike."],
        style="bold red",
    )
    if parts.before:
        print_lines(console, ["what both have before:"], style="bold")
        for row in parts.before:
            print_lines(console, [f"  {row_words(row)}"])
    print_lines(console, ["how they go on:"], style="bold")
    pairs = list(zip_longest(parts.one, parts.other))
    console.print(_side_by_side(pairs))


def _first_time(parts: Parting) -> str:
    """Return the time of the first row that differs; a trace that has ended has no such row."""
    first = [rows[0] for rows in (parts.one, parts.other) if rows]
    return clock(min(row.time_us for row in first))


def _print_nodes(console: Console, heading: str, nodes: Sequence[NodeParting]) -> None:
    """Print the first different rows of each node, of _MAX_NODES nodes at most."""
    print_lines(console, [heading], style="bold")
    console.print(_side_by_side([(node.one, node.other) for node in nodes[:_MAX_NODES]]))
    if len(nodes) > _MAX_NODES:
        print_lines(console, [f"and {len(nodes) - _MAX_NODES} more nodes"])


def _side_by_side(pairs: Iterable[tuple[TraceRow | None, TraceRow | None]]) -> Table:
    """Return a table with the rows of A and B beside each other; rows that differ are bold."""
    table = Table(expand=True, pad_edge=False)
    table.add_column("A", ratio=1, overflow="fold")
    table.add_column("B", ratio=1, overflow="fold")
    for one, other in pairs:
        style = "" if _reads_alike(one, other) else "bold"
        table.add_row(_cell(one, style), _cell(other, style))
    return table


def _cell(row: TraceRow | None, style: str) -> Text:
    return Text(_NO_MORE, style="dim") if row is None else Text(row_words(row), style=style)


def _reads_alike(one: TraceRow | None, other: TraceRow | None) -> bool:
    """Return whether two rows have the same text.

    Rows with the same text can differ in columns that are not printed, such as the id of the run.
    """
    return one is not None and other is not None and row_words(one) == row_words(other)
