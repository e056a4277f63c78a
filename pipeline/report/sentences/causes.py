"""The answer to "Why?" on the first screen: what caused the longest gap, and the rebalances.

`_causes` collects the facts. The macro `why` in `templates/causes.j2` makes sentences of them. The
longest gap is the longest time in which a member had no commit acknowledged, or a partition was not
processed. Rebalances after one fault are told together if they have the same group, coordinator and
reason (`Rebalances`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
"""Columns of `broker_phases` with the length of a phase, each with the text about the phase."""
_MOST = 0.8
"""A phase took "nearly all" of the time if it took at least this fraction of it."""
_MAX_REBALANCES_LISTED = 2
"""Maximum number of kinds of rebalances that the text lists. If there are more, the text has the
sums for each coordinator.
"""
_LONG_WAIT_US = 1_000_000
"""The text mentions the wait of a member for the old coordinator's answer only if it was this long.
"""
_FENCING = "broker.session.timeout.ms"
"""The setting that says after which time without a heartbeat the controller fences a broker."""
_SILENT = frozenset(
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
    """The last move of a coordinator.

    - `leader`: the new coordinator.
    - `whole_us`: time from the fault until the new coordinator was active.
    - `after`: `the fault`, or the fault's name if there were several.
    - `phase`, `phase_us`: the longest phase and its length; "" and None if unknown.
    """

    leader: str
    whole_us: int
    after: str
    phase: str = ""
    phase_us: int | None = None

    @property
    def nearly_all(self) -> bool:
        """Whether the longest phase took nearly all of the time."""
        return self.phase_us is not None and self.phase_us >= _MOST * self.whole_us


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuccessor:
    """The reason why no broker became the coordinator after a fault.

    - `node`: the node that the fault hit, if the controller elected no successor; None if it
      elected a successor which did not become active.
    - `since_us`: time from the fault to the run's end; `after`: `the fault`, or the fault's name.
    - `fencing`: the session timeout of brokers, if the controller waited for this timeout.
    """

    node: str | None
    since_us: int
    after: str
    fencing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunBy:
    """The rebalances that one coordinator began in one leader epoch.

    Rebalances of two coordinators are not added up: two coordinators that serve at the same time
    number their generations separately. `not_stored` is the number of rebalances whose assignment
    the log did not take, and `errors` are the errors with which it refused them.
    """

    broker: str
    leader_epoch: int | None
    count: int
    reasons: tuple[str, ...]
    not_stored: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """The facts that can be causes. The text has no sentence for a field that is None or empty.

    - `fault`: the fault to explain.
    - `both`: the longest time with two coordinators.
    - `owners`: the longest time with two owners.
    - `removed_because`: why the second coordinator removed the first owners.
    - `not_consumed`: sentences on the longest processing gap.
    - `notice`, `rediscover`, `longest_wait`: how long members took to notice the fault and to find
      the new coordinator, and how long they waited for an answer of the old coordinator.
    - `noticed_by`: the reasons for which members gave their coordinator up.
    - `rebalances`: triples of a fault's name, rebalances of one kind after it, and the session
      timeout of the group. The timeout is None if it did not cause these rebalances.
    - `by_coordinator`: sums of the rebalances, if there are too many to list.
    """

    fault: FaultSummary
    failover: Failover | None
    no_successor: NoSuccessor | None
    both: Coordinators | None
    no_member_commits: bool
    owners: Owners | None
    removed_because: tuple[str, ...]
    not_consumed: Markup | None
    notice: Distribution | None
    rediscover: Distribution | None
    longest_wait: Distribution | None
    noticed_by: tuple[str, ...]
    rebalances: tuple[tuple[str, Rebalances, str | None], ...]
    by_coordinator: tuple[BegunBy, ...]


def why(run: ReportInput) -> Markup:
    """Answer why the time without service was so long; "" if there is no fault.

    The answer has a paragraph for each cause.
    """
    fault = _explained_fault(run)
    return Markup("") if fault is None else render_line("causes", "why", _causes(run, fault), run)


def _causes(run: ReportInput, fault: FaultSummary) -> Causes:
    """Collect the facts that can be named as causes of the fault's effect."""
    owners = longest_owners(run.summary)
    notice = fault.distribution("notice") if fault.partitions_moved else None
    # Without a maximum, no member's time to notice the fault is known.
    if notice is not None and notice.maximum is None:
        notice = None
    wait = fault.distribution("longest wait")
    # A wait is a cause only if it was at least half of the time until members noticed the fault.
    noticed_us = 0 if notice is None else notice.maximum or 0
    shortest_cause_us = max(_LONG_WAIT_US, noticed_us // 2)
    wait_is_cause = wait is not None and (wait.maximum or 0) >= shortest_cause_us
    failover = _failover(run, fault)
    rebalances = tuple(_rebalances(run))
    are_too_many = len(rebalances) > _MAX_REBALANCES_LISTED
    return Causes(
        fault=fault,
        failover=failover,
        no_successor=_no_successor(run, fault) if failover is None else None,
        both=longest_coordinators(run.summary),
        no_member_commits=no_member_commits(run.facts),
        owners=owners,
        removed_because=() if owners is None else _removed_because(run, owners),
        not_consumed=why_not_consumed(run),
        notice=notice,
        rediscover=fault.distribution("rediscover"),
        longest_wait=wait if wait_is_cause else None,
        noticed_by=tuple(cause for cause, _ in fault.noticed_by),
        rebalances=rebalances,
        by_coordinator=tuple(_by_coordinator([began for _, began, _ in rebalances]))
        if are_too_many
        else (),
    )


def _explained_fault(run: ReportInput) -> FaultSummary | None:
    """Return the fault to explain; None if the run has no fault.

    It is the fault with the longest gap. If there are no gaps, it is the first fault that affected
    members or moved a coordinator. If there is no such fault, it is the first fault.
    """
    for measure in ("commit gap", "no coordinator"):
        worst = find_worst(run.summary, measure)
        if worst is not None and worst.longest_us:
            return worst.fault
    faults = run.summary.faults
    with_effects = [fault for fault in faults if fault.members or fault.partitions_moved]
    return next(iter([*with_effects, *faults]), None)


def _removed_because(run: ReportInput, owners: Owners) -> tuple[str, ...]:
    """Return why the second coordinator removed the first owners; empty if it did not."""
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
    whole_us = row["active_us"] - row["fault_us"]
    lengths = [(row[column], text) for column, text in _PHASES if row[column] is not None]
    # Tuples compare by their first element, which is the length here. If the failover took no time,
    # no phase is the longest.
    longest_us, phase = max(lengths) if lengths and whole_us > 0 else (None, "")
    return Failover(
        leader=row["new_leader"],
        whole_us=whole_us,
        after=_named(run, fault),
        phase=phase,
        phase_us=longest_us,
    )


def _no_successor(run: ReportInput, fault: FaultSummary) -> NoSuccessor | None:
    """Return why a group had no coordinator until the run's end; None if every group got one."""
    without_coordinator = fault.distribution("no coordinator")
    # `missing` counts groups whose time without a coordinator did not end.
    if without_coordinator is None or not without_coordinator.missing:
        return None
    was_elected = any(row["fault"] == fault.fault for row in run.tables.rows("broker_phases"))
    is_silent = fault.kind in _SILENT
    return NoSuccessor(
        node=None if was_elected else fault.node,
        since_us=run.end_us - fault.injected_us,
        after=_named(run, fault),
        fencing=Settings(run.facts.settings).of_cluster(_FENCING) if is_silent else None,
    )


def _named(run: ReportInput, fault: FaultSummary) -> str:
    """Return `the fault`, or its name if the run had several."""
    return "the fault" if len(run.summary.faults) == 1 else fault.fault


def _rebalances(run: ReportInput) -> Iterator[tuple[str, Rebalances, str | None]]:
    """Yield the entries of the field `rebalances` of Causes."""
    settings = Settings(run.facts.settings)
    for fault in run.summary.faults:
        for rebalances in fault.rebalances:
            # The session timeout explains only rebalances that began because a session expired.
            is_expiry = rebalances.reason == RebalanceCause.SESSION_EXPIRY
            timeout = (
                settings.of_group(rebalances.group, "session.timeout.ms") if is_expiry else None
            )
            yield _named(run, fault), rebalances, timeout


def _by_coordinator(rebalances: Sequence[Rebalances]) -> Iterator[BegunBy]:
    """Yield the sum of the rebalances of each coordinator in one leader epoch."""
    by_coordinator: dict[tuple[str, int | None], list[Rebalances]] = {}
    for entry in rebalances:
        by_coordinator.setdefault((entry.broker, entry.leader_epoch), []).append(entry)
    for (broker, epoch), of_coordinator in by_coordinator.items():
        yield BegunBy(
            broker=broker,
            leader_epoch=epoch,
            count=sum(entry.count for entry in of_coordinator),
            reasons=tuple(dict.fromkeys(entry.reason for entry in of_coordinator)),
            not_stored=sum(entry.not_stored for entry in of_coordinator),
            errors=tuple(
                dict.fromkeys(name for entry in of_coordinator for name in entry.store_errors)
            ),
        )
