"""Makes the reference page of the trace, which has a row for each event of a run.

The page first has the columns that a row can have, and then the kinds of rows, such as
`leader_elected`, with the columns that each kind fills. Two columns have chapters of their own:

- `detail` is a small JSON object with facts that only one kind of row has. A subclass of Detail
  describes it.
- `cause` says why something has happened. Its values are members of enums.

All this comes from `protocol.trace_schema`.
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
    """Return the page: columns, kinds of rows, fields of each detail, and causes."""
    columns = [(f"`{name}`", kind, COLUMN_MEANINGS[name]) for name, kind in TRACE_COLUMNS]
    parts = [
        f"# Trace\n\n{inspect.getdoc(TraceRow)}\n",
        table(("column", "type", "meaning"), columns),
        # STAMP has the columns that every row fills, such as its time.
        f"## Kinds\n\nThe columns that a kind fills, beside {', '.join(STAMP)}.\n",
    ]
    for section, kinds in TRACE_SECTIONS.items():
        rows = [
            (f"`{kind.value}`", schema.summary, _columns_cell(schema), _detail_cell(schema))
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
    # Put an empty line between two parts. A part may end with a line break or without one.
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _columns_cell(schema: KindSchema) -> str:
    """Return which columns a kind of row fills, each with what it means if that is special."""
    cells = []
    for name, meaning in schema.columns.items():
        if name == "cause":
            # The enums of causes have chapters of their own, so their names are enough here.
            values = [causes.__name__ for causes in schema.causes]
            # Some causes are in no enum. `meaning` describes them.
            if meaning:
                values.append(meaning)
            cells.append(f"`cause`: {', '.join(values)}")
        elif name != "detail":
            cells.append(f"`{name}`: {meaning}" if meaning else f"`{name}`")
    return "; ".join(cells)


def _detail_cell(schema: KindSchema) -> str:
    """Return the fields that the detail of a kind has."""
    if schema.detail is None:
        return ""
    if not _is_detail(schema.detail):
        return "numbers by name"
    return ", ".join(f"`{field.key}`" for field in fields_of(schema.detail))


def _detail_section(detail: type[Detail]) -> str:
    """Return the chapter on one kind of detail: heading, summary, table of fields."""
    _, components = msgspec.json.schema_components((detail,))
    properties = components[detail.__name__]["properties"]
    rows = [
        (
            f"`{field.key}`",
            values_text(_schema_referred_to(properties[field.key], components)),
            field.doc,
        )
        for field in fields_of(detail)
    ]
    return f"### {detail.__name__}\n\n{summary_of(detail)}\n\n" + table(
        ("field", "type", "meaning"), rows
    )


def _schema_referred_to(entry: Schema, components: Schema) -> Schema:
    """Return the schema to which an entry refers, or the entry itself if it does not refer to any.

    A field whose type is the enum Cause has the entry `{"$ref": "#/$defs/Cause"}` for example.
    """
    name = str(entry.get("$ref", "")).rpartition("/")[2]
    component: Schema = components.get(name, entry)
    return component


def _details() -> list[type[Detail]]:
    """Return the subclasses of Detail, each once, in the order of the kinds."""
    details = [schema.detail for schema in TRACE_KINDS.values() if schema.detail is not None]
    return [detail for detail in dict.fromkeys(details) if _is_detail(detail)]


def _causes() -> list[type[StrEnum]]:
    """Return the enums of causes, each once, in the order of the kinds."""
    return list(dict.fromkeys(causes for kind in TRACE_KINDS.values() for causes in kind.causes))


def _is_detail(detail: object) -> TypeGuard[type[Detail]]:
    """Return True for a subclass of Detail. Rows with metrics have a plain dict of numbers."""
    return inspect.isclass(detail) and issubclass(detail, Detail)
