"""Reads a YAML file into Items: values that know their lines, so that messages can name the lines.

This module knows nothing of experiments. It reports two errors that PyYAML does not report: a key
that occurs twice in a mapping, and an alias that contains itself, as in `&a [*a]`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from chaos.experiment.problems import ExperimentError, Problem

MAX_NODES = 100_000
"""Maximum number of values in a file.

An alias stands for a part of the file, and may be used several times. Each use counts as all values
of this part. Otherwise a small file with nested aliases could exhaust the memory.
"""

Scalar = str | int | float | bool | None | object
"""A value that is neither a mapping nor a list.

YAML also has dates and bytes, which are `object` here. A later check reports them as errors,
because no field of a struct has these types.
"""


@dataclass(slots=True, kw_only=True)
class Item:
    """One value of the file: a mapping, a list or a scalar.

    - `line`: the line of the value, counted from 1; None if the value is not from a file.
    - `key_lines`: the lines of a mapping's keys.
    """

    value: "dict[str, Item] | list[Item] | Scalar"
    line: int | None = None
    key_lines: dict[str, int | None] = field(default_factory=dict)

    def plain(self) -> object:
        """Return the value without lines, for msgspec."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def child(self, key: str) -> "Item":
        """Return the Item of `key`, or an Item with the value None if there is no such key."""
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return Item(value=None) if child is None else child

    def children(self) -> "tuple[Item, ...]":
        """Return the Items in a mapping or a list; none for a scalar."""
        if isinstance(self.value, dict):
            return tuple(self.value.values())
        return tuple(self.value) if isinstance(self.value, list) else ()

    def line_of(self, key: str) -> int | None:
        """Return the line of `key`, or of the mapping itself if it has no such key."""
        return self.key_lines.get(key, self.line)


def item_of(value: object) -> Item:
    """Return a plain value as an Item. It has no lines, because it comes from no file."""
    if isinstance(value, dict):
        return Item(value={str(key): item_of(child) for key, child in value.items()})
    if isinstance(value, list | tuple):
        return Item(value=[item_of(child) for child in value])
    return Item(value=value)


def read_document(path: Path, shown_as: str) -> Item:
    """Return the root mapping of the YAML file at `path`. Problems call this file `shown_as`.

    Raises: ExperimentError if the file cannot be read or is not YAML, or if its root is not a
    mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(
            [Problem(file=shown_as, line=None, path="", message=f"cannot be read: {error}")]
        ) from error
    return parse_document(text, shown_as)


def parse_document(text: str, shown_as: str) -> Item:
    """Return the root mapping of the YAML `text`. Problems call its file `shown_as`.

    Raises: ExperimentError if the text is not YAML, or if its root is not a mapping.
    """
    try:
        loader = yaml.SafeLoader(text)  # raises if a character is not allowed in YAML
    except yaml.YAMLError as error:
        raise _not_yaml(shown_as, error) from error
    # An error with a known place in the text is a MarkedYAMLError, a subclass of YAMLError.
    try:
        root = loader.get_single_node()
        if root is None:
            raise ExperimentError(
                [Problem(file=shown_as, line=None, path="", message="the file is empty")]
            )
        reader = _Reader(loader, shown_as)
        item = reader.read(root, "", ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark  # the place in the text, if it is known
        raise ExperimentError(
            [
                Problem(
                    file=shown_as,
                    line=None if mark is None else mark.line + 1,
                    path="",
                    message=f"not valid YAML: {error.problem or error.context}",
                )
            ]
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-01
        raise _not_yaml(shown_as, error) from error
    except RecursionError as error:
        raise ExperimentError(
            [Problem(file=shown_as, line=None, path="", message="brackets are nested too deeply")]
        ) from error
    finally:
        loader.dispose()
    if not isinstance(item.value, dict):
        reader.complain(item.line, "", "the file must be a mapping of keys to values")
    if reader.problems:
        raise ExperimentError(reader.problems)
    return item


def _not_yaml(shown_as: str, error: Exception) -> ExperimentError:
    return ExperimentError(
        [Problem(file=shown_as, line=None, path="", message=f"not valid YAML: {error}")]
    )


class _Reader:
    """Turns the nodes of PyYAML into Items, and collects all problems."""

    def __init__(self, loader: yaml.SafeLoader, shown_as: str) -> None:
        self._loader = loader
        self._shown_as = shown_as
        self._nodes = 0
        self.problems: list[Problem] = []

    def complain(self, line: int | None, path: str, message: str) -> None:
        self.problems.append(Problem(file=self._shown_as, line=line, path=path, message=message))

    def read(self, node: yaml.Node, path: str, within: tuple[yaml.Node, ...]) -> Item:
        """Return the Item of a node.

        - `path`: the node's place in the file.
        - `within`: the nodes around the node, the outermost first.

        Raises: ExperimentError if the reading would not end, or would exhaust the memory.
        """
        line = node.start_mark.line + 1  # YAML's marks count from 0
        self._nodes += 1
        reason_to_stop = None
        # In PyYAML's tree an alias is not a node of its own: it is the same object as the node for
        # which it stands. So a node that contains itself is found by `is`.
        if any(outer is node for outer in within):
            reason_to_stop = "an alias that contains itself"
        elif self._nodes > MAX_NODES:
            reason_to_stop = f"more than {MAX_NODES:,} values, each alias counted in full"
        if reason_to_stop is not None:
            raise ExperimentError(
                [Problem(file=self._shown_as, line=line, path=path, message=reason_to_stop)]
            )
        within = (*within, node)  # from here on for the children of the node
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, line, path, within)
        if isinstance(node, yaml.SequenceNode):
            return Item(
                line=line,
                value=[
                    self.read(child, f"{path}[{index}]", within)
                    for index, child in enumerate(node.value)
                ],
            )
        # By YAML's rules a scalar becomes a text, a number, a truth value, a date or None.
        return Item(line=line, value=self._loader.construct_object(node))

    def _read_mapping(
        self, node: yaml.MappingNode, line: int, path: str, within: tuple[yaml.Node, ...]
    ) -> Item:
        """Return the Item of a mapping. If a key occurs twice, its first value counts."""
        values: dict[str, Item] = {}
        key_lines: dict[str, int | None] = {}
        for key, key_line, child in self._keys(node, path):
            here = f"{path}.{key}" if path else key
            if key in values:
                self.complain(
                    key_line, here, f"stands here a second time (first in line {key_lines[key]})"
                )
                continue
            key_lines[key] = key_line
            values[key] = self.read(child, here, within)
        return Item(line=line, value=values, key_lines=key_lines)

    def _keys(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, int, yaml.Node]]:
        """Yield each key, with its line and the node of its value.

        A key is taken as it is written. By YAML's rules some words, such as `on`, would become
        values of other types.
        """
        for key_node, child in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.complain(key_line, path, "a key must be a plain word")
                continue
            yield key_node.value, key_line, child
