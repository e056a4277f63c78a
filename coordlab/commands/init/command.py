"""`init`: writes an experiment file with comments, which a user can run and then change.

The text is made from the template templates/experiment.yaml. The command inserts faults of the kind
that the user wants, which it takes from templates/faults.yaml. With --from it copies another
experiment instead.
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
"""The pattern of experiments' names. In experiment files, the type Name checks the same pattern."""
EXPERIMENTS_FOLDER = Path("experiments")
"""The folder in which `run NAME` looks first for the file NAME.yaml."""
_PACKAGE = "coordlab.commands.init"
_FILE_SUFFIXES = (".yaml", ".yml")
_NAME_LINE = re.compile(r"^name:.*$", re.MULTILINE)
"""Matches the line of an experiment file with the name, such as `name: fencing`."""
_SCHEMA_LINE = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)
"""Matches the comment by which an editor finds the JSON Schema of experiment files."""


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
    # `search` compares the whole name, because the pattern begins with `^` and ends with `$`.
    if NAME_PATTERN.search(new.name) is None:
        raise click.BadParameter(
            f"expected letters, digits, `-` and `_`: it becomes the name of a folder, got "
            f"`{new.name}`",
            param_hint="`NAME`",
        )
    if source is not None:
        load_experiment(source)  # raises ExperimentError if the file to copy has errors
        text = text_from(new, source)
    else:
        text = text_with_fault(new, fault or DEFAULT_FAULT)
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
    # The user has been promised a file that runs. If it does not even load, this raises an error.
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
    """The file to write.

    - `name`: the name of the experiment in the file.
    - `run_as`: the word that the user types after `run` to play the experiment: its name, or the
      path of the file.
    """

    path: Path
    name: str
    run_as: str


def new_file(name_or_path: str) -> NewFile:
    """Return the file to write, for the name or path that the user has given.

    If the user has given a name, the file goes into the folder `experiments`, because `run` finds
    it there by its name. If there is no such folder, the file goes into the current folder.
    """
    if name_or_path.endswith(_FILE_SUFFIXES) or "/" in name_or_path:
        path = Path(name_or_path)
        if path.suffix not in _FILE_SUFFIXES:
            path = path.with_name(f"{path.name}.yaml")
        is_found_by_name = path.parent == EXPERIMENTS_FOLDER
        return NewFile(
            path=path, name=path.stem, run_as=path.stem if is_found_by_name else str(path)
        )
    if EXPERIMENTS_FOLDER.is_dir():
        return NewFile(
            path=EXPERIMENTS_FOLDER / f"{name_or_path}.yaml", name=name_or_path, run_as=name_or_path
        )
    path = Path(f"{name_or_path}.yaml")
    return NewFile(path=path, name=name_or_path, run_as=str(path))


def text_with_fault(new: NewFile, fault: str) -> str:
    """Return the text of an experiment file whose plan has a fault of this kind."""
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
    """Return the texts that the template needs for each kind of fault.

    An example is `{"crash": {"question": ..., "expect": ..., "faults": ...}}`. Some kinds also have
    the key `before`, with faults that must come first, or the key `topics`, with more topics. The
    values of `faults`, `before` and `topics` are lines of YAML.
    """
    text = (files(_PACKAGE) / "templates" / "faults.yaml").read_text("utf-8")
    plans: dict[str, dict[str, str]] = yaml.safe_load(text)["plans"]
    return plans


def text_from(new: NewFile, source: str) -> str:
    """Return the text of another experiment's file, with the new name in it.

    Raises: ExperimentError if there is no such experiment.
    """
    # In the other file, the path to the JSON Schema may be relative. So its comment is replaced.
    text = _SCHEMA_LINE.sub("", find_experiment(source).read_text(encoding="utf-8"))
    text_with_name = _NAME_LINE.sub(f"name: {new.name}", text, count=1)
    schema = schema_as_seen_from(new.path)
    if schema is None:
        return text_with_name
    return f"# yaml-language-server: $schema={schema}\n{text_with_name}"


def write_new(new: NewFile, text: str, *, force: bool) -> None:
    """Write the file. An existing file is overwritten only if `force` is True.

    Raises: FileExistsError if the file exists and `force` is False; OSError if the file cannot be
    written.
    """
    folder = new.path.parent
    # If a file stands in the place of the folder, `mkdir` would raise FileExistsError. Then the
    # caller would advise the user to overwrite it with --force, which is wrong here.
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    folder.mkdir(parents=True, exist_ok=True)
    with new.path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)


def published_schema() -> Path | None:
    """Return the path of the JSON Schema of experiment files; None if it is not on this machine.

    The schema is in the checkout, or in the folder of an installation.
    """
    for path in (
        package_root() / "docs" / FILE_NAME,
        Path(sys.prefix) / "share" / "coordlab" / FILE_NAME,
    ):
        if path.is_file():
            return path
    return None


def schema_as_seen_from(file: Path) -> str | None:
    """Return the path of the JSON Schema for a comment in `file`; None if there is no schema.

    If both the file and the schema are in this checkout, the path is relative, because the file may
    be committed.
    """
    schema = published_schema()
    if schema is None:
        return None
    folder = file.resolve().parent
    if folder.is_relative_to(package_root()) and schema.is_relative_to(package_root()):
        return os.path.relpath(schema, folder)
    return str(schema)
