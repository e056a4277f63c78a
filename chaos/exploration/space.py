"""The space of an exploration: an experiment without faults, and the variations that are drawn.

Data flow: name or path -> YAML with lines -> structs (`space_definition`) -> `choices` -> semantic
checks (`space_semantics`) -> `Space`, from which `draw` builds experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from chaos.experiment.loader import (
    files_by_name,
    find_file,
    inherit_settings,
    path_from_here,
    placed,
)
from chaos.experiment.overrides import apply_overrides
from chaos.experiment.problems import ExperimentError, Problem
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.schema_errors import shape_problems
from chaos.experiment.struct_walk import resolve_path
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import Item, item_of, read_document
from chaos.exploration.draw.choices import Choice, FirstOf, Steps, choices_of, copy_of
from chaos.exploration.space_definition import (
    OWN_OF_A_DRAW,
    FaultSpace,
    Minimum,
    SpaceDefinition,
)
from chaos.exploration.space_semantics import space_errors

EXPLORATIONS = "explorations"
"""Folder, here or installed, in which a space is found by its name."""
_STUB = {"version": 1, "name": "space", "question": "?", "expect": "?"}
"""Keys that every experiment needs; a drawn one sets its own values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A space that was read and checked."""

    name: str
    question: str
    path: Path
    base: Item = field(repr=False)
    """Document of the experiment without faults; copy it before any change."""
    choices: tuple[Choice, ...] = field(repr=False)
    faults: FaultSpace
    minimum: Minimum
    mutated: float = 0.0
    """Share of a search's seeds that mutate a kept plan, 0 to 1."""
    may_be_unknown: tuple[str, ...] = ()
    """Beginnings of the reasons for which a run may prove nothing."""


def load_space(name_or_path: str, overrides: Sequence[str] = ()) -> Space:
    """Return the space with this name in `explorations/`, or in this file, with `overrides`.

    Shape: each override is `key=value` with a dotted path into the space's experiment.
    Raises: ExperimentError with all problems.
    """
    path = find_file(name_or_path, EXPLORATIONS, "exploration")
    file = path_from_here(path)
    root = read_document(path, file)
    problems = shape_problems(root, SpaceDefinition, file)
    if problems:
        raise ExperimentError(problems)
    base = _with_stub(root.child("experiment"))
    problems = apply_overrides(base, overrides) or [
        # Items of the file have a line; items without one come from the command line.
        replace(each, file="--var", path=each.path.removeprefix("experiment."))
        if overrides and each.line is None
        else each
        for each in _base_problems(base, root, file)
    ]
    if problems:
        raise ExperimentError(problems)
    definition = msgspec.convert(root.plain(), SpaceDefinition)
    choices, problems = choices_of(definition, base)
    problems = problems or list(space_errors(definition, base, choices))
    if problems:
        raise ExperimentError(placed(problems, root, file, SpaceDefinition))
    problems = [each for text in overrides for each in _drawn_problems(text, base, choices)]
    if problems:
        raise ExperimentError(problems)
    return Space(
        name=definition.name,
        question=definition.question,
        path=path,
        base=base,
        choices=choices,
        faults=definition.faults,
        minimum=definition.minimum,
        mutated=definition.mutated,
        may_be_unknown=definition.may_be_unknown,
    )


def base_experiment(space: Space) -> Experiment:
    """Return the experiment of `space` before anything is drawn."""
    whole = copy_of(space.base)
    inherit_settings(whole)
    return msgspec.convert(whole.plain(), Experiment)


def list_spaces() -> dict[str, Path]:
    """Return every space that can be explored by name, in order of names."""
    return dict(sorted(files_by_name(EXPLORATIONS).items()))


def _with_stub(base: Item) -> Item:
    whole = copy_of(base)
    if isinstance(whole.value, dict):
        whole.value.update({key: item_of(value) for key, value in _STUB.items()})
    return whole


def _drawn_problems(override: str, base: Item, choices: Sequence[Choice]) -> list[Problem]:
    """Return the problem of an override for a key that every draw sets."""
    key = override.partition("=")[0].strip()
    steps = resolve_path(key, base, Experiment)
    if isinstance(steps, Problem):
        return []  # `apply_overrides` has reported it
    drawn: list[tuple[str, Steps]] = [(f"experiment.{name}", (name,)) for name in OWN_OF_A_DRAW]
    drawn += [
        (choice.at(0), place)
        for choice in choices
        for spot in choice.spots
        for place in spot.places(base)
        if not _is_always_kept(choice, place, tuple(steps), base)
    ]
    for where, place in drawn:
        common = min(len(place), len(steps))
        if tuple(steps[:common]) == tuple(place[:common]):
            return [
                Problem(
                    file="--var",
                    line=None,
                    path=key,
                    message="is drawn from each seed, a value of your own would be lost",
                    expected=f"a key that the space does not draw (`{where}` in its file)",
                )
            ]
    return []


def _is_always_kept(choice: Choice, place: Steps, steps: Steps, base: Item) -> bool:
    """Return whether a count leaves what `steps` lead to in every draw."""
    counts = [put.count for option in choice.options for put in option if isinstance(put, FirstOf)]
    if not counts or len(steps) <= len(place) or steps[: len(place)] != place:
        return False
    whole = base
    for step in place:
        whole = whole.child(str(step))
    keys = list(whole.value) if isinstance(whole.value, dict) else range(len(whole.children()))
    return steps[len(place)] in keys[: min(counts)]


def _base_problems(base: Item, root: Item, file: str) -> list[Problem]:
    """Return the problems of the space's experiment."""
    written = root.child("experiment").value
    problems = [
        problem(f"experiment.{key}", "each drawn experiment has its own", expected="no such key")
        for key in OWN_OF_A_DRAW
        if isinstance(written, dict) and key in written
    ]
    if problems:
        return placed(problems, root, file, SpaceDefinition)
    problems = shape_problems(base, Experiment, file, "experiment")
    if problems:
        return problems
    whole = copy_of(base)
    inherit_settings(whole)
    experiment = msgspec.convert(whole.plain(), Experiment)
    problems = [replace(each, path=f"experiment.{each.path}") for each in errors(experiment)]
    if not experiment.groups:
        problems.append(
            problem("experiment.groups", "faults are drawn about groups", expected="at least one")
        )
    return placed(problems, root, file, SpaceDefinition)
