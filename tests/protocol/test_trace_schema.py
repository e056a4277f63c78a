"""The table of trace kinds is complete, and refuses rows that do not agree with it.

The trace of a run has a row for each event. The kind of a row says what has happened, such as
"member_removed". The table says which columns a row of each kind fills. All other columns are null.
`nonconformity` compares a row with the table, and returns what is wrong with the row, or None.
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
    """Readers and writers of traces look up each kind in this table."""
    kinds = [kind for section in TRACE_SECTIONS.values() for kind in section]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == set(TraceKind)


def test_table_names_existing_columns() -> None:
    """If a column is misspelt in the table, no row could ever fill it."""
    columns = [name for name, _ in TRACE_COLUMNS]
    assert list(COLUMN_MEANINGS) == columns
    for schema in TRACE_KINDS.values():
        assert set(schema.columns) <= set(columns)


def test_row_with_the_columns_of_its_kind_conforms() -> None:
    """For some kinds the cause must be in an enum, or the detail must have certain fields.

    For other kinds any text is a cause, or the detail may have any fields.
    """
    cause_of_enum = trace_row(
        kind=TraceKind.MEMBER_REMOVED, group="g", member="m", generation=1, cause=RemovalCause.LEAVE
    )
    detail_with_known_field = trace_row(kind=TraceKind.LOAD_STARTED, detail={"wait_us": 1})
    any_cause = trace_row(kind=TraceKind.COORDINATOR_UNKNOWN, cause="NOT_COORDINATOR")
    any_detail = trace_row(kind=TraceKind.METRICS, detail={"NumGroups": 1, "avg": None})
    assert nonconformity(cause_of_enum) is None
    assert nonconformity(detail_with_known_field) is None
    assert nonconformity(any_cause) is None
    assert nonconformity(any_detail) is None


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
def test_row_with_a_value_that_the_table_does_not_allow_is_named(
    wrong: TraceRow, problem: str
) -> None:
    """The error names the column, the cause, or the field of the detail that is wrong."""
    assert nonconformity(wrong) == problem


def test_hosts_of_tests_refuse_wrong_rows() -> None:
    """Hosts make rows with `stamp`. In tests `checked_stamp` replaces it, and checks each row."""
    assert vars(base_host)["stamp"] is checked_stamp
    event = TraceEvent(kind=TraceKind.NODE_STOPPED, cause="tired")
    with pytest.raises(SimulationError, match="node_stopped fills cause"):
        checked_stamp(event, run="r", time_us=0, node_time_us=0, seq=0, node="n", incarnation=0)
