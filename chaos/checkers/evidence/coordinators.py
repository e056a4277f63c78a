"""Which broker is a group's coordinator, by leader epoch, and what state it has the group in.

In a failover two brokers write states of one group: the old one unloads it, or goes on as a zombie,
after the new one has loaded it. What counts is the coordinator of the newest epoch; a broker that
is elected again before it has heard that it was replaced is one without a load (BEHAVIOUR 5.4).

Other questions are about one broker, whatever the others do: whether it serves a partition of
`__consumer_offsets` or of `__transaction_state`, and which groups it has in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos.checkers.context import CheckContext, detail_of
from protocol.causes import IgnoredCause
from protocol.trace import TraceKind, TraceRow

COORDINATOR_KINDS = frozenset(
    {
        TraceKind.LOAD_STARTED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.LOAD_IGNORED,
        TraceKind.UNLOAD_COMPLETED,
        TraceKind.GROUP_LOADED,
        TraceKind.GROUP_STATE,
        TraceKind.GENERATION_STARTED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
    }
)
"""The rows that a view must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """A state, and the row that says so."""

    state: str
    row: TraceRow


@dataclass(slots=True)
class _Tenure:
    """A coordinator's time with one offsets partition. `ended_us` None: it goes on."""

    load: TraceRow
    ended_us: int | None = None


