"""The answer to "Why?" on the first screen: what caused the longest time without service.

The answer has a paragraph for each cause that was found. A cause is a slow failover, for example,
or a coordinator that did not know that it had been replaced. `_causes` collects the facts, and the
macro `why` in `templates/causes.j2` makes sentences of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup

from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Row, Settings
from pipeline.report.sentences.answers import no_member_commits
from pipeline.report.sentences.reading_words import why_not_consumed
from pipeline.summary.figures import (
    Distribution,
    FaultSummary,
    find_worst,
    longest_coordinators,
    longest_owners,
)
from pipeline.summary.outcomes import Coordinators, Owners, Rebalances
from protocol.causes import RebalanceCause

_PHASES = (
    ("detect_us", "until the controller noticed (detect)"),
    ("publish_us", "until the new leader had learnt it (publish)"),
    ("load_wait_us", "until its load began (load wait)"),
    ("load_us", "for its load"),
)
"""The phases of a failover: for each phase, the column of `broker_phases` with the length of the
phase, and words about the phase. In the text, the words follow "broker-1 was the active coordinator
9.30 s after the fault, most of it ...".
"""
_NEARLY_ALL = 0.8
"""Least fraction of the time that the text calls "nearly all" of the time."""
_MAX_REBALANCES_LISTED = 2
"""Maximum number of entries of `Causes.rebalances` that the text lists. If there are more, the text
has a sum for each coordinator instead.
"""
_LONG_WAIT_US = 1_000_000
"""Shortest wait for the old coordinator's answer that the text mentions: 1 s."""
_BROKER_TIMEOUT = "broker.session.timeout.ms"
"""The setting for the time without heartbeats after which the controller fences a broker."""
_NOTICED_BY_SILENCE = frozenset(
    {
        "crash",
        "node_loss",
        "power_loss",
        "pause",
        "cut",
        "machine_loss",
        "machine_pause",
        "machine_cut",
    }
)
"""Kinds of faults that the controller notices only because heartbeats are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The failover that ended last after a fault."""

    new_coordinator: str
    whole_us: int
    """Time from the fault until the new coordinator was active."""
    fault_text: str
    """`the fault`, or the fault's name if the run had several faults."""
    longest_phase: str = ""
    """The words of _PHASES about the longest phase; "" if no length of a phase is known."""
    longest_phase_us: int | None = None

    @property
    def is_nearly_all(self) -> bool:
        """True if the longest phase took nearly all of the time."""
        longest_us = self.longest_phase_us
        return longest_us is not None and longest_us >= _NEARLY_ALL * self.whole_us


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuccessor:
    """The facts that explain why no broker became the coordinator of a group after a fault."""

    node_without_successor: str | None
    """The node that the fault hit, if the controller elected no new leader for its partitions. None
    if the controller elected a new leader, which then did not become active as the coordinator."""
    since_us: int
    """Time from the fault to the run's end."""
    fault_text: str
    """`the fault`, or the fault's name if the run had several faults."""
    broker_timeout: str | None
    """The value of `broker.session.timeout.ms` if the controller had to wait for this timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancesOfCoordinator:
    """The rebalances that one coordinator began in one leader epoch.

    Rebalances of two coordinators are not added up. If two coordinators serve a group at the same
    time, each of them has its own rebalances and generations of the group.
    """

    broker: str
    leader_epoch: int | None
    count: int
    reasons: tuple[str, ...]
    not_stored: int
    """The number of rebalances whose assignment the coordinator could not write to its log."""
    store_errors: tuple[str, ...]
    """The errors with which the log refused assignments."""


class ExplainedRebalances(NamedTuple):
    """Rebalances after one fault that have the same group, coordinator and reason."""

    fault_text: str
    """`the fault`, or the fault's name if the run had several faults."""
    rebalances: Rebalances
    session_timeout: str | None
    """The session timeout of the group, if an expired session was the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """The facts that can be causes. The text has no sentence for a field that is None or empty."""

    fault: FaultSummary
    """The fault whose effect is explained."""
    failover: Failover | None
    no_successor: NoSuccessor | None
    two_coordinators: Coordinators | None
    """The longest time with two coordinators."""
    no_member_commits: bool
    two_owners: Owners | None
    """The longest time with two owners."""
    removed_because: tuple[str, ...]
    """The causes for which the second coordinator removed the first owners from the group."""
    not_consumed: Markup | None
    """Sentences on the longest processing gap."""
    notice: Distribution | None
    """The times that members took to notice the fault."""
    rediscover: Distribution | None
    """The times that members took to find the new coordinator, after they had noticed the fault."""
    longest_wait: Distribution | None
    """The times for which members waited for an answer of the old coordinator; None if the waits
    were no cause."""
    noticed_by: tuple[str, ...]
    """The reasons for which members gave their coordinator up."""
    rebalances: tuple[ExplainedRebalances, ...]
    sums_by_coordinator: tuple[RebalancesOfCoordinator, ...]
    """The sums of the rebalances, if there are too many to list; otherwise empty."""


def why(run: ReportInput) -> Markup:
    """Answer why the time without service was so long; "" if there is no fault."""
    fault = _explained_fault(run)
    return Markup("") if fault is None else render_line("causes", "why", _causes(run, fault), run)


def _causes(run: ReportInput, fault: FaultSummary) -> Causes:
    """Collect the facts that can be named as causes of the fault's effect."""
    failover = _failover(run, fault)
    two_owners = longest_owners(run.summary)
    notice = fault.distribution("notice") if fault.partitions_moved else None
    if notice is not None and notice.maximum is None:
        notice = None  # it is not known of any member when it noticed the fault
    rebalances = tuple(_explained_rebalances(run))
    sums: tuple[RebalancesOfCoordinator, ...] = ()
    if len(rebalances) > _MAX_REBALANCES_LISTED:
        sums = tuple(_sums_by_coordinator([explained.rebalances for explained in rebalances]))
    return Causes(
        fault=fault,
        failover=failover,
        no_successor=_no_successor(run, fault) if failover is None else None,
        two_coordinators=longest_coordinators(run.summary),
        no_member_commits=no_member_commits(run.facts),
        two_owners=two_owners,
        removed_because=() if two_owners is None else _removed_because(run, two_owners),
        not_consumed=why_not_consumed(run),
        notice=notice,
        rediscover=fault.distribution("rediscover"),
        longest_wait=_wait_as_cause(fault, notice),
        noticed_by=tuple(cause for cause, _ in fault.noticed_by),
        rebalances=rebalances,
        sums_by_coordinator=sums,
    )


