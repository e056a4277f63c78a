"""`replay`: plays a schedule again, and checks that it gives the same trace as the first time.

A schedule is an experiment with a seed. In virtual time (a simulated clock) the same code plays a
schedule the same way each time. When `explore` finds a violation, it writes the schedule into a
file with a stamp. The stamp has the digest of the run, which is a hash over all events in its
trace. So `replay` can tell whether it shows the user the run in which the violation was found.

The schedule is played twice:

1. First it is played as `explore` played it, without recording messages. The digest of this run is
   compared with the digest in the stamp.
2. Then it is played into a run directory, as `run` would do it, with messages. Recording messages
   must not change anything else. So apart from the messages, the two traces must be equal.

With --until or --break-at the schedule is played only once, into a run directory. At the requested
time the run stops, and shows its state or opens a debugger.
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
    force_option,
    gather_into,
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
"""The file in the run directory that has the schedule with a stamp of this run.

The user can replay this file later.
"""
_RUNS_DIFFER = (
    "coordlab itself failed: the run with messages in its trace differs from the run without them"
)
_EXIT_OF_RESULT = {
    PlayResult.PASS: EXIT_PASS,
    PlayResult.VIOLATED: EXIT_VIOLATED,
    PlayResult.UNKNOWN: EXIT_UNKNOWN,
    PlayResult.BROKEN: EXIT_INTERNAL_ERROR,
    PlayResult.INTERRUPTED: EXIT_INTERRUPTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The argument and options of `replay`.

    - `schedule`: an experiment file, or a seed of `space`.
    - `until_us`: the time of the run's clock at which to print the state and end the run, or None.
    - `break_at_us`: the time of the run's clock at which to open the debugger, or None.
    """

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
    """The comparison of a run with the run of the stamp. The JSON document has these fields, too.

    - `same`: True if both runs have the same trace; None if there is no stamp to compare with.
    - `said`: the result as a sentence for the user.
    - `parts_after_us`, `parts_before_us`: if the traces differ, they begin to differ between these
      two times. A time is None if it is not known.
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
    help="End the run just before this time of its clock, e.g. `31.5s`, and print the state of "
    "each group, broker and member.",
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
@gather_into(ReplayOptions)
def replay_command(options: ReplayOptions) -> int:
    """Play a schedule in virtual time again and compare its trace, byte for byte.

    FILE is an experiment file that `explore` or `shrink` wrote; any other is played with seed 0,
    with nothing to compare. SEED is drawn from a space, `12-400-4711` is mutated seed 4711. The run
    is written as `run` writes it.
    """
    stops_at_a_time = options.until_us is not None or options.break_at_us is not None
    if options.until_us is not None and options.break_at_us is not None:
        raise click.UsageError("--until ends the run, --break-at does not: give one of them")
    if options.json and (stops_at_a_time or options.report):
        raise click.UsageError("--json prints one document; not with --until, --break-at, --report")
    if options.break_at_us is not None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--break-at opens a debugger, which needs a terminal")

    schedule = named_schedule(options.schedule, options.space)
    changes_of_code = schedule.changes_since_stamp("play", force=options.force)
    changed = (*changes_of_code, *_edits_since_stamp(schedule))
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
        if stops_at_a_time:
            return _play_and_inspect(options, schedule, directory, Console())
        return _play_whole(options, schedule, directory, Console(), changed=changed)


def _edits_since_stamp(schedule: Schedule) -> tuple[str, ...]:
    """Return a sentence for the user if the file was edited after it was stamped.

    The edited file is played nevertheless. But its trace will probably have another digest than the
    stamp.
    """
    stamp = schedule.stamp
    if stamp is None or not stamp.schedule:  # older stamps have no digest of the schedule
        return ()
    if stamp.schedule == schedule_digest(schedule.experiment):
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
    """Play the schedule twice, print the result of the comparison, and return the exit code.

    `changed`: sentences about the changes since the file was stamped.
    """
    played = play(schedule.experiment, schedule.seed)
    # `play` raises nothing after a Ctrl-C, but returns this result. The Ctrl-C should end the
    # command.
    if played.result is PlayResult.INTERRUPTED:
        raise KeyboardInterrupt
    recording = Recorder(schedule.experiment, schedule.seed, directory).play()
    (directory.path / REPLAY_FILE).write_text(
        replay_text(schedule.experiment, played, comment=f"Replayed from {schedule.name}."),
        encoding="utf-8",
    )
    compared = _compare_with_stamp(schedule, played)
    # The digest of the recording leaves out messages. So it must be equal to the digest of the
    # first run. A recording that broke off has only a part of the trace, and cannot be compared.
    broke_off = recording.results.outcome in {RunOutcome.INTERRUPTED, RunOutcome.INTERNAL_ERROR}
    runs_agree = broke_off or recording.digest == played.digest
    # If the code or the file has changed since the stamp was made, another trace is no failure.
    differs_without_reason = compared.same is False and not changed
    coordlab_failed = not runs_agree or differs_without_reason
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
        # The first run was judged as in a search, and the second run as by the command `run`. The
        # verdicts differ if a fault of the plan has hit no node. Then the verdict of `run` is
        # unknown, but a search ignores such a fault.
        if played.result.value != recording.results.verdict.value:
            print_lines(
                console,
                [
                    f"result in a search: {played.result}; a search does not require that every "
                    "fault hits a node"
                ],
            )
        if not runs_agree:
            print_lines(console, [_RUNS_DIFFER], style="bold red")
        _print_directory_and_report(options, directory, console)
    return EXIT_INTERNAL_ERROR if coordlab_failed else _EXIT_OF_RESULT[played.result]


def _play_and_inspect(
    options: ReplayOptions, schedule: Schedule, directory: RunDirectory, console: Console
) -> int:
    """Play the schedule into its directory, and stop at the time of --until or --break-at."""

    def inspect(moment: Moment) -> bool:
        """Show the cluster at this moment. Return True if the run goes on afterwards."""
        if options.break_at_us is not None:
            return debug(moment, console)
        print_state(console, moment)
        return False

    # The user has given either --until or --break-at.
    at_us = options.until_us if options.break_at_us is None else options.break_at_us
    recorder = Recorder(schedule.experiment, schedule.seed, directory)
    recording = recorder.play(at_us=at_us, inspect=inspect)
    results = recording.results
    if not recording.reached:
        # `or 0` is only for the type checker: `at_us` has a value.
        ended = f"the run ended at {clock(results.ended_at_us)}, before {clock(at_us or 0)}"
        print_lines(console, [ended], style="bold yellow")
    elif schedule.stamp is not None and schedule.stamp.trail:
        _print_compared_so_far(console, schedule.stamp, recording)
    # --until ends the run as a Ctrl-C does. A user who quits the debugger ends it in the same way.
    # Such a run has no verdict to print.
    if results.outcome is not RunOutcome.INTERRUPTED:
        summary = sum_up(console, directory.path, results)
        print_summary(console, directory.manifest, results, summary)
    _print_directory_and_report(options, directory, console)
    # With --until the run was meant to end early. So it must not have the exit code of an
    # interruption.
    until_reached = recording.reached and options.break_at_us is None
    return EXIT_PASS if until_reached else results.exit_code


def _compare_with_stamp(schedule: Schedule, played: PlayedRun) -> Compared:
    """Compare the run with the stamp of its schedule."""
    stamp = schedule.stamp
    if stamp is None:
        why = "it was drawn from a space" if schedule.path is None else "the file has no `replay`"
        return Compared(same=None, said=f"nothing to compare with: {why}")
    if stamp.digest == played.digest:
        return Compared(same=True, said=f"same trace: {played.rows:,} rows, {played.digest}")
    said = f"another trace: digest {played.digest}, stamped {stamp.digest}"
    if not stamp.trail:
        return Compared(
            same=False, said=f"{said}; the stamp does not show when they begin to differ"
        )
    # A trail has the digests of a trace up to several times. The first digest that differs tells
    # when the traces begin to differ.
    interval = parted_between(stamp.trail, played.trail)
    after_us: int = 0
    before_us: int | None = None
    # `interval` is None if the trails are equal. The traces differ nevertheless, but it is not
    # known where.
    if interval is not None:
        after_us, before_us = interval
    until = "" if before_us is None else f" and before {before_us / 1e6:g} s"
    return Compared(
        same=False,
        said=f"{said}; they begin to differ after {after_us / 1e6:g} s{until}",
        parts_after_us=after_us,
        parts_before_us=before_us,
    )


def _print_compared(console: Console, compared: Compared, changed: tuple[str, ...]) -> None:
    """Print the result of the comparison, and the possible causes of a difference."""
    style = {True: "bold green", False: "bold red", None: ""}[compared.same]
    print_lines(console, [compared.said], style=style)
    if compared.same is not False:
        return
    if changed:
        print_lines(console, [f"possible cause: {change}" for change in changed])
    else:
        print_lines(
            console,
            [
                "coordlab itself failed: the same code, file and seed gave another trace, unless "
                "another version of a library is installed"
            ],
        )


def _print_compared_so_far(console: Console, stamp: ReplayStamp, recording: Recording) -> None:
    """Print whether the trace so far is equal to the beginning of the stamp's trace.

    The recording ends early, so its digest is of no use. But its trail has the digests up to
    several earlier times. The trail of the stamp has the digests up to the same times.
    """
    interval = parted_between(stamp.trail, recording.trail)
    if interval is None:
        return
    # `differs_before_us` is None if no digest differs. Only digests that both trails have count.
    equal_until_us, differs_before_us = interval
    if differs_before_us is not None:
        seconds = f"{differs_before_us / 1e6:g} s"
        print_lines(console, [f"another trace: they begin to differ before {seconds}"])
    elif equal_until_us > 0:
        print_lines(console, [f"same trace up to {equal_until_us / 1e6:g} s"])


def _print_directory_and_report(
    options: ReplayOptions, directory: RunDirectory, console: Console
) -> None:
    """Print the run directory; with --report, also write the report into it."""
    print_path(console, "run directory", directory.path)
    if not options.report:
        command = f"its report: {called_as()} report {directory.path}"
        console.print(Text(command), soft_wrap=True)
        return
    notice = java_notice(directory.path)
    if notice is not None:
        console.print(notice, highlight=False, soft_wrap=True)
        return
    analyze_runs(console, [directory.path], master=options.master)
    print_path(console, "report", write_run_report(console, open_run(directory.path)))
