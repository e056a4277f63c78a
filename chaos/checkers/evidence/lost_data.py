"""Partitions that may have lost acknowledged data in a way that Kafka allows.

Kafka promises that acknowledged data survives as long as one in-sync replica survives (Kafka's
documentation, Replication). The last in-sync replica of a partition may lose its data and come
back:

1. The machine of broker-0 loses power, or its disk is emptied. From now on broker-0 lacks data, but
   the controller does not know this.
2. The session of broker-0 ends. The controller removes broker-0 from the ISR of each partition. But
   if broker-0 is the only member of an ISR, it stays in this ISR.
3. broker-0 comes back. The controller elects broker-0 as leader of the partitions whose ISR still
   has it. The missing data of these partitions is lost, even if another broker still has it.

This election is right by Kafka's rules, so checkers do not expect the lost data any more.

A broker may also get into the ISR after its damage: its leader proposed the new ISR before, and the
controller accepts it, because broker-0 still counts as alive in its old broker epoch. This can
happen until broker-0 registers again. Later proposals with the old broker epoch are refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.checkers.context import detail_of
from protocol.causes import KillCause
from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind, TraceRow

LOSS_KINDS = frozenset(
    {
        TraceKind.FAULT_INJECTED,
        TraceKind.NODE_KILLED,
        TraceKind.BROKER_REGISTERED,
        TraceKind.LEADER_ELECTED,
        TraceKind.ISR_CHANGED,
    }
)
"""Kinds of rows that LostData must see."""
EMPTY_DISK = "empty"
"""Value of `disk` in the row of a fault after which the node starts again on an empty disk."""
LOST_TRANSACTION = "lost transaction"
"""Name of the excuse for a transaction that never ends because its records were lost."""


@dataclass(slots=True)
class _Replicas:
    """A partition's ISR, and the brokers in it that have lost data."""

    in_sync: tuple[str, ...] = ()
    damaged: dict[str, TraceRow] = field(default_factory=dict)  # broker -> row of the damage


class LostData:
    """Follows ISRs, and the in-sync brokers whose disks lost data."""

    def __init__(self) -> None:
        self._replicas: dict[str, _Replicas] = {}
        # Damaged broker -> the row of the damage, until the broker registers again
        self._unregistered: dict[str, TraceRow] = {}
        self._losses: dict[str, list[TraceRow]] = {}  # partition -> elections of a damaged leader

    def observe(self, row: TraceRow) -> None:
        """Take a row of LOSS_KINDS."""
        match row.kind:
            case TraceKind.NODE_KILLED if row.cause == KillCause.POWER_LOSS:
                self._note_damage(row, (row.peer or "",))
            case TraceKind.FAULT_INJECTED if detail_of(row).get("disk") == EMPTY_DISK:
                # `row.peer` is only the first of the nodes.
                self._note_damage(row, detail_of(row).get("nodes", ()))
            case TraceKind.BROKER_REGISTERED:
                self._unregistered.pop(row.peer or "", None)
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED if row.partition is not None:
                self._note_decision(row, row.partition)
            case _:
                pass

    def is_loss(self, row: TraceRow) -> bool:
        """Return True if `row`, observed just now, is an election with which data was lost."""
        losses = self._losses.get(row.partition or "")
        return losses is not None and losses[-1] is row

    def of(self, partition: str) -> list[TraceRow]:
        """Return the elections with which a partition may have lost data."""
        return self._losses.get(partition, [])

    def _note_damage(self, row: TraceRow, nodes: Iterable[str]) -> None:
        """Note that each of the nodes lacks data of each partition whose ISR has the node."""
        for node in nodes:
            self._unregistered[node] = row
            for replicas in self._replicas.values():
                if node in replicas.in_sync:
                    replicas.damaged[node] = row

    def _note_decision(self, row: TraceRow, partition: str) -> None:
        """Note a new ISR, and note a loss of data.

        Data is lost if a damaged broker was elected that is the only member of the ISR.
        """
        replicas = self._replicas.setdefault(partition, _Replicas())
        former = replicas.in_sync
        replicas.in_sync = tuple(
            broker_name(BrokerId(broker)) for broker in detail_of(row).get("isr", ())
        )
        for broker in replicas.in_sync:
            if broker not in former and broker in self._unregistered:
                replicas.damaged[broker] = self._unregistered[broker]
        # A broker that left the ISR copies the data from the leader before it returns.
        removed = [broker for broker in replicas.damaged if broker not in replicas.in_sync]
        for broker in removed:
            del replicas.damaged[broker]
        if row.kind != TraceKind.LEADER_ELECTED or row.peer not in replicas.damaged:
            return
        if replicas.in_sync != (row.peer,):
            # Another in-sync replica had all data, and the controller should have elected this
            # replica. Kafka does not allow this loss, so it is not noted as allowed.
            return
        self._losses.setdefault(partition, []).append(row)
