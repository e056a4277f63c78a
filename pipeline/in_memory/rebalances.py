"""The rebalances of a run, collected from the rows of its trace, and the table `rebalances`.

In a rebalance, the members of a group rejoin and get new partitions:

1. In the join phase, the members send JoinGroup. The phase ends when a new generation begins;
   generations are numbered.
2. In the sync phase, the members ask for their partitions. The phase ends, and the rebalance is
   complete, when the coordinator has stored the new assignment.

RebalanceLog reads the rows one by one, because the run can still be in progress. It assigns rows to
rebalances by these rules:

1. A rebalance belongs to the coordinator that began it.
2. The coordinator's later rows about the group belong to this rebalance until the next one begins.
3. Rows about added and removed members are an exception: outside a join phase they belong to the
   next rebalance. Such rows are dropped if one of three things happens before the next rebalance: a
   generation starts, the group becomes Empty (without members) or Dead (deleted), or the
   coordinator loads the group (reads it from the log).

An incarnation is one life of a broker's process; in each incarnation, the broker counts as another
coordinator. In a row, `cause` is the short name of a cause, and `cause_text` or `explanation` its
sentence. `pipeline.tables.rebalances` computes the table with Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, detail_of, last_fault_before, once_per_trace
from protocol.causes import RebalanceCause, RemovalCause
from protocol.trace import TraceKind, TraceRow

KINDS = frozenset(
    {
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
    }
)
"""Kinds of rows from which rebalances are computed."""
_ENDS = ("Empty", "Dead")
"""States of a group without members, which end its rebalance early."""

Life = tuple[str, int, str]  # node, incarnation, group


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance of one group. Times and lengths are in microseconds, times on the run's clock.

    - `coordinator`, `incarnation`: the broker that began the rebalance, and the life of its
      process.
    - `reason`: a RebalanceCause; `cause`: the coordinator's sentence about it.
    - `client_reason`: the reason that the member gave in its request.
    - `store_error`: the error with which the append of the new assignment failed.
    - `member`: the member that caused the rebalance; None if no single member did.
    - `added`, `removed`: member ids in the order of their rows.
    - `removed_because`: the RemovalCauses, each once.
    - `new_generation`, `joined_us`, `stable_us`: None if the rebalance did not reach that step.
    - `cut_short_us`, `cut_short_by`: time and text of the event that ended the rebalance early;
      None if it was completed or is in progress.
    """

    group: str
    coordinator: str
    incarnation: int
    generation: int | None
    new_generation: int | None
    reason: str
    cause: str | None
    client_reason: str | None
    member: str | None
    added: tuple[str, ...]
    removed: tuple[str, ...]
    removed_because: tuple[str, ...]
    store_error: str | None
    started_us: int
    joined_us: int | None
    stable_us: int | None
    cut_short_us: int | None
    cut_short_by: str | None

    @property
    def join_us(self) -> int | None:
        """Length of the join phase."""
        return None if self.joined_us is None else self.joined_us - self.started_us

    @property
    def sync_us(self) -> int | None:
        """Time from the end of the join phase until the assignment was stored."""
        if self.joined_us is None or self.stable_us is None:
            return None
        return self.stable_us - self.joined_us

    @property
    def length_us(self) -> int | None:
        """Time from the start until the assignment was stored."""
        return None if self.stable_us is None else self.stable_us - self.started_us


@dataclass(slots=True)
class _RebalanceRows:
    """The rows of a rebalance. `changes` are the rows about added and removed members."""

    started: TraceRow
    joined: TraceRow | None = None
    stable: TraceRow | None = None
    store_error: str | None = None
    cut_short_us: int | None = None
    cut_short_by: str | None = None
    changes: list[TraceRow] = field(default_factory=list)

    def cut_short(self, time_us: int, by: str) -> None:
        """Record what ended the rebalance early; do nothing if it is complete or was cut short."""
        if self.stable is None and self.cut_short_us is None:
            self.cut_short_us = time_us
            self.cut_short_by = by


