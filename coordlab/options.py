"""Options that several commands share, and the search for the runs that a user names.

- Options such as `runs_option` are decorators, which a command puts above its function. If the help
  text of an option differs from command to command, a function returns the decorator:
  `json_option("runs, figures")`.
- `gather_into` passes many options to a command as one object.
- `find_runs` and `named_runs` find the run directories that the user means.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from chaos.experiment.problems import near_miss
from chaos.results.run_directory import (
    DEFAULT_ROOT,
    NotARun,
    PastRun,
    list_runs,
    open_run,
    run_names,
)
from coordlab.program import called_as
from coordlab.seed_names import seed_directories

DEFAULT_SPACE = "standard"
"""The name of the space that is used by default.

A space is a file from which an experiment can be drawn: each seed draws another experiment.
"""
Command = TypeVar("Command", bound=Callable[..., Any])
"""The type of a function that an option decorates."""

runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_ROOT,
    show_default=True,
    help="Folder of the run directories.",
)
var_option = click.option(
    "--var",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change one value of the file: a dotted path into it, e.g. `run.after_faults=5s`.",
)
master_option = click.option(
    "--master", help="Spark master, e.g. `spark://host:7077`; default: Spark on this machine."
)
ray_address_option = click.option(
    "--ray-address",
    default="local",
    show_default=True,
    help="A running Ray cluster, e.g. `host:6379`; `local` starts one here.",
)
force_option = click.option(
    "--force", is_flag=True, help="Play the schedule although other code or Python wrote its file."
)
past_runs_argument = click.argument(
    "run_directories", metavar="[RUN]...", nargs=-1, type=click.Path(path_type=Path)
)


def with_examples(*examples: str) -> type[click.Command]:
    """Return a class of click commands whose help ends with these examples.

    `cls=with_examples("list --json")` adds the line `coordlab list --json` to the help.
    """

    class CommandWithExamples(click.Command):
        """A command whose help ends with examples."""

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Write the examples, and then the command's own epilog."""
            _write_examples(formatter, examples)
            super().format_epilog(ctx, formatter)

    return CommandWithExamples


def group_with_examples(*examples: str) -> type[click.Group]:
    """Return a class of click groups whose help ends with these examples.

    `with_examples` does the same for single commands.
    """

    class GroupWithExamples(click.Group):
        """A group of commands whose help ends with examples."""

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Write the examples, and then the group's own epilog."""
            _write_examples(formatter, examples)
            super().format_epilog(ctx, formatter)

    return GroupWithExamples


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the section of examples. Each example is on one line, so that the user can paste it."""
    with formatter.section("Examples"):
        indent = " " * formatter.current_indent
        for example in examples:
            formatter.write(f"{indent}{called_as()} {example}\n")


def space_option(what_is_drawn: str = "a seed") -> Callable[[Command], Command]:
    """Return the option `--space`.

    `what_is_drawn`: what the command draws from the space, for the help text.
    """
    return click.option(
        "--space",
        default=DEFAULT_SPACE,
        show_default=True,
        metavar="NAME|FILE",
        help=f"The space that {what_is_drawn} is drawn from.",
    )


def junit_option(help_end: str) -> Callable[[Command], Command]:
    """Return the option `--junit`, which names a file to write.

    `help_end`: how the sentence "Write JUnit XML for CI..." of the help text ends.
    """
    return click.option(
        "--junit",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Write JUnit XML for CI{help_end}.",
    )


def json_option(contents: str) -> Callable[[Command], Command]:
    """Return the option `--json`. `contents`: what the document has, for the help text."""
    return click.option(
        "--json", is_flag=True, help=f"Print one JSON document instead: {contents}."
    )


def gather_into(
    options: type[Any], name: str = "options"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate a command, so that it gets many options as one argument.

    Click calls a command with one argument for each option. With `@gather_into(RunOptions)`, the
    arguments that are fields of the dataclass RunOptions become one object. The command gets this
    object as its argument `options`, and all other arguments as before.

    `name`: another name of the argument `options`.
    """
    fields = [field.name for field in dataclasses.fields(options)]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_options(**values: Any) -> int:  # noqa: ANN401 - as click has converted them
            gathered = options(**{field: values.pop(field) for field in fields})
            return command(**{name: gathered}, **values)

        return with_options

    return decorate


def named_runs(names: Sequence[Path], root: Path) -> tuple[PastRun, ...]:
    """Return the runs that the user has named, in this order. Without names, return the latest run.

    `root`: the folder of run directories.
    Raises: NotARun if there is no such run.
    """
    if not names:
        return (latest_run(root),)
    # A run counts once, even if the user has named its directory and a link to it.
    by_path = {past.path.resolve(): past for name in names for past in find_runs(name, root)}
    return tuple(by_path.values())


def find_runs(name: Path, root: Path) -> tuple[PastRun, ...]:
    """Return the runs that a user means with `name`. Mostly this is a single run.

    - `runs/fencing/2026-01-31T12-00-00.000Z` is the path of a run directory.
    - `fencing/2026-01-31T12-00-00.000Z` is its path below `root`, as `list` prints it. A
      `run --seeds` makes several directories whose names have a common beginning. If the path is
      such a beginning, it means all these runs.
    - `fencing` is the folder of an experiment, and means the latest run in this folder.

    Raises: NotARun if there is no such run; the message suggests a similar name.
    """
    for path in (name, root / name):
        if path.is_dir():
            return (open_run(path),)
        # The directories of a `run --seeds` are PATH-seed-1, PATH-seed-2 and so on.
        directories = seed_directories(path)
        if directories:
            return tuple(open_run(directory) for directory in directories)
    names = run_names(root)
    known_names = [*map(str, names), *(str(root / run) for run in names)]
    near = near_miss(str(name), known_names)
    suggestion = f"did you mean `{near}`? " if near else ""
    raise NotARun(
        f"{name} is no directory and no run in {root}; {suggestion}"
        f"`{called_as()} list --runs {root}` shows them"
    )


def find_run(name: Path, root: Path) -> PastRun:
    """Return the run that a user means with `name`, which must be a single one.

    Raises: NotARun if there is none, or several.
    """
    runs = find_runs(name, root)
    if len(runs) > 1:
        raise NotARun(f"{name} has {len(runs)} seeds: name one, such as {runs[0].path}")
    return runs[0]


def latest_run(root: Path) -> PastRun:
    """Return the run that began last.

    Raises: NotARun if there is none.
    """
    runs = list(list_runs(root))
    if not runs:
        raise NotARun(f"there is no run in {root}; `{called_as()} run EXPERIMENT` makes one")
    return max(runs, key=lambda past: past.manifest.started_at)
