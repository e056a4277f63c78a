"""Whether a commit succeeded, in traces short enough to be counted by hand.

A commit of several partitions has a row of the trace for each partition, all at the same time. The
broker may refuse some partitions, so the rows may differ, but the commit has one outcome. A line of
a trace has the time in seconds, the node, the kind of the row, and other columns.
"""

import pytest

from pipeline.in_memory.commits import commits_of
from pipeline.in_memory.trace import Trace
from tests.support.builders.trace_builder import parse_trace

# The parts of a line between its time and the name of the partition.
COMMITTED = "consumer-a offsets_committed group=g peer=broker-0 partition="
FAILED = "consumer-a commit_failed group=g peer=broker-0 partition="
TOO_LARGE, UNKNOWN = "OFFSET_METADATA_TOO_LARGE", "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("rows", "outcomes"),
    [
        pytest.param(f"2 {COMMITTED}t-0\n2 {COMMITTED}t-1", {"NONE": 1}, id="acknowledged"),
        pytest.param(
            f"2 {COMMITTED}t-0\n2 {FAILED}t-1 error={TOO_LARGE}", {TOO_LARGE: 1}, id="one error"
        ),
        pytest.param(
            f"2 {FAILED}t-0 error={TOO_LARGE}\n2 {FAILED}t-1 error={UNKNOWN}",
            {UNKNOWN: 1},
            id="two errors, in the order of their names",
        ),
        pytest.param(
            f"2 {FAILED}t-0 error={UNKNOWN}\n2 {FAILED}t-1 error={TOO_LARGE}",
            {UNKNOWN: 1},
            id="two errors, in the reverse order",
        ),
        pytest.param(
            f"2 {COMMITTED}t-0\n3 {FAILED}t-0 error={UNKNOWN}",
            {"NONE": 1, UNKNOWN: 1},
            id="two commits",
        ),
    ],
)
def test_commit_has_one_outcome_in_whatever_order_its_rows_come(
    rows: str, outcomes: dict[str, int]
) -> None:
    """One failed partition makes the whole commit fail.

    If two partitions have different errors, the error that comes last in the alphabet counts. So
    the order of the rows does not matter. Spark's table (`pipeline.tables.commits`) has the same
    rule.
    """
    # The table has a row for each error. The error NONE stands for success.
    table = commits_of(Trace(parse_trace(rows)))
    assert {row["error"]: row["commits"] for row in table} == outcomes
