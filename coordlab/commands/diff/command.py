"""`diff`: the first event in which two runs part."""

import click
from rich.console import Console

from coordlab.commands.diff.execution import DiffOptions, diff
from coordlab.commands.replay.command import space_option
from coordlab.options import json_option, with_examples

_rows = click.IntRange(min=0, max=10_000)


@click.command(
    "diff",
    cls=with_examples(
        "diff findings/fencing-1.yaml --against-passing",
        "diff 4711 4712 --space standard",
        "diff runs/mine/latest runs/mine/2026-01-31T12-00-00.000Z --messages",
    ),
    epilog="Exit codes: 0 equal, 1 they part, 2 no passing run was found, 130 interrupted, 254 bad "
    "arguments or experiment file, 255 internal error.",
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@click.option(
    "--against-passing",
    is_flag=True,
    help="Hold A against the nearest run that passes: the same schedule with a neighbouring "
    "network seed, else with faults left out.",
)
@space_option
@click.option("--messages", is_flag=True, help="Compare messages too, of two run directories.")
@click.option("--before", type=_rows, default=8, show_default=True, help="Rows shown before.")
@click.option("--after", type=_rows, default=8, show_default=True, help="Rows shown behind.")
@json_option("one, other, equal, rows_alike, parts, by_time, story")
def diff_command(
    one: str,
    other: str | None,
    against_passing: bool,
    space: str,
    messages: bool,
    before: int,
    after: int,
    json: bool,
) -> int:
    """Show the first event in which two runs part, what was before, and how each goes on.

    A and B are experiment or replay files and seeds, which are played in virtual time, or run
    directories, which are read. Of two seeds the latencies differ from the first message on: then
    the nodes' stories are compared too, without times.
    """
    if (other is None) != against_passing:
        raise click.UsageError("expected two runs, or one with --against-passing")
    options = DiffOptions(
        one=one,
        other=other,
        space=space,
        messages=messages,
        before=before,
        after=max(after, 1),
        json=json,
    )
    return diff(options, Console())
