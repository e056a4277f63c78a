"""Coordinators of groups by leader epoch, and the state that each has of its groups.

An offsets partition is a partition of `__consumer_offsets`, which stores groups. The broker that
leads it coordinates its groups. It loads them (reads the partition into memory) when it becomes
leader, and unloads them (drops them) when another broker becomes leader. The leader epoch is the
number of a partition's leadership; each election increases it.

In a failover two brokers write rows about states of one group. The new coordinator loads the group.
The old one unloads the group later. Until then it is a zombie: it does not know yet that it was
replaced. The group's coordinator is the one with the newest leader epoch. A broker that is elected
again before it learned of its replacement becomes coordinator without a load (BEHAVIOUR 5.4, in
docs/kafka), and writes LOAD_IGNORED. A tenure is the time in which a broker serves an offsets
partition, from a load to the next unload or to the broker's death.

This module also answers questions about one broker. Does it serve a partition of
`__consumer_offsets` or `__transaction_state`? Which groups does it have in memory? Since when is a
group Empty (without members) there (`Expiry`)?
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos.checkers.context import CheckContext, detail_of
from protocol.causes import DELETIONS, IgnoredCause
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
"""Kinds of rows that CoordinatorView must see."""

EXPIRY_KINDS = frozenset(
    {
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
        TraceKind.GENERATION_STARTED,
        TraceKind.PARTITIONS_ASSIGNED,
    }
)
"""Kinds of rows that Expiry must see."""
_ROUNDING_US = 1_000
"""Kafka's clocks are rounded down to milliseconds, so an age may be one millisecond wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """A state of a group, and the trace row that shows it."""

    state: str
    row: TraceRow


@dataclass(slots=True)
class _Tenure:
    """A broker's time as coordinator of one offsets partition. `ended_us` is None until its end."""

    load: TraceRow
    ended_us: int | None = None


