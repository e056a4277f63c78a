"""`coordlab shrink` from outside: the files that it writes, what it prints, and how it ends.

A schedule is an experiment file with faults. When a schedule breaks one of Kafka's promises,
`shrink` looks for a smaller schedule that breaks the same promise. In each step it leaves a part of
the schedule out and plays the rest. If the rest still breaks the promise, the next step begins with
the rest.

Finally `shrink` measures the robustness of the smallest schedule. It plays the schedule with
several network seeds, because with each seed the messages have other latencies. The robustness is
the number of seeds with which the schedule fails.

The schedule of these tests fails because a guard of the brokers is switched off: without
`high_watermark_gate`, a broker acknowledges a commit before the replicas have it. So a coordinator
that was replaced while it was paused still acknowledges commits. This breaks the promise `fencing`.
"""

import io
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from chaos.experiment.dump import experiment_text
from chaos.experiment.loader import load_experiment
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult, play
from chaos.exploration.shrink.edits import Sizes
from chaos.exploration.shrink.shrink import ShrinkProgress
from chaos.exploration.signature import Signature
from chaos.results.replay_stamp import ReplayStamp
from coordlab.cli import run_cli
from coordlab.commands.shrink import finding_to_keep, shrink_view
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN
from tests.support.worlds.planted import readers, small

ROOT = Path(__file__).resolve().parents[3]
# Only the second fault, the pause of the coordinator, is needed to break a promise.
FAULTS: tuple[dict[str, object], ...] = (
    {"at": "1234ms", "fault": "reset", "from": "broker(1)", "to": "clients"},
    {"at": "2037ms", "fault": "pause", "target": "coordinator-of(readers)", "duration": "14321ms"},
    {"at": "20s", "fault": "crash", "target": "broker(2)", "duration": "15s"},
)


def schedule(folder: Path, *, guarded: bool = False) -> Path:
    """Write a schedule with three faults, which breaks a promise unless it is `guarded`."""
    experiment = small(*FAULTS, group=readers(members=2), guards={"high_watermark_gate": guarded})
    path = folder / "found.yaml"
    path.write_text(experiment_text(experiment), encoding="utf-8")
    return path


@pytest.mark.slow
def test_shrink_writes_a_file_that_fails_and_prints_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three faults become one, and the file that `shrink` writes still breaks the promise.

    The file has a stamp: the seed and the digest of its run. When the file is played again, the run
    has the same digest.
    """
    path = schedule(tmp_path)

    code = run_cli(["shrink", str(path), "--robustness", "5", "--time-limit", "5m"])

    output = capsys.readouterr().out
    written = path.with_suffix(".shrunk.yaml")
    experiment = load_experiment(str(written)).experiment
    text = written.read_text(encoding="utf-8")
    assert code == EXIT_PASS
    assert "3 faults -> 1" in output
    assert "of 5 network seeds" in output
    assert [fault.fault for fault in experiment.faults] == ["pause"]
    # The time of the fault was 2037ms. `shrink` also tries round times, and at 1s the fault breaks
    # the promise, too.
    assert experiment.faults[0].at == "1s"
    assert text.startswith("# fencing is violated: ")
    assert "append completed" in text
    assert experiment.replay is not None
    again = play(experiment, experiment.replay.seed)
    assert again.result is PlayResult.VIOLATED
    assert again.digest == experiment.replay.digest


@pytest.mark.slow
def test_shrinking_a_passing_schedule_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the guard on, no promise is broken, so there is nothing to shrink: exit code 2."""
    path = schedule(tmp_path, guarded=True)

    code = run_cli(["shrink", str(path)])

    assert code == EXIT_UNKNOWN
    assert "nothing to shrink" in " ".join(capsys.readouterr().out.split())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_shrink_prints_one_json_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document has the file's path, the sizes before and after, and the robustness."""
    output = tmp_path / "small.yaml"

    code = run_cli(
        ["shrink", str(schedule(tmp_path)), "--json", "--robustness", "0", "-o", str(output)]
    )

    document = msgspec.json.decode(capsys.readouterr().out)
    assert code == EXIT_PASS
    assert document["file"] == str(output)
    assert output.exists()
    assert document["shrunk"]["before"]["faults"] == 3
    assert document["shrunk"]["after"]["faults"] == 1
    assert document["robustness"] == {"fails": 0, "tried": 0}
    assert document["story"]


