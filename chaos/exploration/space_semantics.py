"""Semantic checks of a space: every experiment that is drawn from it must be valid.

A space has a base experiment, and choices such as `cluster.brokers: [3, 5]`, which has two options.
It would take too long to check every combination of all options. So the checks put each option
alone into the base experiment. Then they do the same with each pair of options of two choices.

This finds nearly all errors, because an error is usually a contradiction between two settings. An
error that only three options together cause is found later: when a seed draws these options, `draw`
checks its experiment.
"""

from collections.abc import Iterator
from itertools import combinations

import msgspec

from chaos.experiment.loader import inherit_settings
from chaos.experiment.problems import Problem
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.rules.semantic_checks import (
    check_known,
    check_once,
    problem,
    too_long,
)
from chaos.experiment.structs import Experiment, microseconds
from chaos.experiment.yaml_document import Item
from chaos.exploration.draw.choices import Choice, copy_of, option_problems, put_option, value_shown
from chaos.exploration.draw.patterns import PATTERNS
from chaos.exploration.draw.timeouts import TIMEOUTS
from chaos.exploration.space_definition import FaultSpace, SpaceDefinition
from chaos.faults.processes import NodeLoss
from chaos.faults.registry import FAULT_KINDS

MAX_PAIRS = 20
"""Number of problems after which the check of pairs stops.

One bad option may cause a problem in each of its pairs, and a user would not read all of them.
"""


def space_errors(
    definition: SpaceDefinition, base: Item, choices: tuple[Choice, ...]
) -> Iterator[Problem]:
    """Yield the problems of a space whose file has the right shape.

    The path of each problem is a place in the space's file.
    """
    yield from _fault_errors(definition.faults)
    malformed = [
        option_problem
        for choice in choices
        for index in range(len(choice.options))
        for option_problem in option_problems(base, choice, index)
    ]
    yield from malformed
    if malformed:
        return  # the next checks need documents that can become an Experiment
    # An option that is invalid alone is also invalid in all its pairs. So the pairs are checked
    # only if no option is invalid alone.
    invalid_alone = list(_misfits_alone(base, choices))
    yield from invalid_alone or _misfits_in_pairs(base, choices)


def _fault_errors(faults: FaultSpace) -> Iterator[Problem]:
    """Yield the unknown names and the useless values of a space's faults."""
    for kind in faults.kinds:
        yield from check_known("fault", kind, FAULT_KINDS, f"faults.kinds.{kind}")
        if kind == NodeLoss.name:
            yield problem(
                f"faults.kinds.{kind}",
                "would leave partitions without a leader, and groups without a member",
                expected="`faults.lost`, which loses only what the rest can do without",
            )
    for pattern in faults.patterns:
        yield from check_known("pattern", pattern, PATTERNS, f"faults.patterns.{pattern}")
    if not faults.kinds and not faults.patterns:
        yield problem(
            "faults", "nothing is ever broken", expected="some faults in `kinds` or `patterns`"
        )
    yield from check_once("timeout", faults.timeouts, TIMEOUTS, "faults.timeouts")
    for field in ("window", "longest"):
        yield from too_long(getattr(faults, field), f"faults.{field}")
    for name in ("gaps", "durations"):
        for index, length in enumerate(getattr(faults, name)):
            path = f"faults.{name}[{index}]"
            yield from too_long(length, path)
            if microseconds(length) < 1_000:  # a draw needs at least one whole millisecond
                yield problem(
                    path, "is not allowed", expected="at least `1ms`", found=f"`{length}`"
                )


def _misfits_alone(base: Item, choices: tuple[Choice, ...]) -> Iterator[Problem]:
    """Put each option alone into the base experiment, and yield the errors that this causes."""
    for choice in choices:
        for index in range(len(choice.options)):
            for error in _errors_with(base, (choice, index)):
                yield problem(
                    choice.at(index),
                    f"no experiment could be run with it: {error.path}: {error.message}",
                    expected=error.expected,
                    found=error.found,
                )


def _misfits_in_pairs(base: Item, choices: tuple[Choice, ...]) -> Iterator[Problem]:
    """Put each pair of options of two choices into the base experiment, and yield the errors."""
    reported = 0
    distinct = [(choice, _distinct_options(choice)) for choice in choices]
    for (first, first_indexes), (second, second_indexes) in combinations(distinct, 2):
        for first_index in first_indexes:
            for second_index in second_indexes:
                for error in _errors_with(base, (first, first_index), (second, second_index)):
                    yield problem(
                        second.at(second_index),
                        f"does not go with {value_shown(first, first_index)} of "
                        f"`{first.at(first_index)}`: {error.path}: {error.message}",
                        expected=error.expected,
                        found=error.found,
                    )
                    reported += 1
                    if reported == MAX_PAIRS:
                        return


def _distinct_options(choice: Choice) -> list[int]:
    """Return the indexes of a choice's options, without repetitions.

    A space may repeat an option so that it is drawn more often. For example, the options [3, 3, 5]
    give the indexes 0 and 2.
    """
    return [
        index
        for index, option in enumerate(choice.options)
        if choice.options.index(option) == index
    ]


def _errors_with(base: Item, *options: tuple[Choice, int]) -> Iterator[Problem]:
    """Yield the errors of the base experiment with some options.

    Each of `options` is a choice, and the index of one of its options.
    """
    changed = copy_of(base)
    for choice, index in options:
        put_option(changed, choice, index)
    inherit_settings(changed)
    yield from errors(msgspec.convert(changed.plain(), Experiment))
