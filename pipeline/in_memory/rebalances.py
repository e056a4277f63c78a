"""The rebalances of a run, collected from the rows of its trace, and the table `rebalances`.

In a rebalance, the members of a group rejoin and get new partitions:

1. In the join phase, the members send JoinGroup. The phase ends when a new generation begins.
2. In the sync phase, the members ask for their partitions. The phase ends, and the rebalance is
   complete, when the coordinator has stored the new assignment.

`RebalanceLog` collects the rebalances. It reads the rows one by one, because the run can still be
going on when a user asks for its rebalances. By these rules it finds the rows of each rebalance:

1. A rebalance belongs to the coordinator that began it. A broker that was killed and started again
   counts as another coordinator.
2. This coordinator's later rows about the group belong to the rebalance until the coordinator
   begins the next rebalance.
3. Rows about added and removed members are an exception. In the join phase they belong to the
   rebalance that goes on. After the join phase they belong to the next rebalance, because they are
   the reason for it. They are dropped if no such rebalance comes: a generation starts without a
   rebalance, the group becomes Empty or Dead, or the coordinator loads the group again.

In a row, `cause` is the short name of a cause, and `cause_text` or `explanation` is a sentence
about the cause. `pipeline.tables.rebalances` computes the table with Spark.
"""

from collections.abc import Iterable, Mapping
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
_WITHOUT_MEMBERS = ("Empty", "Dead")
"""States of a group that has no members any more. If a group comes into one of these states, its
rebalance ends early.
"""

CoordinatorKey = tuple[str, int, str]  # node, incarnation, group


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance of one group. Times are in microseconds, and moments are on the run's clock.

    - `coordinator`, `incarnation`: the broker that began the rebalance, and how often its process
      had started before.
    - `generation`, `new_generation`: the group's generation before the rebalance, and the
      generation to which the rebalance led.
    - `reason`, `cause`: why the coordinator began the rebalance, as a RebalanceCause and as a
      sentence.
    - `client_reason`: the reason that the member gave in its request.
    - `member`: the member that caused the rebalance; None if no single member did.
    - `added`, `removed`: member ids in the order of their rows.
    - `removed_because`: the RemovalCauses of the removed members, each once.
    - `store_error`: the error with which the coordinator failed to store the new assignment.
    - `started_us`, `joined_us`, `stable_us`: the beginning, the end of the join phase, and the end
      of the sync phase.
    - `cut_short_us`, `cut_short_by`: when the rebalance ended early, and a text about the reason.
      None if the rebalance was completed or still goes on.

    `new_generation`, `joined_us` and `stable_us` are None if the rebalance did not come so far.
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
        """The length of the join phase."""
        return None if self.joined_us is None else self.joined_us - self.started_us

    @property
    def sync_us(self) -> int | None:
        """The length of the sync phase."""
        if self.joined_us is None or self.stable_us is None:
            return None
        return self.stable_us - self.joined_us

    @property
    def length_us(self) -> int | None:
        """The length of both phases together."""
        return None if self.stable_us is None else self.stable_us - self.started_us


@dataclass(slots=True)
class _RebalanceRows:
    """The rows of a rebalance so far. `changes` has the rows about added and removed members."""

    started: TraceRow
    joined: TraceRow | None = None
    stable: TraceRow | None = None
    store_error: str | None = None
    cut_short_us: int | None = None
    cut_short_by: str | None = None
    changes: list[TraceRow] = field(default_factory=list)

    def cut_short(self, time_us: int, by: str) -> None:
        """Record what ended the rebalance early, unless it has ended already."""
        if self.stable is None and self.cut_short_us is None:
            self.cut_short_us = time_us
            self.cut_short_by = by


@dataclass(slots=True)
class _Coordinator:
    """A broker, from one start of its process to its end, as the coordinator of one group.

    - `begun`: the rebalances that the coordinator began, in order.
    - `joining`: the last of these rebalances while it is in its join phase; otherwise None.
    - `early`: rows about added and removed members that belong to the next rebalance (rule 3).
    """

    begun: list[_RebalanceRows] = field(default_factory=list)
    joining: _RebalanceRows | None = None
    early: list[TraceRow] = field(default_factory=list)


