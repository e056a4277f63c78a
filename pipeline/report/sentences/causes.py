"""The first screen's answer to why: what took the time, who noticed how, what was rebalanced."""

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
_MOST = 0.8
"""From this part of the whole on, one phase is called nearly all of it."""
_TOLD = 2
"""Up to so many kinds of rebalances are told one by one."""
_LONG_WAIT_US = 1_000_000
_FENCING = "broker.session.timeout.ms"
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
"""Faults that the controller notices by missing heartbeats only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """How long the last new coordinator took, and its longest phase (`phase_us` None: unknown)."""

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
    """Why nobody became the coordinator: `node` None: an election came, its winner did not serve.

    `fencing`: the session timeout of brokers, where the controller waited for it.
    """

    node: str | None
    since_us: int
    after: str
    fencing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunBy:
    """The rebalances that one coordinator began: two coordinators have two lines of generations."""

    broker: str
    leader_epoch: int | None
    count: int
    reasons: tuple[str, ...]
    not_stored: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """What took the time; None and empty: there is nothing to say of it.

    Shape: `rebalances` are the fault's name, the rebalances, and the session timeout that made
    them; if they are many, `by_coordinator` sums them up.
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
    """Say what took the time, a paragraph for each cause; nothing if there is no fault."""
    fault = _explained_fault(run)
    return Markup("") if fault is None else render_line("causes", "why", _causes(run, fault), run)


def _causes(run: ReportInput, fault: FaultSummary) -> Causes:
    owners = longest_owners(run.summary)
    notice = fault.distribution("notice") if fault.partitions_moved else None
    noticed = notice if notice is not None and notice.maximum is not None else None
    wait = fault.distribution("longest wait")
    long_us = max(_LONG_WAIT_US, ((noticed.maximum if noticed else 0) or 0) // 2)
    failover = _failover(run, fault)
    rebalances = tuple(_rebalances(run))
    many = len(rebalances) > _TOLD
    return Causes(
        fault=fault,
        failover=failover,
        no_successor=_no_successor(run, fault) if failover is None else None,
        both=longest_coordinators(run.summary),
        no_member_commits=no_member_commits(run.facts),
        owners=owners,
        removed_because=() if owners is None else _removed_because(run, owners),
        not_consumed=why_not_consumed(run),
        notice=noticed,
        rediscover=fault.distribution("rediscover"),
        longest_wait=wait if wait is not None and (wait.maximum or 0) >= long_us else None,
        noticed_by=tuple(cause for cause, _ in fault.noticed_by),
        rebalances=rebalances,
        by_coordinator=tuple(_by_coordinator([each for _, each, _ in rebalances])) if many else (),
    )


def _explained_fault(run: ReportInput) -> FaultSummary | None:
    """Return the fault to explain: that of the longest gap, else the first that moved a group."""
    for measure in ("commit gap", "no coordinator"):
        found = find_worst(run.summary, measure)
        if found is not None and found.longest_us:
            return found.fault
    faults = run.summary.faults
    concerned = [fault for fault in faults if fault.members or fault.partitions_moved]
    return next(iter([*concerned, *faults]), None)


def _removed_because(run: ReportInput, owners: Owners) -> tuple[str, ...]:
    """Return why the second coordinator removed the first owners; empty: it did not."""
    for rebalances in (each for fault in run.summary.faults for each in fault.rebalances):
        serving_epoch = (rebalances.broker, rebalances.leader_epoch)
        gone = set(rebalances.removed) & set(owners.first_consumers)
        if serving_epoch == owners.second_coordinator and gone and rebalances.removed_because:
            return rebalances.removed_because
    return ()


def _failover(run: ReportInput, fault: FaultSummary) -> Failover | None:
    """Return how long the failover took and which phase took most of it; None: there was none."""
    rows = [
        row
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault and row["groups"] and row["active_us"] is not None
    ]
    if not rows:
        return None
    row: Row = max(rows, key=lambda row: row["active_us"])
    whole_us = row["active_us"] - row["fault_us"]
    known = [(row[column], words) for column, words in _PHASES if row[column] is not None]
    longest_us, phase = max(known) if known and whole_us > 0 else (None, "")
    return Failover(
        leader=row["new_leader"],
        whole_us=whole_us,
        after=_named(run, fault),
        phase=phase,
        phase_us=longest_us,
    )


def _no_successor(run: ReportInput, fault: FaultSummary) -> NoSuccessor | None:
    """Return why nobody became the coordinator, if somebody had to."""
    service = fault.distribution("no coordinator")
    if service is None or not service.missing:
        return None
    elected = any(row["fault"] == fault.fault for row in run.tables.rows("broker_phases"))
    silent = fault.kind in _SILENT
    return NoSuccessor(
        node=None if elected else fault.node,
        since_us=run.end_us - fault.injected_us,
        after=_named(run, fault),
        fencing=Settings(run.facts.settings).of_cluster(_FENCING) if silent else None,
    )


def _named(run: ReportInput, fault: FaultSummary) -> str:
    """Return `the fault`, or its name where there were several."""
    return "the fault" if len(run.summary.faults) == 1 else fault.fault


def _rebalances(run: ReportInput) -> Iterator[tuple[str, Rebalances, str | None]]:
    settings = Settings(run.facts.settings)
    for fault in run.summary.faults:
        for each in fault.rebalances:
            expired = each.reason == RebalanceCause.SESSION_EXPIRY
            timeout = settings.of_group(each.group, "session.timeout.ms") if expired else None
            yield _named(run, fault), each, timeout


def _by_coordinator(rebalances: Sequence[Rebalances]) -> Iterator[BegunBy]:
    """Sum rebalances up by who began them."""
    serving_epochs: dict[tuple[str, int | None], list[Rebalances]] = {}
    for each in rebalances:
        serving_epochs.setdefault((each.broker, each.leader_epoch), []).append(each)
    for (broker, epoch), begun in serving_epochs.items():
        yield BegunBy(
            broker=broker,
            leader_epoch=epoch,
            count=sum(each.count for each in begun),
            reasons=tuple(dict.fromkeys(each.reason for each in begun)),
            not_stored=sum(each.not_stored for each in begun),
            errors=tuple(dict.fromkeys(name for each in begun for name in each.store_errors)),
        )