def _wait_as_cause(fault: FaultSummary, notice: Distribution | None) -> Distribution | None:
    """Return how long members waited for the old coordinator; None if they did not wait for long.

    They waited for long if the longest wait took at least _LONG_WAIT_US, and at least half of the
    time until members noticed the fault.
    """
    wait = fault.distribution("longest wait")
    notice_us = 0 if notice is None else notice.maximum or 0
    shortest_cause_us = max(_LONG_WAIT_US, notice_us // 2)
    if wait is None or (wait.maximum or 0) < shortest_cause_us:
        return None
    return wait


def _explained_fault(run: ReportInput) -> FaultSummary | None:
    """Return the fault to explain; None if the run has no fault.

    The first of these faults that exists is explained:

    1. the fault after which a member was longest without an acknowledged commit;
    2. the fault after which a group was longest without a coordinator;
    3. the first fault that affected members or moved a coordinator;
    4. the first fault.
    """
    for measure in ("commit gap", "no coordinator"):
        worst = find_worst(run.summary, measure)
        if worst is not None and worst.longest_us:
            return worst.fault
    faults = run.summary.faults
    with_effects = [fault for fault in faults if fault.members or fault.partitions_moved]
    candidates = [*with_effects, *faults]
    return candidates[0] if candidates else None


def _removed_because(run: ReportInput, owners: Owners) -> tuple[str, ...]:
    """Return why the second coordinator removed the first owners; () if it did not remove them."""
    for fault in run.summary.faults:
        for rebalances in fault.rebalances:
            coordinator = (rebalances.broker, rebalances.leader_epoch)
            is_second_coordinator = coordinator == owners.second_coordinator
            removed_owners = set(rebalances.removed) & set(owners.first_consumers)
            if is_second_coordinator and removed_owners and rebalances.removed_because:
                return rebalances.removed_because
    return ()


def _failover(run: ReportInput, fault: FaultSummary) -> Failover | None:
    """Return the failover that ended last after a fault; None if no failover ended."""
    rows = [
        row
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault and row["groups"] and row["active_us"] is not None
    ]
    if not rows:
        return None
    row: Row = max(rows, key=lambda row: row["active_us"])
    failover = Failover(
        new_coordinator=row["new_leader"],
        whole_us=row["active_us"] - row["fault_us"],
        fault_text=_fault_text(run, fault),
    )
    phases = [(row[column], words) for column, words in _PHASES if row[column] is not None]
    if not phases or failover.whole_us <= 0:
        return failover
    longest_us, words = max(phases)
    return replace(failover, longest_phase=words, longest_phase_us=longest_us)


def _no_successor(run: ReportInput, fault: FaultSummary) -> NoSuccessor | None:
    """Return why a group had no coordinator until the run's end; None if there is no such group."""
    without_coordinator = fault.distribution("no coordinator")
    # `missing` counts groups whose time without a coordinator did not end.
    if without_coordinator is None or not without_coordinator.missing:
        return None
    was_elected = any(row["fault"] == fault.fault for row in run.tables.rows("broker_phases"))
    broker_timeout = None
    if fault.kind in _NOTICED_BY_SILENCE:
        broker_timeout = Settings(run.facts.settings).of_cluster(_BROKER_TIMEOUT)
    return NoSuccessor(
        node_without_successor=None if was_elected else fault.node,
        since_us=run.end_us - fault.injected_us,
        fault_text=_fault_text(run, fault),
        broker_timeout=broker_timeout,
    )


def _fault_text(run: ReportInput, fault: FaultSummary) -> str:
    """Return `the fault`, or the fault's name if the run had several faults."""
    return "the fault" if len(run.summary.faults) == 1 else fault.fault


def _explained_rebalances(run: ReportInput) -> Iterator[ExplainedRebalances]:
    """Yield the rebalances after each fault."""
    settings = Settings(run.facts.settings)
    for fault in run.summary.faults:
        for rebalances in fault.rebalances:
            session_timeout = None
            if rebalances.reason == RebalanceCause.SESSION_EXPIRY:
                session_timeout = settings.of_group(rebalances.group, "session.timeout.ms")
            yield ExplainedRebalances(_fault_text(run, fault), rebalances, session_timeout)


def _sums_by_coordinator(entries: Sequence[Rebalances]) -> Iterator[RebalancesOfCoordinator]:
    """Yield the sum of the rebalances of each coordinator in one leader epoch."""
    by_coordinator: dict[tuple[str, int | None], list[Rebalances]] = {}
    for entry in entries:
        by_coordinator.setdefault((entry.broker, entry.leader_epoch), []).append(entry)
    for (broker, epoch), of_coordinator in by_coordinator.items():
        errors = [error for entry in of_coordinator for error in entry.store_errors]
        # `dict.fromkeys` removes duplicates, and keeps the order.
        yield RebalancesOfCoordinator(
            broker=broker,
            leader_epoch=epoch,
            count=sum(entry.count for entry in of_coordinator),
            reasons=tuple(dict.fromkeys(entry.reason for entry in of_coordinator)),
            not_stored=sum(entry.not_stored for entry in of_coordinator),
            store_errors=tuple(dict.fromkeys(errors)),
        )
