"""The table of trace kinds is complete, and refuses rows that do not agree with it.

A trace is the record of a run, with one row for each event. The kind of a row says which event it
is. The table lists the columns that a row of each kind fills; its other columns are null.
`nonconformity` returns what is wrong with a row, or None.
"""

import pytest

from cluster.host import base_host
from protocol.causes import RemovalCause
from protocol.errors import SimulationError
from protocol.trace import TRACE_COLUMNS, TraceEvent, TraceKind, TraceRow
from protocol.trace_schema import COLUMN_MEANINGS, TRACE_KINDS, TRACE_SECTIONS, nonconformity
from tests.support.builders.trace_rows import trace_row
from tests.support.checked_stamp import checked_stamp


def test_every_kind_is_in_the_table_once() -> None:
    """The readers and writers of traces look up each kind in this table."""
    kinds = [kind for section in TRACE_SECTIONS.values() for kind in section]
    assert kinds == list(dict.fromkeys(kinds))
    assert set(kinds) == set(TraceKind)


def test_table_names_existing_columns() -> None:
    """If a column is misspelt in the table, no row could ever fill it."""
    columns = [name for name, _ in TRACE_COLUMNS]
    assert list(COLUMN_MEANINGS) == columns
    for schema in TRACE_KINDS.values():
        assert set(schema.columns) <= set(columns)


def test_row_with_the_columns_of_its_kind_conforms() -> None:
    """The cause is a value of the enum of the kind, and the detail has the fields of the kind."""
    removed = trace_row(
        kind=TraceKind.MEMBER_REMOVED, group="g", member="m", generation=1, cause=RemovalCause.LEAVE
    )
    assert nonconformity(removed) is None
    assert nonconformity(trace_row(kind=TraceKind.LOAD_STARTED, detail={"wait_us": 1})) is None
    assert (
        nonconformity(trace_row(kind=TraceKind.COORDINATOR_UNKNOWN, cause="NOT_COORDINATOR"))
        is None
    )
    assert (
        nonconformity(trace_row(kind=TraceKind.METRICS, detail={"NumGroups": 1, "avg": None}))
        is None
    )


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            trace_row(kind=TraceKind.RUN_STAGE, peer="broker-0"),
            "run_stage fills peer ('broker-0'), expected null",
        ),
        (
            trace_row(kind=TraceKind.NODE_KILLED, peer="broker-0", cause="lightning"),
            "node_killed has cause 'lightning', expected one of machine lost, power loss",
        ),
        (
            trace_row(kind=TraceKind.LOAD_STARTED, detail={"waited": 1}),
            'load_started has detail {"waited":1}: Object contains unknown field `waited`',
        ),
        (
            trace_row(kind=TraceKind.UNLOAD_COMPLETED, detail={"groups": "two"}),
            'unload_completed has detail {"groups":"two"}: Expected `int`, got `str`'
            " - at `$.groups`",
        ),
        (
            trace_row(kind=TraceKind.GROUP_STATE, detail={"to": "Dead"}),
            'group_state has detail {"to":"Dead"}: Object missing required field `from`',
        ),
    ],
)
def test_row_with_an_undeclared_value_is_named(wrong: TraceRow, problem: str) -> None:
    """The error names the column, the cause, or the field of the detail that is wrong."""
    assert nonconformity(wrong) == problem


def test_hosts_of_tests_refuse_undeclared_values() -> None:
    """In tests, `checked_stamp` replaces `stamp`, which makes rows; it also checks each row."""
    assert vars(base_host)["stamp"] is checked_stamp
    event = TraceEvent(kind=TraceKind.NODE_STOPPED, cause="tired")
    with pytest.raises(SimulationError, match="node_stopped fills cause"):
        checked_stamp(event, run="r", time_us=0, node_time_us=0, seq=0, node="n", incarnation=0)
