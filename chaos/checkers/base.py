"""What a checker is: rows of the trace go in one by one, findings with evidence come out.

A checker keeps its own model, far simpler than the code that it judges, and never looks at the
cluster. Rows come in the order of the run's clock; between machines that order is only as good as
`clock_error_us`, so that a checker judges by epochs and offsets, and by time only beyond it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.board import Evidence
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import tell
from results_schema.results import CheckOutcome, CheckReport, Finding

MAX_FINDINGS = 20
"""A broken guard breaks every commit: the first findings tell the story, the rest are counted."""


FindingSink = Callable[[Finding], None]
"""Gets each finding when it is made, up to MAX_FINDINGS of a checker."""


class Checker(ABC):
    """Watches a run for one promise.

    Shape: `evidence` is shared with whoever feeds it before each row; a checker that is given none
    stands alone, makes its own, and is fed by `observe`.
    """

    name: ClassVar[str]
    promise: ClassVar[str]
    """What it checks, in one sentence for people."""
    kinds: ClassVar[frozenset[TraceKind]]
    """The kinds of rows that it wants to see."""

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Whether a run of this context has anything that the check is about."""
        del context
        return True

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        self.context = context
        self.evidence = Evidence(context) if evidence is None else evidence
        self._turning_points = self.evidence.turning_points  # followed from here on
        self._faults = self.evidence.faults
        self.findings: list[Finding] = []
        self.findings_total = 0
        self.on_finding: FindingSink | None = None

    def observe(self, row: TraceRow) -> None:
        """Take in a row as the only reader of `evidence`; a suite feeds that itself."""
        self.evidence.observe(row)
        self.judge(row)

    @abstractmethod
    def judge(self, row: TraceRow) -> None:
        """Judge one row of one of `kinds`, which the evidence has already."""

    @abstractmethod
    def finish(self) -> CheckReport:
        """Judge what only the end can tell, and report. Called once."""

    def measured(self) -> dict[str, int]:
        """Return the figures so far that are no verdict; see CheckReport."""
        return {}

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return what the promise still waits for, in words; nothing once a bound is over.

        A run with a `recovery_timeout` goes on as long as there is anything.
        """
        return ()

    def found(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None = None,
        partition: str | None = None,
        causes: Sequence[TraceRow] = (),
    ) -> None:
        """Record a finding; `evidence` is put in time order and told as a story.

        `causes` tell why it could happen: they stand with what led to it, and prove nothing.
        """
        self.findings_total += 1
        if len(self.findings) >= MAX_FINDINGS:
            return
        finding = self._finding(summary, evidence, group=group, partition=partition, causes=causes)
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
        causes: Sequence[TraceRow] = (),
    ) -> None:
        """Tell of a finding now whose whole extent only the end can tell; it is not recorded."""
        if self.on_finding is not None:
            self.on_finding(
                self._finding(summary, evidence, group=group, partition=partition, causes=causes)
            )

    def _finding(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None,
        partition: str | None,
        causes: Sequence[TraceRow],
    ) -> Finding:
        rows = in_time_order(evidence)
        led_to = self._led_to(rows, group=group, partition=partition)
        return Finding(
            check=self.name,
            summary=summary,
            time_us=rows[-1].time_us if rows else 0,
            group=group,
            partition=partition,
            story=tuple(tell(row) for row in rows),
            evidence=tuple(rows),
            led_to=tuple(in_time_order([*led_to, *(row for row in causes if row not in rows)])),
        )

    def _led_to(
        self, rows: list[TraceRow], *, group: str | None, partition: str | None
    ) -> tuple[TraceRow, ...]:
        """Return what led to the evidence `rows`: of the group also what its coordinators did."""
        if not rows:
            return ()
        known = None if group is None else self.context.groups.get(group)
        about = (partition, None if known is None else known.offsets_partition)
        return self._turning_points.led_to(
            rows,
            partitions={name for name in about if name is not None},
            groups=set() if group is None else {group},
            faults=self._faults.since(rows[0].time_us),
        )

    def report(
        self,
        *,
        judged: int,
        seen: dict[str, int],
        note: str = "",
        inconclusive: bool = False,
        excused: dict[str, int] | None = None,
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
            excused=excused or {},
        )


def in_time_order(rows: list[TraceRow]) -> list[TraceRow]:
    """Return the rows as they happened, each once: a row may prove a thing in two ways."""
    unique = {(row.time_us, row.node, row.incarnation, row.seq): row for row in rows}
    return [unique[key] for key in sorted(unique)]
