"""The command line: which commands there are, and how every error of theirs ends.

A command's module is imported when the command is asked for: what one needs, others need not wait
for.
"""

from collections.abc import Sequence
from importlib import import_module

import click

from coordlab.options import EXIT_CODES_HELP, PROGRAM
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED, EXIT_PASS

HELP_WIDTH = 100
COMMANDS = {
    "run": "run.command",
    "explore": "explore.command",
    "replay": "replay.command",
    "diff": "diff",
    "shrink": "shrink",
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
"""Every command in the order of the help, and the module of coordlab.commands that has it."""


class Commands(click.Group):
    """The commands of COMMANDS, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None if there is none of that name."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None


def load_command(name: str) -> click.Command:
    """Import one of COMMANDS."""
    module = import_module(f"coordlab.commands.{COMMANDS[name]}")
    command: click.Command = getattr(module, f"{name}_command")
    return command


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends here, printed once."""
    try:
        code = app.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_BAD_ARGUMENTS
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        failed_with: int = import_module("coordlab.errors").print_error(error)
        return failed_with
    return code if isinstance(code, int) else EXIT_PASS


@click.group(
    cls=Commands,
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
)
@click.version_option(package_name="coordlab")
def app() -> None:
    """Break a Kafka-style cluster on purpose and see what its consumer groups lived through.

    A chaos lab for group coordination: an experiment file goes in, a cluster runs on Ray or in
    virtual time, faults hit it, and every phase of the failover is measured.
    """
