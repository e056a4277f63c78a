"""Leaders, ISRs and replicas of all partitions, as the controller's rows show them.

Leaders and ISRs stand in the rows of the trace. Two other facts stand in no row, so this module
derives them from several rows:

**The replicas of a partition.** Every broker that was ever in the partition's ISR counts as a
replica. This is enough, because the first ISR of a new partition has all its replicas that are
alive, in the order of the assignment. There is one exception. If an administrator creates a topic
while brokers are fenced (the fault `create_topic`), the replicas on these brokers are missing until
they join the ISR.

**The preferred leader.** This is the first replica of the assignment, and so at first the first
replica of the ISR. The fault `leadership_move` changes the assignment: the controller puts another
replica first, and then elects this replica. No row shows the new assignment, and the election may
fail. So from then on, the former first replica and the replica of the move may both be the
preferred leader. When the controller elects the replica of the move as preferred leader, the move
has certainly been carried out. If it elects the former first replica, the doubt remains, because
the controller may get the order later.

Only an unfenced broker that is not stopping may lead. A broker that has begun to stop does not
count any more, even if the controller unfences the broker later. A controller that was paused may
do this, when it handles heartbeats that the broker sent before its shutdown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from protocol.causes import PREFERRED_LEADER, PREFERRED_LEADER_REQUESTED
from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind, TraceRow

REPLICA_KINDS = frozenset(
    {
        TraceKind.LEADER_ELECTED,
        TraceKind.ISR_CHANGED,
        TraceKind.FAULT_INJECTED,
        TraceKind.BROKER_FENCED,
        TraceKind.BROKER_UNFENCED,
        TraceKind.NODE_STOPPING,
        TraceKind.NODE_STOPPED,
        TraceKind.NODE_KILLED,
        TraceKind.TOPIC_DELETED,
    }
)
"""Kinds of rows that Replicas must see."""
UNKNOWN_LEADER = "?"
"""Leader of a partition before the first election in the trace."""
LEADERSHIP_MOVE = "leadership_move"
"""Name of a fault."""
_OF_PREFERRED = frozenset({PREFERRED_LEADER, PREFERRED_LEADER_REQUESTED})
"""Reasons for which the controller elects the preferred leader."""


@dataclass(slots=True, kw_only=True)
class SeenPartition:
    """The controller's last decision about a partition. Brokers have names such as `broker-0`."""

    leader: str  # "": the partition has no leader
    in_sync: tuple[str, ...]
    replicas: tuple[str, ...]  # in the last order that is known for certain
    row: TraceRow  # the last row about the partition
    moved_to: tuple[str, ...] = ()  # replicas that a `leadership_move` may have put first since

    @property
    def preferred(self) -> str:
        """The replica that should lead whenever it can; "" if no replica is known."""
        return self.replicas[0] if self.replicas else ""

    @property
    def possibly_preferred(self) -> tuple[str, ...]:
        """The replicas of which one is the preferred leader.

        If there was no leadership move, this is only the preferred leader itself.
        """
        return (self.preferred, *self.moved_to)


class Replicas:
    """Follows every partition, and the brokers that may lead."""

    def __init__(self) -> None:
        self._partitions: dict[str, SeenPartition] = {}
        self._may_lead: dict[str, int] = {}  # broker -> time of its unfencing, in microseconds
        # Brokers that are stopping. Nothing iterates over them, so their order does not matter and
        # a set will do.
        self._stopping: set[str] = set()

    @property
    def partitions(self) -> Mapping[str, SeenPartition]:
        """All partitions seen, by their printed names."""
        return self._partitions

    @property
    def may_lead(self) -> Mapping[str, int]:
        """Unfenced brokers that are not stopping, with the time of their unfencing."""
        return self._may_lead

    def of(self, partition: str) -> SeenPartition | None:
        """Return the last decision about a partition; None before the first decision."""
        return self._partitions.get(partition)

    def is_any_without_possible_leader(self) -> bool:
        """Return True if some partition has no leader, and no in-sync replica that may lead.

        The clients of this partition fail until such a replica is back, although nothing else is
        broken.
        """
        return any(not self.may_be_led(known) for known in self._partitions.values())

    def may_be_led(self, known: SeenPartition) -> bool:
        """Return True if a partition has a leader, or an in-sync replica that may lead.

        UNKNOWN_LEADER counts as a leader.
        """
        return bool(known.leader) or any(broker in self._may_lead for broker in known.in_sync)

    def observe(self, row: TraceRow) -> None:
        """Take a row of REPLICA_KINDS."""
        match row.kind:
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED if row.partition is not None:
                self._note_decision(row, row.partition)
            case TraceKind.FAULT_INJECTED:
                self._note_move(row)
            # In rows of the controller and the driver, the broker is the `peer`.
            case TraceKind.BROKER_UNFENCED if row.peer not in self._stopping:
                self._may_lead[row.peer or ""] = row.time_us
            case TraceKind.BROKER_FENCED:
                self._may_lead.pop(row.peer or "", None)
            case TraceKind.NODE_STOPPING:
                self._may_lead.pop(row.peer or "", None)
                self._stopping.add(row.peer or "")
            case TraceKind.NODE_STOPPED | TraceKind.NODE_KILLED:
                self._stopping.discard(row.peer or row.node)
            case TraceKind.TOPIC_DELETED:
                detail = detail_of(row)
                for index in range(detail.get("partitions", 0)):
                    self._partitions.pop(f"{detail.get('topic')}-{index}", None)
            case _:
                pass

    def _note_decision(self, row: TraceRow, partition: str) -> None:
        """Note the leader and the ISR after an election or a change of the ISR."""
        known = self._partitions.get(partition)
        leader = UNKNOWN_LEADER if known is None else known.leader
        if row.kind == TraceKind.LEADER_ELECTED:
            leader = row.peer or ""
        in_sync = tuple(broker_name(BrokerId(broker)) for broker in detail_of(row).get("isr", ()))
        replicas = () if known is None else known.replicas
        moved_to = () if known is None else known.moved_to
        is_of_preferred = (
            row.kind == TraceKind.LEADER_ELECTED and detail_of(row).get("reason") in _OF_PREFERRED
        )
        # The election of a preferred leader shows which broker is first in the assignment. If a
        # move was to put this broker first, the move has been carried out. Other moves may still
        # come, because an administrator who is cut off from the controller repeats the order.
        if is_of_preferred:
            replicas = (leader, *replicas)
            moved_to = tuple(broker for broker in moved_to if broker != leader)
        self._partitions[partition] = SeenPartition(
            leader=leader,
            in_sync=in_sync,
            # Each replica once. A replica that is known already keeps its place in the order.
            replicas=tuple(dict.fromkeys((*replicas, *in_sync))),
            row=row,
            moved_to=moved_to,
        )

    def _note_move(self, row: TraceRow) -> None:
        """Note the replica that a `leadership_move` may put first from now on."""
        detail = detail_of(row)
        if detail.get("fault") != LEADERSHIP_MOVE:
            return
        for partition in detail.get("partitions", ()):
            known = self._partitions.get(partition)
            if known is not None:
                known.moved_to = (*known.moved_to, *detail.get("to", ()))