class CoordinatorView:
    """Follows the coordinators, states and members of every group of the experiment."""

    def __init__(self, context: CheckContext) -> None:
        self._groups_in: dict[str, list[str]] = {}
        for group_id, expected in context.groups.items():
            self._groups_in.setdefault(expected.offsets_partition, []).append(group_id)
        self._newest: dict[str, tuple[int, str]] = {}  # group -> epoch, node that has loaded it
        self._coordinator_since_us: dict[str, int] = {}  # group -> time of that node's takeover
        self._states: dict[tuple[str, str], SeenState] = {}  # (node, group)
        self._members: dict[tuple[str, str], dict[str, None]] = {}  # (node, group) -> member ids
        # A dict without values is an ordered set.
        self._held: dict[str, dict[str, None]] = {}  # group -> brokers with its members in memory
        self._known: dict[str, dict[str, None]] = {}  # group -> brokers with its state in memory
        self._loaded: dict[tuple[str, str], TraceRow] = {}  # (node, group) -> its last GROUP_LOADED
        # group -> the node that last traced its state: its coordinator if the trace has no load
        self._last_writer: dict[str, str] = {}
        self._tenures: dict[str, dict[str, _Tenure]] = {}  # partition -> node -> its last tenure
        # (node, partition) -> the newest leader epoch in which the node unloaded the partition
        self._unloaded: dict[tuple[str, str], int] = {}
        self._partition_of = {
            group_id: expected.offsets_partition for group_id, expected in context.groups.items()
        }

    def observe(self, row: TraceRow) -> None:
        """Take a row of COORDINATOR_KINDS."""
        match row.kind:
            case TraceKind.LOAD_STARTED:
                # Memory is empty until the rows GROUP_LOADED, which come before LOAD_COMPLETED.
                for group_id in self._groups_in.get(row.partition or "", ()):
                    self._states.pop((row.node, group_id), None)
                    self._members.pop((row.node, group_id), None)
            case TraceKind.LOAD_IGNORED if row.cause == IgnoredCause.ALREADY_LOADED:
                self._note_takeover(row)
            case TraceKind.LOAD_COMPLETED:
                self._note_takeover(row)
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
                died = row.peer or row.node  # a kill is a row of the driver, with the node as peer
                for partition, tenures in self._tenures.items():
                    tenures.pop(died, None)  # no member is attached to a dead broker
                    self._unloaded.pop((died, partition), None)
                for brokers in (*self._held.values(), *self._known.values()):
                    brokers.pop(died, None)
            case TraceKind.GROUP_LOADED:
                detail = detail_of(row)
                self._note_holder(row)
                self._loaded[row.node, row.group or ""] = row
                self._note_state(row, detail.get("state"))
                self._note_members(row, detail)
            case TraceKind.GENERATION_STARTED:
                self._note_members(row, detail_of(row))
            case TraceKind.MEMBER_ADDED:
                self._note_holder(row)
                # None: no row has listed the group's members yet. With one more member, the whole
                # list is still unknown.
                members = self._members.get((row.node, row.group or ""))
                if members is not None:
                    members[row.member or ""] = None
            case TraceKind.MEMBER_REMOVED:
                members = self._members.get((row.node, row.group or ""))
                if members is not None:
                    members.pop(row.member or "", None)
            case TraceKind.GROUP_STATE:
                self._note_state(row, detail_of(row).get("to"))
            case _:
                pass

    def _note_takeover(self, row: TraceRow) -> None:
        """Note a new coordinator, unless a coordinator with a newer epoch is known already."""
        epoch = row.leader_epoch or 0
        for group_id in self._groups_in.get(row.partition or "", ()):
            newest, before = self._newest.get(group_id, (-1, ""))
            if epoch >= newest:
                self._newest[group_id] = (epoch, row.node)
                # A broker that was elected again before another one loaded the group has been its
                # coordinator all the time.
                if row.node != before or row.kind == TraceKind.LOAD_COMPLETED:
                    self._coordinator_since_us[group_id] = row.time_us

    def _note_state(self, row: TraceRow, state: str | None) -> None:
        if row.group is not None and state is not None:
            self._states[row.node, row.group] = SeenState(state=state, row=row)
            self._last_writer[row.group] = row.node
            self._known.setdefault(row.group, {})[row.node] = None

    def _note_holder(self, row: TraceRow) -> None:
        """Note that a broker has the group, with its members, in memory."""
        self._held.setdefault(row.group or "", {})[row.node] = None

    def _note_members(self, row: TraceRow, detail: Mapping[str, Any]) -> None:
        members = detail.get("members")
        if row.group is not None and isinstance(members, list):
            self._members[row.node, row.group] = dict.fromkeys(members)

    # -- one broker ---------------------------------------------------------------------------

    def served_since(self, node: str, partition: str) -> TraceRow | None:
        """Return the load of a broker that serves a partition; None if it does not serve it.

        A zombie still serves its partitions.
        """
        tenure = self._tenures.get(partition, {}).get(node)
        return None if tenure is None or tenure.ended_us is not None else tenure.load

    def is_served_by_another(self, node: str, partition: str) -> bool:
        """Return True if a broker other than `node` is alive and serves a partition."""
        return any(
            tenure.ended_us is None and other != node
            for other, tenure in self._tenures.get(partition, {}).items()
        )

    def holders(self, group_id: str) -> Mapping[str, None]:
        """Return the brokers that loaded a group, or added a member to it, and still have it."""
        return self._held.get(group_id, {})

    def state_at(self, node: str, group_id: str) -> str | None:
        """Return the state of a group in a broker's memory, None if the group is not there."""
        if node not in self._known.get(group_id, ()):
            return None
        seen = self._states.get((node, group_id))
        return None if seen is None else seen.state

    def loaded(self, node: str, group_id: str) -> TraceRow | None:
        """Return a broker's last GROUP_LOADED of a group, even if the broker has died since."""
        return self._loaded.get((node, group_id))

    # -- the coordinator ----------------------------------------------------------------------

    def coordinator(self, group_id: str) -> str | None:
        """Return the group's coordinator, None before any was seen."""
        newest = self._newest.get(group_id)
        return self._last_writer.get(group_id) if newest is None else newest[1]

    def state(self, group_id: str) -> SeenState | None:
        """Return the group's state at its coordinator, or None if the coordinator lacks it."""
        node = self.coordinator(group_id)
        return None if node is None else self._states.get((node, group_id))

    def members(self, group_id: str) -> dict[str, None] | None:
        """Return the member ids at the group's coordinator, None if they are not known."""
        node = self.coordinator(group_id)
        return None if node is None else self._members.get((node, group_id))

    def load_of(self, group_id: str, node: str) -> TraceRow | None:
        """Return the last load of the group's partition by `node`; None before its first load."""
        tenure = self._tenures.get(self._partition_of[group_id], {}).get(node)
        return None if tenure is None else tenure.load

    def coordinator_since_us(self, group_id: str) -> int:
        """Return the time since which the group has its coordinator, 0 if no row shows it.

        This is the end of the coordinator's load, or the time of the broker's LOAD_IGNORED if the
        broker was replaced and elected again without noticing.
        """
        return self._coordinator_since_us.get(group_id, 0)

    def is_zombie(self, group_id: str, node: str) -> bool:
        """Return True if `node` was replaced as coordinator and does not know it yet.

        A broker that unloaded the group in a newer epoch knows that it was replaced. If this broker
        loads the group again in the older epoch, it is no zombie: the load itself is an error.
        """
        partition = self._partition_of[group_id]
        tenure = self._tenures.get(partition, {}).get(node)
        if tenure is None or tenure.ended_us is not None or node == self.coordinator(group_id):
            return False
        return (tenure.load.leader_epoch or 0) >= self._unloaded.get((node, partition), -1)

    def other_coordinator(self, group_id: str, since_us: int) -> TraceRow | None:
        """Return the load of a replaced coordinator that was alive and served after `since_us`.

        Members may have sent requests to that broker since then.
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


class Expiry:
    """Follows the time since which each broker has each group without members.

    A coordinator removes a group's offsets when the group was Empty for the retention time
    (`offsets.retention.minutes`). An offset that is removed earlier is a loss.

    The time counts from the moment at which the group became Empty. This is so at a later
    coordinator, too, because the group's record contains the moment. If later states of the group
    could not be stored, a coordinator loads an older record. The record's generation shows which
    moment it contains. A group that never had members (only an administrator committed for it) has
    no such moment. It is not judged, because each of its offsets has its own age.
    Source: Kafka `GroupMetadata.removeExpiredOffsets`; docs/kafka/BEHAVIOUR.md 4.11.
    """

    def __init__(self, context: CheckContext) -> None:
        self._retention_us = context.offsets_retention_us - context.clock_error_us - _ROUNDING_US
        # group -> broker -> time at which the group became Empty there; None: it has members there
        self._empty_us: dict[str, dict[str, int | None]] = {}
        # group -> generation -> first time at which the group became Empty in it, at any broker
        self._emptied_us: dict[str, dict[int, int]] = {}
        self._had_members: dict[str, None] = {}  # groups

    def observe(self, row: TraceRow) -> None:
        """Take a row of EXPIRY_KINDS."""
        group_id = row.group or ""
        by_broker = self._empty_us.setdefault(group_id, {})
        by_generation = self._emptied_us.setdefault(group_id, {})
        state = detail_of(row).get("to" if row.kind == TraceKind.GROUP_STATE else "state")
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                self._had_members[group_id] = None
            case TraceKind.GROUP_STATE if state == "Empty":
                by_broker[row.node] = row.time_us
                if row.generation is not None:
                    by_generation.setdefault(row.generation, row.time_us)
            case TraceKind.GROUP_STATE if state == "Dead":
                if row.cause in DELETIONS:  # a later group of this name is a new group
                    by_broker.clear()
                    by_generation.clear()
                    self._had_members.pop(group_id, None)
            case TraceKind.GROUP_LOADED if state == "Empty":
                # If no row shows the time in the loaded record, every removal counts as due.
                emptied_us = None if row.generation is None else by_generation.get(row.generation)
                by_broker[row.node] = -self._retention_us if emptied_us is None else emptied_us
            case _:  # any other state: the group has members there
                by_broker[row.node] = None
                self._had_members[group_id] = None

    def is_due(self, row: TraceRow) -> bool:
        """Return True if an offset expired in time: not before the group's retention time."""
        by_broker = self._empty_us.get(row.group or "", {})
        if row.node not in by_broker:
            return row.group not in self._had_members
        empty_us = by_broker[row.node]
        return empty_us is not None and row.time_us - empty_us >= self._retention_us
