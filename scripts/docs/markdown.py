"""Markdown for the generated reference pages: tables, and a JSON Schema's values in words.

For instance, the JSON Schema `{"type": "integer", "minimum": 1}` becomes "whole number from 1".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Schema = Mapping[str, Any]  # Any: each value is JSON of some type
_DURATION = "5s"
"""An example in the schema of every duration. No other schema of a string has this example."""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; each row has a cell for each heading."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    """Return a cell with a backslash before each `|`, which would otherwise end the cell."""
    return cell.replace("|", "\\|")


def shown(value: object) -> str:
    """Return a value as it is written in an experiment file."""
    # JSON puts strings into quotes; an experiment file needs no quotes.
    return msgspec.json.encode(value).decode().strip('"')


def values_text(entry: Schema) -> str:
    """Return in words which values a schema permits: its type and bounds, or the choices."""
    if "$ref" in entry:
        return "a section"
    if "anyOf" in entry:
        choices = entry["anyOf"]
        # The choices are all fixed values, or else they are schemas.
        if all("const" in choice for choice in choices):
            return ", ".join(f"`{shown(choice['const'])}`" for choice in choices)
        # The choice null is left out.
        texts = [values_text(choice) for choice in choices if choice != {"type": "null"}]
        return " or ".join(texts)
    if "enum" in entry:
        return ", ".join(f"`{shown(value)}`" for value in entry["enum"])
    if entry.get("type") == "string" and _DURATION in entry.get("examples", ()):
        return "duration"
    return _typed(entry)


def _typed(entry: Schema) -> str:
    """Return in words the type of a schema, and its bounds."""
    kind = str(entry.get("type", ""))
    if kind == "array":
        least = " (at least one)" if entry.get("minItems") else ""
        return f"list of {values_text(entry['items'])}{least}"
    if kind == "object":
        return "mapping"
    # Equal bounds permit only one value.
    if "minimum" in entry and entry.get("minimum") == entry.get("maximum"):
        return f"`{entry['minimum']}`"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    bounds = (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum"))
    texts = [f"{word} {entry[key]}" for word, key in bounds if key in entry]
    return " ".join((words.get(kind, kind), *texts))
