"""How `coordlab doctor` prints its checks."""

from rich.console import Console
from rich.table import Table

from coordlab.doctor import Check


def print_checks(console: Console, checks: tuple[Check, ...]) -> None:
    """Print one row a check, and below it how to get what is missing."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("check")
    table.add_column("found")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]missing[/]"
        table.add_row(mark, check.name, check.found)
    console.print(table)
    for check in checks:
        if not check.ok:
            console.print(f"[bold]{check.name}[/] is needed for {check.needed_for}: {check.advice}")
        elif check.advice:
            console.print(f"[bold]{check.name}[/]: {check.advice}")
