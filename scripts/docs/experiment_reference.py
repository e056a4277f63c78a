"""Makes the reference page of the experiment file, with every key that may be in such a file.

The page has a chapter for each section of the file, with a table of its keys. The heading is the
path of the section, such as `groups.<group>.config`, or `faults[]` for the items of a list. The
sections are described by the structs in `chaos.experiment.structs`.
"""

from collections.abc import Iterator, Mapping
from typing import get_origin

import msgspec

from chaos.experiment.json_schema import experiment_schema
from chaos.experiment.struct_walk import StructField, fields_of, summary_of
from chaos.experiment.structs import Experiment
from scripts.docs.markdown import Schema, as_in_file, table, values_text

_HEADINGS = ("key", "values", "default", "meaning")
_WHOLE_FILE = "The file"
"""The heading of the chapter on the keys that are in no section."""
_NAME_PLACEHOLDERS = {"topics": "<topic>", "groups": "<group>"}
"""In these sections, the author of the file chooses the names of the subsections. Key of such a
section -> the placeholder for a name in a path."""


def experiment_file_page() -> str:
    """Return the page: for each section a table of its keys."""
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
    for path, struct in _sections_with_paths("", Experiment):
        # Sections with the same struct have the same keys, which are listed only once.
        if struct in first_paths:
            first = first_paths[struct]
            parts.append(f"\n## `{path}`\n\nThe same keys as [`{first}`](#{_anchor(first)}).\n")
            continue
        first_paths[struct] = path
        heading = f"`{path}`" if path != _WHOLE_FILE else path
        keys = _table_of_keys(struct, sections[struct.__name__]["properties"])
        parts.append(f"\n## {heading}\n\n{summary_of(struct)}\n\n{keys}")
    return "".join(parts)


def _sections_with_paths(
    path: str, struct: type[msgspec.Struct]
) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield path and struct of a section, and then of all sections inside it.

    `path`: the path of the section; "" for the whole file.
    """
    yield path or _WHOLE_FILE, struct
    for field in fields_of(struct):
        if field.struct is not None:
            inner_path = f"{path}.{field.key}" if path else field.key
            # `faults`, a tuple, is a list of sections in the file. `groups`, a dict, has a section
            # for each name. Any other field with a struct is a single section.
            container = get_origin(field.annotation)
            if container is tuple:
                inner_path += "[]"
            elif container is dict:
                inner_path += f".{_NAME_PLACEHOLDERS[field.key]}"
            yield from _sections_with_paths(inner_path, field.struct)


def _table_of_keys(struct: type[msgspec.Struct], properties: Mapping[str, Schema]) -> str:
    """Return a table with the keys of a struct: permitted values, default and meaning of each.

    `properties`: key -> its JSON Schema.
    """
    return table(
        _HEADINGS,
        [
            (
                f"`{field.key}`",
                _permitted_values(field, properties[field.key]),
                "required" if field.required else _default_text(properties[field.key]),
                field.doc,
            )
            for field in fields_of(struct)
        ],
    )


def _permitted_values(field: StructField, entry: Schema) -> str:
    """Return in words which values a key may have, such as `whole number from 1` or `section`."""
    if field.struct is None:
        return values_text(entry)
    container = get_origin(field.annotation)
    if container is tuple:
        return "list of sections"
    return "section for each name" if container is dict else "section"


def _default_text(entry: Schema) -> str:
    """Return the default of a key for the table; "" if it has none."""
    if "default" not in entry:
        return ""
    default = entry["default"]
    is_empty_list = default in ((), [])
    return "none" if is_empty_list else f"`{as_in_file(default)}`"


def _anchor(path: str) -> str:
    """Return the anchor that GitHub gives to a heading: "groupsconfig" to "groups.config"."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_ ")
