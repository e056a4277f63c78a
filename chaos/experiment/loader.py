"""Loader: finds experiment files, reads them, and reports all problems of a file together.

`load_experiment` goes through these steps:

1. Read the YAML (`yaml_document`). Each value becomes an Item, which keeps the line of the value,
   so that messages can name this line.
2. Apply the overrides of the command line, `--var key=value` (`overrides`).
3. Check the shape (`schema_errors`): all keys must be known, and all values of the right types.
4. Check the meaning (`rules`): values must not contradict each other.

This module only reads files. It does not start a cluster.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from chaos.experiment.notes import notes_of
from chaos.experiment.overrides import apply_overrides
from chaos.experiment.problems import MAX_LISTED, ExperimentError, Problem, in_order, near_miss
from chaos.experiment.rules.all_rules import errors, warnings
from chaos.experiment.schema_errors import shape_problems
from chaos.experiment.shape_repair import repair
from chaos.experiment.struct_walk import resolve_path
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import Item, item_of, read_document
from cluster.checkout import PACKAGE_ROOT

EXPERIMENTS = "experiments"
"""Name of the folder with experiments. The current directory may have one, and so does coordlab."""
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """An experiment that can be run, with the path of its file, and the warnings about the file."""

    experiment: Experiment
    path: Path
    warnings: tuple[Problem, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about the experiment's defaults that a reader of a run's figures must know."""
        return notes_of(self.experiment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """An experiment that users can run by its name, which is its file's name without the suffix.

    `problem` is the reason why the experiment cannot be loaded; None if it can be loaded.
    """

    name: str
    path: Path
    question: str = ""
    problem: str | None = None


def load_experiment(name_or_path: str, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """Return the experiment with this name, or of the file at this path, changed by `overrides`.

    Each override has the form `key=value`, in which the key is a dotted path into the file.

    Raises: ExperimentError with all problems.
    """
    path = find_experiment(name_or_path)
    file = path_from_here(path)
    root = read_document(path, file)
    try:
        experiment = experiment_in(root, file, overrides)
    except ExperimentError as error:
        # The shape is wrong, or an override could not be applied. `root` has the overrides that
        # could be applied.
        semantic_errors = _semantic_errors_despite_shape(root, file)
        raise ExperimentError(in_order([*error.problems, *semantic_errors])) from error
    problems = placed(errors(experiment), root, file)
    if problems:
        raise ExperimentError(problems)
    return LoadedExperiment(
        experiment=experiment,
        path=path,
        warnings=tuple(placed(warnings(experiment), root, file)),
    )


def experiment_in(root: Item, file: str, overrides: Sequence[str] = ()) -> Experiment:
    """Apply the overrides to a document and return its experiment (steps 2 and 3 above).

    The meaning of the values is not checked.

    Raises: ExperimentError with all overrides and places that are wrong.
    """
    problems = apply_overrides(root, overrides)
    problems += [
        # A value of the file has a line. So a problem without a line is about an override.
        replace(problem, file="--var") if problem.line is None else problem
        for problem in shape_problems(root, Experiment, file)
    ]
    if problems:
        raise ExperimentError(in_order(problems))
    inherit_settings(root)
    return msgspec.convert(root.plain(), Experiment)


def _semantic_errors_despite_shape(root: Item, file: str) -> list[Problem]:
    """Return the errors of meaning (step 4) in a document whose shape is wrong (step 3).

    With these errors a user sees all errors together, and need not correct the shape first. For the
    check, the wrong places are repaired in a copy of the document. Only the errors that do not
    depend on repaired places are returned.
    """
    repaired = repair(root.plain(), Experiment)
    if repaired is None:
        return []
    document = item_of(repaired.document)
    inherit_settings(document)
    problems = errors(msgspec.convert(document.plain(), Experiment))
    return placed((problem for problem in problems if repaired.judges(problem)), root, file)


def search_path(folder: str = EXPERIMENTS) -> tuple[Path, ...]:
    """Return the folders with this name in which experiments are looked up, the nearest first."""
    return (
        Path.cwd() / folder,
        PACKAGE_ROOT / folder,  # in a checkout of the repository
        Path(sys.prefix) / "share" / "coordlab" / folder,  # in an installed package
    )


def list_experiments() -> list[ListedExperiment]:
    """Return all experiments that have a name, in order of names."""
    listed = []
    for name, path in sorted(files_by_name().items()):
        try:
            question = load_experiment(str(path)).experiment.question.strip()
        except ExperimentError as error:
            listed.append(ListedExperiment(name=name, path=path, problem=str(error)))
        else:
            listed.append(ListedExperiment(name=name, path=path, question=question))
    return listed


def find_experiment(name_or_path: str) -> Path:
    """Return the path of an experiment's file. Raises: ExperimentError if there is none."""
    return find_file(name_or_path, EXPERIMENTS, "experiment")


def find_file(name_or_path: str, folder: str, what: str) -> Path:
    """Return the path of a file that a user has named.

    If `name_or_path` is a path, the result is this path. If it is a name, the result is the path of
    the file with this name in one of the folders of `search_path(folder)`. `what` is a word for the
    file in messages.

    Raises: ExperimentError if there is no such file. The error names a file that may be meant.
    """
    looks_like_path = name_or_path.endswith(_SUFFIXES) or "/" in name_or_path
    if looks_like_path:
        path = Path(name_or_path)
        if path.is_file():
            return path
        raise ExperimentError([_no_file(name_or_path, path, files_by_name(folder))])
    known = files_by_name(folder)
    if name_or_path in known:
        return known[name_or_path]

    # A file in the current directory itself is found only by its name with the suffix. Perhaps the
    # user has forgotten the suffix.
    same_stem_here = [path.name for path in _files(Path.cwd()) if path.stem == name_or_path]
    raise ExperimentError(
        [
            Problem(
                file=name_or_path,
                line=None,
                path="",
                message=f"there is no {what} of this name",
                expected="a file, or one of "
                + (", ".join(f"`{name}`" for name in sorted(known)) or "none: none is installed"),
                near_miss=same_stem_here[0]
                if same_stem_here
                else near_miss(name_or_path, sorted(known)),
            )
        ]
    )


def _no_file(written: str, path: Path, known: Collection[str]) -> Problem:
    """Return the Problem of a path at which there is no file.

    The Problem suggests a known name, or a file in the same folder with a similar name. `written`
    is the path as the user has written it.
    """
    if path.is_dir():
        inside = ", ".join(f"`{file}`" for file in _files(path)[:MAX_LISTED])
        expected = f"a file, such as {inside}" if inside else "a file"
        return Problem(
            file=written, line=None, path="", message="is a directory", expected=expected
        )
    near = near_miss(path.stem, [other.stem for other in _files(path.parent)])
    suggestion = None if near is None else str(path.with_name(near + (path.suffix or ".yaml")))
    # A known name is the better suggestion. The user has probably added the suffix to this name.
    if path.stem in known:
        suggestion = path.stem
    return Problem(
        file=written, line=None, path="", message="there is no such file", near_miss=suggestion
    )


def inherit_settings(root: Item) -> None:
    """Give late members the settings of their group, unless they have settings of their own.

    Late members join their group during the run, and may have a `config` of their own. The settings
    are inherited in the document, because a struct does not know whether a value was written in the
    file or is the default.
    """
    groups = root.child("groups")
    for group in groups.children():
        config = group.child("config")
        for late in group.child("late_members").children():
            late_config = late.child("config")
            # If late members have no `config` of their own, they have all settings of the group.
            # `GroupDefinition.settings_of_members` takes care of this.
            if not isinstance(config.value, dict) or not isinstance(late_config.value, dict):
                continue
            for key, item in config.value.items():
                late_config.value.setdefault(key, item)


def files_by_name(folder: str = EXPERIMENTS) -> dict[str, Path]:
    """Return the files in the folders of `search_path`, by their names without the suffix."""
    by_name: dict[str, Path] = {}
    for place in search_path(folder):
        for path in _files(place):
            by_name.setdefault(path.stem, path)  # the nearest folder wins
    return by_name


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def path_from_here(path: Path) -> str:
    """Return a path as messages show it.

    If the file is below the current directory, the path is relative to this directory.
    """
    resolved = path.resolve()
    return (
        str(resolved.relative_to(Path.cwd())) if resolved.is_relative_to(Path.cwd()) else str(path)
    )


def placed(
    problems: Iterable[Problem], root: Item, file: str, shape: type[msgspec.Struct] = Experiment
) -> list[Problem]:
    """Return the problems with their files and lines, sorted by line.

    The line is found by the path of the problem. If the value at this path was set by an override,
    it has no line, and the problem names `--var` instead of the file. `shape` is the struct of the
    file.
    """
    with_lines = []
    for problem in problems:
        line, is_overridden = _line_of(problem.path, root, shape)
        with_lines.append(replace(problem, file="--var" if is_overridden else file, line=line))
    return in_order(with_lines)


def _line_of(path: str, root: Item, shape: type[msgspec.Struct]) -> tuple[int | None, bool]:
    """Return the line of the value at `path`, and True if the value was set by `--var`.

    If the document has no value at the path (for example, a key is missing), return the line of the
    innermost mapping or list that the path enters.
    """
    steps = resolve_path(path, root, shape)  # a Problem if the path leads nowhere
    item, line = root, root.line
    for step in steps if isinstance(steps, list) else []:
        if isinstance(item.value, dict) and step in item.value:
            line = item.key_lines.get(str(step), item.line)
            item = item.value[str(step)]
        elif isinstance(item.value, list) and isinstance(step, int):
            item = item.value[step]
            line = item.line
        else:
            break
        if line is None:  # only a value from an override has no line
            return None, True
    return line, False
