"""`coordlab diff`: holds two traces against each other, played or read from run directories."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console

from chaos.exploration.nearest_passing import nearest_passing
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.results.run_directory import EVENTS_FILE, NotARun, open_run
from chaos.results.trace_diff import (
    NodeParting,
    Parting,
    differs_by_time_only,
    is_before_steady_state,
    parting,
    story_partings,
)
from cluster.trace.parquet import read_parquet
from coordlab.commands.diff.view import print_difference
from coordlab.schedules import Schedule, schedule_of
from coordlab.signals import terminate_as_ctrl_c
from protocol.trace import MESSAGE_KINDS, TraceRow
from results_schema.manifest import Plan
from results_schema.results import EXIT_PASS, EXIT_UNKNOWN, EXIT_VIOLATED


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What the command line says. `other` is None where a passing run is looked for."""

    one: str
    other: str | None
    space: str
    messages: bool = False
    before: int = 8
    after: int = 8
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two traces. `result` is None of a run that ended without one."""

    name: str
    rows: tuple[TraceRow, ...]
    result: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two traces held against each other.

    Shape: `parts` is None if they are equal. `story` has where the nodes' stories part; it is told
    where they first part `by_time`: an event came at another one, or it was
    before the steady state, as with any two seeds.
    """

    one: Side
    other: Side
    parts: Parting | None
    by_time: bool
    story: tuple[NodeParting, ...]


def diff(options: DiffOptions, console: Console) -> int:
    """Print where two traces part, and return the exit code: 0 equal, 1 they part.

    2 if no passing run was found. Raises: ExperimentError; NotARun; click.UsageError.
    """
    with terminate_as_ctrl_c():
        sides = _sides(options)
        if sides is None:
            console.print("no run that passes was found near it: nothing to hold it against")
            return EXIT_UNKNOWN
    difference = compare(*sides, before=options.before, after=options.after)
    if options.json:
        console.file.write(_document(difference))
    else:
        print_difference(console, difference)
    return EXIT_PASS if difference.parts is None else EXIT_VIOLATED


def compare(one: Side, other: Side, *, before: int, after: int) -> Difference:
    """Hold two traces against each other."""
    parts = parting(one.rows, other.rows, before=before, after=after)
    by_time = parts is not None and (
        differs_by_time_only(parts) or is_before_steady_state(one.rows, parts.rows_alike)
    )
    story = story_partings(one.rows, other.rows) if by_time else ()
    return Difference(one=one, other=other, parts=parts, by_time=by_time, story=story)


def _sides(options: DiffOptions) -> tuple[Side, Side] | None:
    if options.other is not None:
        return _side(options.one, options), _side(options.other, options)
    if Path(options.one).is_dir():
        raise click.UsageError("--against-passing plays schedules: name a file or a seed")
    schedule = schedule_of(options.one, options.space)
    failed, side = _played(schedule.name, schedule)
    if failed.result is PlayResult.PASS:
        raise click.UsageError(f"{schedule.name} passes itself: there is nothing to explain")
    errors = Console(stderr=True)
    neighbour = nearest_passing(
        schedule.experiment,
        failed,
        trying=lambda how: errors.print(f"trying {how}", highlight=False),
    )
    if neighbour is None:
        return None
    _, other = _played(
        f"the same with {neighbour.how}".replace("with without", "without"),
        schedule,
        seed=neighbour.seed,
        plan=neighbour.plan,
    )
    return side, other


def _side(word: str, options: DiffOptions) -> Side:
    if not Path(word).is_dir():
        if options.messages:
            raise click.UsageError("--messages: only run directories hold messages")
        schedule = schedule_of(word, options.space)
        return _played(schedule.name, schedule)[1]
    past = open_run(Path(word))
    path = past.events / EVENTS_FILE
    if not path.exists():
        raise NotARun(f"{past.path} has no trace: {path.name} is missing")
    results = past.results()
    return Side(
        name=word,
        rows=tuple(_wanted(read_parquet(path), messages=options.messages)),
        result=None if results is None else results.verdict.value,
    )


def _wanted(rows: Iterable[TraceRow], *, messages: bool) -> Iterable[TraceRow]:
    return rows if messages else (row for row in rows if row.kind not in MESSAGE_KINDS)


def _played(
    name: str, schedule: Schedule, *, seed: int | None = None, plan: Plan | None = None
) -> tuple[PlayedRun, Side]:
    rows: list[TraceRow] = []
    played = play(
        schedule.experiment,
        schedule.seed if seed is None else seed,
        observers=(rows.append,),
        plan=plan,
    )
    if played.result is PlayResult.INTERRUPTED:
        raise KeyboardInterrupt
    return played, Side(name=name, rows=tuple(rows), result=played.result.value)


def _document(difference: Difference) -> str:
    parts = difference.parts
    document = {
        "one": {"name": difference.one.name, "result": difference.one.result},
        "other": {"name": difference.other.name, "result": difference.other.result},
        "equal": parts is None,
        "rows_alike": len(difference.one.rows) if parts is None else parts.rows_alike,
        "parts": None
        if parts is None
        else {
            "before": _rows(parts.before),
            "one": _rows(parts.one),
            "other": _rows(parts.other),
            "nodes": _nodes(parts.nodes),
        },
        "by_time": difference.by_time,
        "story": _nodes(difference.story),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _rows(rows: Iterable[TraceRow | None]) -> list[dict[str, object] | None]:
    return [
        None
        if row is None
        else {
            name: value for name, value in msgspec.structs.asdict(row).items() if value is not None
        }
        for row in rows
    ]


def _nodes(nodes: Iterable[NodeParting]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for each in nodes:
        one, other = _rows((each.one, each.other))
        found.append({"node": each.node, "time_us": each.time_us, "one": one, "other": other})
    return found
