"""A check of consumers: a member's periodic commits keep their interval.

Either a member's application commits every `commit_interval_ms`, or its consumer commits every
`auto.commit.interval.ms`, because `enable.auto.commit` is set. A row does not say why the member
has committed, and it has the time of the answer and not of the request. So the check counts the
acknowledged commits of each partition since its assignment, and compares the count with the highest
number that the interval allows:

- a commit at once, and one more for each whole interval since the assignment;
- one commit before the partition is revoked, or before the consumer is closed;
- one more for each failure, because after a failed commit the next one may come earlier.

Source: Kafka ConsumerCoordinator.maybeAutoCommitOffsetsAsync.
"""

from dataclasses import dataclass, field

from cluster.spec import ClusterSpec, ConsumerSpec
from protocol.errors import InvariantViolation
from protocol.trace import TraceKind, TraceRow

COMMIT_INTERVAL_KINDS = frozenset(
    {TraceKind.PARTITIONS_ASSIGNED, TraceKind.OFFSETS_COMMITTED, TraceKind.COMMIT_FAILED}
)
"""Kinds of rows that CommitIntervalChecks must see."""

_MS = 1_000
"""Microseconds of a millisecond."""


@dataclass(slots=True)
class _Assignment:
    """The last assignment of a member, and the commits since then.

    `assigned_us` is a time of the member's own clock, by which it measures its interval. `commits`
    has the number of acknowledged commits of each partition. `failures` counts rows and not
    commits, so it may allow too many commits, but never too few.
    """

    incarnation: int
    member: str | None
    generation: int | None
    assigned_us: int
    commits: dict[str | None, int] = field(default_factory=dict)
    failures: int = 0


class CommitIntervalChecks:
    """Compares the number of each member's commits with its interval."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._intervals_us: dict[str, int] = {
            consumer.name: _interval_ms(consumer) * _MS
            for consumer in cluster.consumers
            if _interval_ms(consumer)
        }
        """Node -> its interval, if it commits periodically."""
        self._assignments: dict[str, _Assignment] = {}
        """Node -> its last assignment."""

    def observe(self, row: TraceRow) -> None:
        """Take the next row of COMMIT_INTERVAL_KINDS. Raises: InvariantViolation."""
        if row.kind == TraceKind.PARTITIONS_ASSIGNED:
            self._assignments[row.node] = _Assignment(
                row.incarnation, row.member, row.generation, row.node_time_us
            )
            return
        assignment = self._assignments.get(row.node)
        if assignment is None or row.incarnation != assignment.incarnation:
            return
        if row.kind == TraceKind.COMMIT_FAILED:
            assignment.failures += 1
        # A commit of an earlier generation may be acknowledged late. It does not count.
        elif row.generation == assignment.generation and row.member == assignment.member:
            self._count(row, assignment)

    def _count(self, row: TraceRow, assignment: _Assignment) -> None:
        """Count an acknowledged commit of a partition, and compare the count with its interval."""
        interval_us = self._intervals_us.get(row.node)
        if interval_us is None:  # for example a member of a group on ZooKeeper
            return
        count = assignment.commits[row.partition] = assignment.commits.get(row.partition, 0) + 1
        elapsed_us = row.node_time_us - assignment.assigned_us
        # 2: a commit at once, and one before the revocation.
        allowed = elapsed_us // interval_us + 2 + assignment.failures
        if count > allowed:
            raise InvariantViolation(
                "periodic commits keep their interval",
                f"{row.node} incarnation {row.incarnation}: {count} commits of {row.partition} in "
                f"{elapsed_us / 1e6:.3f} s of generation {row.generation}, expected at most "
                f"{allowed} with an interval of {interval_us // _MS} ms",
            )


def _interval_ms(consumer: ConsumerSpec) -> int:
    """Return the interval of a member's periodic commits; 0 if it has none."""
    if consumer.config.enable_auto_commit:
        return consumer.config.auto_commit_interval_ms
    return consumer.commit_interval_ms or 0
