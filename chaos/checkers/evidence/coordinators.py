"""The coordinator of each group, and what each broker has of the groups in its memory.

A group is stored in one partition of `__consumer_offsets`, its offsets partition. The leader of
this partition is the group's coordinator. When a broker becomes leader, it loads the partition's
groups into memory. When the broker learns that another broker leads, it unloads these groups.

A failover takes a while. During this time two brokers may act as coordinator of a group:

1. broker-0 leads in epoch 3, and has loaded the group.
2. broker-1 is elected in epoch 4, and loads the group. From then on it is the group's coordinator,
   because it has the newest leader epoch.
3. broker-0 does not know of the election yet. It still serves the group, and we call it a zombie.
4. broker-0 learns of the election, and unloads the group.

Both brokers write rows about the group's state, so `CoordinatorView` keeps states and members
separately for each broker. `CoordinatorView` also keeps each broker's last tenure of a partition. A
tenure is the time from the load of the partition to its unload, or to the broker's death.

`Expiry` keeps the time since which each group has had no members. The offsets of a group expire
when it has had no members for long enough.
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
    """The time in which a broker serves one partition of coordinators."""

    load: TraceRow  # LOAD_COMPLETED, with which the tenure begins
    ended_us: int | None = None  # None: the broker still serves the partition


class CoordinatorView:
    """Follows the coordinators, states and members of every group of the experiment."""

    def __init__(self, context: CheckContext) -> None:
        self._groups_in: dict[str, list[str]] = {}
        for group_id, expected in context.groups.items():
            self._groups_in.setdefault(expected.offsets_partition, []).append(group_id)
        # group -> the newest leader epoch in which a broker took the group over, and this broker
        self._newest: dict[str, tuple[int, str]] = {}
        # group -> time of the takeover in `_newest`
        self._coordinator_since_us: dict[str, int] = {}
        self._states: dict[tuple[str, str], SeenState] = {}  # (node, group)
        # (node, group) -> member ids. Dicts whose values are None serve as ordered sets.
        self._members: dict[tuple[str, str], dict[str, None]] = {}
        # group -> brokers that loaded the group or added a member to it, and have not unloaded it
        # since
        self._held: dict[str, dict[str, None]] = {}
        # group -> brokers that wrote a row about the group's state, and have not unloaded it since
        self._known: dict[str, dict[str, None]] = {}
        self._loaded: dict[tuple[str, str], TraceRow] = {}  # (node, group) -> last GROUP_LOADED
        # group -> the broker that last wrote a row about the group's state. If a group is created
        # after the broker became leader, the group is never loaded. Then this broker counts as the
        # group's coordinator.
        self._last_writer: dict[str, str] = {}
        self._tenures: dict[str, dict[str, _Tenure]] = {}  # partition -> node -> last tenure
        # (node, partition) -> the newest leader epoch in which the node unloaded the partition
        self._unloaded: dict[tuple[str, str], int] = {}
        self._partition_of = {
            group_id: expected.offsets_partition for group_id, expected in context.groups.items()
        }

    def observe(self, row: TraceRow) -> None:
        """Take a row of COORDINATOR_KINDS."""
        match row.kind:
            case TraceKind.LOAD_STARTED:
                # The broker forgets what it had of the partition's groups. During the load it
                # writes one row GROUP_LOADED for each group that it finds, and at the end
                # LOAD_COMPLETED.
                for group_id in self._groups_in.get(row.partition or "", ()):
                    self._states.pop((row.node, group_id), None)
                    self._members.pop((row.node, group_id), None)
            case TraceKind.LOAD_IGNORED if row.cause == IgnoredCause.ALREADY_LOADED:
                # The broker was replaced, and elected again before it learned of its replacement.
                # So it still has the groups, and takes them over without a load (section 5.4 of
                # docs/kafka/BEHAVIOUR.md).
                self._note_takeover(row)
            case TraceKind.LOAD_COMPLETED:
                self._note_takeover(row)
                self._tenures.setdefault(row.partition or "", {})[row.node] = _Tenure(load=row)
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
                # A dying node cannot write a row: the driver writes NODE_KILLED, with the node as
                # its peer. A node that stops in good order writes NODE_STOPPED itself.
                died = row.peer or row.node
                for partition, tenures in self._tenures.items():
                    tenures.pop(died, None)
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
                # As long as no row has listed all members of the group, `members` is None. One more
                # member does not change this, because the others are still unknown.
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
        """Note that a broker took over a partition's groups.

        If another broker has taken over a group in a newer epoch, nothing is noted for this group.
        """
        epoch = row.leader_epoch or 0
        for group_id in self._groups_in.get(row.partition or "", ()):
            newest_epoch, previous = self._newest.get(group_id, (-1, ""))
            if epoch >= newest_epoch:
                self._newest[group_id] = (epoch, row.node)
                # If the same broker takes over again without a load, no other broker has been the
                # coordinator in between. Then the time of its earlier takeover still counts.
                if row.node != previous or row.kind == TraceKind.LOAD_COMPLETED:
                    self._coordinator_since_us[group_id] = row.time_us

    def _note_state(self, row: TraceRow, state: str | None) -> None:
        if row.group is not None and state is not None:
            self._states[row.node, row.group] = SeenState(state=state, row=row)
            self._last_writer[row.group] = row.node
            self._known.setdefault(row.group, {})[row.node] = None

    def _note_holder(self, row: TraceRow) -> None:
        """Note that a broker has a group with its members in memory."""
        self._held.setdefault(row.group or "", {})[row.node] = None

    def _note_members(self, row: TraceRow, detail: Mapping[str, Any]) -> None:
        members = detail.get("members")
        if row.group is not None and isinstance(members, list):
            self._members[row.node, row.group] = dict.fromkeys(members)

    # -- one broker ---------------------------------------------------------------------------

    def served_since(self, node: str, partition: str) -> TraceRow | None:
        """Return the LOAD_COMPLETED with which a broker began to serve a partition.

        Return None if the broker does not serve the partition. A zombie still serves its
        partitions.
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
        """Return the group's coordinator; None before the first row about a coordinator."""
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
        """Return the last LOAD_COMPLETED of `node` for the group's partition, if there is one."""
        tenure = self._tenures.get(self._partition_of[group_id], {}).get(node)
        return None if tenure is None else tenure.load

    def coordinator_since_us(self, group_id: str) -> int:
        """Return the time since which the group has had its present coordinator, 0 if unknown.

        This is normally the end of the coordinator's load. If a broker became coordinator again
        without a load, it is the time of the broker's row LOAD_IGNORED.
        """
        return self._coordinator_since_us.get(group_id, 0)

    def is_zombie(self, group_id: str, node: str) -> bool:
        """Return True if `node` was replaced as coordinator and does not know this yet.

        A broker may break the rules. For example, it unloads a partition in epoch 4, so it knows
        that it was replaced, and then loads the partition in epoch 3. Such a broker is no zombie,
        so what it does is not excused.
        """
        partition = self._partition_of[group_id]
        tenure = self._tenures.get(partition, {}).get(node)
        if tenure is None or tenure.ended_us is not None or node == self.coordinator(group_id):
            return False
        return (tenure.load.leader_epoch or 0) >= self._unloaded.get((node, partition), -1)

    def other_coordinator(self, group_id: str, since_us: int) -> TraceRow | None:
        """Return the load of a former coordinator that still served the group after `since_us`.

        Members may have sent requests to this former coordinator. Return None if there is none.
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
    """Decides whether a coordinator may remove expired offsets of a group.

    A coordinator may do so when the group has been Empty for `offsets.retention.minutes`. An offset
    that is removed earlier is a loss.

    The retention time counts from the moment at which the group became Empty. The coordinator
    writes this moment into the group's record. A later coordinator loads the record, and counts
    from the same moment. But the loaded record may be old, because a coordinator may have failed to
    store newer records. The generation in the row GROUP_LOADED shows which record was loaded.

    A group that never had members (only an administrator committed for it) never became Empty. Each
    of its offsets has an age of its own. The removal of such an offset is never reported.
    Source: Kafka `GroupMetadata.removeExpiredOffsets`; docs/kafka/BEHAVIOUR.md 4.11.
    """

    def __init__(self, context: CheckContext) -> None:
        # The retention time, minus the largest error of the clocks
        self._retention_us = context.offsets_retention_us - context.clock_error_us - _ROUNDING_US
        # group -> broker -> time at which the group became Empty at this broker. The time is None
        # if the group has members there.
        self._empty_us: dict[str, dict[str, int | None]] = {}
        # group -> generation -> first time at which any broker showed the group as Empty in this
        # generation
        self._emptied_us: dict[str, dict[int, int]] = {}
        self._had_members: dict[str, None] = {}  # groups

    def observe(self, row: TraceRow) -> None:
        """Take a row of EXPIRY_KINDS."""
        group_id = row.group or ""
        by_broker = self._empty_us.setdefault(group_id, {})
        by_generation = self._emptied_us.setdefault(group_id, {})
        # GROUP_STATE has the state under the key `to`, GROUP_LOADED under the key `state`.
        state = detail_of(row).get("to" if row.kind == TraceKind.GROUP_STATE else "state")
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                self._had_members[group_id] = None
            case TraceKind.GROUP_STATE if state == "Empty":
                by_broker[row.node] = row.time_us
                if row.generation is not None:
                    by_generation.setdefault(row.generation, row.time_us)
            case TraceKind.GROUP_STATE if state == "Dead":
                # If a group with this name appears later, it is a new group.
                if row.cause in DELETIONS:
                    by_broker.clear()
                    by_generation.clear()
                    self._had_members.pop(group_id, None)
            case TraceKind.GROUP_LOADED if state == "Empty":
                # If no row shows when the group became Empty in this generation, the code takes a
                # time that is long ago. Then no removal of an offset is reported.
                emptied_us = None if row.generation is None else by_generation.get(row.generation)
                by_broker[row.node] = -self._retention_us if emptied_us is None else emptied_us
            case _:  # GENERATION_STARTED, or any other state: the group has members there
                by_broker[row.node] = None
                self._had_members[group_id] = None

    def is_due(self, row: TraceRow) -> bool:
        """Return True if the offset that OFFSET_REMOVED removes may have expired by its time."""
        by_broker = self._empty_us.get(row.group or "", {})
        if row.node not in by_broker:
            # No row shows the group's state at this broker. A group without members, which an
            # administrator uses, may have no such row.
            return row.group not in self._had_members
        empty_us = by_broker[row.node]
        return empty_us is not None and row.time_us - empty_us >= self._retention_us
