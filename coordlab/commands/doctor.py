"""`doctor`: what this machine lacks for runs and analyses."""

import click
import msgspec
from rich.console import Console

from chaos.verdict import EXIT_PASS
from coordlab.commands.options import json_option, print_document
from coordlab.doctor import CHECKS
from coordlab.doctor_view import print_checks
from coordlab.parameters import OneOf


@click.command("doctor")
@click.option(
    "--only",
    type=OneOf(tuple(CHECKS)),
    multiple=True,
    metavar="CHECK",
    help=f"Only these checks: {', '.join(CHECKS)}.",
)
@json_option("a list of checks")
def doctor_command(only: tuple[str, ...], json: bool) -> int:
    """Say what this machine lacks for runs and analyses, and how to get it."""
    checks = tuple(CHECKS[name]() for name in only or CHECKS)
    console = Console()
    if json:
        print_document(console, msgspec.json.encode(checks))
    else:
        print_checks(console, checks)
    return EXIT_PASS if all(check.ok for check in checks) else 1
