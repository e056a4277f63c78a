"""The check that compares the truncations of logs with the rows of the trace about them.

A follower removes the end of its log if its leader's log does not have it. The row LOG_TRUNCATED
shows the former end and the new one. Without this row the checkers of a run cannot tell why records
are gone.

In the tests, broker 1 follows, and its log has the records 0, 1 and 2. Then it truncates its log.
"""

import pytest

from cluster.virtual.checks.truncation_checks import TruncationChecks
from partition_log.log import PartitionLog
from partition_log.replica import Partition
from partition_log.traces import log_truncated
from protocol.errors import InvariantViolation
from protocol.ids import LeaderEpoch, Offset
from protocol.trace import TraceRow, stamp
from tests.support.builders.partition_logs import B, follower, log_of_epochs


def row_of(log: PartitionLog, *, from_offset: int) -> TraceRow:
    """Return the row of a truncation of `log` that has just happened."""
    event = log_truncated(log, LeaderEpoch(1), Offset(from_offset))
    return stamp(event, run="r", time_us=1, node_time_us=1, seq=0, node="broker-1", incarnation=0)


@pytest.fixture
def truncated() -> Partition:
    """Return the follower after a truncation from offset 3 to 1."""
    log = log_of_epochs(0, 0, 0)
    log.truncate_to(1)
    return follower(B, log)


def test_truncation_with_its_row_is_no_violation(truncated: Partition) -> None:
    """A later truncation of the same log has a second row."""
    checks = TruncationChecks()
    checks.traced(truncated, row_of(truncated.log, from_offset=3))
    checks.check(truncated)
    truncated.log.truncate_to(0)
    checks.traced(truncated, row_of(truncated.log, from_offset=1))
    checks.check(truncated)


def test_truncation_without_a_row_is_found(truncated: Partition) -> None:
    """The row may be missing from the beginning, or from the second truncation on."""
    checks = TruncationChecks()
    with pytest.raises(InvariantViolation, match="was truncated 1 times and ends at 1"):
        checks.check(truncated)
    checks.traced(truncated, row_of(truncated.log, from_offset=3))
    truncated.log.truncate_to(0)
    with pytest.raises(InvariantViolation, match="was truncated 2 times and ends at 0"):
        checks.check(truncated)


def test_row_of_a_truncation_that_removes_nothing_is_found() -> None:
    """A truncation to the end of the log removes at most an epoch without batches."""
    log = log_of_epochs(0, 0, 0)
    log.truncate_to(3)
    with pytest.raises(InvariantViolation, match="a truncation from 3 to 3"):
        TruncationChecks().traced(follower(B, log), row_of(log, from_offset=3))
