"""`--var key=value`: changes to an experiment file before it is checked.

The value is read as YAML, so `--var cluster.brokers=5` sets a number.

An experiment file is read into Items. An Item is a value together with its line in the file, so
that a problem about the value can name this line. The Item of an override has no line. A problem
about such a value names `--var` instead of a file and a line.
"""

from collections.abc import Sequence

import yaml

from chaos.experiment.problems import Problem
from chaos.experiment.struct_walk import resolve_path
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import Item, item_of


def apply_overrides(root: Item, overrides: Sequence[str]) -> list[Problem]:
    """Change the document `root` by each override, in order.

    Return the problems of the overrides that cannot be applied.
    """
    problems: list[Problem] = []
    for override in overrides:
        dotted, equals, text = override.partition("=")
        dotted = dotted.strip()
        if not equals or not dotted:
            problems.append(
                Problem(
                    file="--var",
                    line=None,
                    path=override,
                    message="is not allowed",
                    expected="`key=value`, such as `cluster.brokers=5`",
                )
            )
            continue
        if not text.strip():
            problems.append(
                Problem(
                    file="--var",
                    line=None,
                    path=dotted,
                    message="has no value",
                    # The problem is printed as "has no value; expected one", that is, a value.
                    expected="one, or `null` for nothing",
                )
            )
            continue
        steps = resolve_path(dotted, root, Experiment)
        if isinstance(steps, Problem):
            problems.append(steps)
            continue
        try:
            value = item_of(yaml.safe_load(text))
        except (yaml.YAMLError, ValueError, RecursionError):
            # Three kinds of texts cannot be read as YAML:
            # - a text that is no YAML, such as a single bracket (YAMLError),
            # - an impossible date, such as 2024-13-01 (ValueError),
            # - a thousand brackets (RecursionError).
            # Then the text itself becomes the value. If a text is not allowed at this place of the
            # document, the check of the document's shape reports it.
            value = Item(value=text)
        _put(root, steps, value)
    return problems


def _put(item: Item, steps: list[str | int], value: Item) -> None:
    """Put `value` at the end of the path `steps`, and add mappings that are missing on the way."""
    for step in steps[:-1]:
        if isinstance(item.value, list) and isinstance(step, int):
            item = item.value[step]
            continue
        # A value on the way must be a mapping. Any other value is replaced by one. In most cases
        # this is the None of a key without a value, such as `config:`.
        if not isinstance(item.value, dict):
            item.value = {}
        if str(step) not in item.value:
            item.value[str(step)] = Item(value={})
            item.key_lines[str(step)] = None
        item = item.value[str(step)]
    last = steps[-1]  # the key or the index at which `value` is put
    if isinstance(item.value, list) and isinstance(last, int):
        item.value[last] = value
        return
    if not isinstance(item.value, dict):
        item.value = {}
    item.value[str(last)] = value
    item.key_lines[str(last)] = None
