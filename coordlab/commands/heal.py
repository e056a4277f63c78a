"""`heal`: undoes faults in a cluster that `up` has started.

The request goes to the process of `up`. This process heals the faults, and its answer lists them.
"""

from pathlib import Path

import click

from chaos.standing.messages import HealAnswer, HealRequest
from coordlab.options import with_examples
from coordlab.standing_options import (
    EXIT_CODES_OF_REQUESTS,
    ask_cluster,
    handles_refusal,
    name_option,
    runs_of_cluster_option,
)


@click.command(
    "heal",
    cls=with_examples("heal", "heal crash-0", "heal --all --name lab"),
    epilog=EXIT_CODES_OF_REQUESTS,
)
@click.argument("fault_id", metavar="[FAULT-ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every fault that is in force.")
@name_option
@runs_of_cluster_option
@handles_refusal
def heal_command(fault_id: str | None, everything: bool, name: str | None, runs: Path) -> int:
    """Undo faults of a cluster that is up: one by its id, all, or the only one in force."""
    if fault_id is not None and everything:
        raise click.UsageError("expected one of FAULT-ID and --all, got both")
    request = HealRequest(fault_id=fault_id, everything=everything)
    answer = ask_cluster(runs, name, request, HealAnswer)
    for fault in answer.faults:
        note = "" if fault.note is None else f": {fault.note}"
        click.echo(f"{fault.fault_id}: {fault.fault} of {fault.target} is healed{note}")
    if not answer.faults:
        click.echo("nothing is in force")
    return 0
