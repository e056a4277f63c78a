"""`replay` plays a run again, compares the traces of the two runs, and can stop in between.

A run in virtual time (a simulated clock) can be repeated exactly. A replay file describes such a
run: it has the experiment and a stamp. The stamp has the seed of the run, the versions of
coordlab's code and of Python that played it, and the digest of its trace (a hash of all events).
With this digest, `replay` checks that the new run has the same trace.

The experiment of these tests, `QUICK`, has one fault, the crash of a group's coordinator. `PLAYED`
is a run of this experiment.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from chaos.experiment.dump import experiment_text
from chaos.exploration.play import play
from chaos.exploration.replay_file import stamp_of
from chaos.results.replay_stamp import ReplayStamp
from chaos.results.run_directory import list_runs
from cluster.trace.parquet import read_parquet
from coordlab.cli import run_cli
from protocol.trace import MESSAGE_KINDS, TraceRow
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERNAL_ERROR, EXIT_PASS, EXIT_VIOLATED
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.harness.terminal import TerminalCommand

Captured = pytest.CaptureFixture[str]
SEED = 5
QUICK = quick_experiment()
PLAYED = play(QUICK, SEED)
WriteFile = Callable[..., str]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where the commands create the folder `runs`, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def write() -> WriteFile:
    """Return a function that writes a replay file of `PLAYED` and returns the file's name.

    Its arguments replace fields of the stamp: `write(digest="0f")` writes a file with a false
    digest.
    """

    def write_file(**fields_of_stamp: object) -> str:
        stamp = msgspec.structs.replace(stamp_of(QUICK, PLAYED), **fields_of_stamp)
        stamped = msgspec.structs.replace(QUICK, replay=stamp)
        Path("found.yaml").write_text(experiment_text(stamped))
        return "found.yaml"

    return write_file


def test_replay_of_a_stamped_run_gives_the_same_trace_and_a_whole_run_directory(
    write: WriteFile, capsys: Captured
) -> None:
    """The trace is the same, and the run directory has everything that a run writes.

    There are rows about messages, results, and another replay file, which can be played again.
    """
    assert run_cli(["replay", write()]) == EXIT_PASS

    output = capsys.readouterr().out
    assert f"same trace: {PLAYED.rows:,} rows, {PLAYED.digest}" in output
    # The output has the summary of the run's figures, so the run was analysed.
    assert "commit gap" in output
    (past,) = list_runs(Path("runs"))
    results = past.results()
    assert results is not None
    assert results.exit_code == EXIT_PASS
    assert past.manifest.replay == "python -m coordlab replay found.yaml"
    assert past.manifest.seed == SEED
    kinds = {row.kind for row in read_parquet(past.events / "part-00000.parquet")}
    assert kinds >= MESSAGE_KINDS
    assert run_cli(["replay", str(past.path / "replay.yaml")]) == EXIT_PASS


def test_run_of_a_replay_file_uses_its_seed_unless_one_is_given(
    write: WriteFile,
) -> None:
    """A replay file is also an experiment file, so `run` accepts it."""
    arguments = ["run", write(), "--runtime", "virtual", "--no-analyze"]

    assert run_cli(arguments) == EXIT_PASS
    assert run_cli([*arguments, "--seed", "0"]) == EXIT_PASS
    assert [past.manifest.seed for past in list_runs(Path("runs"))] == [SEED, 0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"code": "0f"}, "the code is another"), ({"python": "3.99"}, "Python is another")],
)
def test_replay_by_another_version_of_code_or_python_is_refused_unless_forced(
    write: WriteFile, capsys: Captured, changed: dict[str, str], reason: str
) -> None:
    """Another version may rightly give another trace, so a comparison would prove nothing.

    In this test only the stamp is changed. So the trace is the same if `--force` plays the file.
    """
    file = write(**changed)

    assert run_cli(["replay", file]) == EXIT_BAD_ARGUMENTS
    assert reason in capsys.readouterr().err
    assert not Path("runs").exists()
    assert run_cli(["replay", file, "--force"]) == EXIT_PASS
    assert "same trace" in capsys.readouterr().out


def test_another_trace_by_the_same_code_is_reported_as_our_failure(
    write: WriteFile, capsys: Captured
) -> None:
    """The same code, file and seed must give the same trace. If not, coordlab itself has failed.

    Then there is no verdict about Kafka. The stamp also has a trail, which shows when the traces
    began to differ. It is a text such as `1s 1f3a 77b0 ...`, with the digest of the trace after
    each second. In this test the third digest is false, so the traces seem to differ first between
    2 and 3 s.
    """
    step, *digests = PLAYED.trail.split()
    assert step == "1s"
    false_trail = " ".join([step, *digests[:2], "0000", *digests[3:]])
    code = run_cli(["replay", write(digest="0f", trail=false_trail)])

    output = capsys.readouterr().out
    assert code == EXIT_INTERNAL_ERROR
    assert f"another trace: digest {PLAYED.digest}, stamped 0f; they begin to differ" in output
    assert "after 2 s and" in output
    assert "before 3 s" in output
    assert "coordlab itself failed: the same code, file and seed gave another trace" in output


def test_another_trace_of_an_edited_file_is_no_failure_and_the_verdict_counts(
    write: WriteFile, capsys: Captured
) -> None:
    """Users edit the file of a finding to learn more. Then another trace is expected."""
    file = Path(write())
    file.write_text(file.read_text().replace("duration: 3s", "duration: 2s"))

    assert run_cli(["replay", str(file)]) == EXIT_PASS
    output = capsys.readouterr().out
    assert "another trace" in output
    assert "the file was edited since its run was stamped" in output


def test_replay_of_an_experiment_without_stamp_compares_nothing(capsys: Captured) -> None:
    """An experiment without a stamp is played with seed 0, the default of `run`."""
    Path("plain.yaml").write_text(experiment_text(QUICK))

    assert run_cli(["replay", "plain.yaml", "--json"]) == EXIT_PASS
    document = json.loads(capsys.readouterr().out)
    assert document["compared"]["same"] is None
    assert document["played"]["seed"] == 0


@pytest.mark.slow
def test_replay_of_a_seed_writes_a_file_that_replays_without_the_space(capsys: Captured) -> None:
    """Instead of a file, `replay` accepts a seed, which draws a schedule from a space.

    A space is a file that describes many schedules. The replay file that `replay` writes has the
    schedule itself. So the space is not needed to play this file.
    """
    code = run_cli(["replay", "3", "--space", "reference", "--json"])
    first = json.loads(capsys.readouterr().out)

    assert code in {EXIT_PASS, EXIT_VIOLATED}
    file = Path(first["run_directory"]) / "replay.yaml"
    assert run_cli(["replay", str(file), "--json"]) == code
    second = json.loads(capsys.readouterr().out)
    assert second["compared"]["same"] is True
    assert second["played"]["digest"] == first["played"]["digest"]


def test_until_ends_the_trace_at_a_time_and_shows_the_state(
    write: WriteFile, capsys: Captured
) -> None:
    """Half a second after the crash the coordinator is down, but the members do not know it."""
    crash_us = crash_time_us()
    until_us = crash_us + 500_000
    until = f"{until_us / 1e6:.6f}s"
    code = run_cli(["replay", write(), "--until", until])

    output = capsys.readouterr().out
    assert code == EXIT_PASS
    assert f"at {until}, stage faults" in output
    assert re.search(r"broker-\d +down", output)
    assert "crash-0 on broker-" in output
    assert "consumer-readers-1: STABLE, generation 1" in output
    assert "same trace up to" in output
    (past,) = list_runs(Path("runs"))
    times = [row.time_us for row in read_parquet(past.events / "part-00000.parquet")]
    assert crash_us < max(times) < until_us
    assert past.manifest.status == "interrupted"


def test_until_a_time_after_the_end_is_reported(write: WriteFile, capsys: Captured) -> None:
    """The run is played to its end, and the output names the moment that never came."""
    assert run_cli(["replay", write(), "--until", "3600s"]) == EXIT_PASS
    assert "before 3600.000000s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--break-at", "1s"], "needs a terminal"),
        (["--until", "1s", "--break-at", "1s"], "give one of them"),
        (["--until", "1s", "--json"], "--json"),
        (["--until", "noon"], "`12.5s` or `12500ms`, got `noon`"),
    ],
)
def test_impossible_options_are_refused_before_the_replay(
    write: WriteFile, capsys: Captured, arguments: list[str], reason: str
) -> None:
    """`--break-at` opens a debugger, which would wait for ever without a terminal.

    `--json` prints a single document, but the state that `--until` shows would not be part of this
    document. So these options are refused.
    """
    assert run_cli(["replay", write(), *arguments]) == EXIT_BAD_ARGUMENTS
    assert reason in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last_command", "code", "last_words"), [("c", 0, "PASS"), ("q", 130, "directory")]
)
def test_break_at_opens_the_debugger_with_the_cluster_in_scope(
    write: WriteFile, tmp_path: Path, last_command: str, code: int, last_words: str
) -> None:
    """At the prompt of the debugger, a user can ask for the cluster's groups and nodes.

    `c` lets the run go on to its verdict, and `q` ends the run. 130 is the exit code of an
    interrupted run.
    """
    # The coordinator of `QUICK` crashes 1 s after the beginning of the steady state. Half a second
    # before the crash, the group is still stable.
    break_us = str(crash_time_us() - 500_000)
    arguments = (write(), "--break-at", f"{break_us}us")
    command = TerminalCommand(tmp_path, "replay", *arguments, width=160, environment={})
    command.read_until("(Pdb) ")
    command.type("groups()\n")
    command.read_until("coordinates it: Stable")
    command.type("p runtime.now_us()\n")
    command.read_until(break_us)
    command.type("p node('broker-1')\n")
    command.read_until("BrokerNode")
    # `at` continues to a time. It refuses a time in the past, and a text that is no time.
    command.type("at('1s')\n")
    command.read_until("expected a time after")
    command.type("at('soon')\n")
    command.read_until("got `soon`")
    command.type(f"at('{crash_time_us() - 100_000}us')\n")
    command.read_until("`c` continues to")
    command.type("c\n")
    command.read_until("(Pdb) ")
    command.type("p runtime.now_us()\n")
    command.read_until(str(crash_time_us() - 100_000))
    command.type(f"{last_command}\n")
    command.read_until(last_words)

    assert command.finish() == code


def crash_time_us() -> int:
    """Return the time at which the crash of `QUICK` kills the coordinator."""
    rows: list[TraceRow] = []
    play(QUICK, SEED, observers=[rows.append])
    return next(row.time_us for row in rows if row.kind == "node_killed")


def test_stamp_is_that_of_the_search() -> None:
    """A search plays runs without rows about messages. The stamp has the digest of such a run."""
    stamp = stamp_of(QUICK, PLAYED)

    assert isinstance(stamp, ReplayStamp)
    assert (stamp.result, stamp.digest, stamp.trail) == ("pass", PLAYED.digest, PLAYED.trail)
