"""`validate`: checks experiment files without running them, and prints what is wrong or unwise.

For a file without errors the output may be:

    unwise: mine.yaml:12: cluster.config.min.insync.replicas: ...
    note: members of readers do no work (process_us: 0): ...
    ok mine.yaml: mine
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
    """The result of the check of one file. `--json` prints such results.

    - `ok`: True if the file has no errors; it may have warnings.
    - `name`: the experiment's name; None if the file has errors.
    - `problems`: the errors.
    - `warnings`: settings that Kafka accepts, but that are unwise.
    - `notes`: facts that matter for the figures of a run.
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
        # The errors are in the document. An exception would print them again.
        print_document(console, {"experiments": files})
        return EXIT_PASS if all(file.ok for file in files) else EXIT_BAD_ARGUMENTS
    for file in files:
        _print(console, file)
    problems = [problem for file in files for problem in file.problems]
    # The command line prints the problems of this exception, and exits with its code.
    if problems:
        raise ExperimentError(problems)
    return EXIT_PASS


def _validate(name: str, var: tuple[str, ...]) -> _ValidatedFile:
    """Check one file. `var`: settings of the file that --var replaces."""
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
    """Print the warnings and notes about a file, and `ok` if it has no errors.

    The errors of all files are printed later.
    """
    for warning in file.warnings:
        console.print(f"[yellow]unwise:[/] {escape(str(warning))}", highlight=False, soft_wrap=True)
    for note in file.notes:
        console.print(f"[cyan]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    if file.ok:
        line = f"[green]ok[/] {escape(file.file)}: {file.name}"
        console.print(line, highlight=False, soft_wrap=True)
