"""`shrink`: makes a failing schedule small, and writes it as a file with its story.

A schedule is an experiment with its faults and a seed. `chaos.exploration.shrink` searches for the
smaller schedule; this module connects the search with the command line, the live view and the file.
The live view shows which part the search tries to leave out at the moment, and the size of the
schedule so far. Without a terminal, it prints one line for each smaller size.

A finding is a violation that a check reports. Its signature is the check's name and the violation's
text without names and numbers. The smaller schedule must show a finding with the same signature.

Latencies of the virtual network are drawn from a seed, the network seed. At the end, the smaller
schedule is played with other network seeds. Its robustness is the number of these runs that show
the same violation.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from chaos.checkers.registry import CHECKERS
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult, play
from chaos.exploration.replay_file import finding_line
from chaos.exploration.shrink.edits import Sizes
from chaos.exploration.shrink.shrink import (
    Robustness,
    ShrinkEnd,
    Shrinker,
    ShrinkProgress,
    Shrunk,
    played_text,
)
from chaos.exploration.shrink.shrunk_file import (
    ShrunkFile,
    horizon_text,
    robustness_text,
    shrunk_file,
    sizes_text,
)
from chaos.exploration.space import base_experiment, load_space
from chaos.results.replay_stamp import ReplayStamp
from coordlab.console import print_document, print_lines, print_path
from coordlab.options import as_one, space_option, with_examples
from coordlab.parameters import DurationParam, OneOf
from coordlab.program import called_as
from coordlab.schedules import Schedule, named_schedule
from coordlab.signals import stop_on_ctrl_c
from coordlab.views.live import LiveView
from results_schema.results import EXIT_INTERNAL_ERROR, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN

SEARCH_SHARE = 0.75
"""Share of the time limit that the search gets. The rest is for the robustness."""
EXIT_CODES_OF_SHRINKING = (
    "Exit codes: 0 shrunk, 2 it does not fail (any more), 130 interrupted (the best so far is "
    "written), 254 bad arguments or file, 255 internal error."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkOptions:
    """The options of shrinking.

    - `schedule`: the file of an experiment, or a seed of `space`. A space is a file from which each
      seed draws an experiment.
    - `seed`: the network seed. If it is None, the seed of the schedule is used.
    - `check`: the check whose violation is to be kept. If it is None, `finding_to_keep` chooses.
    - `time_limit_us`: real time, in microseconds.
    - `robustness`: the number of other network seeds with which the result is played.
    """

    schedule: str
    space: str
    seed: int | None
    check: str | None
    output: Path | None
    time_limit_us: int
    robustness: int
    json: bool


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `--json`.

    - `said`: the sizes before and after, or why the schedule was not shrunk.
    - `shrunk`: None if no violation was found, or if a Ctrl-C came before the search for a smaller
      schedule.
    - `story`: the events that lead to the violation.
    """

    origin: str
    said: str
    file: str | None = None
    shrunk: Shrunk | None = None
    robustness: Robustness | None = None
    story: tuple[str, ...] = ()


