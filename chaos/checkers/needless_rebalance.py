"""Needless rebalance: a failover of a Stable group whose members all survive causes none.

The new coordinator loads members and generation from the log, and their next heartbeat or commit
is accepted (MEASURED_FAILOVER, point 6). Judged from each fault that hit servers only, to the end
of the run or to the first change of the group's own making: a member that was hit, left, or came.
"""

from dataclasses import dataclass, field

from chaos.checkers.base import CheckContext, Checker, CheckReport, detail_of
from chaos.checkers.coordinators import COORDINATOR_KINDS, CoordinatorView
from protocol.trace import TraceKind, TraceRow

STABLE = "Stable"
_OWN_DOING = frozenset({"leave", "left"})


@dataclass(slots=True)
class _Group:
    """The fault under which a group is watched, and what was seen since."""

    watched_since: TraceRow | None = None  # the fault
    stable_before: TraceRow | None = None  # the row that made it Stable before the fault
    trail: list[TraceRow] = field(default_factory=list)  # what led to a rebalance
    unsettled_generation: int = -1  # up to here it may owe a rebalance to a member of its own


class NeedlessRebalance(Checker):
    """No rebalance on a graceful move or failover of a Stable group whose members all survive."""

    name = "needless_rebalance"
    promise = (
        "no rebalance on a graceful move or on a failover of a Stable group whose members all "
        "survive"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.FAULT_INJECTED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STARTED,
            TraceKind.NODE_STOPPED,
            *COORDINATOR_KINDS,
            TraceKind.GENERATION_STARTED,
            TraceKind.REBALANCE_STARTED,
            TraceKind.MEMBER_REMOVED,
            TraceKind.MEMBER_ADDED,
        }
    )

    def __init__(self, context: CheckContext) -> None:
        super().__init__(context)
        self._groups = {group_id: _Group() for group_id in context.groups}
        self._coordinators = CoordinatorView(context)
        self._group_of = {
            consumer: group_id
            for group_id, expected in context.groups.items()
            for consumer in expected.consumers
        }
        self._over = False
        self._watched = 0
        self._rebalances = 0

    def observe(self, row: TraceRow) -> None:
        """Take in a fault or a step of a group."""
        if self._over:
            return
        self._coordinators.observe(row)
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._over = detail_of(row).get("stage") == "stopping"
            case TraceKind.FAULT_INJECTED:
                self._fault(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED | TraceKind.NODE_STARTED:
                self._node_changed(row)
            case _:
                group = self._groups.get(row.group or "")
                if group is not None:
                    self._group_step(group, row)

    def _fault(self, row: TraceRow) -> None:
        hit_member = row.peer in self._group_of
        servers_only = detail_of(row).get("members_survive") is True and not hit_member
        for group_id, group in self._groups.items():
            if not servers_only:
                if not hit_member or self._group_of.get(row.peer or "") == group_id:
                    group.watched_since = None
                continue
            seen = self._coordinators.state(group_id)
            if (
                seen is not None
                and seen.state == STABLE
                and (seen.row.generation or 0) > group.unsettled_generation
                and group.watched_since is None
            ):
                group.watched_since = row
                group.stable_before = seen.row
                group.trail = []
                self._watched += 1

    def _node_changed(self, row: TraceRow) -> None:
        """Stop watching a group when one of its members dies, stops or is started.

        Until the group learns of it, it is Stable and yet owes a rebalance: it is watched again
        only in a later generation.
        """
        node = row.peer if row.kind == TraceKind.NODE_KILLED else row.node
        group_id = self._group_of.get(node or "")
        if group_id is not None:
            group = self._groups[group_id]
            group.watched_since = None
            seen = self._coordinators.state(group_id)
            group.unsettled_generation = 0 if seen is None else seen.row.generation or 0

    def _group_step(self, group: _Group, row: TraceRow) -> None:
        match row.kind:
            case TraceKind.GROUP_LOADED:
                group.trail.append(row)
            case TraceKind.MEMBER_REMOVED if row.cause in _OWN_DOING:
                group.watched_since = None
            case TraceKind.MEMBER_REMOVED | TraceKind.MEMBER_ADDED:
                group.trail.append(row)
            case TraceKind.REBALANCE_STARTED | TraceKind.GENERATION_STARTED:
                self._rebalance(group, row)
            case _:
                pass
        del group.trail[:-12]

    def _rebalance(self, group: _Group, row: TraceRow) -> None:
        fault = group.watched_since
        if fault is None or row.group is None:
            return
        if row.node != self._coordinators.coordinator(row.group):
            return  # a zombie rebalances whom it cannot reach: its members have moved on
        before = group.stable_before
        if (
            row.kind == TraceKind.GENERATION_STARTED
            and before is not None
            and row.generation == before.generation
        ):
            return
        if row.kind == TraceKind.REBALANCE_STARTED:
            self._rebalances += 1
        group.watched_since = None
        reason = f" because {row.cause}" if row.cause else ""
        self.found(
            f"{row.group} was Stable and all its members survived {fault.cause or 'the fault'}, "
            f"yet {row.node} began a rebalance{reason}",
            [
                *([group.stable_before] if group.stable_before is not None else []),
                fault,
                *(step for step in group.trail if step.time_us >= fault.time_us),
                row,
            ],
            group=row.group,
        )

    def finish(self) -> CheckReport:
        """Report; a rebalance is judged when it begins."""
        return self.report(
            judged=self._watched,
            seen={"failovers_of_a_stable_group": self._watched, "rebalances": self._rebalances},
            note="" if self._watched else "no fault on servers met a Stable group",
        )
