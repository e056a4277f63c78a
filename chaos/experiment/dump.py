"""Writes an experiment as the text of an experiment file: the inverse of `loader`.

The experiments of a search exist only in memory. This module writes one as a file that a person can
read, change and run: without values that equal their defaults, and with an empty line between its
sections.
"""

from typing import Any

import msgspec
import yaml

from chaos.experiment.struct_walk import without_defaults
from chaos.experiment.structs import Experiment, GroupDefinition

_WIDTH = 90
"""Columns of a line, after which PyYAML breaks long lists and texts."""
_FOLDED = ("question", "expect")
"""Keys with sentences as values. A long value is folded: it is written over several lines (`>`)."""


def experiment_text(experiment: Experiment, *, comment: str = "") -> str:
    """Return the YAML text from which `load_experiment` reads an equal experiment.

    The experiment that is read differs in one point: a tuple in the arguments of a fault becomes a
    list. The text has no values that equal their default. `comment` becomes comment lines at the
    top.
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
    """Write settings of late members that `without_defaults` has wrongly left out.

    Late members join during the run. If a late member lacks a setting, the loader gives it the
    group's value. So if the group's value is not the default, the late member's value must be
    written, even if that is the default.
    """
    # Without late members the document lacks the key `late_members`, and the loop does nothing.
    for late, written in zip(group.late_members, document.get("late_members", ()), strict=False):
        if late.config is None:
            continue  # these members have the group's settings as a whole
        late_settings = msgspec.to_builtins(late.config)
        for key in document.get("config", {}):  # the group's settings that are not at the default
            # `written` has a "config", because `late.config` is not None, its default.
            written["config"].setdefault(key, late_settings[key])


def _section(key: str, value: object) -> str:
    """Return the YAML of one key and its value."""
    # A text of up to half a line stays on the line of its key.
    if key in _FOLDED and isinstance(value, str) and len(value) > _WIDTH // 2 and _folds(value):
        value = _Folded(value)
    return yaml.dump(
        {key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )


def _folds(text: str) -> bool:
    """Return True for a text that folding preserves: ASCII words with single spaces between."""
    return text.isprintable() and text.isascii() and " ".join(text.split()) == text


def _lines(comment: str) -> list[str]:
    """Return the lines of a comment; characters that YAML does not allow become `?`."""
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
        # PyYAML passes True for a list in a mapping, and then does not indent the list.
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        # Otherwise PyYAML would write an alias in place of each repetition of a value.
        return True


def _represent_list(dumper: _Dumper, value: list[Any]) -> yaml.Node:
    flow = all(map(_is_scalar, value))
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)


def _represent_mapping(dumper: _Dumper, value: dict[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=False)


def _represent_text(dumper: _Dumper, value: str) -> yaml.Node:
    # If PyYAML's default style wrote U+0085 and similar characters, they would be read back as
    # other characters. In quotes they are escaped. `|` keeps the lines of a text readable.
    style = None
    if not value.isprintable():
        style = "|" if all(line.isprintable() for line in value.split("\n")) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _represent_folded(dumper: _Dumper, value: _Folded) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=">")


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Folded, _represent_folded)
