"""`list`: the experiments that have a name, and past runs."""

from pathlib import Path

import click
from rich.console import Console

from chaos.experiment.loader import list_experiments
from coordlab.commands.list.past_runs import find_past_runs
from coordlab.commands.list.past_runs_view import listing_document, print_listing
from coordlab.options import (
    json_option,
    print_document,
    runs_option,
    with_examples,
)
from results_schema.results import EXIT_PASS

DEFAULT_LIMIT = 20


@click.command(
    "list",
    cls=with_examples("list", "list --limit 0 --runs /data/runs", "list --json"),
)
@runs_option
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Show this many of the newest runs; 0 shows all.",
)
@json_option("experiments, runs, runs_total, unreadable")
def list_command(runs: Path, limit: int, json: bool) -> int:
    """List the experiments that can be run by name, and past runs, the newest last.

    A run that was analysed is shown with its longest commit gap: how long a member went without an
    acknowledged commit after a fault.
    """
    console = Console()
    experiments = list_experiments()
    past = find_past_runs(runs, limit=limit or None)
    if json:
        print_document(console, listing_document(experiments, past))
    else:
        print_listing(console, experiments, past, runs)
    return EXIT_PASS
