"""What a run prints on a terminal, on a terminal that cannot move its cursor, and through a pipe.

On a terminal a run shows a panel, which is drawn again and again in its place, and at last a
summary. A TerminalCommand runs `python -m coordlab` on a pseudo-terminal, a terminal that a program
can read. Its `screen` is everything that the command has written, with all control codes. The exit
code of an interrupted command is 130.
"""

import re
import sys
from pathlib import Path
from signal import SIGINT

import pytest

from chaos.results.run_directory import list_runs
from tests.support.harness.command_line import CommandLine
from tests.support.harness.terminal import TerminalCommand, without_control

pytestmark = pytest.mark.slow

# A small and fast run in virtual time. It is not analysed, and its trace has no messages.
RUN = (
    *("run", "coordinator_crash", "--runtime", "virtual", "--no-analyze", "--no-trace"),
    "--var=groups.orders-readers.members=3",
    "--var=topics.orders.partitions=3",
)
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""Control codes that hide and show the cursor."""
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7](;|m)")
"""A control code that sets the colour of text."""


def test_run_on_a_terminal_shows_a_panel_and_leaves_the_summary(tmp_path: Path) -> None:
    """While the panel is drawn, the cursor is hidden. At the end the summary remains.

    No line of the summary is wider than the terminal, except paths and commands, which a user
    copies.
    """
    command = TerminalCommand(tmp_path, *RUN, width=80, environment={})
    code = command.finish()

    assert code == 0
    assert command.screen.count(HIDE) > 0
    assert command.screen.count(SHOW) == command.screen.count(HIDE)
    assert "[faults]" in command.screen
    assert COLOUR.search(command.screen)
    # The summary is what comes after the last code that shows the cursor.
    summary = without_control(command.screen.rpartition(SHOW)[2])
    assert "PASS  coordinator_crash on virtual, seed 0" in summary
    never_wrapped = ("run directory: ", "again: ")
    too_wide = [line for line in summary.splitlines() if len(line.rstrip()) > 80]
    assert [line for line in too_wide if not line.startswith(never_wrapped)] == []


def test_run_with_no_color_moves_the_cursor_without_colours(tmp_path: Path) -> None:
    """NO_COLOR (no-color.org) removes the colours only: the panel is drawn as usual."""
    command = TerminalCommand(tmp_path, *RUN, width=40, environment={"NO_COLOR": "1"})

    assert command.finish() == 0
    assert HIDE in command.screen
    assert COLOUR.search(command.screen) is None
    # A panel of 40 columns has room for the present stage only, with its number.
    assert "(stage 3 of 8)" in command.screen


def test_run_on_a_dumb_terminal_writes_lines(tmp_path: Path) -> None:
    """Editors and CI systems have terminals that cannot move their cursor."""
    command = TerminalCommand(tmp_path, *RUN, width=80, environment={"TERM": "dumb"})

    assert command.finish() == 0
    assert "\x1b" not in command.screen
    assert re.search(r"\d s  faults\r?\n", command.screen)
    assert "PASS  coordinator_crash" in command.screen


def test_interrupted_run_restores_the_terminal(tmp_path: Path) -> None:
    """After Ctrl-C the fault is healed, the summary is printed, and the cursor is visible."""
    command = TerminalCommand(tmp_path, *RUN, width=80, environment={})
    command.read_until("in force")
    command.send_signal(SIGINT)

    assert command.finish() == 130
    assert command.screen.rindex(SHOW) > command.screen.rindex(HIDE)
    after_panel = without_control(command.screen[command.screen.rindex(SHOW) :])
    assert "INTERRUPTED  coordinator_crash" in after_panel
    (past,) = list_runs(tmp_path / "runs")
    assert past.manifest.status.value == "interrupted"
    assert [fault.healed_by for fault in past.journal()] == ["end"]


def test_output_through_a_pipe_has_no_control_codes(command_line: CommandLine) -> None:
    """Log files of CI systems must have no control codes, whatever the variable TERM is."""
    for command in (RUN, ("list",)):
        done = command_line.run(*command, environment={"TERM": "xterm-256color"})
        assert done.returncode == 0, command
        assert "\x1b" not in done.stdout + done.stderr
        assert "\r" not in done.stdout + done.stderr


def test_interrupted_exploration_restores_the_terminal(tmp_path: Path) -> None:
    """After Ctrl-C the cursor is visible, and the command that resumes the exploration is shown."""
    command = TerminalCommand(
        tmp_path, "explore", "reference", "--workers", "1", width=80, environment={}
    )
    command.read_until("1 of 1,000 runs")
    command.send_signal(SIGINT)

    assert command.finish() == 130
    assert "exploring reference" in command.screen
    assert command.screen.count(HIDE) == 1
    assert command.screen.count(SHOW) == 1
    after_panel = without_control(command.screen[command.screen.rindex(SHOW) :])
    assert "INTERRUPTED, PASS so far" in after_panel
    resume_hint = (
        f"to go on: {sys.executable} -m coordlab explore --resume runs/explorations/reference/"
    )
    assert resume_hint in after_panel
