"""`replay`: plays a schedule in virtual time again, compares its trace with the stamped one.

Wiring only. It is played twice: as the search plays it, without messages, which is what a stamp's
digest is of; and into a run directory, with them. Both must be the same run.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.exploration.replay_file import replay_text, schedule_digest
from chaos.results.replay_stamp import ReplayStamp
from chaos.results.run_directory import RunDirectory, create_run_directory, open_run
from chaos.run.plan import plan_of
from cluster.trace.digest import parted_between
from coordlab.analysis import analyze_runs, java_notice, sum_up, write_run_report
from coordlab.commands.replay.breakpoint import debug
from coordlab.commands.replay.recording import Moment, Recorder, Recording
from coordlab.commands.replay.state_view import print_state
from coordlab.console import clock, print_document, print_lines, print_path
from coordlab.options import (
    as_one,
    force_option,
    json_option,
    master_option,
    runs_option,
    space_option,
    with_examples,
)
from coordlab.parameters import RunTimeParam
from coordlab.program import called_as
from coordlab.schedules import Schedule, named_schedule
from coordlab.signals import terminate_as_ctrl_c
from coordlab.views.summary_view import print_summary
from results_schema.results import (
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    EXIT_UNKNOWN,
    EXIT_VIOLATED,
    RunOutcome,
)

REPLAY_FILE = "replay.yaml"
"""In the directory of a run: the experiment file that plays it again."""
_EXIT_OF_RESULT = {
    PlayResult.PASS: EXIT_PASS,
    PlayResult.VIOLATED: EXIT_VIOLATED,
    PlayResult.UNKNOWN: EXIT_UNKNOWN,
    PlayResult.BROKEN: EXIT_INTERNAL_ERROR,
    PlayResult.INTERRUPTED: EXIT_INTERRUPTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of a replay. Units: both times are on the run's clock, from its beginning."""

    schedule: str
    space: str
    runs: Path
    until_us: int | None
    break_at_us: int | None
    report: bool
    force: bool
    master: str | None
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Comparison of a run's trace with the stamped one.

    Units: it parts between the two times; `parts_before_us` None: behind what the trail tells.
    Shape: `same` None: there is nothing to compare with, and `said` says why.
    """

    same: bool | None
    said: str
    parts_after_us: int | None = None
    parts_before_us: int | None = None


@click.command(
    "replay",
    cls=with_examples(
        "replay findings/fencing-1.yaml",
        "replay findings/fencing-1.yaml --until 31.5s",
        "replay findings/fencing-1.yaml --break-at 31.402118s",
        "replay 4711 --space standard --report",
    ),
    epilog="Exit codes: 0 pass, 1 a promise was violated, 2 unknown, 130 interrupted, 254 refused "
    "or bad arguments, 255 internal error: the same code gave another trace.",
)
@click.argument("schedule", metavar="FILE|SEED")
@space_option()
@runs_option
@click.option(
    "--until",
    "until_us",
    type=RunTimeParam(),
    metavar="TIME",
    help="End the run before what happens at this time of its clock, e.g. `31.5s`, and tell what "
    "each group, broker and member is doing.",
)
@click.option(
    "--break-at",
    "break_at_us",
    type=RunTimeParam(),
    metavar="TIME",
    help="Open the debugger there, with the runtime and the cluster's state in scope.",
)
@click.option("--report", is_flag=True, help="Analyse the run with Spark and write its report.")
@force_option
@master_option
@json_option("schedule, run_directory, compared, changed, stamp, played")
@as_one(ReplayOptions)
def replay_command(options: ReplayOptions) -> int:
    """Play a schedule in virtual time again and compare its trace, byte for byte.

    FILE is an experiment file that `explore` or `shrink` wrote; any other is played with seed 0,
    with nothing to compare. SEED is drawn from a space, `12-400-4711` is mutated seed 4711. The run
    is written as `run` writes it.
    """
    looks = options.until_us is not None or options.break_at_us is not None
    if options.until_us is not None and options.break_at_us is not None:
        raise click.UsageError("--until ends the run, --break-at lets it go on: give one of them")
    if options.json and (looks or options.report):
        raise click.UsageError("--json prints one document; not with --until, --break-at, --report")
    if options.break_at_us is not None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--break-at opens a debugger, which needs a terminal to talk to")
    schedule = named_schedule(options.schedule, options.space)
    changed = schedule.changes_since_stamp("play", force=options.force) + _edits(schedule)
    directory = create_run_directory(
        options.runs,
        schedule.experiment,
        plan_of(schedule.experiment),
        seed=schedule.seed,
        runtime="virtual",
        replay=schedule.replay_command,
        experiment_file=None if schedule.path is None else str(schedule.path),
    )
    with terminate_as_ctrl_c():
        if looks:
            return _play_and_look(options, schedule, directory, Console())
        return _play_whole(options, schedule, directory, Console(), changed=changed)


def _edits(schedule: Schedule) -> tuple[str, ...]:
    """Return a sentence if the file is not as it was stamped: no reason not to play it."""
    stamp = schedule.stamp
    if stamp is None or stamp.schedule in {"", schedule_digest(schedule.experiment)}:
        return ()
    return ("the file was edited since its run was stamped",)


def _play_whole(
    options: ReplayOptions,
    schedule: Schedule,
    directory: RunDirectory,
    console: Console,
    *,
    changed: tuple[str, ...],
) -> int:
    """Play it as the search does, then into its directory."""
    played = play(schedule.experiment, schedule.seed)
    if played.result is PlayResult.INTERRUPTED:
        raise KeyboardInterrupt
    recording = Recorder(schedule.experiment, schedule.seed, directory).play()
    (directory.path / REPLAY_FILE).write_text(
        replay_text(schedule.experiment, played, comment=f"Replayed from {schedule.name}."),
        encoding="utf-8",
    )
    compared = _compare(schedule, played)
    is_one_run = recording.digest == played.digest or recording.results.outcome in {
        RunOutcome.INTERRUPTED,
        RunOutcome.INTERNAL_ERROR,
    }
    broken = not is_one_run or (compared.same is False and not changed)
    if options.json:
        document = {
            "schedule": schedule.name,
            "run_directory": str(directory.path),
            "compared": compared,
            "changed": changed,
            "stamp": schedule.stamp,
            "played": played,
        }
        print_document(console, document, indented=True)
    else:
        summary = sum_up(console, directory.path, recording.results)
        print_summary(console, directory.manifest, recording.results, summary)
        _print_compared(console, compared, changed)
        if played.result.value != recording.results.verdict.value:
            print_lines(
                console,
                [f"as the search judges it: {played.result}; a fault may hit nobody there"],
            )
        if not is_one_run:
            print_lines(console, [_NOT_ONE_RUN], style="bold red")
        _conclude(options, directory, console)
    return EXIT_INTERNAL_ERROR if broken else _EXIT_OF_RESULT[played.result]


_NOT_ONE_RUN = (
    "coordlab itself failed: with messages in its trace the run was another one than without"
)


def _play_and_look(
    options: ReplayOptions, schedule: Schedule, directory: RunDirectory, console: Console
) -> int:
    """Play it into its directory, and look at it on the way."""

    def look(moment: Moment) -> bool:
        if options.break_at_us is not None:
            return debug(moment, console)
        print_state(console, moment)
        return False

    at_us = options.until_us if options.break_at_us is None else options.break_at_us
    recorder = Recorder(schedule.experiment, schedule.seed, directory)
    recording = recorder.play(at_us=at_us, look=look)
    results = recording.results
    if not recording.reached:
        ended = (
            f"the run ended at {clock(results.ended_at_us)}, before it came to {clock(at_us or 0)}"
        )
        print_lines(console, [ended], style="bold yellow")
    elif schedule.stamp is not None and schedule.stamp.trail:
        _print_compared_so_far(console, schedule.stamp, recording)
    if results.outcome is not RunOutcome.INTERRUPTED:
        summary = sum_up(console, directory.path, results)
        print_summary(console, directory.manifest, results, summary)
    _conclude(options, directory, console)
    return EXIT_PASS if recording.reached and options.break_at_us is None else results.exit_code


def _compare(schedule: Schedule, played: PlayedRun) -> Compared:
    stamp = schedule.stamp
    if stamp is None:
        why = "it was drawn" if schedule.path is None else "the file has no `replay`"
        return Compared(same=None, said=f"nothing to compare with: {why}")
    if stamp.digest == played.digest:
        return Compared(same=True, said=f"same trace: {played.rows:,} rows, {played.digest}")
    said = f"another trace: digest {played.digest}, stamped {stamp.digest}"
    if not stamp.trail:
        return Compared(same=False, said=f"{said}; when they part, the stamp does not tell")
    after_us, before_us = parted_between(stamp.trail, played.trail) or (0, None)
    until = "" if before_us is None else f" and before {before_us / 1e6:g} s"
    return Compared(
        same=False,
        said=f"{said}; they part after {after_us / 1e6:g} s{until}",
        parts_after_us=after_us,
        parts_before_us=before_us,
    )


def _print_compared(console: Console, compared: Compared, changed: tuple[str, ...]) -> None:
    style = {True: "bold green", False: "bold red", None: ""}[compared.same]
    print_lines(console, [compared.said], style=style)
    if compared.same is False and changed:
        print_lines(console, [f"as may be: {each}" for each in changed])
    elif compared.same is False:
        print_lines(
            console,
            [
                "coordlab itself failed: the same code, file and seed gave another trace, unless "
                "another version of a library is installed"
            ],
        )


def _print_compared_so_far(console: Console, stamp: ReplayStamp, recording: Recording) -> None:
    parted = parted_between(stamp.trail, recording.trail)
    if parted is not None and parted[1] is not None:
        print_lines(console, [f"another trace: they part before {parted[1] / 1e6:g} s"])
    elif parted is not None and parted[0] > 0:
        print_lines(console, [f"same trace up to {parted[0] / 1e6:g} s"])


def _conclude(options: ReplayOptions, directory: RunDirectory, console: Console) -> None:
    print_path(console, "run directory", directory.path)
    if not options.report:
        again = f"its report: {called_as()} report {directory.path}"
        console.print(Text(again), soft_wrap=True)
        return
    notice = java_notice(directory.path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return
    analyze_runs(console, [directory.path], master=options.master)
    print_path(console, "report", write_run_report(console, open_run(directory.path)))