@click.command(
    "shrink",
    cls=with_examples(
        "shrink runs/explorations/standard/findings/fencing-1.yaml",
        "shrink 4711 --space standard -o fencing.yaml",
        "shrink mine.yaml --check durable_commits --time-limit 2m",
    ),
    epilog=EXIT_CODES_OF_SHRINKING,
)
@click.argument("schedule", metavar="FILE|SEED")
@space_option("SEED")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of the network; default: the file's `replay:`, or SEED itself.",
)
@click.option(
    "--check",
    type=OneOf(tuple(CHECKERS)),
    metavar="NAME",
    help="Keep the violation of this check; default: the violation for which a finding's file was "
    "written, else the earliest.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File to write; default: `NAME.shrunk.yaml` beside FILE, or in the working directory.",
)
@click.option(
    "--time-limit",
    "time_limit_us",
    type=DurationParam(),
    default="30s",
    show_default=True,
    help="End after this time.",
)
@click.option(
    "--robustness",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Play the result with N other network seeds, as far as time allows, and count failures.",
)
@click.option("--json", is_flag=True, help="Print one JSON document instead. No live view.")
@as_one(ShrinkOptions)
def shrink_command(options: ShrinkOptions) -> int:
    """Make a failing schedule small: fewest faults, fewest nodes, shortest time, roundest values.

    FILE is an experiment or a finding of `explore`; SEED is drawn from a space. The result still
    shows the same violation: the same check with the same claim. It is an experiment that a person
    can read, and run in virtual time or on Ray.
    """
    console = Console()
    began_s = time.monotonic()
    schedule = _schedule(options)
    # The search resets settings of the schedule. For a schedule that was drawn from a space, it
    # resets them to the space's base experiment. For a file (`base` is None), it resets them to the
    # defaults of an experiment.
    base = base_experiment(load_space(options.space)) if schedule.path is None else None
    origin, output = _origin(schedule), _output(options, schedule)
    with stop_on_ctrl_c() as stop_requested:
        played = play(schedule.experiment, schedule.seed)
        finding = finding_to_keep(played, options.check, schedule.stamp)
        # After a Ctrl-C during the first run, no search begins.
        if finding is None or stop_requested():
            return _not_shrunk(options, origin, played, console, stopped=stop_requested())
        limit_s = options.time_limit_us / 1e6
        view = shrink_view(console, origin, shown=not options.json)
        shrinker = Shrinker(
            # The search calls this function to play a smaller schedule. With `stop_at`, the run
            # ends soon after the violation, because the rest of the run would only cost time.
            lambda experiment, seed, signature: play(experiment, seed, stop_at=signature),
            now_s=time.monotonic,
            deadline_s=began_s + limit_s * SEARCH_SHARE,  # end of the search
            last_s=began_s + limit_s,  # end of the count of network seeds
            stop_requested=stop_requested,
            progress=view,
            base=base,
        )
        if not options.json:
            print_lines(console, [f"{finding.signature.check} is violated: {finding.summary}"])
        with view:
            shrunk = shrinker.shrink(schedule.experiment, schedule.seed, finding.signature)
            robustness = shrinker.robustness(shrunk, options.robustness)
    written = shrunk_file(
        shrunk,
        origin=origin,
        path=str(output),
        # The search may have left no time to play a single other seed.
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
        print_document(console, document, indented=True)
    else:
        _print_shrunk(console, output, shrunk, robustness, written)
    return EXIT_INTERRUPTED if shrunk.end is ShrinkEnd.INTERRUPTED else EXIT_PASS


def _schedule(options: ShrinkOptions) -> Schedule:
    """Return the schedule that the command line names.

    The key `replay` of a file is the stamp: it describes the run for which the file was written.
    The returned experiment has no stamp, because the stamp would not fit a smaller schedule.
    `Schedule.stamp` still has it.

    Raises: ExperimentError if the schedule is no experiment file and no seed.
    """
    schedule = named_schedule(options.schedule, options.space)
    return replace(
        schedule,
        experiment=msgspec.structs.replace(schedule.experiment, replay=None),
        seed=schedule.seed if options.seed is None else options.seed,
    )


def _output(options: ShrinkOptions, schedule: Schedule) -> Path:
    """Return the path of the file to write."""
    if options.output is not None:
        return options.output
    if schedule.path is not None:
        return schedule.path.with_suffix(".shrunk.yaml")
    return Path(f"{schedule.experiment.name}.shrunk.yaml")


def _origin(schedule: Schedule) -> str:
    """Return where the schedule comes from, in words for the file and the output."""
    if schedule.path is None:
        return f"seed {schedule.name}"
    return f"{schedule.path} with seed {schedule.seed}"


def finding_to_keep(
    played: PlayedRun, check: str | None, stamp: ReplayStamp | None
) -> PlayedFinding | None:
    """Return the finding that the smaller schedule must show; None if there is none.

    The first choice is the finding that the stamp of the file names. Another version can describe
    the same violation in other words, so the second choice is a finding of the stamp's check. The
    last choice is any finding. Of several equal choices, the earliest finding is returned.

    `check`: only findings of this check count; None: of any check.
    """
    # The line of a finding is "CHECK: summary". Without a stamp, or if the stamp names no finding,
    # `stamped_line` is "", which equals the line of no finding.
    stamped_line = ""
    if stamp is not None and stamp.finding is not None:
        stamped_line = stamp.finding
    stamped_check = stamped_line.partition(":")[0]
    candidates = [
        finding for finding in played.findings if check in {None, finding.signature.check}
    ]
    return min(
        candidates,
        # False sorts before True, so the findings that agree with the stamp come first.
        key=lambda finding: (
            finding_line(finding) != stamped_line,
            finding.signature.check != stamped_check,
            finding.time_us,
        ),
        default=None,
    )


def _not_shrunk(
    options: ShrinkOptions,
    origin: str,
    played: PlayedRun,
    console: Console,
    *,
    stopped: bool,
) -> int:
    """Print why there is nothing to shrink; return the exit code."""
    if stopped:
        text = "interrupted before anything was shrunk"
    else:
        of_check = "" if options.check is None else f" of {options.check}"
        text = (
            f"no violation{of_check} in {origin}, so there is nothing to shrink: "
            f"{played_text(played)}"
        )
    if options.json:
        print_document(console, _Document(origin=origin, said=text), indented=True)
    else:
        print_lines(console, [text])
    if stopped or played.result is PlayResult.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_INTERNAL_ERROR if played.result is PlayResult.BROKEN else EXIT_UNKNOWN


def _print_shrunk(
    console: Console,
    output: Path,
    shrunk: Shrunk,
    robustness: Robustness,
    written: ShrunkFile,
) -> None:
    """Print the sizes, the violation that is left, and the command that runs the result."""
    check = shrunk.signature.check
    print_lines(console, [sizes_text(shrunk)], style="bold")
    print_lines(console, [f"{check} is violated: {written.summary}"])
    if robustness.tried:
        print_lines(console, [robustness_text(robustness)])
    print_path(console, "file", output)
    again = f"{called_as()} run {output} --runtime virtual"
    console.print(Text(f"again: {again}"), soft_wrap=True)


def shrink_view(console: Console, origin: str, *, shown: bool = True) -> LiveView[ShrinkProgress]:
    """Return the live view of shrinking the schedule that `origin` names."""
    sizes: Sizes | None = None  # the sizes in the last line that was printed

    def lines(progress: ShrinkProgress) -> Iterator[str]:
        nonlocal sizes
        if progress.after != sizes:
            sizes = progress.after
            yield f"{progress.runs:4d} runs  {sizes_line(sizes)}"

    def render(progress: ShrinkProgress | None) -> RenderableType:
        if progress is None:
            return Text(f"shrinking {origin}: running it as it is")
        return Text.assemble(
            (f"shrinking {origin}", "bold"),
            f"  {progress.runs} runs\n",
            ("from  ", "dim"),
            (f"{sizes_line(progress.before)}\n", "dim"),
            f"to    {sizes_line(progress.after)}\n",
            (f"{progress.does} ...", "dim"),
        )

    return LiveView(console, render, lines, shown=shown)


def sizes_line(sizes: Sizes) -> str:
    """Return the size of a schedule as one line."""
    counts = (
        (sizes.faults, "fault"),
        (sizes.brokers, "broker"),
        (sizes.groups, "group"),
        (sizes.members, "member"),
        (sizes.partitions, "partition"),
        (sizes.producers, "producer"),
    )
    counted = [f"{count} {what}" if count == 1 else f"{count} {what}s" for count, what in counts]
    return f"{', '.join(counted)}, {horizon_text(sizes)} s"
