"""Writes an experiment as the text of an experiment file: the inverse of `loader`.

The experiments of a search exist only in memory. This module writes such an experiment to a file
that a person can read, change and run. The file has no values that are equal to their defaults, and
an empty line between its sections.
"""

from typing import Any

import msgspec
import yaml

from chaos.experiment.struct_walk import without_defaults
from chaos.experiment.structs import Experiment, GroupDefinition

_WIDTH = 90
"""Length of a line. PyYAML breaks longer lists and texts."""
_FOLDED = ("question", "expect")
"""Keys whose values are sentences. If such a value is long, it is folded.

A folded value begins with `>`, and is written over several lines.
"""


def experiment_text(experiment: Experiment, *, comment: str = "") -> str:
    """Return the YAML text from which `load_experiment` reads an equal experiment.

    There is one difference: a tuple in the arguments of a fault is read as a list. The text has no
    values that are equal to their default. `comment` becomes comment lines at the top.
    """
    document = without_defaults(experiment)
    for name, group in experiment.groups.items():
        _write_late_settings(document["groups"][name], group)
    # First come all scalars as one section. Then each mapping or list is a section of its own.
    # Empty lines separate the sections.
    sections = [
        "".join(_section(key, value) for key, value in document.items() if _is_scalar(value)),
        *(_section(key, value) for key, value in document.items() if not _is_scalar(value)),
    ]
    if comment:
        sections.insert(0, "".join(f"# {line}".rstrip() + "\n" for line in _lines(comment)))
    return "\n".join(sections)


def _write_late_settings(document: dict[str, Any], group: GroupDefinition) -> None:
    """Write the settings of late members that `without_defaults` has wrongly left out.

    Late members join their group during the run. If a late member has no value of its own for a
    setting, the loader gives it the value of the group. So if the group's value is not the default,
    the late member's value must be written, even if this value is the default.
    """
    # If there are no late members, the document lacks the key `late_members`, and the loop does
    # nothing.
    for late, written in zip(group.late_members, document.get("late_members", ()), strict=False):
        if late.config is None:
            continue  # these members have all settings of the group
        late_settings = msgspec.to_builtins(late.config)
        for key in document.get("config", {}):  # the group's settings that are not at the default
            # `written` has the key "config", because its default is None, and `late.config` is not.
            written["config"].setdefault(key, late_settings[key])


def _section(key: str, value: object) -> str:
    """Return the YAML of one key and its value."""
    # A text that is shorter than half a line is not folded. It stays on the line of its key.
    if key in _FOLDED and isinstance(value, str) and len(value) > _WIDTH // 2 and _folds(value):
        value = _Folded(value)
    return yaml.dump(
        {key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )


def _folds(text: str) -> bool:
    """Return True if a folded text is read back unchanged.

    This is so if the text consists of ASCII words with a single space between two words.
    """
    return text.isprintable() and text.isascii() and " ".join(text.split()) == text


def _lines(comment: str) -> list[str]:
    """Return the lines of a comment, with `?` in place of characters that YAML does not allow."""
    return [
        "".join(character if character.isprintable() else "?" for character in line)
        for line in comment.splitlines()
    ]


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list)


class _Folded(str):
    """A text that the dumper folds. PyYAML chooses the style of a value by its type."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: lists indented, lists of scalars on one line, no aliases."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # PyYAML passes True for the argument `indentless` if a list is in a mapping, and then does
        # not indent the list. Here it is always False.
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        # Otherwise PyYAML would write an alias in place of each repetition of a value.
        return True


def _represent_list(dumper: _Dumper, value: list[Any]) -> yaml.Node:
    """Return the node of a list. In the tags, YAML's names of types are `seq`, `map` and `str`."""
    flow = all(map(_is_scalar, value))  # True: the list is written on one line, as [1, 2]
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)


def _represent_mapping(dumper: _Dumper, value: dict[str, Any]) -> yaml.Node:
    """Return the node of a mapping, with each key on a line of its own."""
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=False)


def _represent_text(dumper: _Dumper, value: str) -> yaml.Node:
    # PyYAML's default style would write characters such as U+0085 in a form that is read back as
    # other characters. So a text with such characters is written in quotes, in which they are
    # escaped. A text with line breaks alone is written with `|`, which keeps its lines readable.
    style = None
    if not value.isprintable():
        style = "|" if all(line.isprintable() for line in value.split("\n")) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _represent_folded(dumper: _Dumper, value: _Folded) -> yaml.Node:
    """Return the node of a folded text, which has the style `>`."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=">")


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Folded, _represent_folded)
