"""Reads a space file, from which an exploration draws its experiments.

An exploration is a search for violations in thousands of experiments. A space has an experiment
without faults (the base), and says what may vary. For example, its file may have the line
`cluster.brokers: [3, 5]` among its settings. This line is a choice with two options. Each seed
draws an option of every choice, here 3 or 5 brokers, and then it draws faults.

`load_space` reads and checks a file in these steps:

1. Read the YAML. Each value keeps the number of its line (an Item), so that messages can name it.
2. Check the shape of the file: its keys must be known, and their values must have the right types
   (`space_definition`).
3. Apply the overrides of the command line (`--var key=value`) to the base experiment, and check
   this experiment.
4. Find the places in the base experiment to which the choices write (`draw.choices`).
5. Check that every option gives a valid experiment (`space_semantics`).
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
    KEYS_SET_BY_DRAW,
    FaultSpace,
    Minimum,
    SpaceDefinition,
)
from chaos.exploration.space_semantics import space_errors

EXPLORATIONS = "explorations"
"""Name of the folder with spaces. The current directory may have one, and so does coordlab."""
_STUB = {"version": 1, "name": "space", "question": "?", "expect": "?"}
"""Placeholders for the keys that every experiment must have, but a space's base does not have.

With these placeholders the base can be checked like any experiment. Every draw replaces them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A space that was read and checked.

    The fields without a text have the same meaning as those of SpaceDefinition.
    """

    name: str
    question: str
    path: Path
    base: Item = field(repr=False)
    """Document of the experiment without faults. All draws share it, so each must change a copy."""
    choices: tuple[Choice, ...] = field(repr=False)
    faults: FaultSpace
    minimum: Minimum
    mutated: float = 0.0
    """Share of a search's seeds that change the plan of an earlier run instead of drawing one."""
    may_be_unknown: tuple[str, ...] = ()
    """Beginnings of reasons for an unknown verdict that the space permits."""


def load_space(name_or_path: str, overrides: Sequence[str] = ()) -> Space:
    """Return the space of the file `name_or_path`, with `overrides` applied to its base.

    A name without a path is looked for in the folders `explorations`. Each override has the form
    `key=value`, in which the key is a dotted path into the space's experiment.

    Raises: ExperimentError with all problems.
    """
    path = find_file(name_or_path, EXPLORATIONS, "exploration")
    file = path_from_here(path)
    root = read_document(path, file)

    # Each check needs a document that has passed the checks before it.
    problems = shape_problems(root, SpaceDefinition, file)
    if problems:
        raise ExperimentError(problems)

    base = _with_stub(root.child("experiment"))
    # `apply_overrides` returns a problem for each override that it cannot apply. The experiment is
    # checked only if there is no such problem. Otherwise the check could report problems that the
    # missing override would have solved.
    problems = apply_overrides(base, overrides)
    if not problems:
        problems = [
            # Values of the file have a line, but values of overrides have none. So a problem
            # without a line is shown as a problem of `--var`. Its path loses the prefix
            # `experiment.`, because the keys of overrides are written without it.
            replace(base_problem, file="--var", path=base_problem.path.removeprefix("experiment."))
            if overrides and base_problem.line is None
            else base_problem
            for base_problem in _base_problems(base, root, file)
        ]
    if problems:
        raise ExperimentError(problems)

    definition = msgspec.convert(root.plain(), SpaceDefinition)
    choices, problems = choices_of(definition, base)
    problems = problems or list(space_errors(definition, base, choices))
    if problems:
        raise ExperimentError(placed(problems, root, file, SpaceDefinition))

    # The overrides that every draw would replace
    problems = [
        lost_override
        for override in overrides
        for lost_override in _drawn_problems(override, base, choices)
    ]
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
    """Return the experiment of `space` without faults, before any choice changes it."""
    whole = copy_of(space.base)
    inherit_settings(whole)
    return msgspec.convert(whole.plain(), Experiment)


def list_spaces() -> dict[str, Path]:
    """Return every space that can be explored by name, in order of names."""
    return dict(sorted(files_by_name(EXPLORATIONS).items()))


def _with_stub(base: Item) -> Item:
    """Return a copy of the document with the placeholders of keys that draws set."""
    whole = copy_of(base)
    if isinstance(whole.value, dict):
        whole.value.update({key: item_of(value) for key, value in _STUB.items()})
    return whole


def _drawn_problems(override: str, base: Item, choices: Sequence[Choice]) -> list[Problem]:
    """Return a problem if the space draws the key of an override; otherwise an empty list.

    Every draw would replace the value, so the user would set it in vain.
    """
    key = override.partition("=")[0].strip()
    steps = resolve_path(key, base, Experiment)
    if isinstance(steps, Problem):
        # The path of the override is wrong. `apply_overrides` has reported this.
        return []
    # The places to which a draw writes. Each has its name in the space file, and its steps: the
    # keys and indexes that lead to it in the document of the experiment.
    drawn: list[tuple[str, Steps]] = [(f"experiment.{key}", (key,)) for key in KEYS_SET_BY_DRAW]
    # A choice has one or more spots (paths), and with a `*` a path leads to several places.
    # `choice.at(0)` is the place of the choice's first option in the space file.
    drawn += [
        (choice.at(0), place)
        for choice in choices
        for spot in choice.spots
        for place in spot.places(base)
        if not _is_always_kept(choice, place, tuple(steps), base)
    ]
    for where, place in drawn:
        # If one of the two places contains the other, their common steps are equal. The draw would
        # then replace the value of the override, or a part of it.
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
    """Return True if `steps`, the place of an override, is in an item that every draw keeps.

    Some choices are about the number of items in a list or mapping. With `groups: [1, 2]` a draw
    keeps the first group, or the first two. So the first group is in every draw, and an override
    may change it. But an override of the second group would sometimes be lost.
    """
    # A choice of a number of items has values FirstOf(count): keep the first `count` items.
    counts = [
        value.count for option in choice.options for value in option if isinstance(value, FirstOf)
    ]
    # `steps` must lead into an item of the list or mapping at `place`. If they lead to the whole
    # list or mapping, the override would be lost.
    if not counts or len(steps) <= len(place) or steps[: len(place)] != place:
        return False
    container = base
    for step in place:
        container = container.child(str(step))
    if isinstance(container.value, dict):
        keys: Sequence[str | int] = list(container.value)
    else:
        keys = range(len(container.children()))
    # Every draw keeps at least the first `min(counts)` items.
    return steps[len(place)] in keys[: min(counts)]


def _base_problems(base: Item, root: Item, file: str) -> list[Problem]:
    """Return the problems of the space's experiment.

    `base` is the experiment of the file `root`, with placeholders and overrides.
    """
    # The file must not have the keys that every draw sets. `base` has placeholders for some of
    # them, so the file itself (`root`) is checked.
    in_file = root.child("experiment").value
    problems = [
        problem(f"experiment.{key}", "each drawn experiment has its own", expected="no such key")
        for key in KEYS_SET_BY_DRAW
        if isinstance(in_file, dict) and key in in_file
    ]
    if problems:
        return placed(problems, root, file, SpaceDefinition)
    problems = shape_problems(base, Experiment, file, "experiment")
    if problems:
        return problems
    whole = copy_of(base)
    inherit_settings(whole)
    experiment = msgspec.convert(whole.plain(), Experiment)
    problems = [replace(error, path=f"experiment.{error.path}") for error in errors(experiment)]
    if not experiment.groups:
        problems.append(
            problem("experiment.groups", "faults are drawn about groups", expected="at least one")
        )
    return placed(problems, root, file, SpaceDefinition)
