"""`stamp` makes a trace row of a node's event: each field is put into the right column."""

from typing import get_type_hints

import msgspec

from protocol.trace import MESSAGE_KINDS, TRACE_COLUMNS, TraceEvent, TraceRow, stamp


def test_stamp_puts_every_field_into_its_column() -> None:
    """`stamp` builds a row from a list of values, so it could swap two columns of the same type.

    Here the value of each text column is the name of the column, and all numbers differ.
    """
    texts = ("peer", "group", "member", "partition", "api", "error", "cause")
    numbers = {"generation": 1, "leader_epoch": 2, "offset": 3, "correlation_id": 4}
    event = msgspec.convert(
        {
            "kind": "request_sent",
            "detail": {"b": 1, "a": [2]},
            **{name: name for name in texts},
            **numbers,
        },
        TraceEvent,
    )

    row = stamp(event, run="run", time_us=10, node_time_us=11, seq=12, node="node", incarnation=13)

    for name in (*texts, "run", "node"):
        assert getattr(row, name) == name
    for name, number in numbers.items():
        assert getattr(row, name) == number
    assert row.time_us == 10
    assert row.node_time_us == 11
    assert row.seq == 12
    assert row.incarnation == 13
    assert row.kind == "request_sent"
    assert type(row.kind) is str  # a member of the enum would be equal to this text, too
    # The keys of the detail are sorted.
    assert row.detail == '{"a":[2],"b":1}'


def test_columns_are_the_fields_of_a_row_in_order() -> None:
    """The Parquet files of a trace and the rows must have the same columns."""
    assert tuple(name for name, _ in TRACE_COLUMNS) == TraceRow.__struct_fields__
    hints = get_type_hints(TraceRow)
    for name, parquet_type in TRACE_COLUMNS:
        hint = hints[name]
        # The types in `str | None` are str and None. A simple type has no `__args__`.
        types = getattr(hint, "__args__", (hint,))
        assert (str in types) == (parquet_type == "string")


def test_message_kinds_are_those_of_requests_and_responses() -> None:
    """Rows of these kinds can be switched off. REQUEST_FAILED is not among these kinds."""
    assert {kind.value for kind in MESSAGE_KINDS} == {
        "request_sent",
        "response_received",
        "request_received",
        "response_sent",
    }
