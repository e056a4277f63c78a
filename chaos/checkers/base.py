"""The base class of checkers: it takes the rows of a trace one by one, and collects findings.

A checker keeps its own model of the cluster, far simpler than the code that it judges. It reads
nothing but the trace (the run's recorded events, one row each). Each violation that it sees becomes
a finding, with the rows that prove it.

A checker gets the rows in the order of their times, but these times come from the clocks of several
machines, which may differ by up to `clock_error_us` (see CheckContext). So the order of two rows
from different nodes proves nothing by itself. Wherever it can, a checker compares such rows by
their epochs or offsets instead. Where it must compare times, it allows for the clock error.

The same trace must give the same findings in the same order every time. A Python set of strings has
another order in every process. Where a checker needs a set of names, it therefore uses a dict whose
values are all None, because a dict keeps the order in which its keys were added.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.board import Evidence
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import describe_row
from results_schema.results import CheckOutcome, CheckReport, Finding

MAX_FINDINGS = 20
"""Findings kept per checker; later ones are only counted.

A single bug can break every commit of a run. The first findings explain the bug.
"""

FindingSink = Callable[[Finding], None]
"""Receives each finding that a checker keeps (at most MAX_FINDINGS) or announces."""


class Checker(ABC):
    """Checks one promise in the trace of one run.

    Checkers need many of the same facts, such as which broker coordinates a group. An Evidence
    object computes these facts from the rows. The checkers of a run are in a CheckSuite, which
    makes one Evidence for all of them. The suite feeds each row first to the Evidence, and then to
    `judge` of the checkers.

    A test may use a checker without a suite. The checker then makes an Evidence of its own, and the
    test calls `observe` for each row.
    """

    name: ClassVar[str]
    promise: ClassVar[str]
    """The promise in one sentence, for reports."""
    kinds: ClassVar[frozenset[TraceKind]]
    """Kinds of the rows that `judge` must get."""

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Return True if a run of this context has anything for this checker to check."""
        del context
        return True

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        self.context = context
        self.evidence = Evidence(context) if evidence is None else evidence
        # Evidence begins to collect a fact when the fact's attribute is read for the first time.
        # A finding shows which events and faults came before it, back to the start of the run. So
        # both attributes are read here, before the first row, although only findings use them.
        self._turning_points = self.evidence.turning_points
        self._faults = self.evidence.faults
        self.findings: list[Finding] = []
        self.findings_total = 0
        self.on_finding: FindingSink | None = None  # set by the run, if it reacts to findings

    def observe(self, row: TraceRow) -> None:
        """Feed a row to the checker's own `evidence`, then judge it.

        Only for a checker that is used alone: a CheckSuite feeds the shared evidence itself.
        """
        self.evidence.observe(row)
        self.judge(row)

    @abstractmethod
    def judge(self, row: TraceRow) -> None:
        """Judge a row of one of `kinds`; `evidence` has observed it already."""

    @abstractmethod
    def finish(self) -> CheckReport:
        """Judge the cases that need the whole trace, and report. Called once."""

    def measured(self) -> dict[str, int]:
        """Return measured figures that are not part of the verdict; see CheckReport."""
        return {}

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return a sentence for each condition that must still come true to keep the promise.

        An example is `orders-0 is not whole`: the ISR of this partition still lacks a replica. A
        run whose experiment has a `recovery_timeout` continues, for at most this time, while any
        checker returns a sentence. If the time limit of a condition has passed at `now_us`, the
        condition is left out, because it is already a finding.
        """
        return ()

    def report_finding(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None = None,
        partition: str | None = None,
        causes: Sequence[TraceRow] = (),
    ) -> None:
        """Record a finding.

        - `evidence`: the rows that prove the violation. The finding lists them in time order, and
          describes each in a sentence.
        - `causes`: rows that explain how the violation became possible. The finding shows them
          among the events that led to the violation.
        """
        self.findings_total += 1
        if len(self.findings) >= MAX_FINDINGS:
            return
        finding = self._finding(summary, evidence, group=group, partition=partition, causes=causes)
        self.findings.append(finding)
        if self.on_finding is not None:
            self.on_finding(finding)

    def announce_finding(
        self,
        summary: str,
        evidence: list[TraceRow],
        *,
        group: str | None = None,
        partition: str | None = None,
        causes: Sequence[TraceRow] = (),
    ) -> None:
        """Pass a finding to `on_finding` without recording it.

        A checker calls this when it sees a violation, but can only say at the end of the trace how
        far the violation goes. The run can then react at once, for example by writing a row
        VIOLATION. The checker itself records the complete finding in `finish`.
        """
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
        """Return a finding with its evidence and the events that led to it, both in time order."""
        rows = in_time_order(evidence)
        led_to = self._led_to(rows, group=group, partition=partition)
        return Finding(
            check=self.name,
            summary=summary,
            time_us=rows[-1].time_us if rows else 0,
            group=group,
            partition=partition,
            story=tuple(describe_row(row) for row in rows),
            evidence=tuple(rows),
            # A finding shows each row once, so a cause that is evidence is left out.
            led_to=tuple(in_time_order([*led_to, *(row for row in causes if row not in rows)])),
        )

    def _led_to(
        self, rows: list[TraceRow], *, group: str | None, partition: str | None
    ) -> tuple[TraceRow, ...]:
        """Return the events before `rows` that are about the partition or the group.

        Events of the partition of `__consumer_offsets` that stores the group are among them,
        because the leader of that partition is the group's coordinator.
        """
        if not rows:
            return ()
        expected = None if group is None else self.context.groups.get(group)
        offsets_partition = None if expected is None else expected.offsets_partition
        return self._turning_points.led_to(
            rows,
            partitions={name for name in (partition, offsets_partition) if name is not None},
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
        """Return the report.

        - `judged`: how many cases could have been violations. If there was no such case, the
          outcome is NOTHING_SEEN and not PASS.
        - `seen`: what the report says about these cases, such as `{"commits": 120}`.
        - `excused`: how often each exception occurred that the promise permits, such as
          `{"revoked without a commit after a loss of the partition's data": 2}`.
        - `inconclusive`: True if too much evidence is missing to say that the promise was kept.
        """
        # A finding is proved by its own rows, so it counts even if other evidence is missing.
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
    """Return the rows in time order, each once, since two parts of a finding may share a row."""
    # A node numbers the rows that it writes, and begins anew when it restarts. So node, incarnation
    # (the number of restarts) and `seq` identify a row.
    unique = {(row.time_us, row.node, row.incarnation, row.seq): row for row in rows}
    return [unique[key] for key in sorted(unique)]
