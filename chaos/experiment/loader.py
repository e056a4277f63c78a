"""Loader: finds experiment files, reads them, and reports all problems of a file together.

`load_experiment` goes through these steps:

1. Read the YAML. Each value keeps its line (an Item), so that messages can name it
   (`yaml_document`).
2. Apply the overrides of the command line, `--var key=value` (`overrides`).
3. Check the shape: known keys, right types (`schema_errors`).
4. Check the meaning: no values that contradict each other (`rules`).

Nothing is started here.
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
"""Name of the folders with experiments: in the current directory, and of this installation."""
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """An experiment that can be run, its file, and its warnings."""

    experiment: Experiment
    path: Path
    warnings: tuple[Problem, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about the experiment's defaults that a reader of its figures must know."""
        return notes_of(self.experiment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """An experiment that is found by name: the name of its file without the suffix.

    `problem` is the reason why the experiment cannot be loaded; None if it can be loaded.
    """

    name: str
    path: Path
    question: str = ""
    problem: str | None = None


def load_experiment(name_or_path: str, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """Return the experiment of this name, or in this file, changed by `overrides`.

    Each override is `key=value` with a dotted path into the file.
    Raises: ExperimentError with all problems.
    """
    path = find_experiment(name_or_path)
    file = path_from_here(path)
    root = read_document(path, file)
    try:
        experiment = experiment_in(root, file, overrides)
    except ExperimentError as error:
        # `root` already has the overrides that could be applied.
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
    """Return the experiment of a document. Only the document's shape is checked.

    Raises: ExperimentError with all places that have the wrong shape.
    """
    problems = apply_overrides(root, overrides)
    problems += [
        # A value without a line is not from the file, so it came from the command line.
        replace(problem, file="--var") if problem.line is None else problem
        for problem in shape_problems(root, Experiment, file)
    ]
    if problems:
        raise ExperimentError(in_order(problems))
    inherit_settings(root)
    return msgspec.convert(root.plain(), Experiment)


def _semantic_errors_despite_shape(root: Item, file: str) -> list[Problem]:
    """Return the errors of step 4 for a document that has failed step 3.

    So a user sees all errors together, and need not correct the shape first to see the others. For
    this the wrong places are repaired, and only errors that do not depend on them are returned.
    """
    repaired = repair(root.plain(), Experiment)
    if repaired is None:
        return []
    document = item_of(repaired.document)
    inherit_settings(document)
    problems = errors(msgspec.convert(document.plain(), Experiment))
    return placed((problem for problem in problems if repaired.judges(problem)), root, file)


def search_path(folder: str = EXPERIMENTS) -> tuple[Path, ...]:
    """Return the folders of this name in which names are looked up, nearest first."""
    return (
        Path.cwd() / folder,
        PACKAGE_ROOT / folder,  # of a checkout
        Path(sys.prefix) / "share" / "coordlab" / folder,  # of an installed package
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
    """Return the file of an experiment. Raises: ExperimentError, as `find_file` does."""
    return find_file(name_or_path, EXPERIMENTS, "experiment")


def find_file(name_or_path: str, folder: str, what: str) -> Path:
    """Return the file at a path, or the file of this name in a folder of the search path.

    Raises: ExperimentError if there is none, with the name that was probably meant.
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

    # A file in the current directory is found only by its name with the suffix, which a user may
    # forget.
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
    """Return the Problem of a path that is no file, with a known name or a file beside it."""
    if path.is_dir():
        inside = ", ".join(f"`{file}`" for file in _files(path)[:MAX_LISTED])
        expected = f"a file, such as {inside}" if inside else "a file"
        return Problem(
            file=written, line=None, path="", message="is a directory", expected=expected
        )
    near = near_miss(path.stem, [other.stem for other in _files(path.parent)])
    suggestion = None if near is None else str(path.with_name(near + (path.suffix or ".yaml")))
    # A known name comes first, because the user probably added the suffix to a name.
    if path.stem in known:
        suggestion = path.stem
    return Problem(
        file=written, line=None, path="", message="there is no such file", near_miss=suggestion
    )


def inherit_settings(root: Item) -> None:
    """Give late members the settings of their group that they do not set themselves.

    Late members join their group during the run, and may have another `config`. This must be done
    on the document, because a struct does not know whether a value was written or is the default.
    """
    groups = root.child("groups")
    for group in groups.children():
        config = group.child("config")
        for late in group.child("late_members").children():
            late_config = late.child("config")
            # Late members without a section of their own have the group's settings as a whole
            # (`GroupDefinition.settings_of_members`).
            if not isinstance(config.value, dict) or not isinstance(late_config.value, dict):
                continue
            for key, item in config.value.items():
                late_config.value.setdefault(key, item)


def files_by_name(folder: str = EXPERIMENTS) -> dict[str, Path]:
    """Return the files in folders of this name, by their names without suffix."""
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
    """Return a path as messages show it, relative if the file is below the current directory."""
    resolved = path.resolve()
    return (
        str(resolved.relative_to(Path.cwd())) if resolved.is_relative_to(Path.cwd()) else str(path)
    )


def placed(
    problems: Iterable[Problem], root: Item, file: str, shape: type[msgspec.Struct] = Experiment
) -> list[Problem]:
    """Return the problems with the lines of their paths, sorted by line.

    A value that an override set has no line in the file; its problem names `--var` instead.
    `shape` is the struct of the file.
    """
    with_lines = []
    for problem in problems:
        line, is_overridden = _line_of(problem.path, root, shape)
        with_lines.append(replace(problem, file="--var" if is_overridden else file, line=line))
    return in_order(with_lines)


def _line_of(path: str, root: Item, shape: type[msgspec.Struct]) -> tuple[int | None, bool]:
    """Return the line of the deepest part of `path` that exists, and True if `--var` set it.

    If the document lacks the last steps of the path (such as a missing key), the deepest part is
    the mapping around them.
    """
    steps = resolve_path(path, root, shape)
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
