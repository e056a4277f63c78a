"""`init`: a new experiment file, with comments, that runs as it is."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from chaos.experiment.json_schema import FILE_NAME
from chaos.experiment.loader import find_experiment
from coordlab.commands.init.experiment_template import experiment_text
from coordlab.own_packages import package_root

DEFAULT_NAME = "my_experiment"
FOLDER = Path("experiments")
"""Where names are looked up first."""
_SUFFIXES = (".yaml", ".yml")
_NAME_LINE = re.compile(r"^name:.*$", re.MULTILINE)
_SCHEMA_LINE = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written: `name` is the experiment's, `run_as` what `run` takes for it."""

    path: Path
    name: str
    run_as: str


def new_file(name_or_path: str) -> NewFile:
    """Return where an experiment of this name is to be written.

    A path is taken as it is. A name goes to `experiments/` if there is such a folder, where `run`
    finds it by name, or to this folder.
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
    """Return a commented file whose plan shows `fault`."""
    return experiment_text(new.name, fault, run_as=new.run_as, schema=schema_as_seen_from(new.path))


def text_from(new: NewFile, source: str) -> str:
    """Return the file of another experiment under a new name.

    Raises: ExperimentError if there is none.
    """
    text = _SCHEMA_LINE.sub("", find_experiment(source).read_text(encoding="utf-8"))
    named = _NAME_LINE.sub(f"name: {new.name}", text, count=1)
    schema = schema_as_seen_from(new.path)
    return named if schema is None else f"# yaml-language-server: $schema={schema}\n{named}"


def write_new(new: NewFile, text: str, *, force: bool) -> None:
    """Write a file, over an older one only by `force`.

    Raises: FileExistsError; OSError if it cannot be written.
    """
    folder = new.path.parent
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    folder.mkdir(parents=True, exist_ok=True)
    with new.path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)


def published_schema() -> Path | None:
    """Return the JSON Schema beside this code: in the checkout, or where it was installed."""
    for path in (
        package_root() / "docs" / FILE_NAME,
        Path(sys.prefix) / "share" / "coordlab" / FILE_NAME,
    ):
        if path.is_file():
            return path
    return None


def schema_as_seen_from(file: Path) -> str | None:
    """Return the path by which an editor finds the schema from `file`; None if there is none.

    Relative where both lie in one checkout, so that the file can be committed.
    """
    schema = published_schema()
    if schema is None:
        return None
    folder = file.resolve().parent
    if folder.is_relative_to(package_root()) and schema.is_relative_to(package_root()):
        return os.path.relpath(schema, folder)
    return str(schema)
