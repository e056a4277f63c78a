"""`shrink`: makes a failing schedule small, so that a person can see why it fails.

A schedule is an experiment with its faults and a seed. A failing schedule may have 12 faults and 5
brokers, of which most do not matter for the violation. The command leaves out one part after the
other, plays the rest, and keeps a smaller schedule if it still shows the same violation. The result
may have 2 faults and 3 brokers. A violation is the same if the same check reports it in the same
words, apart from names and numbers.

1. The schedule is played once. One of its violations is chosen (`finding_to_keep`).
2. `chaos.exploration.shrink` searches for a smaller schedule. Meanwhile a live view shows how small
   the schedule is.
3. The result is played with other seeds of the network, which change the latencies. The number of
   these runs that fail, too, is called the robustness of the result.
4. The result is written as an experiment file, with the events that lead to the violation.
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
from coordlab.options import gather_into, space_option, with_examples
from coordlab.parameters import DurationParam, OneOf
from coordlab.program import called_as
from coordlab.schedules import Schedule, named_schedule
from coordlab.signals import stop_on_ctrl_c
from coordlab.views.live import LiveView
from results_schema.results import EXIT_INTERNAL_ERROR, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN

SEARCH_SHARE = 0.75
"""The share of the time limit for the search. The rest of the time is for the robustness."""
EXIT_CODES_OF_SHRINKING = (
    "Exit codes: 0 shrunk, 2 it does not fail (any more), 130 interrupted (the best so far is "
    "written), 254 bad arguments or file, 255 internal error."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkOptions:
    """The argument and options of `shrink`.

    - `schedule`: an experiment file, or a seed.
    - `space`: if `schedule` is a seed, the space file from which it draws its experiment.
    - `seed`: the seed of the network; None for the seed of the schedule.
    - `check`: the check whose violation the result must show; None for any check.
    - `time_limit_us`: the limit of the command's time, in real time.
    - `robustness`: the number of other seeds of the network with which the result is played.
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

    - `origin`: the source of the schedule, such as `fencing-1.yaml with seed 7`.
    - `said`: the sizes before and after as a sentence, or why the schedule was not shrunk.
    - `file`: the written file.
    - `story`: lines about the events that lead to the violation.

    If the schedule was not shrunk, `file` and all later fields are None or (). The reason is that
    the schedule shows no violation, or that a Ctrl-C came before the search.
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
@gather_into(ShrinkOptions)
def shrink_command(options: ShrinkOptions) -> int:
    """Make a failing schedule small: fewest faults, fewest nodes, shortest time, roundest values.

    FILE is an experiment or a finding of `explore`; SEED is drawn from a space. The result still
    shows the same violation: the same check with the same claim. It is an experiment that a person
    can read, and run in virtual time or on Ray.
    """
    console = Console()
    began_s = time.monotonic()
    schedule = _schedule_to_shrink(options)
    # The search also replaces settings by plainer values, to see whether the settings matter. For a
    # seed, the plainer values are those of the space's base experiment, to which the seed has added
    # its faults. For a file (None), they are the defaults.
    base = base_experiment(load_space(options.space)) if schedule.path is None else None
    origin = _origin(schedule)
    output = _output_path(options, schedule)
    with stop_on_ctrl_c() as stop_requested:
        played = play(schedule.experiment, schedule.seed)
        finding = finding_to_keep(played, options.check, schedule.stamp)
        if finding is None or stop_requested():
            return _print_why_not_shrunk(options, origin, played, console, stopped=stop_requested())
        limit_s = options.time_limit_us / 1e6
        view = shrink_view(console, origin, shown=not options.json)
        shrinker = Shrinker(
            # This function plays a smaller schedule. The run ends soon after the violation
            # (`stop_at`), because later events do not matter.
            lambda experiment, seed, signature: play(experiment, seed, stop_at=signature),
            now_s=time.monotonic,
            deadline_s=began_s + limit_s * SEARCH_SHARE,  # for the search
            last_s=began_s + limit_s,  # for the robustness
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
        # If there was no time to play any other seed, the robustness is not known.
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


def _schedule_to_shrink(options: ShrinkOptions) -> Schedule:
    """Return the schedule that the command line names.

    A file that `explore` wrote has a key `replay`, which is its stamp. The stamp describes the run
    of exactly this experiment, so it would be wrong in the file of a smaller experiment. Therefore
    the returned experiment has no stamp. But the field `stamp` of the schedule still has it.

    Raises: ExperimentError if there is no such file, and the text is no seed either.
    """
    schedule = named_schedule(options.schedule, options.space)
    return replace(
        schedule,
        experiment=msgspec.structs.replace(schedule.experiment, replay=None),
        seed=schedule.seed if options.seed is None else options.seed,
    )


def _output_path(options: ShrinkOptions, schedule: Schedule) -> Path:
    """Return the path of the file to write."""
    if options.output is not None:
        return options.output
    if schedule.path is not None:
        return schedule.path.with_suffix(".shrunk.yaml")
    return Path(f"{schedule.experiment.name}.shrunk.yaml")


def _origin(schedule: Schedule) -> str:
    """Return the source of the schedule: `seed 4711`, or `fencing-1.yaml with seed 7`."""
    if schedule.path is None:
        return f"seed {schedule.name}"
    return f"{schedule.path} with seed {schedule.seed}"


def finding_to_keep(
    played: PlayedRun, check: str | None, stamp: ReplayStamp | None
) -> PlayedFinding | None:
    """Return the finding that the smaller schedule must show; None if there is none.

    The user probably means the finding for which the file was written, which the file's stamp
    names. Another version of coordlab may have other words for this finding. So the second choice
    is any finding of the same check, and the third choice is any finding. Of several equally good
    findings, the earliest is returned.

    `check`: if the user named a check with --check, only its findings count. None: all count.
    """
    # A stamp names a finding as `one_owner: orders-0 has two owners`. A stamp may name none.
    stamped_line = ""
    if stamp is not None and stamp.finding is not None:
        stamped_line = stamp.finding
    stamped_check = stamped_line.partition(":")[0]
    candidates = [
        finding for finding in played.findings if check is None or check == finding.signature.check
    ]

    def best_first(finding: PlayedFinding) -> tuple[bool, bool, int]:
        # False sorts before True. So a finding that does not differ from the stamp comes first.
        differs_from_stamp = finding_line(finding) != stamped_line
        is_of_another_check = finding.signature.check != stamped_check
        return differs_from_stamp, is_of_another_check, finding.time_us

    return min(candidates, key=best_first, default=None)


def _print_why_not_shrunk(
    options: ShrinkOptions,
    origin: str,
    played: PlayedRun,
    console: Console,
    *,
    stopped: bool,
) -> int:
    """Print why nothing was shrunk, and return the exit code."""
    if stopped:
        text = "interrupted before anything was shrunk"
    else:
        violation = "violation" if options.check is None else f"violation of {options.check}"
        text = f"no {violation} in {origin}, so there is nothing to shrink: {played_text(played)}"
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
    """Print the sizes before and after, the violation, and the command that shows it again."""
    check = shrunk.signature.check
    print_lines(console, [sizes_text(shrunk)], style="bold")
    print_lines(console, [f"{check} is violated: {written.summary}"])
    if robustness.tried:
        print_lines(console, [robustness_text(robustness)])
    print_path(console, "file", output)
    again = f"{called_as()} run {output} --runtime virtual"
    console.print(Text(f"again: {again}"), soft_wrap=True)


def shrink_view(console: Console, origin: str, *, shown: bool = True) -> LiveView[ShrinkProgress]:
    """Return the view of the search: the size of the schedule so far, and the next step.

    On a terminal the view is drawn again and again in the same place. Elsewhere a line is printed
    each time the schedule gets smaller.
    """
    printed_sizes: Sizes | None = None

    def lines_without_terminal(progress: ShrinkProgress) -> Iterator[str]:
        nonlocal printed_sizes
        if progress.after != printed_sizes:
            printed_sizes = progress.after
            yield f"{progress.runs:4d} runs  {sizes_line(progress.after)}"

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

    return LiveView(console, render, lines_without_terminal, shown=shown)


def sizes_line(sizes: Sizes) -> str:
    """Return the size of a schedule: `2 faults, 3 brokers, 1 group, ..., 40 s`."""
    counts = (
        (sizes.faults, "fault"),
        (sizes.brokers, "broker"),
        (sizes.groups, "group"),
        (sizes.members, "member"),
        (sizes.partitions, "partition"),
        (sizes.producers, "producer"),
    )
    counts_with_nouns = [
        f"{count} {noun}" if count == 1 else f"{count} {noun}s" for count, noun in counts
    ]
    return f"{', '.join(counts_with_nouns)}, {horizon_text(sizes)} s"