@dataclass(slots=True)
class _Coordinator:
    """One incarnation of a broker as the coordinator of one group.

    - `begun`: its rebalances, in order.
    - `joining`: the rebalance whose generation has not started yet.
    - `early`: rows about added and removed members that will belong to the next rebalance (rule 3).
    """

    begun: list[_RebalanceRows] = field(default_factory=list)
    joining: _RebalanceRows | None = None
    early: list[TraceRow] = field(default_factory=list)


class RebalanceLog:
    """Collects the rebalances of one run from its rows.

    The rows of each incarnation of a node must come in the order in which it wrote them.
    """

    def __init__(self) -> None:
        self.client_ids: dict[str, str] = {}
        """The client of each member id."""
        self._coordinators: dict[Life, _Coordinator] = {}

    def observe(self, row: TraceRow) -> None:
        """Process the next row of the run. A row whose kind is not in KINDS is ignored."""
        if row.kind not in KINDS:
            return
        if row.kind in (TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED):
            self._process_death(row)
        elif row.group is not None:
            life = (row.node, row.incarnation, row.group)
            self._add_row(self._coordinators.setdefault(life, _Coordinator()), row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Process rows."""
        for row in rows:
            self.observe(row)

    def groups(self) -> tuple[str, ...]:
        """Return the groups that had a rebalance, by name."""
        groups = {
            group
            for (_node, _incarnation, group), coordinator in self._coordinators.items()
            if coordinator.begun
        }
        return tuple(sorted(groups))

    def of_group(self, group_id: str) -> tuple[Rebalance, ...]:
        """Return the rebalances of a group on every coordinator, in the order of their starts."""
        rebalances = [
            _rebalance_of(begun)
            for (_node, _incarnation, group), coordinator in self._coordinators.items()
            if group == group_id
            for begun in coordinator.begun
        ]
        return tuple(
            sorted(rebalances, key=lambda rebalance: (rebalance.started_us, rebalance.coordinator))
        )

    def _add_row(self, coordinator: _Coordinator, row: TraceRow) -> None:
        """Add one row of a coordinator to the rebalance that the row belongs to."""
        latest = coordinator.begun[-1] if coordinator.begun else None
        match row.kind:
            case TraceKind.REBALANCE_STARTED:
                # The row's cause is also why the rebalance before it was not completed.
                if latest is not None:
                    latest.cut_short(row.time_us, row.explanation or "another rebalance")
                    if row.cause == RebalanceCause.ASSIGNMENT_NOT_STORED:
                        latest.store_error = row.error
                coordinator.joining = _RebalanceRows(row, changes=coordinator.early)
                coordinator.begun.append(coordinator.joining)
                coordinator.early = []
            case TraceKind.GENERATION_STARTED:
                if latest is not None and latest.joined is None:
                    latest.joined = row
                # The join phase has ended, and the rows in `early` are dropped (rule 3).
                coordinator.joining, coordinator.early = None, []
            case TraceKind.ASSIGNMENT_STORED:
                if latest is not None and latest.stable is None:
                    latest.stable = row
            case TraceKind.MEMBER_ADDED | TraceKind.MEMBER_REMOVED:
                self._member_changed(coordinator, row)
            case TraceKind.GROUP_LOADED:
                coordinator.joining, coordinator.early = None, []
            case _:
                # The row is a GROUP_STATE, the only other kind of KINDS whose rows name a group.
                if detail_of(row).get("to") in _ENDS:
                    if latest is not None:
                        latest.cut_short(row.time_us, row.explanation or "")
                    coordinator.joining, coordinator.early = None, []

    def _member_changed(self, coordinator: _Coordinator, row: TraceRow) -> None:
        """Process a row about an added or removed member.

        In a join phase it belongs to the rebalance in progress, otherwise to the next one (rule 3).
        """
        client_id = detail_of(row).get("client_id")
        if row.member is not None and client_id:
            self.client_ids[row.member] = str(client_id)
        # A static member is one with a configured `group.instance.id`. When it restarts, it gets a
        # new member id but stays the same member, so this is no change.
        if row.cause != RemovalCause.STATIC_MEMBER_REPLACED:
            changes = (
                coordinator.early if coordinator.joining is None else coordinator.joining.changes
            )
            changes.append(row)

    def _process_death(self, row: TraceRow) -> None:
        """Process the end of a node: it cuts short the rebalances that the node coordinated."""
        # A node itself writes NODE_STOPPED. A killed node can write nothing, so the run's driver
        # (the process that conducts the run) writes NODE_KILLED, with the node as `peer`.
        is_killed = row.kind == TraceKind.NODE_KILLED
        name = row.peer if is_killed else row.node
        end = f"{name} {'was killed' if is_killed else 'stopped'}"
        # The row does not name the incarnation, so this loop includes earlier incarnations of the
        # node. Their rebalances have ended already, and `cut_short` leaves them as they are.
        for (node, _incarnation, _group), coordinator in self._coordinators.items():
            if node == name and coordinator.begun:
                coordinator.begun[-1].cut_short(row.time_us, end)


def _rebalance_of(begun: _RebalanceRows) -> Rebalance:
    """Return what the rows tell about a rebalance, which can still be in progress."""
    started, joined, stable = begun.started, begun.joined, begun.stable
    removed = [row for row in begun.changes if row.kind == TraceKind.MEMBER_REMOVED]
    added = [row for row in begun.changes if row.kind == TraceKind.MEMBER_ADDED]
    return Rebalance(
        group=started.group or "",
        coordinator=started.node,
        incarnation=started.incarnation,
        generation=started.generation,
        new_generation=None if joined is None else joined.generation,
        reason=started.cause or "",
        cause=started.cause_text,
        client_reason=detail_of(started).get("client_reason"),
        member=started.member,
        added=tuple(row.member or "" for row in added),
        removed=tuple(row.member or "" for row in removed),
        removed_because=tuple(dict.fromkeys(row.cause for row in removed if row.cause)),
        store_error=begun.store_error,
        started_us=started.time_us,
        joined_us=None if joined is None else joined.time_us,
        stable_us=None if stable is None else stable.time_us,
        cut_short_us=begun.cut_short_us,
        cut_short_by=begun.cut_short_by,
    )


@once_per_trace
def rebalances_of(trace: Trace) -> list[TableRow]:
    """Return the table `rebalances`, with consumers instead of member ids, faults and epochs."""
    faults = faults_of(trace)
    tenures = coordinator_tenures_of(trace)
    partitions = trace.groups()
    names = trace.consumers()
    log = RebalanceLog()
    for _life, rows in trace.lives(*KINDS):
        log.observe_all(rows)
    table = []
    for group in log.groups():
        # The default value binds `group` to the value of this pass of the loop.
        def consumers(member_ids: Iterable[str], group: str = group) -> list[str]:
            return sorted({names.get((group, member_id), member_id) for member_id in member_ids})

        for rebalance in log.of_group(group):
            coordinator = rebalance.coordinator, rebalance.incarnation
            member = rebalance.member
            # The epoch is that of the coordinator's last tenure (time as the active coordinator)
            # before the rebalance began.
            epochs = [
                (tenure["start_us"], tenure["leader_epoch"])
                for tenure in tenures
                if (tenure["broker"], tenure["incarnation"]) == coordinator
                and tenure["partition"] == partitions.get(group)
                and tenure["start_us"] <= rebalance.started_us
            ]
            table.append(
                {
                    "group": group,
                    "broker": rebalance.coordinator,
                    "leader_epoch": max(epochs)[1] if epochs else None,
                    "generation": rebalance.generation,
                    "new_generation": rebalance.new_generation,
                    "reason": rebalance.reason,
                    "member": member,
                    # None stays None; a member without a known consumer keeps its member id.
                    "consumer": member and names.get((group, member), member),
                    "cause": rebalance.cause,
                    "client_reason": rebalance.client_reason,
                    "removed": consumers(rebalance.removed),
                    "removed_because": sorted(rebalance.removed_because),
                    "added": consumers(rebalance.added),
                    "store_error": rebalance.store_error,
                    "fault": last_fault_before(faults, rebalance.started_us),
                    "started_us": rebalance.started_us,
                    "joined_us": rebalance.joined_us,
                    "stable_us": rebalance.stable_us,
                    "join_us": rebalance.join_us,
                    "sync_us": rebalance.sync_us,
                    "length_us": rebalance.length_us,
                }
            )
    return table