def test_shrink_refuses_an_invalid_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file or an unknown check is refused before a search starts."""
    assert run_cli(["shrink", str(tmp_path / "none.yaml")]) == EXIT_BAD_ARGUMENTS
    # Instead of a file, a seed may be given, here 7. A schedule is then drawn from the seed.
    assert run_cli(["shrink", "7", "--check", "fenncing"]) == EXIT_BAD_ARGUMENTS
    assert "did you mean `fencing`?" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_writes_the_smallest_schedule_so_far(tmp_path: Path) -> None:
    """Ctrl-C comes after `shrink` has printed the size of a schedule that fails.

    So there is a schedule to write. It depends on the machine how small the schedule is by then. It
    may still have all three faults, with fewer members or rounder times.
    """
    path = schedule(tmp_path)
    # With -u Python writes each line to the pipe at once.
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "coordlab", "shrink", str(path), "--time-limit", "5m"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        # A line with the size of a schedule begins with the number of runs: "   4 runs  1 fault".
        if " runs  " in line:
            process.send_signal(signal.SIGINT)
            break
    rest, _ = process.communicate(timeout=100)

    assert process.returncode == EXIT_INTERRUPTED
    assert "interrupted" in rest
    written = load_experiment(str(path.with_suffix(".shrunk.yaml"))).experiment
    assert len(written.faults) <= 3


# Three findings of a run, each a broken promise. A claim is the summary of a finding with
# placeholders for names and numbers, so that similar findings have one claim.
FENCING = PlayedFinding(
    signature=Signature(check="fencing", claim="x"), summary="an append of an old leader", time_us=1
)
LOST = PlayedFinding(
    signature=Signature(check="durable_commits", claim="x"), summary="offset 7 is lost", time_us=2
)
LOST_TOO = PlayedFinding(
    signature=Signature(check="durable_commits", claim="y"), summary="offset 9 is lost", time_us=3
)


@pytest.mark.parametrize(
    ("option_check", "finding_of_file", "kept"),
    [
        (None, None, FENCING),
        (None, "durable_commits: offset 9 is lost", LOST_TOO),
        (None, "durable_commits: in words of an older version", LOST),
        (None, "liveness: not seen by this code", FENCING),
        ("fencing", "durable_commits: offset 9 is lost", FENCING),
        ("liveness", None, None),
    ],
    ids=[
        "the file names none",
        "the same finding",
        "another finding of its check",
        "no finding of its check",
        "--check has precedence",
        "--check without a finding",
    ],
)
def test_finding_of_the_file_is_preferred_to_an_earlier_one(
    option_check: str | None, finding_of_file: str | None, kept: PlayedFinding | None
) -> None:
    """`shrink` keeps one finding of the run, if possible the finding that the file is about.

    The stamp of the file names this finding, which need not be the first finding of the run.

    1. A finding with the same check and summary is preferred.
    2. Otherwise it is the first finding of the same check: the file may be from an older version of
       coordlab, whose summaries had other words.
    3. Otherwise it is the run's first finding.

    The option `--check` has precedence over these three rules. The first finding is the finding
    with the smallest time, here FENCING.
    """
    played = PlayedRun(seed=7, result=PlayResult.VIOLATED, findings=(LOST_TOO, LOST, FENCING))
    stamp = ReplayStamp(
        seed=7, code="ab", python="3.11", result="violated", digest="cd", finding=finding_of_file
    )
    assert finding_to_keep(played, option_check, stamp) == kept


SIZES = Sizes(
    faults=14, brokers=5, groups=2, members=6, partitions=12, producers=1, horizon_us=60_000_000
)
SMALLER = msgspec.structs.replace(SIZES, faults=1, horizon_us=12_300_000)
"""The size of a schedule, and a smaller size. `horizon_us` is the time until all is healed."""


def test_without_a_terminal_each_new_size_is_a_line() -> None:
    """The first line has the original size, and each later line a smaller size.

    The view gets a size after each of the runs 2 to 5. The size is new after the runs 2 and 4.
    """
    console = Console(width=60, record=True, force_terminal=False, file=io.StringIO())
    view = shrink_view(console, "seed 7")
    with view:
        for runs, smallest in ((2, SIZES), (3, SIZES), (4, SMALLER), (5, SMALLER)):
            view(ShrinkProgress(does="leaving out faults", runs=runs, before=SIZES, after=smallest))

    _, line_after_4_runs = console.export_text().splitlines()
    assert line_after_4_runs.startswith("   4 runs  1 fault, 5 brokers, 2 groups")
    assert line_after_4_runs.endswith("12.3 s")


@pytest.mark.parametrize("width", [40, 80, 140])
def test_panel_on_a_terminal_shows_the_sizes_and_the_present_attempt(width: int) -> None:
    """The panel shows the sizes of the original schedule and of the smallest schedule so far."""
    console = Console(width=width, force_terminal=True, file=io.StringIO())
    # Rich would read `[bold]` as markup. The name of a file may have brackets, so the view must
    # show them as they are.
    view = shrink_view(console, "seed [bold]7[/]")
    progress = ShrinkProgress(does="leaving out faults", runs=41, before=SIZES, after=SMALLER)

    plain = Console(width=width, record=True, file=io.StringIO())
    plain.print(view.render(progress))
    shown = " ".join(plain.export_text().split())
    assert "shrinking seed [bold]7[/] 41 runs" in shown
    assert "from 14 faults" in shown
    assert "to 1 fault," in shown
    assert "leaving out faults ..." in shown
