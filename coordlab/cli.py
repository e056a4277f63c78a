"""The command line: it finds the command that the user calls, and handles its errors.

Some commands import large libraries, such as PySpark. Other commands should not wait for these
libraries. So the module of a command is imported only when this command is called. The help has a
list of all commands, with a sentence about each. Because the help should not import the commands
either, these sentences are repeated here, in SUMMARIES.
"""

from collections.abc import Sequence
from importlib import import_module

import click

from coordlab.program import EXIT_CODES_HELP, called_as
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED, EXIT_PASS

HELP_WIDTH = 100
"""The longest line of a help text."""
COMMANDS = {
    "run": "run.command",
    "explore": "explore.command",
    "replay": "replay.command",
    "diff": "diff",
    "shrink": "shrink",
    "up": "up.command",
    "inject": "inject",
    "heal": "heal",
    "status": "status",
    "down": "down",
    "groups": "groups.command",
    "analyze": "analyze",
    "report": "report",
    "list": "list",
    "init": "init.command",
    "validate": "validate",
    "schema": "schema",
    "conform": "conform",
    "doctor": "doctor.command",
}
"""Command -> its module in `coordlab.commands`. The help lists the commands in this order."""

SUMMARIES = {
    "run": (
        "Run an experiment: start its cluster, break it by the plan, heal it, check its promises."
    ),
    "explore": (
        "Search fault schedules: draw configuration and plan from seeds, run each in virtual time."
    ),
    "replay": "Play a schedule in virtual time again and compare its trace, byte for byte.",
    "diff": "Show the first event in which two runs differ, the events before it, and those after.",
    "shrink": (
        "Make a failing schedule small: fewest faults, fewest nodes, shortest time, "
        "roundest values."
    ),
    "up": (
        "Start a cluster that stays until it is ended, and show it; break it from another terminal."
    ),
    "inject": "Inject a fault into a cluster that is up.",
    "heal": "Undo faults of a cluster that is up: one by its id, all, or the only one in force.",
    "status": "Show a cluster that is up: brokers, controller, groups with their members, faults.",
    "down": (
        "End a cluster that is up: heal it, judge its trace, write its report, and say the verdict."
    ),
    "groups": "List, describe and delete consumer groups, reset and delete their offsets.",
    "analyze": (
        "Compute the tables of finished or interrupted runs with Spark, and print their phases."
    ),
    "report": "Write report.html of runs: one offline page each, and one that compares several.",
    "list": "List the experiments that can be run by name, and past runs, the newest last.",
    "init": "Write a commented experiment file, which runs without changes.",
    "validate": (
        "Check experiment files without starting anything; list their errors, and warnings."
    ),
    "schema": "Print the JSON Schema of experiment files, for editors and other tools.",
    "conform": (
        "Play recordings of real Kafka against this cluster in virtual time, and compare "
        "the answers."
    ),
    "doctor": "List what this machine lacks for runs, analyses and reports, and how to install it.",
}
"""Command -> the first sentence of its help. A test compares these with the commands."""
_WIDTH_OF_MARGINS = 6
"""Number of blanks beside the name and the summary in a line of the list of commands.

Click has the same number in its lists.
"""


class Commands(click.Group):
    """The group of all commands, which imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name; None if there is no such command."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, as click would, but without importing them."""
        width = formatter.width - _WIDTH_OF_MARGINS - max(map(len, COMMANDS))
        rows = []
        for name in COMMANDS:
            # Click shortens a long summary. It needs a command for this, so a stand-in is made.
            stand_in = click.Command(name, help=SUMMARIES[name])
            rows.append((name, stand_in.get_short_help_str(width)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def load_command(name: str) -> click.Command:
    """Import a command, and return its function: `run_command` for `run`."""
    module = import_module(f"coordlab.commands.{COMMANDS[name]}")
    command: click.Command = getattr(module, f"{name}_command")
    return command


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. If an error ends the command, print the error."""
    try:
        # In its standalone mode click would handle errors itself, with exit codes of its own.
        code = app.main(list(arguments), prog_name=called_as(), standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_BAD_ARGUMENTS
    except (click.Abort, KeyboardInterrupt):  # click turns a Ctrl-C into Abort
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        # This module is imported only after an error, because it imports every package of coordlab.
        exit_code: int = import_module("coordlab.errors").print_error(error)
        return exit_code
    # With --help for instance, no command has run, and there is no exit code.
    return code if isinstance(code, int) else EXIT_PASS


@click.group(
    cls=Commands,
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
)
@click.version_option(package_name="coordlab")
def app() -> None:
    """Break a Kafka-style cluster on purpose, and measure what this does to its consumer groups.

    A chaos lab for group coordination. It reads an experiment file, runs a cluster on Ray or in
    virtual time, injects faults, and measures every phase of the failover.
    """
