"""Commands whose output cannot be written: to a closed pipe, a closed terminal, a full device.

A run starts a cluster and injects faults into it, such as a crash. If the output is closed during
the run, it must heal these faults and stop the nodes of the cluster, as after Ctrl-C.

The tests start `python -m coordlab` in a process of its own. They read its output until the run has
come to a stage ("starting", "steady", "faults" or "stopping"). Then they close the pipe or the
terminal.
"""

import json
import subprocess
from pathlib import Path
from signal import SIGHUP

import pytest

from chaos.results.run_directory import PastRun, list_runs
from results_schema.manifest import RunStatus
from results_schema.results import EXIT_INTERRUPTED, RunOutcome, Verdict
from tests.support.harness.command_line import COMMAND_TIMEOUT_S, CommandLine
from tests.support.harness.terminal import TerminalCommand

pytestmark = pytest.mark.slow

EXIT_OUTPUT_CLOSED = 141
"""The exit code that shells show for a program whose pipe was closed: 128 + 13, where 13 is the
number of the signal SIGPIPE. coordlab uses it for a closed terminal, too."""
SMALL = (
    *("run", "coordinator_crash", "--no-analyze"),
    "--var=groups.orders-readers.members=3",
    "--var=topics.orders.partitions=3",
)
"""A small experiment. With --no-analyze it is not analysed at its end: the analysis takes long."""
SMALL_VIRTUAL = (*SMALL, "--runtime", "virtual")
"""The small experiment in virtual time. The clock is simulated, so the run takes only a moment."""
LARGE_VIRTUAL = ("run", "coordinator_crash", "--no-analyze", "--runtime", "virtual")
"""The same experiment in its full size. It takes seconds, so a signal arrives before its end."""


def close_pipe_after(command: "subprocess.Popen[str]", word: str) -> tuple[int, str]:
    """Read a command's output up to `word`, and close the pipe.

    Return the command's exit code and what it wrote to standard error.
    """
    assert command.stdout is not None
    assert command.stderr is not None
    while word not in (line := command.stdout.readline()):
        assert line, "the command ended first"
    command.stdout.close()
    errors = command.stderr.read()
    return command.wait(COMMAND_TIMEOUT_S), errors


def check_healed_and_stopped(past: PastRun) -> None:
    """Check that the run is recorded as interrupted, and that no fault is still in force."""
    assert past.manifest.status is RunStatus.INTERRUPTED
    results = past.results()
    assert results is not None
    assert (results.outcome, results.verdict) == (RunOutcome.INTERRUPTED, Verdict.UNKNOWN)
    # The results have the exit code of an interrupted run, although the command ends with 141.
    assert results.exit_code == EXIT_INTERRUPTED
    assert [entry.fault_id for entry in past.journal() if entry.in_force] == []
    # In this stage the run stops its nodes.
    assert "stage stopping" in (past.path / "log.txt").read_text()


def test_run_whose_pipe_closes_heals_stops_and_ends_with_141(tmp_path: Path) -> None:
    """The pipe closes after some lines, as in `run ... | head -2`.

    A Python program that writes to a closed pipe ends with exit code 1 by default. coordlab must
    not, because its exit code 1 means that Kafka has violated a promise.
    """
    command_line = CommandLine(tmp_path)
    with command_line.started(*SMALL_VIRTUAL) as command:
        code, errors = close_pipe_after(command, "steady")

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)
    listed = json.loads(command_line.run("list", "--json").stdout)
    assert [(run["status"], run["verdict"]) for run in listed["runs"]] == [
        ("interrupted", "unknown")
    ]


@pytest.mark.ray
def test_run_on_ray_whose_pipe_closes_in_a_fault_leaves_no_process(tmp_path: Path) -> None:
    """On Ray each node is a real process. All of them must end, even a process that is paused."""
    command_line = CommandLine(tmp_path)
    # The fault pauses a broker as soon as the group is steady.
    with command_line.started(
        *SMALL, "--var=faults[0].at=0s", "--var=faults[0].fault=pause"
    ) as command:
        code, errors = close_pipe_after(command, "faults")

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)


def test_run_whose_terminal_closes_heals_stops_and_ends_with_141(tmp_path: Path) -> None:
    """The run notices that its terminal is closed when it next draws its panel.

    The panel is the display of a run on a terminal, and is drawn again and again. A run in virtual
    time is so fast that it may end before the next drawing. Then it is recorded as completed.
    """
    command = TerminalCommand(tmp_path, *LARGE_VIRTUAL, width=80, environment={})
    command.read_until("[faults]")

    assert command.close_window() == EXIT_OUTPUT_CLOSED
    (past,) = list_runs(tmp_path / "runs")
    if past.manifest.status is not RunStatus.COMPLETED:
        check_healed_and_stopped(past)
    assert "stage stopping" in (past.path / "log.txt").read_text()


def test_run_that_gets_sighup_heals_and_stops(tmp_path: Path) -> None:
    """A closing terminal sends SIGHUP, even to a run whose output goes to a file."""
    command_line = CommandLine(tmp_path)
    with command_line.started(*LARGE_VIRTUAL) as command:
        assert command.stdout is not None
        # Wait until the run handles signals. Before that, SIGHUP would end the process at once.
        assert "starting" in command.stdout.readline()
        command.send_signal(SIGHUP)
        _, errors = command.communicate(timeout=COMMAND_TIMEOUT_S)

    assert (command.returncode, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)


@pytest.mark.parametrize("arguments", [("list",), ("schema",), ("run", "--help")])
def test_printing_command_into_a_closed_pipe_ends_with_141_without_a_message(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A command that only prints ends at once and without a message, as `ls` does."""
    with CommandLine(tmp_path).started(*arguments) as command:
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        errors = command.stderr.read()
        code = command.wait(COMMAND_TIMEOUT_S)

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")


def test_output_to_a_full_device_is_one_message_and_no_verdict(tmp_path: Path) -> None:
    """A run that cannot write its output proves nothing about Kafka.

    Its exit code is 255, which means that the tool itself has failed.
    """
    command_line = CommandLine(tmp_path)
    with (
        Path("/dev/full").open("w") as full,
        command_line.started(*SMALL_VIRTUAL, stdout=full) as command,
    ):
        _, errors = command.communicate(timeout=COMMAND_TIMEOUT_S)

    assert errors == "standard output cannot be written: No space left on device\n"
    assert command.returncode == 255
    (past,) = command_line.runs()
    check_healed_and_stopped(past)
