"""`replay`: plays a schedule in virtual time again, and compares its trace with a stamp.

A schedule is an experiment with a seed. In virtual time (a simulated clock) a schedule always gives
the same trace (the run's recorded rows of events). A file of a schedule can have a stamp, which
describes an earlier run of the schedule. A stamp has the digest of that run's trace, and a trail. A
digest is a hash over the rows of a trace. A trail is a sequence of digests, each over the trace up
to a point in time. It shows when two traces begin to differ.

The schedule is played twice:

1. without messages in the trace, as `explore` (the search for violations) plays it. A stamp's
   digest is of such a trace;
2. with messages in the trace, into a run directory.

Apart from the messages, the two traces must be equal. With --until or --break-at the schedule is
played only once, with messages.
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
"""File in a run directory: the experiment with a stamp, which `replay` can play again."""
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
    """The options of a replay.

    `until_us` and `break_at_us` are times of the run's clock, in microseconds from its beginning.
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
    """Comparison of a run's trace with the stamp.

    - `same`: whether the trace has the stamp's digest; None if there is no stamp.
    - `said`: the result as a sentence.
    - `parts_after_us`, `parts_before_us`: the traces begin to differ between these two times. Both
      are None if the traces are equal, if there is no stamp, or if the stamp has no trail.
      `parts_before_us` is also None if the traces differ only after the end of the trails.

    The field names are also the keys of the JSON output.
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
@as_one(ReplayOptions)
def replay_command(options: ReplayOptions) -> int:
    """Play a schedule in virtual time again and compare its trace, byte for byte.

    FILE is an experiment file that `explore` or `shrink` wrote; any other is played with seed 0,
    with nothing to compare. SEED is drawn from a space, `12-400-4711` is mutated seed 4711. The run
    is written as `run` writes it.
    """
    inspects = options.until_us is not None or options.break_at_us is not None
    if options.until_us is not None and options.break_at_us is not None:
        raise click.UsageError("--until ends the run, --break-at does not: give one of them")
    if options.json and (inspects or options.report):
        raise click.UsageError("--json prints one document; not with --until, --break-at, --report")
    if options.break_at_us is not None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--break-at opens a debugger, which needs a terminal")

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
        if inspects:
            return _play_and_inspect(options, schedule, directory, Console())
        return _play_whole(options, schedule, directory, Console(), changed=changed)


def _edits(schedule: Schedule) -> tuple[str, ...]:
    """Return a sentence if the file was edited after it was stamped, else nothing.

    Such a file is played nevertheless.
    """
    stamp = schedule.stamp
    # `stamp.schedule` is the digest of the schedule. A stamp without it ("") cannot show an edit.
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
    """Play the schedule without messages, then with messages into its directory."""
    played = play(schedule.experiment, schedule.seed)
    # After a Ctrl-C, `play` raises nothing, but returns this result. KeyboardInterrupt ends the
    # command before the second run.
    if played.result is PlayResult.INTERRUPTED:
        raise KeyboardInterrupt
    recording = Recorder(schedule.experiment, schedule.seed, directory).play()
    (directory.path / REPLAY_FILE).write_text(
        replay_text(schedule.experiment, played, comment=f"Replayed from {schedule.name}."),
        encoding="utf-8",
    )
    compared = _compare(schedule, played)
    # Apart from messages, the two runs must have equal traces, unless the second run broke off.
    runs_agree = recording.digest == played.digest or recording.results.outcome in {
        RunOutcome.INTERRUPTED,
        RunOutcome.INTERNAL_ERROR,
    }
    # A trace that differs from the stamp's is coordlab's failure only if neither the code nor the
    # file was changed since the stamp.
    broken = not runs_agree or (compared.same is False and not changed)
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
        # `run` and a search can judge the same trace differently. If a fault of the plan hit no
        # node, the verdict of `run` is unknown, but a search ignores that.
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
        _conclude(options, directory, console)
    return EXIT_INTERNAL_ERROR if broken else _EXIT_OF_RESULT[played.result]


def _play_and_inspect(
    options: ReplayOptions, schedule: Schedule, directory: RunDirectory, console: Console
) -> int:
    """Play the schedule into its directory, and inspect the cluster at the requested time.

    --until prints the cluster's state and ends the run. --break-at opens the debugger.
    """

    def inspect(moment: Moment) -> bool:
        """Show the moment; return True if the run goes on."""
        if options.break_at_us is not None:
            return debug(moment, console)
        print_state(console, moment)
        return False

    # Exactly one of the two options is given.
    at_us = options.until_us if options.break_at_us is None else options.break_at_us
    recorder = Recorder(schedule.experiment, schedule.seed, directory)
    recording = recorder.play(at_us=at_us, inspect=inspect)
    results = recording.results
    if not recording.reached:
        # `at_us` has a value here; only the type checker does not know it.
        ended = f"the run ended at {clock(results.ended_at_us)}, before {clock(at_us or 0)}"
        print_lines(console, [ended], style="bold yellow")
    elif schedule.stamp is not None and schedule.stamp.trail:
        _print_compared_so_far(console, schedule.stamp, recording)
    # --until ends the run as a Ctrl-C does, and so does quitting the debugger. A run that was ended
    # like this has no verdict to print.
    if results.outcome is not RunOutcome.INTERRUPTED:
        summary = sum_up(console, directory.path, results)
        print_summary(console, directory.manifest, results, summary)
    _conclude(options, directory, console)
    # If --until reached its time, the command did what was asked, although the run was interrupted.
    return EXIT_PASS if recording.reached and options.break_at_us is None else results.exit_code


def _compare(schedule: Schedule, played: PlayedRun) -> Compared:
    """Compare the trace with the file's stamp: equal, or where they begin to differ."""
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
    # The traces begin to differ between the two times that `parted_between` returns. It returns
    # None if the trails are equal although the digests of the whole traces differ. Then the trails
    # only tell that the traces begin to differ after 0, which is certain.
    after_us, before_us = parted_between(stamp.trail, played.trail) or (0, None)
    until = "" if before_us is None else f" and before {before_us / 1e6:g} s"
    return Compared(
        same=False,
        said=f"{said}; they begin to differ after {after_us / 1e6:g} s{until}",
        parts_after_us=after_us,
        parts_before_us=before_us,
    )


