"""The commands of `coordlab` import only what they need, because each import takes time.

The imports delay the first line that a command prints.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from coordlab.cli import COMMANDS, SUMMARIES, load_command

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyarrow", "numpy", "ray", "pyspark", "altair", "jinja2")
"""Packages that are slow to import. Each takes longer than the whole command `coordlab list`."""
_RUN_AND_PRINT_MODULES = """
import sys
from coordlab.cli import run_cli
code = run_cli(sys.argv[1:])
print("exit", code, "modules", *sys.modules)
"""
"""A program that runs a command of coordlab, and prints the modules that were imported for it."""


def imported_by(*arguments: str, folder: Path) -> list[str]:
    """Run `coordlab` with `arguments` in a process, and return the modules that it imported."""
    answer = subprocess.run(
        [sys.executable, "-c", _RUN_AND_PRINT_MODULES, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    # The last line is the program's own; the lines above are those of the command.
    words = answer.stdout.splitlines()[-1].split()
    assert words[:3] == ["exit", "0", "modules"], answer.stdout + answer.stderr
    return words[3:]


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["--help", "--version", "list"])
def test_commands_that_list_import_nothing_heavy(argument: str, tmp_path: Path) -> None:
    """A command that only lists something imports no package of HEAVY.

    Such an import would take longer than all the rest of the command.
    """
    modules = imported_by(argument, folder=tmp_path)
    assert [name for name in HEAVY if name in modules] == []


@pytest.mark.slow
def test_help_imports_no_command(tmp_path: Path) -> None:
    """The help shows a summary of each command, but imports none of them.

    To import all commands would take a second. So the table SUMMARIES has their summaries.
    """
    modules = imported_by("--help", folder=tmp_path)
    assert [name for name in modules if name.startswith("coordlab.commands")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_of_a_command_is_the_first_sentence_of_its_help(name: str) -> None:
    """SUMMARIES repeats texts of the commands, so they must be kept equal."""
    assert list(SUMMARIES) == list(COMMANDS)
    assert SUMMARIES[name] == load_command(name).get_short_help_str(limit=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["up", "inject", "heal", "status", "down"])
def test_commands_of_a_standing_cluster_import_nothing_heavy(command: str, tmp_path: Path) -> None:
    """`up` starts a cluster that runs until `down`. The other commands act on this cluster.

    These commands should act without a delay. Only `up` needs `cluster.broker`, the code of the
    brokers, and `chaos.run`, the code that conducts experiments.
    """
    modules = imported_by(command, "--help", folder=tmp_path)
    assert [name for name in HEAVY if name in modules] == []
    if command != "up":
        only_for_up = ("cluster.broker", "chaos.run")
        assert [name for name in modules if name.startswith(only_for_up)] == []
