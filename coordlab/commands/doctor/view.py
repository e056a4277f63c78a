"""How `coordlab doctor` prints its checks."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordlab.commands.doctor.checks import Check
from coordlab.console import print_lines


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print one row a check, then what is missing and how to get it, then what is worth knowing."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found")
    for check in checks:
        table.add_row(_mark(check), check.name, Text(check.found))
    console.print(table)
    missing = [check for check in checks if not check.ok]
    for check in missing:
        console.print()
        print_lines(console, [f"{check.name}: needed for {check.needed_for}."], style="bold")
        print_lines(console, (f"  {line}" for line in check.advice.splitlines()))
        if check.without:
            print_lines(console, [f"  Without it: {check.without}."])
    notes = [check for check in checks if check.ok and check.advice]
    if notes:
        console.print()
        print_lines(console, (f"{check.name}: {check.advice}." for check in notes), style="dim")


def _mark(check: Check) -> Text:
    if not check.ok:
        return Text("missing", style="bold red")
    return Text("note", style="yellow") if check.advice else Text("ok", style="green")
