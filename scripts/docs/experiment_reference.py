"""The reference page of the experiment file: every key of its structs, with its values.

Each section of the file is described by a struct (a msgspec class) in `chaos.experiment.structs`.
The page has a heading for each section, which is its path in the file, such as
`groups.<group>.config` or `faults[]`. Here `[]` stands for each item of a list.
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
"""Stands for the path of the whole file."""
_PLACEHOLDERS = {"topics": "<topic>", "groups": "<group>"}
"""Placeholders of names that the file's author chooses, by the key before such a name."""


def experiment_file_page() -> str:
    """Return the page: for each section, every key with its values, default and meaning."""
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
        # Several sections can have the same struct, whose keys are listed only once.
        if struct in first_paths:
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
    """Yield path and struct of a section, then of the sections in it, in the order of the keys.

    `path`: the section's path; "" for the whole file.
    """
    yield path or _TOP, struct
    for field in fields_of(struct):
        if field.struct is not None:
            inner_path = f"{path}.{field.key}" if path else field.key
            # In the file, a field of type `tuple` is a list of sections. A field of type `dict` has
            # a section for each name. Any other field with a struct is one section.
            container = get_origin(field.annotation)
            if container is tuple:
                inner_path += "[]"
            elif container is dict:
                inner_path += f".{_PLACEHOLDERS[field.key]}"
            yield from _sections(inner_path, field.struct)


def _keys(struct: type[msgspec.Struct], properties: Mapping[str, Schema]) -> str:
    """Return the table of a struct's keys, with the values, default and meaning of each.

    `properties`: the JSON Schema of each key.
    """
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
    """Return in words which values a key can have: plain values, a section, or several."""
    if field.struct is None:
        return values_text(entry)
    container = get_origin(field.annotation)
    if container is tuple:
        return "list of sections"
    return "section for each name" if container is dict else "section"


def _default(entry: Schema) -> str:
    """Return the default of a key as text: "" for no default, "none" for an empty list."""
    if "default" not in entry:
        return ""
    return f"`{shown(entry['default'])}`" if entry["default"] not in ((), []) else "none"


def _anchor(path: str) -> str:
    """Return the anchor that GitHub gives to a heading, for links to it."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_ ")
