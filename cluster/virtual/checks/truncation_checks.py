"""Checks of truncations: each truncation of a log has its row LOG_TRUNCATED, and each row is true.

A follower truncates its log where it diverges from its leader's log. The checkers of a run read
these rows as the evidence that records were removed. A log counts its truncations itself, so its
count is compared with the number of its rows.

Source: Kafka UnifiedLog.truncateTo, ReplicaFetcherThread.truncate.
"""

import msgspec

from partition_log.log import PartitionLog
from partition_log.replica import Partition
from protocol.errors import InvariantViolation
from protocol.trace import TraceRow


class _Detail(msgspec.Struct):
    """The detail of a row LOG_TRUNCATED."""

    from_offset: int


_decode = msgspec.json.Decoder(_Detail).decode


class TruncationChecks:
    """The truncations that the trace of a run shows.

    Raises: InvariantViolation, from each method.
    """

    def __init__(self) -> None:
        self._rows: dict[PartitionLog, int] = {}
        """Log -> its number of rows LOG_TRUNCATED. A restarted broker opens new logs."""

    def traced(self, partition: Partition, row: TraceRow) -> None:
        """Check a row LOG_TRUNCATED, just after the truncation: the log ended later before."""
        log = partition.log
        self._rows[log] = self._rows.get(log, 0) + 1
        former_end = -1 if row.detail is None else _decode(row.detail).from_offset
        if row.offset != log.log_end_offset or former_end <= log.log_end_offset:
            raise InvariantViolation(
                "a truncation removes records",
                f"{log.topic_partition}: {row.node} has a row of a truncation from {former_end} to "
                f"{row.offset}, and its log ends at {log.log_end_offset}",
            )

    def check(self, partition: Partition) -> None:
        """Check, between two events, that a log has a row for each of its truncations."""
        log = partition.log
        traced = self._rows.get(log, 0)
        if traced != log.truncations:
            raise InvariantViolation(
                "a truncation has its row",
                f"{log.topic_partition}: the log of broker {partition.broker_id} was truncated "
                f"{log.truncations} times and ends at {log.log_end_offset}, the trace has {traced} "
                f"rows of this",
            )
