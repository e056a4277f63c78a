"""`coordlab shrink`: from a schedule that fails to a small one, as a file with its story.

Wiring only: the search is chaos's, the terminal is `shrink_view`'s.
"""

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from chaos.checkers.registry import CHECKERS
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult, play
from chaos.exploration.shrink.shrink import Robustness, ShrinkEnd, Shrinker, Shrunk, said
from chaos.exploration.shrink.shrunk_file import (
    ShrunkFile,
    robustness_text,
    shrunk_file,
    sizes_text,
)
from chaos.exploration.space import base_experiment, load_space
from coordlab.commands.shrink.live_view import ShrinkView
from coordlab.console import print_lines, print_path
from coordlab.schedules import Schedule, schedule_of
from coordlab.signals import stop_on_ctrl_c
from results_schema.results import EXIT_INTERNAL_ERROR, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN

SEARCH_SHARE = 0.75
"""Of the time limit; the rest is left to count under how many network seeds it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkOptions:
    """What the command line says. Units: `time_limit_us` is real time."""

    schedule: str
    space: str
    seed: int | None = None
    check: str | None = None
    output: Path | None = None
    time_limit_us: int
    robustness: int
    json: bool = False


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. Shape: `shrunk` is None if it does not fail."""

    origin: str
    said: str
    file: str | None = None
    shrunk: Shrunk | None = None
    robustness: Robustness | None = None
    story: tuple[str, ...] = ()


def shrink(options: ShrinkOptions, console: Console) -> int:
    """Shrink one schedule and return the exit code.

    Raises: ExperimentError before anything is run.
    """
    began_s = time.monotonic()
    schedule = _schedule(options)
    # What a space begins with is as good as a default; a file says nothing of its own.
    base = base_experiment(load_space(options.space)) if schedule.path is None else None
    origin, output = _origin(schedule), _output(options, schedule)
    with stop_on_ctrl_c() as stop_requested:
        played = play(schedule.experiment, schedule.seed)
        finding = _finding(played, options.check)
        if finding is None or stop_requested():
            return _not_shrunk(options, origin, played, console, stopped=stop_requested())
        limit_s = options.time_limit_us / 1e6
        view = ShrinkView(console, origin)
        shrinker = Shrinker(
            lambda experiment, seed, signature: play(experiment, seed, stop_at=signature),
            now_s=time.monotonic,
            deadline_s=began_s + limit_s * SEARCH_SHARE,
            last_s=began_s + limit_s,
            stop_requested=stop_requested,
            progress=(lambda _: None) if options.json else view,
            base=base,
        )
        if not options.json:
            print_lines(console, [f"{finding.signature.check} is violated: {finding.summary}"])
        with nullcontext() if options.json else view:
            shrunk = shrinker.shrink(schedule.experiment, schedule.seed, finding.signature)
            robustness = shrinker.robustness(shrunk, options.robustness)
    written = shrunk_file(
        shrunk,
        origin=origin,
        path=str(output),
        robustness=robustness if robustness.tried else None,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(written.text, encoding="utf-8")
    if options.json:
        document = _Document(
            origin=origin,
            said=sizes_text(shrunk),
            file=str(output),
            shrunk=shrunk,
            robustness=robustness,
            story=written.story,
        )
        _print_json(console, document)
    else:
        _tell(console, output, shrunk, robustness, written)
    return EXIT_INTERRUPTED if shrunk.end is ShrinkEnd.INTERRUPTED else EXIT_PASS


def _schedule(options: ShrinkOptions) -> Schedule:
    """Return what the command line names, without what a file remembers of a run.

    Raises: ExperimentError.
    """
    schedule = schedule_of(options.schedule, options.space)
    return replace(
        schedule,
        experiment=msgspec.structs.replace(schedule.experiment, replay=None),
        seed=schedule.seed if options.seed is None else options.seed,
    )


def _output(options: ShrinkOptions, schedule: Schedule) -> Path:
    if options.output is not None:
        return options.output
    if schedule.path is not None:
        return schedule.path.with_suffix(".shrunk.yaml")
    return Path(f"{schedule.experiment.name}.shrunk.yaml")


def _origin(schedule: Schedule) -> str:
    if schedule.path is None:
        return f"seed {schedule.name}"
    return f"{schedule.path} with seed {schedule.seed}"


def _finding(played: PlayedRun, check: str | None) -> PlayedFinding | None:
    """Return the earliest finding, or the earliest of one check."""
    found = [each for each in played.findings if check in {None, each.signature.check}]
    return min(found, key=lambda each: each.time_us, default=None)


def _not_shrunk(
    options: ShrinkOptions,
    origin: str,
    played: PlayedRun,
    console: Console,
    *,
    stopped: bool,
) -> int:
    of = "" if options.check is None else f" of {options.check}"
    text = f"no violation{of} in {origin}, so there is nothing to shrink: {said(played)}"
    if stopped:
        text = "interrupted before anything was shrunk"
    if options.json:
        _print_json(console, _Document(origin=origin, said=text))
    else:
        print_lines(console, [text])
    if stopped or played.result is PlayResult.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_INTERNAL_ERROR if played.result is PlayResult.BROKEN else EXIT_UNKNOWN


def _tell(
    console: Console,
    output: Path,
    shrunk: Shrunk,
    robustness: Robustness,
    written: ShrunkFile,
) -> None:
    check = shrunk.signature.check
    print_lines(console, [sizes_text(shrunk)], style="bold")
    print_lines(console, [f"{check} is violated: {written.summary}"])
    if robustness.tried:
        print_lines(console, [robustness_text(robustness)])
    print_path(console, "file", output)
    again = f"python -m coordlab run {output} --runtime virtual"
    console.print(Text(f"again: {again}"), soft_wrap=True)


def _print_json(console: Console, document: _Document) -> None:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    console.file.write(text + "\n")


CHECKS = tuple(CHECKERS)
"""The checks that `--check` may name."""
