"""Options and arguments that several commands share, and the runs that they name.

A command that passes its options to other functions declares them as fields of a dataclass, with
their types. `as_one` builds the dataclass from the values that click (the library for command
lines) has converted.

A run's name is its path below the folder of runs. A PastRun is the directory of a run that is over
or in progress.
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
"""Name of the space that comes with coordlab. A space is a file from which `explore` draws an
experiment for each seed."""
Command = TypeVar("Command", bound=Callable[..., Any])
"""The type of the function that a click option decorates."""

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
    """Return a click command class whose help ends with examples: command lines to paste."""

    class CommandWithExamples(click.Command):
        """A command whose help ends with examples."""

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Write the examples, unwrapped, and then the command's own epilog."""
            _write_examples(formatter, examples)
            super().format_epilog(ctx, formatter)

    return CommandWithExamples


def group_with_examples(*examples: str) -> type[click.Group]:
    """Return a click group class whose help ends with examples, as `with_examples` does."""

    class GroupWithExamples(click.Group):
        """A group of commands whose help ends with examples."""

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Write the examples, unwrapped, and then the group's own epilog."""
            _write_examples(formatter, examples)
            super().format_epilog(ctx, formatter)

    return GroupWithExamples


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write a section with one line for each example.

    A line begins with the program as the user has called it, so that it can be pasted.
    """
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{' ' * formatter.current_indent}{called_as()} {example}\n")


def space_option(drawn: str = "a seed") -> Callable[[Command], Command]:
    """Return the option `--space`; `drawn`: what is drawn from the space, for its help text."""
    return click.option(
        "--space",
        default=DEFAULT_SPACE,
        show_default=True,
        metavar="NAME|FILE",
        help=f"The space that {drawn} is drawn from.",
    )


def junit_option(help_end: str) -> Callable[[Command], Command]:
    """Return the option `--junit`, which names a file to write.

    `help_end`: the end of the sentence "Write JUnit XML for CI" in the help text. It begins with a
    blank or a comma.
    """
    return click.option(
        "--junit",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Write JUnit XML for CI{help_end}.",
    )


def json_option(contents: str) -> Callable[[Command], Command]:
    """Return the option `--json`. `contents`: the keys of the document, for the help text."""
    return click.option(
        "--json", is_flag=True, help=f"Print one JSON document instead: {contents}."
    )


def as_one(
    options: type[Any], name: str = "options"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator, which replaces many arguments of a command by one.

    Click calls the decorated command with one argument for each option. The decorator makes an
    object of the dataclass `options` from the arguments that are its fields. The command gets this
    object as its argument `name`, and all other arguments unchanged.
    """
    fields = [field.name for field in dataclasses.fields(options)]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_options(**values: Any) -> int:  # noqa: ANN401 - as click has converted them
            built = options(**{field: values.pop(field) for field in fields})
            return command(**{name: built}, **values)

        return with_options

    return decorate


def named_runs(names: Sequence[Path], root: Path) -> tuple[PastRun, ...]:
    """Return the runs of `names`, in that order; without names, the latest run in `root`.

    Raises: NotARun if a name has no run, or if `root` has none.
    """
    if not names:
        return (latest_run(root),)
    # Two names can lead to one run (its directory, and a link to it); the run counts once.
    by_path = {past.path.resolve(): past for name in names for past in find_runs(name, root)}
    return tuple(by_path.values())


def find_runs(name: Path, root: Path) -> tuple[PastRun, ...]:
    """Return the run in directory `name`, or the run in `root` that `list` shows as `name`.

    The runs of one `run --seeds` have names with the same beginning; this beginning gives all of
    these runs. The directory of an experiment gives the experiment's latest run.

    Raises: NotARun if there is no such run; the message has the most similar known name.
    """
    # `name` can be a path from the working directory. If there is no such run, it can be the name
    # of a run, which is a path below `root`.
    for path in (name, root / name):
        if path.is_dir():
            return (open_run(path),)
        # `run --seeds` writes the directories PATH-seed-1, PATH-seed-2 and so on.
        directories = seed_directories(path)
        if directories:
            return tuple(open_run(directory) for directory in directories)
    # A user may write a run's name, or its path.
    known = [*map(str, run_names(root)), *(str(root / run) for run in run_names(root))]
    near = near_miss(str(name), known)
    raise NotARun(
        f"{name} is no directory and no run in {root}; "
        + (f"did you mean `{near}`? " if near else "")
        + f"`{called_as()} list --runs {root}` shows them"
    )


def find_run(name: Path, root: Path) -> PastRun:
    """Return the only run of `name`.

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
