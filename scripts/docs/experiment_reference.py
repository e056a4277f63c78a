"""The reference page of the experiment file: every key, made from its JSON Schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos.experiment.json_schema import experiment_schema
from scripts.docs.markdown import Schema, shown, table, values_text

_HEADINGS = ("key", "values", "default", "meaning")
_TOP = "The file"
_PLACEHOLDERS = {"topics": "<topic>", "groups": "<group>"}
"""What stands for a name that the file gives."""


def experiment_file_page() -> str:
    """Every key of an experiment file with its values, default and meaning, section by section."""
    schema = experiment_schema()
    parts = [
        "# Experiment file\n\nA YAML file. What is not said has its default; Kafka's settings keep "
        "Kafka's names, defaults and bounds. A duration is a whole number and its unit: `250ms`, "
        "`5s`, `2m`. `python -m coordlab init` writes a file with comments, `validate` checks one, "
        "and editors complete from [the JSON Schema](../experiment.schema.json). What each fault "
        "does, whom it can hit and what it takes is told in [faults](faults.md).\n"
    ]
    told: dict[str, str] = {}
    for path, name, section in _sections("", "", schema, schema["$defs"]):
        if name in told:
            first = told[name]
            parts.append(f"\n## `{path}`\n\nThe same keys as [`{first}`](#{_anchor(first)}).\n")
            continue
        told[name] = path
        heading = f"`{path}`" if path != _TOP else path
        parts.append(f"\n## {heading}\n\n{section['description']}\n\n{_keys(section)}")
    return "".join(parts)


def _sections(
    path: str, name: str, section: Schema, defs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Schema]]:
    """Yield path, name and schema of a section, and of those below it, in the file's order."""
    yield path or _TOP, name, section
    for key, entry in section["properties"].items():
        place = f"{path}.{key}" if path else key
        for suffix, inner in _below(key, entry):
            yield from _sections(place + suffix, inner, defs[inner], defs)


def _below(key: str, entry: Schema) -> Iterator[tuple[str, str]]:
    """Yield how a section below a key is written behind it, and the section's name."""
    for choice in entry.get("anyOf", (entry,)):
        if "$ref" in choice:
            yield "", _name(choice)
        elif "$ref" in choice.get("items", {}):
            yield "[]", _name(choice["items"])
        elif "$ref" in _additional(choice):
            yield f".{_PLACEHOLDERS[key]}", _name(_additional(choice))


def _additional(entry: Schema) -> Schema:
    found = entry.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _keys(section: Schema) -> str:
    required = section.get("required", ())
    return table(
        _HEADINGS,
        [
            (
                f"`{key}`",
                _values(key, entry),
                "required" if key in required else _default(entry),
                entry["description"].partition(" Written as ")[0],
            )
            for key, entry in section["properties"].items()
        ],
    )


def _values(key: str, entry: Schema) -> str:
    """Return what a key may be; of a section, what it is a section of."""
    below = [suffix for suffix, _ in _below(key, entry)]
    words = {"": "section", "[]": "list of sections"}
    if below:
        return words.get(below[0], "section for each name")
    return values_text(entry)


def _default(entry: Schema) -> str:
    if "default" not in entry:
        return ""
    return f"`{shown(entry['default'])}`" if entry["default"] not in ((), []) else "none"


def _anchor(path: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_ ")