def _print_compared(console: Console, compared: Compared, changed: tuple[str, ...]) -> None:
    """Print the comparison, and the possible causes if the traces differ."""
    style = {True: "bold green", False: "bold red", None: ""}[compared.same]
    print_lines(console, [compared.said], style=style)
    if compared.same is False and changed:
        print_lines(console, [f"possible cause: {change}" for change in changed])
    elif compared.same is False:
        print_lines(
            console,
            [
                "coordlab itself failed: the same code, file and seed gave another trace, unless "
                "another version of a library is installed"
            ],
        )


def _print_compared_so_far(console: Console, stamp: ReplayStamp, recording: Recording) -> None:
    """Print whether the trace up to the requested time equals the stamp's trace."""
    # The recording ends early, so its trail usually has fewer digests than the stamp's trail. If it
    # has the same digests (None), nothing is printed.
    interval = parted_between(stamp.trail, recording.trail)
    if interval is None:
        return
    # The digests are equal up to the first time. The second time is that of the first digest that
    # differs; it is None if no digest of the recording differs.
    equal_until_us, differs_before_us = interval
    if differs_before_us is not None:
        seconds = f"{differs_before_us / 1e6:g} s"
        print_lines(console, [f"another trace: they begin to differ before {seconds}"])
    elif equal_until_us > 0:
        print_lines(console, [f"same trace up to {equal_until_us / 1e6:g} s"])


def _conclude(options: ReplayOptions, directory: RunDirectory, console: Console) -> None:
    """Print the run directory; with --report also write its report."""
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
