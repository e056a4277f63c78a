"""Leaders, in-sync replicas (ISR) and replicas of all partitions, as the controller decided them.

The trace has no row with the replicas of a partition. So all brokers that were ever in the
partition's ISR count as its replicas. The first ISR of a partition has all its active replicas, in
the order of the assignment, with the preferred leader first. So no broker is missing in a topic of
the experiment. In a topic that an administrator creates (the fault `create_topic`), replicas on
fenced brokers are missing until they join the ISR.

The fault `leadership_move` makes the controller put another replica first, and then elect it. No
row shows the new order, and the order stays even if the election fails. So from the fault on,
several replicas may be the preferred leader, until the controller elects the replica of the move as
the preferred leader. The election of another preferred leader does not end the doubt, because the
controller may get the order later.

The controller fences a broker that it counts as dead, and unfences it when it is back. Only an
unfenced broker may lead, and only while it is not stopping. A controller that was paused may still
unfence a stopping broker, because it handles heartbeats that the broker sent before its shutdown.
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
"""Kinds of rows that a caller must give to `Replicas.observe`."""
UNKNOWN_LEADER = "?"
"""Leader of a partition before the first election in the trace."""
LEADERSHIP_MOVE = "leadership_move"  # the name of the fault
_OF_PREFERRED = frozenset({PREFERRED_LEADER, PREFERRED_LEADER_REQUESTED})
"""Reasons of the elections whose leader is the preferred one."""


@dataclass(slots=True, kw_only=True)
class SeenPartition:
    """The controller's last decision about a partition.

    - `leader`: "" if the partition has no leader. UNKNOWN_LEADER counts as a leader.
    - `replicas`: the replicas, in the last order that is known for certain.
    - `moved_to`: replicas that a `leadership_move` tried to put first since that order.
    - `row`: the last row about the partition.
    """

    leader: str
    in_sync: tuple[str, ...]
    replicas: tuple[str, ...]
    row: TraceRow
    moved_to: tuple[str, ...] = ()

    @property
    def preferred(self) -> str:
        """The replica that leads if it can; "" if none is known."""
        return self.replicas[0] if self.replicas else ""

    @property
    def possibly_preferred(self) -> tuple[str, ...]:
        """The replicas one of which is the preferred leader."""
        return (self.preferred, *self.moved_to)


class Replicas:
    """Observes every partition, and the brokers that may lead."""

    def __init__(self) -> None:
        self._partitions: dict[str, SeenPartition] = {}
        self._may_lead: dict[str, int] = {}  # broker -> time of its unfencing, in microseconds
        self._stopping: set[str] = set()  # brokers; nothing iterates over this set

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
        broken. A partition with UNKNOWN_LEADER has a leader.
        """
        return any(not self.may_be_led(known) for known in self._partitions.values())

    def may_be_led(self, known: SeenPartition) -> bool:
        """Return True if a partition has a leader, or an in-sync replica that may lead."""
        return bool(known.leader) or any(broker in self._may_lead for broker in known.in_sync)

    def observe(self, row: TraceRow) -> None:
        """Take a row of REPLICA_KINDS."""
        match row.kind:
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED if row.partition is not None:
                self._note_decision(row, row.partition)
            case TraceKind.FAULT_INJECTED:
                self._note_move(row)
            # The broker is the row's `peer`. A row without it would add "", which no ISR contains.
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
        # The election of a preferred leader shows the order: the leader is the first replica, and
        # its own move is carried out. The orders of other moves may still arrive, because an
        # administrator whom a cut separates from the controller sends them again.
        if is_of_preferred:
            replicas = (leader, *replicas)
            moved_to = tuple(broker for broker in moved_to if broker != leader)
        self._partitions[partition] = SeenPartition(
            leader=leader,
            in_sync=in_sync,
            replicas=tuple(dict.fromkeys((*replicas, *in_sync))),
            row=row,
            moved_to=moved_to,
        )

    def _note_move(self, row: TraceRow) -> None:
        """Note the replica that a `leadership_move` tries to put first."""
        detail = detail_of(row)
        if detail.get("fault") != LEADERSHIP_MOVE:
            return
        for partition in detail.get("partitions", ()):
            known = self._partitions.get(partition)
            if known is not None:
                known.moved_to = (*known.moved_to, *detail.get("to", ()))
