"""Markdown for the generated reference pages: tables, and a JSON Schema's values in words."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Schema = Mapping[str, Any]  # Any: JSON
_DURATION = "5s"
"""The example in the schema of every duration; it distinguishes durations from other strings."""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    """Return a cell in which `|` does not end the cell."""
    return cell.replace("|", "\\|")


def shown(value: object) -> str:
    """Return a value as text, as an experiment file has it."""
    return msgspec.json.encode(value).decode().strip('"')


def values_text(entry: Schema) -> str:
    """Return a schema's values in words: types, bounds, and choices."""
    if "$ref" in entry:
        return "a section"
    if "anyOf" in entry:
        choices = entry["anyOf"]
        if all("const" in choice for choice in choices):
            return ", ".join(f"`{shown(choice['const'])}`" for choice in choices)
        texts = [values_text(choice) for choice in choices if choice != {"type": "null"}]
        return " or ".join(texts)
    if "enum" in entry:
        return ", ".join(f"`{shown(value)}`" for value in entry["enum"])
    if entry.get("type") == "string" and _DURATION in entry.get("examples", ()):
        return "duration"
    return _typed(entry)


def _typed(entry: Schema) -> str:
    """Return the type of a schema and its bounds in words."""
    kind = str(entry.get("type", ""))
    if kind == "array":
        least = " (at least one)" if entry.get("minItems") else ""
        return f"list of {values_text(entry['items'])}{least}"
    if kind == "object":
        return "mapping"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    bounds = (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum"))
    if "minimum" in entry and entry.get("minimum") == entry.get("maximum"):
        return f"`{entry['minimum']}`"
    texts = [f"{word} {entry[key]}" for word, key in bounds if key in entry]
    return " ".join((words.get(kind, kind), *texts))
