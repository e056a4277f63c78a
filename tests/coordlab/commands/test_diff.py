"""`coordlab diff` compares two runs, and shows the first event in which they differ.

A user gives each run as a schedule (an experiment file, which `diff` then plays in virtual time),
as a seed that draws a schedule, or as the directory of a past run. With `--against-passing` a
single run is enough: `diff` looks for the smallest change with which this run passes, and compares
the run with the changed run.

Exit code 1 (EXIT_VIOLATED) means that the runs differ, as for `diff` of Unix.

The schedule failing.yaml has a cut of the network, which breaks a promise, and a pause of a member,
which has no effect.
"""

import json
from pathlib import Path

import pytest

from chaos.experiment.dump import experiment_text
from chaos.exploration.nearest_passing import nearest_passing
from chaos.exploration.play import play
from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS, EXIT_UNKNOWN, EXIT_VIOLATED
from tests.support.builders.quick_experiment import failing_experiment, quick_experiment

Captured = pytest.CaptureFixture[str]
# The time of a fault counts from the beginning of the steady state.
CRASH = {"at": "1s", "fault": "crash", "target": "coordinator-of(readers)", "duration": "3s"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write three schedules into an empty folder.

    In one.yaml the second crash is at 5 s, in other.yaml at 5.5 s.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")  # so that no line of the output is wrapped
    second_crash = CRASH | {"at": "5s", "target": "broker(0)"}
    later_crash = second_crash | {"at": "5500ms"}
    one = quick_experiment(faults=[CRASH, second_crash])
    other = quick_experiment(faults=[CRASH, later_crash])
    Path("one.yaml").write_text(experiment_text(one))
    Path("other.yaml").write_text(experiment_text(other))
    Path("failing.yaml").write_text(experiment_text(failing_experiment()))


@pytest.mark.usefixtures("files")
def test_schedule_compared_with_itself_is_equal(capsys: Captured) -> None:
    """The exit code is 0, and the output has the number of compared rows."""
    assert run_cli(["diff", "one.yaml", "one.yaml"]) == EXIT_PASS
    assert "equal: " in capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_schedules_differ_first_at_the_first_fault_that_only_one_has(capsys: Captured) -> None:
    """The second crash is at 5 s in one run, at 5.5 s in the other; earlier rows are equal."""
    assert run_cli(["diff", "one.yaml", "other.yaml", "--json"]) == EXIT_VIOLATED

    comparison = json.loads(capsys.readouterr().out)
    assert comparison["equal"] is False
    # The number of equal rows before the first row that differs.
    assert comparison["rows_alike"] > 100
    # "parts" has the rows of both runs from the place on where the runs part.
    parts = comparison["parts"]
    first_row_of_one, first_row_of_other = parts["one"][0], parts["other"][0]
    assert first_row_of_one["kind"] == "fault_injected"
    assert first_row_of_one["cause"] == "crash-1"
    assert first_row_of_one["time_us"] < first_row_of_other["time_us"]
    # The driver, the process that injects faults, wrote that row.
    assert parts["nodes"][0]["node"] == "driver"


@pytest.mark.usefixtures("files")
def test_two_traces_are_shown_side_by_side_with_the_rows_before(capsys: Captured) -> None:
    """The output has the last rows that are equal, then what each node does differently."""
    assert run_cli(["diff", "one.yaml", "other.yaml", "--before", "2"]) == EXIT_VIOLATED

    output = capsys.readouterr().out
    assert "A: one.yaml: " in output
    assert "They part at " in output
    assert "what both have before:" in output
    assert "where each node" in output


@pytest.mark.usefixtures("files")
@pytest.mark.slow
def test_run_directory_is_read_and_equals_the_schedule_that_it_was_played_from(
    capsys: Captured,
) -> None:
    """The trace in a run directory also has messages, but a schedule is played without them.

    So messages are compared only with `--messages`, and only between two run directories.
    """
    assert run_cli(["replay", "one.yaml"]) == EXIT_PASS
    assert run_cli(["replay", "one.yaml"]) == EXIT_PASS
    # The folder also has `latest`, a link to the second run, which is no run of its own.
    first, second = sorted(
        str(path) for path in Path("runs/quick").iterdir() if not path.is_symlink()
    )

    assert run_cli(["diff", first, "one.yaml"]) == EXIT_PASS
    assert run_cli(["diff", first, second, "--messages"]) == EXIT_PASS
    assert run_cli(["diff", first, "other.yaml"]) == EXIT_VIOLATED
    capsys.readouterr()
    assert run_cli(["diff", first, "one.yaml", "--messages"]) == EXIT_BAD_ARGUMENTS
    assert "only run directories hold messages" in capsys.readouterr().err


@pytest.mark.usefixtures("files")
@pytest.mark.slow
def test_failing_schedule_is_compared_with_the_nearest_that_passes(capsys: Captured) -> None:
    """`diff` tries small changes of the failing run until the changed run passes.

    1. Other network seeds, which give the messages other latencies: the run still fails.
    2. The schedule without one of its faults: without the pause the run still fails, and without
       the cut it passes.
    """
    assert run_cli(["diff", "failing.yaml", "--against-passing", "--json"]) == EXIT_VIOLATED

    captured = capsys.readouterr()
    comparison = json.loads(captured.out)
    assert (comparison["one"]["result"], comparison["other"]["result"]) == ("violated", "pass")
    assert comparison["other"]["name"] == "the same without cut-0"
    assert comparison["parts"]["one"][0]["cause"] == "cut-0"
    assert "trying network seed 1" in captured.err


@pytest.mark.usefixtures("files")
@pytest.mark.slow
def test_difference_from_a_passing_run_begins_at_the_first_different_step(
    capsys: Captured,
) -> None:
    """In two runs with different latencies, all rows differ from the first message on.

    Such a comparison would be useless. So these runs are compared by their steps: rows without
    times, offsets and ids, which depend on latencies. The first steps of the two runs are equal.
    """
    # 4711 is a seed, which draws another schedule.
    assert run_cli(["diff", "failing.yaml", "4711"]) == EXIT_VIOLATED

    output = capsys.readouterr().out
    # The output has the finding of failing.yaml. With every seed, its text is the same up to the
    # colon, so any seed will do here.
    summary = play(failing_experiment(), seed=3).findings[0].summary
    assert summary.split(":")[0] in output
    assert "The first step that differs is at" in output
    assert output.index("the first step of each node") < output.index("The first row that differs")
    assert "They part at" not in output


def test_nearest_passing_run_of_a_race_is_that_of_a_neighbouring_seed() -> None:
    """If a schedule fails only with some latencies (a race), the next network seed passes.

    The next seed is tried first, because it leaves the schedule unchanged. A schedule that fails
    only in a race is hard to make. So here the failed run, with seed 3, is of another experiment
    than `schedule`, which passes with seed 4.
    """
    schedule = quick_experiment()
    failed = play(failing_experiment(), seed=3)
    tried: list[str] = []
    nearest = nearest_passing(schedule, failed, trying=tried.append)

    assert nearest is not None
    assert (nearest.change, nearest.seed) == ("network seed 4", 4)
    assert tried == ["network seed 4"]


@pytest.mark.usefixtures("files")
def test_without_a_passing_run_nothing_is_compared(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that found no passing run proves nothing: exit code 2, unknown."""
    monkeypatch.setattr("coordlab.commands.diff.nearest_passing", lambda *_, **__: None)

    assert run_cli(["diff", "failing.yaml", "--against-passing"]) == EXIT_UNKNOWN
    assert "no run that passes was found" in capsys.readouterr().out

    assert run_cli(["diff", "failing.yaml", "--against-passing", "--json"]) == EXIT_UNKNOWN
    document = json.loads(capsys.readouterr().out)
    assert (document["one"]["result"], document["other"]) == ("violated", None)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["one.yaml"], "expected two runs, or one with --against-passing"),
        (["one.yaml", "other.yaml", "--against-passing"], "expected two runs"),
        (["one.yaml", "--against-passing"], "passes itself"),
        (["one.yaml", "nobody.yaml"], "there is no such file"),
        (["one.yaml", "."], "manifest.json"),
    ],
)
def test_incomparable_arguments_are_refused(
    capsys: Captured, arguments: list[str], reason: str
) -> None:
    """The exit code is 254, and the message names the expected argument."""
    assert run_cli(["diff", *arguments]) == EXIT_BAD_ARGUMENTS
    assert reason in capsys.readouterr().err
