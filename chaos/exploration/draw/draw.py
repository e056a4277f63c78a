"""`draw`: makes the experiment of a seed.

A space is a file from which many experiments are drawn. It has an experiment without faults (the
base), and choices such as `cluster.brokers: [3, 5]`. The draw has three steps:

1. The document of the base experiment is copied.
2. The seed draws an option of each choice. The options are written into the copy
   (`draw.choices`).
3. The seed draws a plan of faults (`draw.drawn_faults`).

The result is an experiment like one from a file, and must pass the same checks.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from chaos.experiment.loader import inherit_settings
from chaos.experiment.problems import ExperimentError, Problem
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.structs import FORMAT_VERSION, Experiment
from chaos.experiment.yaml_document import Item, item_of
from chaos.exploration.draw.choices import copy_of, keys_of, put_option
from chaos.exploration.draw.drawn_faults import draw_faults
from chaos.exploration.space import Space
from cluster.host.randomness import stream

OptionKey = tuple[str, str | int | None]
"""A choice, and a key for which an option of the choice is drawn.

The choice is given by its `where`, such as "settings.groups.*.members[{}]". If the path of a choice
has a star, as in this example, a seed draws an option for each key for which the star stands. If
the path has no star, the key is None.
"""


def draw(space: Space, seed: int) -> Experiment:
    """Return the experiment of `seed` in `space`. Every process draws the same experiment.

    Raises: ExperimentError if the experiment is invalid. This is rare. `load_space` has checked
    every option and every pair of options, so only three or more options together can be invalid.
    """
    # `taken` has the origin of each drawn value: the place in the space's file at which the value
    # is written. So a problem can name this place.
    experiment, taken = draw_cluster(space, seed)
    experiment = msgspec.structs.replace(
        experiment, faults=draw_faults(space.faults, experiment, seed)
    )
    wrong = list(errors(experiment))
    if wrong:
        raise ExperimentError(
            Problem(
                file=str(space.path),
                line=None,
                path=_place_of(problem.path, taken),
                message=f"seed {seed} draws what cannot be run: {problem.path}: {problem.message}",
                expected=problem.expected,
                found=problem.found,
            )
            for problem in wrong
        )
    return experiment


def draw_cluster(
    space: Space,
    seed: int,
    options: Mapping[OptionKey, int] = MappingProxyType({}),
    *,
    name_seed: int | None = None,
) -> tuple[Experiment, dict[str, str]]:
    """Return the experiment of a seed without its faults, and the origin of each drawn value.

    The origin is a place in the space's file. For example, {"cluster.brokers":
    "settings.cluster.brokers[1]"} means that the number of brokers is the second option of this
    setting. The experiment is not checked.

    - `options`: choices that are not drawn, each with the index of the option to use instead.
    - `name_seed`: the number at the end of the experiment's name; by default it is `seed`.
    """
    document = copy_of(space.base)
    taken = _choose(space, document, seed, options)
    inherit_settings(document)
    _name(document, space, seed if name_seed is None else name_seed)
    return msgspec.convert(document.plain(), Experiment), taken


def _choose(
    space: Space, document: Item, seed: int, options: Mapping[OptionKey, int]
) -> dict[str, str]:
    """Write the drawn values into `document`; return the origin of each (see `draw_cluster`)."""
    taken = {}
    for choice in space.choices:
        for key in keys_of(choice, document):
            index = options.get((choice.where, key))
            if index is None:
                # Each choice and key has its own random stream. So if somebody changes one choice
                # of a space, a seed still draws the same options of all other choices.
                rng = stream(seed, "choice", choice.where, *(() if key is None else (key,)))
                index = rng.randrange(len(choice.options))
            put_option(document, choice, index, key=key)
            # The keys of `taken` are paths in the experiment, so `key` takes the place of the star
            # in the path.
            for spot in choice.spots:
                taken[spot.path if key is None else spot.path.replace("*", str(key), 1)] = (
                    choice.at(index)
                )
    return taken


def _place_of(path: str, taken: dict[str, str]) -> str:
    """Return the place in the space's file from which the value at an experiment's path comes."""
    # A drawn value may be a mapping that contains the value at `path`. If several drawn values
    # contain it, the drawn value with the longest path is the nearest. If none contains it, the
    # value at `path` comes from the base experiment.
    drawn_above = [drawn for drawn in taken if path.startswith(drawn)]
    return taken[max(drawn_above, key=len)] if drawn_above else f"experiment.{path}"


def _name(document: Item, space: Space, seed: int) -> None:
    """Write the keys at the beginning of an experiment file: version, name, question, expect."""
    # This is only for the type checker, because `load_space` has checked that the document is a
    # mapping.
    if not isinstance(document.value, dict):
        raise TypeError("a space's experiment is a mapping")
    head = {
        "version": FORMAT_VERSION,
        "name": f"{space.name}-{seed}",
        "question": space.question,
        "expect": "No promise is broken.",
    }
    other_keys = {key: value for key, value in document.value.items() if key not in head}
    document.value = {**{key: item_of(value) for key, value in head.items()}, **other_keys}
