"""What a checker is: rows of the trace go in one by one, findings with evidence come out.

A checker keeps its own model, far simpler than the code that it judges, and never looks at the
cluster. Rows come in the order of the run's clock; between machines that order is only as good as
`clock_error_us`, so that a checker judges by epochs and offsets, and by time only beyond it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import tell
from results_schema.results import CheckOutcome, CheckReport, Finding

MAX_FINDINGS = 20
"""A broken guard breaks every commit: the first findings tell the story, the rest are counted."""


FindingSink = Callable[[Finding], None]
"""Gets each finding when it is made, up to MAX_FINDINGS of a checker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExpectation:
    """What a checker may expect of one group. The defaults are Kafka's.

    Shape: `consumers` are node names, `late` those of them that the run starts itself: they count
    from their NODE_STARTED on. `offsets_partition` is printed as in the trace, and so are
    `transaction_partitions`, those of its members' transactional ids, if they commit in
    transactions.
    Units: the longest of any member, but for `max_poll_interval_us`, the shortest, and for
    `eviction_us`: the shortest time after which a coordinator may drop a silent member, of
    session.timeout.ms and max.poll.interval.ms. `application_us` is what the application takes
    between two polls, if the first returns as many records as it may.
    """

    consumers: tuple[str, ...]
    offsets_partition: str
    commits: bool
    late: tuple[str, ...] = ()
    session_timeout_us: int = 45_000_000
    heartbeat_interval_us: int = 3_000_000
    eviction_us: int = 45_000_000
    max_poll_interval_us: int = 300_000_000
    request_timeout_us: int = 30_000_000
    retry_backoff_max_us: int = 1_000_000
    application_us: int = 50_000
    transaction_partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What the checkers know of the experiment beside its trace.

    Units: `clock_error_us` bounds how far the clocks of two nodes are apart.
    """

    groups: dict[str, GroupExpectation] = field(default_factory=dict)
    min_insync_replicas: int = 1
    transaction_min_isr: int = 1
    liveness_timeout_us: int = 60_000_000
    clock_error_us: int = 0


class Checker(ABC):
    """Watches a run for one promise."""

    name: str
    promise: str
    """What it checks, in one sentence for people."""
    kinds: frozenset[TraceKind]
    """The kinds of rows that it wants to see."""

    def __init__(self, context: CheckContext) -> None:
        self.context = context
        self.findings: list[Finding] = []
        self.findings_total = 0
        self.on_finding: FindingSink | None = None

    @abstractmethod
    def observe(self, row: TraceRow) -> None:
        """Take in one row of one of `kinds`."""

    @abstractmethod
    def finish(self) -> CheckReport:
        """Judge what only the end can tell, and report. Called once."""

    def measured(self) -> dict[str, int]:
        """Return the figures so far that are no verdict; see CheckReport."""
        return {}

    def found(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None = None,
        partition: str | None = None,
    ) -> None:
        """Record a finding; `evidence` is put in time order and told as a story."""
        self.findings_total += 1
        if len(self.findings) >= MAX_FINDINGS:
            return
        finding = self._finding(summary, evidence, group=group, partition=partition)
        self.findings.append(finding)
        if self.on_finding is not None:
            self.on_finding(finding)

    def announce(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None = None,
        partition: str | None = None,
    ) -> None:
        """Tell of a finding now whose whole extent only the end can tell; it is not recorded."""
        if self.on_finding is not None:
            self.on_finding(self._finding(summary, evidence, group=group, partition=partition))

    def _finding(
        self, summary: str, evidence: list[TraceRow], *, group: str | None, partition: str | None
    ) -> Finding:
        rows = in_time_order(evidence)
        return Finding(
            check=self.name,
            summary=summary,
            time_us=rows[-1].time_us if rows else 0,
            group=group,
            partition=partition,
            story=tuple(tell(row) for row in rows),
            evidence=tuple(rows),
        )

    def report(
        self, *, judged: int, seen: dict[str, int], note: str = "", inconclusive: bool = False
    ) -> CheckReport:
        """Return the report; `judged` counts the cases in which a violation could have shown."""
        if self.findings_total:
            outcome = CheckOutcome.VIOLATED
        elif inconclusive:
            outcome = CheckOutcome.INCONCLUSIVE
        elif judged == 0:
            outcome = CheckOutcome.NOTHING_SEEN
        else:
            outcome = CheckOutcome.PASS
        return CheckReport(
            check=self.name,
            outcome=outcome,
            findings=tuple(self.findings),
            findings_total=self.findings_total,
            seen=seen,
            note=note,
            measured=self.measured(),
        )


def in_time_order(rows: list[TraceRow]) -> list[TraceRow]:
    """Return the rows as they happened, each once: a row may prove a thing in two ways."""
    unique = {(row.time_us, row.node, row.incarnation, row.seq): row for row in rows}
    return [unique[key] for key in sorted(unique)]


def detail_of(row: TraceRow) -> dict[str, Any]:
    """Return the decoded detail of a row; values are whatever its kind's JSON holds."""
    if row.detail is None:
        return {}
    detail: dict[str, Any] = msgspec.json.decode(row.detail)
    return detail
