"""The time since which nothing has disturbed a group.

Some promises of Kafka have a time limit that counts from the last disturbance of a group. Some
disturbances last for a while:

1. a fault is in force that disturbs the servers (see `FaultsInForce.cluster_quiet_since_us`). A
   fault that only ends or pauses consumers belongs to 3 and 4;
2. a partition whose leader is a coordinator of the group (or of its transactions) has no leader, or
   too few replicas in sync;
3. no member of the group is both alive and running (not paused).

Others are over in a moment:

4. a member starts, ends, is paused or is resumed;
5. such a partition (see 2) gets another leader or another ISR, or a broker loads or unloads it.

What members do by themselves, such as a rebalance, is no disturbance.
"""

from dataclasses import dataclass, field

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS, FaultsInForce
from chaos.checkers.evidence.replicas import REPLICA_KINDS, Replicas
from protocol.causes import MemberStateCause
from protocol.trace import TraceKind, TraceRow

DISTURBING_KINDS = frozenset(
    {
        *FAULT_KINDS,
        *REPLICA_KINDS,
        TraceKind.NODE_STOPPED,
        TraceKind.MEMBER_STATE,
        TraceKind.LOAD_COMPLETED,
        TraceKind.UNLOAD_COMPLETED,
        TraceKind.GROUP_LOADED,
    }
)
"""Kinds of rows that Undisturbed must see."""


@dataclass(slots=True)
class _Group:
    """Members of a group, and the last disturbance of the group."""

    coordinators: tuple[str, ...]  # partitions whose leaders are the group's coordinators
    # The next two dicts are used as ordered sets, so only their keys matter.
    alive: dict[str, None] = field(default_factory=dict)  # members whose processes live
    stopped: dict[str, None] = field(default_factory=dict)  # members of `alive` that are paused
    changed_us: int = 0  # time of the last disturbance of kind 4 or 5


class Undisturbed:
    """Follows the disturbances of each group.

    The caller feeds rows to `faults` and `replicas`, which this class only reads.
    """

    def __init__(self, context: CheckContext, faults: FaultsInForce, replicas: Replicas) -> None:
        self._context = context
        self._faults = faults
        self._replicas = replicas
        self._group_of = {
            consumer: group_id
            for group_id, expected in context.groups.items()
            for consumer in expected.consumers
        }
        self._groups = {
            group_id: _Group(
                coordinators=expected.coordinator_partitions,
                alive=dict.fromkeys(
                    consumer for consumer in expected.consumers if consumer not in expected.late
                ),
            )
            for group_id, expected in context.groups.items()
        }

    def since_us(self, group_id: str) -> int | None:
        """Return the time since which a group is undisturbed; None while it is disturbed."""
        quiet_us = self._faults.cluster_quiet_since_us
        group = self._groups[group_id]
        # The two numbers are equal if all living members are paused, or if no member lives (then
        # both numbers are 0).
        if quiet_us is None or len(group.alive) == len(group.stopped):
            return None
        if not all(self._serves(partition) for partition in group.coordinators):
            return None
        return max(quiet_us, group.changed_us)

    def reads(self, consumer: str) -> bool:
        """Return True if a consumer can read records: it is alive and not paused."""
        group = self._groups[self._group_of[consumer]]
        return consumer in group.alive and consumer not in group.stopped

    def observe(self, row: TraceRow) -> None:
        """Take a row of DISTURBING_KINDS."""
        # Some rows about a node, such as NODE_KILLED, are written by the driver (the process that
        # conducts the run). Such a row names the node in `peer`.
        node = row.peer or row.node
        match row.kind:
            case TraceKind.NODE_STARTED | TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                self._note_life(node, row, lives=row.kind == TraceKind.NODE_STARTED)
            case TraceKind.MEMBER_STATE:
                # A consumer that has left the group counts as dead until its process starts again.
                if row.cause == MemberStateCause.LEFT:
                    self._note_life(row.node, row, lives=False)
            case TraceKind.NODE_PAUSED | TraceKind.NODE_RESUMED if node in self._group_of:
                group = self._groups[self._group_of[node]]
                group.changed_us = row.time_us
                if row.kind == TraceKind.NODE_PAUSED and node in group.alive:
                    group.stopped[node] = None
                else:
                    group.stopped.pop(node, None)
            case TraceKind.GROUP_LOADED if row.group in self._groups:
                self._groups[row.group].changed_us = row.time_us
            case _ if row.partition is not None:
                # The row is about a new leader or ISR, a load or an unload (kind 5).
                for group in self._groups.values():
                    if row.partition in group.coordinators:
                        group.changed_us = row.time_us
            case _:
                pass

    def _note_life(self, node: str, row: TraceRow, *, lives: bool) -> None:
        """Note the start or the end of a consumer's process."""
        if node not in self._group_of:
            return
        group = self._groups[self._group_of[node]]
        group.changed_us = row.time_us
        group.stopped.pop(node, None)  # neither an ended nor a new process is paused
        if lives:
            group.alive[node] = None
        else:
            group.alive.pop(node, None)

    def _serves(self, partition: str) -> bool:
        """Return True if a partition has a leader and enough in-sync replicas.

        The result is also True if no row has shown the partition's state yet.
        """
        known = self._replicas.of(partition)
        if known is None:
            return True
        return known.leader != "" and len(known.in_sync) >= self._context.least_in_sync(partition)
