"""`init`: writes a commented experiment file, which runs without changes.

The new file is made from templates/experiment.yaml, with a plan from templates/faults.yaml; or it
is a copy of another experiment's file. A plan is the list of faults of an experiment.
"""

import os
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import click
import msgspec
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.markup import escape

from chaos.experiment.json_schema import FILE_NAME
from chaos.experiment.loader import find_experiment, load_experiment
from chaos.experiment.structs import Name
from chaos.faults.registry import FAULT_KINDS
from coordlab.options import with_examples
from coordlab.own_packages import package_root
from coordlab.parameters import OneOf
from coordlab.program import called_as
from results_schema.results import EXIT_PASS

DEFAULT_NAME = "my_experiment"
DEFAULT_FAULT = "crash"
NAME_PATTERN = re.compile(msgspec.json.schema(Name)["pattern"])
"""The pattern of an experiment's name, from the type that checks names in experiment files."""
FOLDER = Path("experiments")
"""Folder in which `run NAME` looks first for the file of the experiment."""
_PACKAGE = "coordlab.commands.init"
_SUFFIXES = (".yaml", ".yml")
_NAME_LINE = re.compile(r"^name:.*$", re.MULTILINE)
"""The line of an experiment file that has the experiment's name."""
_SCHEMA_LINE = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)
"""The comment in an experiment file by which editors find the JSON Schema of such files."""


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
    type=OneOf(tuple(FAULT_KINDS)),
    metavar="FAULT",
    help=f"Kind of fault in the plan: {', '.join(FAULT_KINDS)}.  [default: {DEFAULT_FAULT}]",
)
@click.option(
    "--from",
    "source",
    metavar="EXPERIMENT",
    help="Copy this experiment instead: a name that `list` shows, or a file.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init_command(name: str, fault: str | None, source: str | None, force: bool) -> int:
    """Write a commented experiment file, which runs without changes.

    NAME is a path, or a name: the file is then `experiments/NAME.yaml` if there is a folder
    `experiments`, else `NAME.yaml`.
    """
    if fault is not None and source is not None:
        raise click.BadParameter(
            f"a copy of `{source}` has its own plan; expected one of the two, got both",
            param_hint="`--fault` and `--from`",
        )
    new = new_file(name)
    # The pattern begins with `^` and ends with `$`, so `search` compares the whole name.
    if NAME_PATTERN.search(new.name) is None:
        raise click.BadParameter(
            f"expected letters, digits, `-` and `_`: it becomes the name of a folder, got "
            f"`{new.name}`",
            param_hint="`NAME`",
        )
    if source is not None:
        load_experiment(source)  # raises ExperimentError if the file to copy has errors
    text = (
        text_with_fault(new, fault or DEFAULT_FAULT) if source is None else text_from(new, source)
    )
    try:
        write_new(new, text, force=force)
    except FileExistsError as error:
        raise click.BadParameter(
            f"{new.path} exists already; --force overwrites it", param_hint="`NAME`"
        ) from error
    except OSError as error:
        raise click.BadParameter(
            f"{new.path} cannot be written: {error}", param_hint="`NAME`"
        ) from error
    # `init` promises that the written file runs without changes. So this raises an error if not.
    load_experiment(str(new.path))
    console = Console()
    console.print(f"wrote {escape(str(new.path))}; next:", highlight=False, soft_wrap=True)
    for line in (
        f"edit it, then   {called_as()} validate {new.run_as}",
        f"virtual time:   {called_as()} run {new.run_as} --runtime virtual --seed 1",
        f"on Ray:         {called_as()} run {new.run_as}",
    ):
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    return EXIT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written.

    - `name`: the experiment's name.
    - `run_as`: the argument with which the command `run` plays the file.
    """

    path: Path
    name: str
    run_as: str


def new_file(name_or_path: str) -> NewFile:
    """Return the file to write for a name or a path.

    A name's file is in `experiments/` if there is such a folder, because `run` finds files there by
    their names; otherwise it is in the current folder.
    """
    if name_or_path.endswith(_SUFFIXES) or "/" in name_or_path:
        path = Path(name_or_path)
        if path.suffix not in _SUFFIXES:
            path = path.with_name(f"{path.name}.yaml")
        by_name = path.parent == FOLDER
        return NewFile(path=path, name=path.stem, run_as=path.stem if by_name else str(path))
    if FOLDER.is_dir():
        return NewFile(path=FOLDER / f"{name_or_path}.yaml", name=name_or_path, run_as=name_or_path)
    path = Path(f"{name_or_path}.yaml")
    return NewFile(path=path, name=name_or_path, run_as=str(path))


def text_with_fault(new: NewFile, fault: str) -> str:
    """Return the text of a commented file whose plan has the fault `fault`."""
    template = Environment(
        loader=PackageLoader(_PACKAGE),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the text is YAML, not HTML
    ).get_template("experiment.yaml")
    schema = schema_as_seen_from(new.path)
    return template.render(name=new.name, run_as=new.run_as, schema=schema, **fault_plans()[fault])


def fault_plans() -> dict[str, dict[str, str]]:
    """Return the texts for each kind of fault: `question`, `expect` and `faults`.

    Some kinds also have `before` (faults that must come first) or `topics` (additional topics of
    the file). `before` and `faults` are lines of YAML with entries of a list; `topics` has entries
    of a mapping.
    """
    text = (files(_PACKAGE) / "templates" / "faults.yaml").read_text("utf-8")
    plans: dict[str, dict[str, str]] = yaml.safe_load(text)["plans"]
    return plans


def text_from(new: NewFile, source: str) -> str:
    """Return the text of another experiment's file under the new name.

    Raises: ExperimentError if there is no such experiment.
    """
    # The path to the schema may be relative to the folder of the other file.
    text = _SCHEMA_LINE.sub("", find_experiment(source).read_text(encoding="utf-8"))
    named = _NAME_LINE.sub(f"name: {new.name}", text, count=1)
    schema = schema_as_seen_from(new.path)
    return named if schema is None else f"# yaml-language-server: $schema={schema}\n{named}"


def write_new(new: NewFile, text: str, *, force: bool) -> None:
    """Write a file; overwrite an existing one only with `force`.

    Raises: FileExistsError if the file exists and `force` is False; OSError if the file cannot be
    written.
    """
    folder = new.path.parent
    # Without this check `mkdir` would raise FileExistsError, which callers take to mean that the
    # new file exists.
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    folder.mkdir(parents=True, exist_ok=True)
    with new.path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)


def published_schema() -> Path | None:
    """Return the path of the JSON Schema, in the checkout or the installation; None if missing."""
    for path in (
        package_root() / "docs" / FILE_NAME,
        Path(sys.prefix) / "share" / "coordlab" / FILE_NAME,
    ):
        if path.is_file():
            return path
    return None


def schema_as_seen_from(file: Path) -> str | None:
    """Return the path of the schema for a comment in `file`, by which an editor finds it.

    The path is relative if both are in the same checkout, so that the file can be committed. It is
    None if there is no schema.
    """
    schema = published_schema()
    if schema is None:
        return None
    folder = file.resolve().parent
    if folder.is_relative_to(package_root()) and schema.is_relative_to(package_root()):
        return os.path.relpath(schema, folder)
    return str(schema)
