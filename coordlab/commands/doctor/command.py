"""`doctor`: what this machine lacks for runs and analyses."""

import click
from rich.console import Console

from coordlab.commands.doctor.checks import CHECKS, examine
from coordlab.commands.doctor.machine import Machine
from coordlab.commands.doctor.view import print_checks
from coordlab.console import print_document
from coordlab.options import json_option, with_examples
from coordlab.parameters import OneOf
from results_schema.results import EXIT_PASS


@click.command("doctor", cls=with_examples("doctor", "doctor --only java --only memory"))
@click.option(
    "--only",
    type=OneOf(tuple(CHECKS)),
    multiple=True,
    metavar="CHECK",
    help=f"Only these checks: {', '.join(CHECKS)}.",
)
@json_option("a list of checks (name, found, needed_for, ok, advice, without)")
def doctor_command(only: tuple[str, ...], json: bool) -> int:
    """Say what this machine lacks for runs, analyses and reports, and how to get it.

    Exit code: 0 if nothing is missing, 1 if something is; it says which commands work without.
    """
    checks = examine(Machine(), only)
    console = Console()
    if json:
        print_document(console, checks)
    else:
        print_checks(console, checks)
    return EXIT_PASS if all(check.ok for check in checks) else 1
