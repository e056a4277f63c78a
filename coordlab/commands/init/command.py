"""`init`: begin an experiment of one's own."""

import re

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Name
from coordlab.commands.init.experiment_template import FAULT_EXAMPLES
from coordlab.commands.init.new_experiment import (
    DEFAULT_NAME,
    new_file,
    text_from,
    text_with_fault,
    write_new,
)
from coordlab.options import PROGRAM, with_examples
from coordlab.parameters import OneOf
from results_schema.results import EXIT_PASS

DEFAULT_FAULT = "crash"
NAME_PATTERN = re.compile(msgspec.json.schema(Name)["pattern"])


@click.command(
    "init",
    cls=with_examples(
        "init",
        "init slow_links --fault slow",
        "init mine --from split_brain_ownership",
        "init /tmp/mine.yaml --force",
    ),
)
@click.argument("name", default=DEFAULT_NAME)
@click.option(
    "--fault",
    type=OneOf(tuple(FAULT_EXAMPLES)),
    metavar="FAULT",
    help=f"What the plan does: {', '.join(FAULT_EXAMPLES)}.  [default: {DEFAULT_FAULT}]",
)
@click.option(
    "--from",
    "source",
    metavar="EXPERIMENT",
    help="Begin with a copy of this experiment instead: a name that `list` shows, or a file.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
def init_command(name: str, fault: str | None, source: str | None, force: bool) -> int:
    """Write an experiment file with comments that runs as it is.

    NAME becomes `experiments/NAME.yaml` if there is a folder `experiments`, else `NAME.yaml`; or it
    is a path.
    """
    if fault is not None and source is not None:
        raise click.BadParameter(
            f"a copy of `{source}` has its own plan; expected one of the two, got both",
            param_hint="`--fault` and `--from`",
        )
    new = new_file(name)
    if NAME_PATTERN.search(new.name) is None:
        raise click.BadParameter(
            f"expected letters, digits, `-` and `_`: it becomes the name of a folder, got "
            f"`{new.name}`",
            param_hint="`NAME`",
        )
    if source is not None:
        load_experiment(source)
    text = (
        text_with_fault(new, fault or DEFAULT_FAULT) if source is None else text_from(new, source)
    )
    try:
        write_new(new, text, force=force)
    except FileExistsError as error:
        raise click.BadParameter(
            f"{new.path} is there already; --force writes over it", param_hint="`NAME`"
        ) from error
    except OSError as error:
        raise click.BadParameter(
            f"{new.path} cannot be written: {error}", param_hint="`NAME`"
        ) from error
    load_experiment(str(new.path))
    console = Console()
    console.print(f"wrote {escape(str(new.path))}; next:", highlight=False, soft_wrap=True)
    for line in (
        f"edit it, then   {PROGRAM} validate {new.run_as}",
        f"virtual time:   {PROGRAM} run {new.run_as} --runtime virtual --seed 1",
        f"on Ray:         {PROGRAM} run {new.run_as}",
    ):
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    return EXIT_PASS
