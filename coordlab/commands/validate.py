"""`validate`: prints errors, warnings and notes about experiment files.

A Problem is an error or a warning about one place in a file. A note is a fact that matters for the
figures of a run.
"""

from dataclasses import dataclass

import click
from rich.console import Console
from rich.markup import escape

from chaos.experiment.loader import load_experiment, path_from_here
from chaos.experiment.problems import ExperimentError, Problem
from coordlab.console import print_document
from coordlab.options import json_option, var_option, with_examples
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class _ValidatedFile:
    """One file, as `--json` prints it.

    - `ok`: the file has no errors.
    - `name`: the experiment's name; None if the file has errors.
    - `problems`: the errors.
    """

    file: str
    ok: bool
    name: str | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


@click.command(
    "validate",
    cls=with_examples(
        "validate experiments/*.yaml",
        "validate coordinator_crash --var cluster.brokers=1",
    ),
)
@click.argument("experiments", metavar="EXPERIMENT...", nargs=-1, required=True)
@var_option
@json_option("experiments (file, ok, name, problems, warnings, notes)")
def validate_command(experiments: tuple[str, ...], var: tuple[str, ...], json: bool) -> int:
    """Check experiment files without starting anything; list their errors, and warnings.

    An error is printed with its line, the expected value, the given value and a suggestion; exit
    code 254. A warning is about a setting that Kafka accepts but that is unwise; exit code 0. A
    note explains a fact that matters for the figures of a run.
    """
    files = tuple(_validate(name, var) for name in experiments)
    console = Console()
    if json:
        # The document has the errors, so no exception is raised here, which would print them again.
        print_document(console, {"experiments": files})
        return EXIT_PASS if all(file.ok for file in files) else EXIT_BAD_ARGUMENTS
    for file in files:
        _print(console, file)
    problems = [problem for file in files for problem in file.problems]
    # `coordlab.errors` prints the problems of this exception, and returns the exit code.
    if problems:
        raise ExperimentError(problems)
    return EXIT_PASS


def _validate(name: str, var: tuple[str, ...]) -> _ValidatedFile:
    """Check one file; `var` has the settings that `--var` replaces."""
    try:
        loaded = load_experiment(name, var)
    except ExperimentError as error:
        return _ValidatedFile(file=name, ok=False, name=None, problems=error.problems)
    return _ValidatedFile(
        file=path_from_here(loaded.path),
        ok=True,
        name=loaded.experiment.name,
        warnings=loaded.warnings,
        notes=loaded.notes,
    )


def _print(console: Console, file: _ValidatedFile) -> None:
    """Print the warnings, the notes and `ok`. The errors of all files are printed at the end."""
    for warning in file.warnings:
        console.print(f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True)
    for note in file.notes:
        console.print(f"[cyan]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    if file.ok:
        line = f"[green]ok[/] {escape(file.file)}: {file.name}"
        console.print(line, highlight=False, soft_wrap=True)
