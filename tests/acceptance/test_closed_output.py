"""Commands whose output nobody can read any more: a closed pipe, a closed terminal, a full device.

`command_line.started(...)` runs `python -m coordlab` in a process of its own, with `tmp_path` as
its working folder. A run prints its stages: "starting", "steady", "faults" and "stopping". SIGPIPE
is the signal to a program that writes to a closed pipe, SIGHUP the one to a program whose terminal
closes.
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
"""The exit code that shells give a program that SIGPIPE ended: 128 + 13, the signal's number."""
SMALL = (
    *("run", "coordinator_crash", "--no-analyze"),
    *("--var", "groups.orders-readers.members=3"),
    *("--var", "topics.orders.partitions=3"),
)
VIRTUAL = (*SMALL, "--runtime", "virtual")
"""A small experiment that runs in simulated time."""
WHOLE = ("run", "coordinator_crash", "--no-analyze", "--runtime", "virtual")
"""The whole experiment, which takes seconds, so that a signal arrives before its end."""


def run_until(command: "subprocess.Popen[str]", word: str) -> tuple[int, str]:
    """Read a command's output up to `word`, close the pipe, and return the exit code and errors."""
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
    assert results.exit_code == EXIT_INTERRUPTED  # of the run; the command itself ends with 141
    assert [entry.fault_id for entry in past.journal() if entry.in_force] == []
    assert "stage stopping" in (past.path / "log.txt").read_text()


def test_run_whose_pipe_closes_heals_stops_and_ends_with_141(tmp_path: Path) -> None:
    """The pipe closes after some lines, as in `run ... | head -2`.

    Python's own exit code for that is 1, which would mean here that a promise was violated.
    """
    command_line = CommandLine(tmp_path)
    with command_line.started(*VIRTUAL) as command:
        code, errors = run_until(command, "steady")

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)
    listed = json.loads(command_line.run("list", "--json").stdout)
    assert [(run["status"], run["verdict"]) for run in listed["runs"]] == [
        ("interrupted", "unknown")
    ]


@pytest.mark.ray
def test_run_on_ray_whose_pipe_closes_in_a_fault_leaves_no_process(tmp_path: Path) -> None:
    """The cluster has real processes: they must be healed and stopped although nobody reads."""
    command_line = CommandLine(tmp_path)
    with command_line.started(
        *SMALL, "--var", "faults[0].at=0s", "--var", "faults[0].fault=pause"
    ) as command:
        code, errors = run_until(command, "faults")

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)


def test_run_whose_terminal_closes_heals_stops_and_ends_with_141(tmp_path: Path) -> None:
    """The thread that draws the panel notices the closed terminal at its next drawing.

    A run in virtual time may end before that drawing; it is then recorded as completed.
    """
    command = TerminalCommand(tmp_path, *WHOLE, width=80, environment={})
    command.read_until("[faults]")

    assert command.close_window() == EXIT_OUTPUT_CLOSED
    (past,) = list_runs(tmp_path / "runs")
    if past.manifest.status is not RunStatus.COMPLETED:
        check_healed_and_stopped(past)
    assert "stage stopping" in (past.path / "log.txt").read_text()


def test_run_that_gets_sighup_heals_and_stops(tmp_path: Path) -> None:
    """A closing terminal sends SIGHUP, even to a run whose output goes to a file."""
    command_line = CommandLine(tmp_path)
    with command_line.started(*WHOLE) as command:
        assert command.stdout is not None
        # Before the run begins, SIGHUP would end the Python process itself.
        assert "starting" in command.stdout.readline()
        command.send_signal(SIGHUP)
        _, errors = command.communicate(timeout=COMMAND_TIMEOUT_S)

    assert (command.returncode, errors) == (EXIT_OUTPUT_CLOSED, "")
    (past,) = command_line.runs()
    check_healed_and_stopped(past)


@pytest.mark.parametrize("arguments", [("list",), ("schema",), ("run", "--help")])
def test_list_into_a_closed_pipe_ends_with_141_without_a_message(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A command that only prints ends as `ls` does: by the closed pipe, and without a message."""
    with CommandLine(tmp_path).started(*arguments) as command:
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        errors = command.stderr.read()
        code = command.wait(COMMAND_TIMEOUT_S)

    assert (code, errors) == (EXIT_OUTPUT_CLOSED, "")


def test_output_to_a_full_device_is_one_message_and_no_verdict(tmp_path: Path) -> None:
    """Exit code 255 means that the tool failed: a full device says nothing about Kafka."""
    command_line = CommandLine(tmp_path)
    with (
        Path("/dev/full").open("w") as full,
        command_line.started(*VIRTUAL, stdout=full) as command,
    ):
        _, errors = command.communicate(timeout=COMMAND_TIMEOUT_S)

    assert errors == "standard output cannot be written: No space left on device\n"
    assert command.returncode == 255
    (past,) = command_line.runs()
    check_healed_and_stopped(past)
