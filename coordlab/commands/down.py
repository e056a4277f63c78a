"""`down`: ends a cluster that `up` has started, and waits for its verdict.

The request goes to the process of `up`, which answers when it has written the report.
"""

from pathlib import Path

import click

from chaos.standing.messages import DownAnswer, DownRequest
from coordlab.options import with_examples
from coordlab.program import EXIT_CODES_HELP
from coordlab.standing_options import (
    ask_cluster,
    handles_refusal,
    runs_of_cluster_option,
)


@click.command("down", cls=with_examples("down", "down lab"), epilog=EXIT_CODES_HELP)
@click.argument("name", required=False)
@runs_of_cluster_option
@handles_refusal
def down_command(name: str | None, runs: Path) -> int:
    """End a cluster that is up: heal it, judge its trace, write its report, and say the verdict.

    NAME is by default the only cluster that is up, or `lab`. Ctrl-C ends only the waiting.
    """
    answer = ask_cluster(runs, name, DownRequest(), DownAnswer)
    # The verdict of a run that broke off would mean nothing. So the outcome is printed instead.
    click.echo(answer.verdict if answer.outcome == "completed" else answer.outcome)
    for reason in answer.reasons:
        click.echo(f"  {reason}")
    for note in answer.notes:
        click.echo(note)
    click.echo(f"run directory: {answer.run_directory}")
    if answer.report is not None:
        click.echo(f"report: {answer.report}")
    return answer.exit_code
