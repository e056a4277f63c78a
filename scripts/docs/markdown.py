"""Markdown tables for the reference pages, and values of a JSON Schema in words.

The schema `{"type": "integer", "minimum": 1}` becomes "whole number from 1", for example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Schema = Mapping[str, Any]
"""A JSON Schema, or a part of one."""
_EXAMPLE_OF_A_DURATION = "5s"
"""The schema of every duration has this example, which distinguishes durations from other strings.
"""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with these rows."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    """Return the text of a cell, with a backslash before each `|`, which would end the cell."""
    return cell.replace("|", "\\|")


def as_in_file(value: object) -> str:
    """Return a value as it is written in an experiment file, a string without quotes."""
    return msgspec.json.encode(value).decode().strip('"')


def values_text(entry: Schema) -> str:
    """Return in words which values a schema permits.

    For example `whole number from 1 to 10`, `duration`, or the choices `classic`, `consumer`.
    """
    if "$ref" in entry:
        return "a section"
    if "anyOf" in entry:
        choices = entry["anyOf"]
        # The choices are fixed values, or they are schemas.
        if all("const" in choice for choice in choices):
            return ", ".join(f"`{as_in_file(choice['const'])}`" for choice in choices)
        # The text does not say that a value may be null.
        texts = [values_text(choice) for choice in choices if choice != {"type": "null"}]
        return " or ".join(texts)
    if "enum" in entry:
        return ", ".join(f"`{as_in_file(value)}`" for value in entry["enum"])
    if entry.get("type") == "string" and _EXAMPLE_OF_A_DURATION in entry.get("examples", ()):
        return "duration"
    return _type_with_bounds(entry)


def _type_with_bounds(entry: Schema) -> str:
    """Return in words the type of a schema and its bounds, such as `whole number from 1`."""
    json_type = str(entry.get("type", ""))
    if json_type == "array":
        least = " (at least one)" if entry.get("minItems") else ""
        return f"list of {values_text(entry['items'])}{least}"
    if json_type == "object":
        return "mapping"
    only_one_value = "minimum" in entry and entry["minimum"] == entry.get("maximum")
    if only_one_value:
        return f"`{entry['minimum']}`"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    bounds = (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum"))
    texts = [f"{word} {entry[key]}" for word, key in bounds if key in entry]
    return " ".join((words.get(json_type, json_type), *texts))
