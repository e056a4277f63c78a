"""The reference page of traces, from the table of kinds in `protocol.trace_schema`.

A trace has a row for each event of a run. The page describes the columns of a row, the kinds of
rows, and the values of two columns:

- `detail` is a small JSON object with facts that only this kind of row has. For each kind a
  subclass of Detail describes it; only the rows of metrics have a plain dict of numbers.
- `cause` says why something happened. Most of its values are members of enums.
"""

import inspect
from enum import StrEnum
from typing import TypeGuard

import msgspec

from chaos.experiment.struct_walk import fields_of, summary_of
from protocol.trace import TRACE_COLUMNS, TraceRow
from protocol.trace_schema import (
    COLUMN_MEANINGS,
    STAMP,
    TRACE_KINDS,
    TRACE_SECTIONS,
    Detail,
    KindSchema,
)
from scripts.docs.markdown import Schema, table, values_text


def trace_page() -> str:
    """Return the page: columns of a row, kinds of rows, fields of details, and causes."""
    columns = [(f"`{name}`", kind, COLUMN_MEANINGS[name]) for name, kind in TRACE_COLUMNS]
    parts = [
        f"# Trace\n\n{inspect.getdoc(TraceRow)}\n",
        table(("column", "type", "meaning"), columns),
        # STAMP has the names of the columns that every row fills, such as its time.
        f"## Kinds\n\nThe columns that a kind fills, beside {', '.join(STAMP)}.\n",
    ]
    for section, kinds in TRACE_SECTIONS.items():
        rows = [
            (f"`{kind.value}`", schema.summary, _columns_text(schema), _detail_text(schema))
            for kind, schema in kinds.items()
        ]
        parts.append(f"### {section}\n\n" + table(("kind", "meaning", "columns", "detail"), rows))
    parts.append("## Details\n")
    parts += [_detail_section(detail) for detail in _details()]
    parts.append("## Causes\n")
    parts += [
        f"### {causes.__name__}\n\n{summary_of(causes)}\n\n"
        + "".join(f"- `{cause.value}`\n" for cause in causes)
        for causes in _causes()
    ]
    # Each part ends with one line break, and an empty line separates it from the next part.
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _columns_text(schema: KindSchema) -> str:
    """Return which columns a kind of row fills, and with what, as the text of one cell."""
    cells = []
    for name, meaning in schema.columns.items():
        if name == "cause":
            # Enums of causes have sections of their own, so here their names are enough.
            values = [causes.__name__ for causes in schema.causes]
            # `meaning` describes causes that are not in these enums.
            if meaning:
                values.append(meaning)
            cells.append(f"`cause`: {', '.join(values)}")
        elif name != "detail":
            cells.append(f"`{name}`: {meaning}" if meaning else f"`{name}`")
    return "; ".join(cells)


def _detail_text(schema: KindSchema) -> str:
    """Return the names of the fields in a kind's detail."""
    if schema.detail is None:
        return ""
    if not _is_detail(schema.detail):
        return "numbers by name"
    return ", ".join(f"`{field.key}`" for field in fields_of(schema.detail))


def _detail_section(detail: type[Detail]) -> str:
    """Return the section about one kind of detail: heading, summary, table of fields."""
    _, components = msgspec.json.schema_components((detail,))
    properties = components[detail.__name__]["properties"]
    rows = [
        (f"`{field.key}`", values_text(_resolve_ref(properties[field.key], components)), field.doc)
        for field in fields_of(detail)
    ]
    return f"### {detail.__name__}\n\n{summary_of(detail)}\n\n" + table(
        ("field", "type", "meaning"), rows
    )


def _resolve_ref(entry: Schema, components: Schema) -> Schema:
    """Return the schema to which an entry refers, or the entry itself if it refers to none.

    For instance, the schema of an enum is stored once, and each field of this type refers to it.
    """
    # A reference is a path to the other schema's name, such as "#/$defs/Cause".
    name = str(entry.get("$ref", "")).rpartition("/")[2]
    component: Schema = components.get(name, entry)
    return component


def _details() -> list[type[Detail]]:
    """Return the structs of details, each once, in the order of the kinds."""
    details = [schema.detail for schema in TRACE_KINDS.values() if schema.detail is not None]
    return [detail for detail in dict.fromkeys(details) if _is_detail(detail)]


def _causes() -> list[type[StrEnum]]:
    """Return the enums of causes, each once, in the order of the kinds."""
    return list(dict.fromkeys(causes for kind in TRACE_KINDS.values() for causes in kind.causes))


def _is_detail(detail: object) -> TypeGuard[type[Detail]]:
    """Return whether a kind's detail is a subclass of Detail; otherwise it is a dict of numbers."""
    return inspect.isclass(detail) and issubclass(detail, Detail)