class CoordinatorView:
    """Follows every group of the experiment."""

    def __init__(self, context: CheckContext) -> None:
        self._groups_in: dict[str, list[str]] = {}
        for group_id, expected in context.groups.items():
            self._groups_in.setdefault(expected.offsets_partition, []).append(group_id)
        self._newest: dict[str, tuple[int, str]] = {}  # group -> epoch, node that has loaded it
        self._in_office: dict[str, int] = {}  # group -> since when it is that node
        self._states: dict[tuple[str, str], SeenState] = {}  # (node, group)
        self._members: dict[tuple[str, str], dict[str, None]] = {}  # (node, group), where known
        self._held: dict[str, dict[str, None]] = {}  # group -> brokers that have its members
        self._known: dict[str, dict[str, None]] = {}  # group -> brokers that have it in a state
        self._loaded: dict[tuple[str, str], TraceRow] = {}  # (node, group) -> its last GROUP_LOADED
        self._last_writer: dict[str, str] = {}  # group -> node, where no load was seen
        self._tenures: dict[str, dict[str, _Tenure]] = {}  # partition -> node -> its last
        self._unloaded: dict[tuple[str, str], int] = {}  # (node, partition) -> its newest unload
        self._partition_of = {
            group_id: expected.offsets_partition for group_id, expected in context.groups.items()
        }

    def observe(self, row: TraceRow) -> None:
        """Take in a row of COORDINATOR_KINDS."""
        match row.kind:
            case TraceKind.LOAD_STARTED:
                for group_id in self._groups_in.get(row.partition or "", ()):
                    self._states.pop((row.node, group_id), None)
                    self._members.pop((row.node, group_id), None)
            case TraceKind.LOAD_IGNORED if row.cause == IgnoredCause.ALREADY_LOADED:
                self._took_over(row)
            case TraceKind.LOAD_COMPLETED:
                self._took_over(row)
                self._tenures.setdefault(row.partition or "", {})[row.node] = _Tenure(row)
            case TraceKind.UNLOAD_COMPLETED:
                key = (row.node, row.partition or "")
                self._unloaded[key] = max(self._unloaded.get(key, -1), row.leader_epoch or 0)
                tenure = self._tenures.get(row.partition or "", {}).get(row.node)
                if tenure is not None and tenure.ended_us is None:
                    tenure.ended_us = row.time_us
                for group_id in self._groups_in.get(row.partition or "", ()):
                    self._held.get(group_id, {}).pop(row.node, None)
                    self._known.get(group_id, {}).pop(row.node, None)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                died = row.peer or row.node
                for partition, tenures in self._tenures.items():  # nobody is attached to the dead
                    tenures.pop(died, None)
                    self._unloaded.pop((died, partition), None)
                for brokers in (*self._held.values(), *self._known.values()):
                    brokers.pop(died, None)
            case TraceKind.GROUP_LOADED:
                detail = detail_of(row)
                self._holds(row)
                self._loaded[row.node, row.group or ""] = row
                self._seen(row, detail.get("state"))
                self._has_members(row, detail)
            case TraceKind.GENERATION_STARTED:
                self._has_members(row, detail_of(row))
            case TraceKind.MEMBER_ADDED:
                self._holds(row)
                members = self._members.get((row.node, row.group or ""))
                if members is not None:
                    members[row.member or ""] = None
            case TraceKind.MEMBER_REMOVED:
                members = self._members.get((row.node, row.group or ""))
                if members is not None:
                    members.pop(row.member or "", None)
            case TraceKind.GROUP_STATE:
                self._seen(row, detail_of(row).get("to"))
            case _:
                pass

    def _took_over(self, row: TraceRow) -> None:
        epoch = row.leader_epoch or 0
        for group_id in self._groups_in.get(row.partition or "", ()):
            newest, before = self._newest.get(group_id, (-1, ""))
            if epoch >= newest:
                self._newest[group_id] = (epoch, row.node)
                if row.node != before or row.kind == TraceKind.LOAD_COMPLETED:
                    self._in_office[group_id] = row.time_us

    def _seen(self, row: TraceRow, state: str | None) -> None:
        if row.group is not None and state is not None:
            self._states[row.node, row.group] = SeenState(state=state, row=row)
            self._last_writer[row.group] = row.node
            self._known.setdefault(row.group, {})[row.node] = None

    def _holds(self, row: TraceRow) -> None:
        self._held.setdefault(row.group or "", {})[row.node] = None

    def _has_members(self, row: TraceRow, detail: Mapping[str, Any]) -> None:
        members = detail.get("members")
        if row.group is not None and isinstance(members, list):
            self._members[row.node, row.group] = dict.fromkeys(members)

    # -- one broker ---------------------------------------------------------------------------

    def served_since(self, node: str, partition: str) -> TraceRow | None:
        """Return the load of a broker that serves a partition, None if it does not."""
        tenure = self._tenures.get(partition, {}).get(node)
        return None if tenure is None or tenure.ended_us is not None else tenure.load

    def is_served_by_another(self, node: str, partition: str) -> bool:
        """Whether a broker other than `node` lives and serves a partition."""
        return any(
            tenure.ended_us is None and other != node
            for other, tenure in self._tenures.get(partition, {}).items()
        )

    def holders(self, group_id: str) -> Mapping[str, None]:
        """Return the brokers that loaded a group or took a member in, and have it in memory."""
        return self._held.get(group_id, {})

    def state_at(self, node: str, group_id: str) -> str | None:
        """Return the state in which a broker has a group in memory, None if it has it not."""
        if node not in self._known.get(group_id, ()):
            return None
        seen = self._states.get((node, group_id))
        return None if seen is None else seen.state

    def loaded(self, node: str, group_id: str) -> TraceRow | None:
        """Return the last GROUP_LOADED of a group by a broker, also of one that has died since."""
        return self._loaded.get((node, group_id))

    # -- the coordinator ----------------------------------------------------------------------

    def coordinator(self, group_id: str) -> str | None:
        """Return the node that coordinates the group, None before any was seen."""
        newest = self._newest.get(group_id)
        return self._last_writer.get(group_id) if newest is None else newest[1]

    def state(self, group_id: str) -> SeenState | None:
        """Return the state in which its coordinator has the group, None if it does not know it."""
        node = self.coordinator(group_id)
        return None if node is None else self._states.get((node, group_id))

    def members(self, group_id: str) -> dict[str, None] | None:
        """Return the member ids that its coordinator has, None where they are not known."""
        node = self.coordinator(group_id)
        return None if node is None else self._members.get((node, group_id))

    def load_of(self, group_id: str, node: str) -> TraceRow | None:
        """Return the last load of the group's partition by `node`, None if none was seen."""
        tenure = self._tenures.get(self._partition_of[group_id], {}).get(node)
        return None if tenure is None else tenure.load

    def in_office_since_us(self, group_id: str) -> int:
        """Return when its coordinator's time began, 0 if that was not seen.

        With its load, or with the election of one that had been replaced and never knew it.
        """
        return self._in_office.get(group_id, 0)

    def is_zombie(self, group_id: str, node: str) -> bool:
        """Whether `node` was its coordinator, and has not heard yet that another is.

        One that had heard and loaded the group again is none: that is a mistake.
        """
        partition = self._partition_of[group_id]
        tenure = self._tenures.get(partition, {}).get(node)
        if tenure is None or tenure.ended_us is not None or node == self.coordinator(group_id):
            return False
        return (tenure.load.leader_epoch or 0) >= self._unloaded.get((node, partition), -1)

    def other_coordinator(self, group_id: str, since_us: int) -> TraceRow | None:
        """Return the load of a replaced coordinator that lived and served at `since_us` or later.

        Members may have been attached to it, whatever they should have done.
        """
        current = self.coordinator(group_id)
        return next(
            (
                tenure.load
                for node, tenure in self._tenures.get(self._partition_of[group_id], {}).items()
                if node != current and (tenure.ended_us is None or tenure.ended_us >= since_us)
            ),
            None,
        )