class RebalanceLog:
    """Collects the rebalances of one run from its rows.

    The rows of a process must come in the order in which the process wrote them.
    """

    def __init__(self) -> None:
        self.client_ids: dict[str, str] = {}
        """The client id of each member id."""
        self._coordinators: dict[CoordinatorKey, _Coordinator] = {}

    def observe(self, row: TraceRow) -> None:
        """Process the next row of the run. Rows of other kinds than KINDS are ignored."""
        if row.kind not in KINDS:
            return
        if row.kind in (TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED):
            self._process_death(row)
        elif row.group is not None:
            key = (row.node, row.incarnation, row.group)
            self._add_row(self._coordinators.setdefault(key, _Coordinator()), row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Process the next rows of the run."""
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
                # If the last rebalance still went on, the new rebalance cuts it short.
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
                # The join phase has ended. If there was no join phase, no rebalance led to this
                # generation, and the rows in `early` are dropped.
                coordinator.joining, coordinator.early = None, []
            case TraceKind.ASSIGNMENT_STORED:
                if latest is not None and latest.stable is None:
                    latest.stable = row
            case TraceKind.MEMBER_ADDED | TraceKind.MEMBER_REMOVED:
                self._change_members(coordinator, row)
            case TraceKind.GROUP_LOADED:
                coordinator.joining, coordinator.early = None, []
            case _:
                # GROUP_STATE is the only one of KINDS that is left.
                if detail_of(row).get("to") in _WITHOUT_MEMBERS:
                    if latest is not None:
                        latest.cut_short(row.time_us, row.explanation or "")
                    coordinator.joining, coordinator.early = None, []

    def _change_members(self, coordinator: _Coordinator, row: TraceRow) -> None:
        """Add a row about an added or removed member to its rebalance (rule 3)."""
        client_id = detail_of(row).get("client_id")
        if row.member is not None and client_id:
            self.client_ids[row.member] = str(client_id)
        # A static member that restarts gets a new member id, but it stays the same member.
        if row.cause == RemovalCause.STATIC_MEMBER_REPLACED:
            return
        if coordinator.joining is None:
            coordinator.early.append(row)
        else:
            coordinator.joining.changes.append(row)

    def _process_death(self, row: TraceRow) -> None:
        """Process the end of a node, which cuts short the rebalances that it coordinated."""
        # A node itself writes NODE_STOPPED. A killed node can write nothing, so the driver (the
        # process that conducts the run) writes NODE_KILLED, with the node as `peer`.
        if row.kind == TraceKind.NODE_KILLED:
            dead_node = row.peer
            cut_short_by = f"{dead_node} was killed"
        else:
            dead_node = row.node
            cut_short_by = f"{dead_node} stopped"
        # The row does not tell which incarnation ended. The rebalances of earlier incarnations have
        # ended already, and `cut_short` leaves them as they are.
        for (node, _incarnation, _group), coordinator in self._coordinators.items():
            if node == dead_node and coordinator.begun:
                coordinator.begun[-1].cut_short(row.time_us, cut_short_by)


def _rebalance_of(begun: _RebalanceRows) -> Rebalance:
    """Return what the rows tell about a rebalance, which may still go on."""
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
    """Return the rebalances of all groups.

    A row has the same values as a `Rebalance`, but members are named by their consumers. There are
    two more columns: the fault before the rebalance, and the leader epoch of the coordinator.
    """
    faults = faults_of(trace)
    consumers = trace.consumers()
    log = RebalanceLog()
    for _life, rows in trace.lives(*KINDS):
        log.observe_all(rows)
    table = []
    for group in log.groups():
        for rebalance in log.of_group(group):
            member = rebalance.member
            table.append(
                {
                    "group": group,
                    "broker": rebalance.coordinator,
                    "leader_epoch": _leader_epoch(trace, rebalance),
                    "generation": rebalance.generation,
                    "new_generation": rebalance.new_generation,
                    "reason": rebalance.reason,
                    "member": member,
                    # If no single member caused the rebalance, the consumer is None, too. If the
                    # consumer of a member is not known, the member id stands in its place.
                    "consumer": member and consumers.get((group, member), member),
                    "cause": rebalance.cause,
                    "client_reason": rebalance.client_reason,
                    "removed": _consumers_of(rebalance.removed, group, consumers),
                    "removed_because": sorted(rebalance.removed_because),
                    "added": _consumers_of(rebalance.added, group, consumers),
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


def _leader_epoch(trace: Trace, rebalance: Rebalance) -> int | None:
    """Return in which leader epoch the coordinator began a rebalance; None if it is not known.

    This is the epoch in which the broker last became the coordinator before the rebalance.
    """
    tenures = [
        tenure
        for tenure in coordinator_tenures_of(trace)
        if tenure["broker"] == rebalance.coordinator
        and tenure["incarnation"] == rebalance.incarnation
        and tenure["partition"] == trace.groups().get(rebalance.group)
        and tenure["start_us"] <= rebalance.started_us
    ]
    if not tenures:
        return None
    last_tenure = max(tenures, key=lambda tenure: (tenure["start_us"], tenure["leader_epoch"]))
    epoch: int = last_tenure["leader_epoch"]
    return epoch


def _consumers_of(
    member_ids: Iterable[str], group: str, consumers: Mapping[tuple[str, str], str]
) -> list[str]:
    """Return the consumers of members, sorted; the member id if the consumer is not known."""
    return sorted({consumers.get((group, member_id), member_id) for member_id in member_ids})
