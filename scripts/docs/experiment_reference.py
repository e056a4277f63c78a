"""The reference page of the experiment file: every key of its structs, with its values.

A section of the file is a struct in `chaos.experiment.structs`; its path has the keys that lead to
it (`groups.<group>.config`), with `[]` for each item of a list.
"""

from collections.abc import Iterator, Mapping
from typing import get_origin

import msgspec

from chaos.experiment.json_schema import experiment_schema
from chaos.experiment.struct_walk import StructField, fields_of, summary_of
from chaos.experiment.structs import Experiment
from scripts.docs.markdown import Schema, shown, table, values_text

_HEADINGS = ("key", "values", "default", "meaning")
_TOP = "The file"
_PLACEHOLDERS = {"topics": "<topic>", "groups": "<group>"}
"""Placeholder of a name that the file defines."""


def experiment_file_page() -> str:
    """Return every key of an experiment file with its values, default and meaning, by section."""
    schema = experiment_schema()
    sections = {Experiment.__name__: schema, **schema["$defs"]}
    parts = [
        "# Experiment file\n\nA YAML file. What is not said has its default; Kafka's settings keep "
        "Kafka's names, defaults and bounds. A duration is a whole number and its unit: `250ms`, "
        "`5s`, `2m`. `python -m coordlab init` writes a file with comments, `validate` checks one, "
        "and editors complete from [the JSON Schema](../experiment.schema.json). What each fault "
        "does, whom it can hit and what it takes is told in [faults](faults.md).\n"
    ]
    first_paths: dict[type[msgspec.Struct], str] = {}
    for path, struct in _sections("", Experiment):
        if struct in first_paths:  # several sections have one struct: list its keys once
            first = first_paths[struct]
            parts.append(f"\n## `{path}`\n\nThe same keys as [`{first}`](#{_anchor(first)}).\n")
            continue
        first_paths[struct] = path
        heading = f"`{path}`" if path != _TOP else path
        keys = _keys(struct, sections[struct.__name__]["properties"])
        parts.append(f"\n## {heading}\n\n{summary_of(struct)}\n\n{keys}")
    return "".join(parts)


def _sections(
    path: str, struct: type[msgspec.Struct]
) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield path and struct of a section, then of the sections below it, in the file's order."""
    yield path or _TOP, struct
    for field in fields_of(struct):
        if field.struct is not None:
            place = f"{path}.{field.key}" if path else field.key
            # For a list of sections, and for a dict, which has a section for each name.
            suffix: dict[object, str] = {tuple: "[]", dict: f".{_PLACEHOLDERS.get(field.key)}"}
            yield from _sections(place + suffix.get(get_origin(field.annotation), ""), field.struct)


def _keys(struct: type[msgspec.Struct], properties: Mapping[str, Schema]) -> str:
    """Return the table of a struct's keys: values, default and meaning of each."""
    return table(
        _HEADINGS,
        [
            (
                f"`{field.key}`",
                _values(field, properties[field.key]),
                "required" if field.required else _default(properties[field.key]),
                field.doc,
            )
            for field in fields_of(struct)
        ],
    )


def _values(field: StructField, entry: Schema) -> str:
    """Return the possible values of a key; of a section, its meaning."""
    if field.struct is None:
        return values_text(entry)
    words: dict[object, str] = {tuple: "list of sections", dict: "section for each name"}
    return words.get(get_origin(field.annotation), "section")


def _default(entry: Schema) -> str:
    if "default" not in entry:
        return ""
    return f"`{shown(entry['default'])}`" if entry["default"] not in ((), []) else "none"


def _anchor(path: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_ ")
