"""Partitions that may have lost acknowledged data with their last in-sync replica, as in Kafka.

Kafka promises that acknowledged data survives while one in-sync replica survives (Kafka's
documentation, Replication). The allowed loss has these steps:
1. A broker's machine loses power, or its disk is emptied. From then on the broker lacks data, but
   the controller does not know it.
2. The broker's session ends. The controller removes the broker from the ISR (the in-sync replicas)
   of each partition, except where it is the only member.
3. Where the broker was the only member, it leads again when it is back. The data that it lost is
   gone from the partition, even if another broker still has the data.
The election of step 3 follows Kafka's rules, because the new leader is in the ISR. So the loss is
no error of the coordinator.
"""

from dataclasses import dataclass, field

from chaos.checkers.context import detail_of
from protocol.causes import KillCause
from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind, TraceRow

LOSS_KINDS = frozenset(
    {
        TraceKind.FAULT_INJECTED,
        TraceKind.NODE_KILLED,
        TraceKind.LEADER_ELECTED,
        TraceKind.ISR_CHANGED,
    }
)
"""Kinds of rows that LostData must see."""
EMPTY_DISK = "empty"
"""Argument `disk` of a fault after which the node starts again on an empty disk."""
LOST_TRANSACTION = "lost transaction"
"""Name of the excuse for a transaction that never ends because a loss took its records."""


@dataclass(slots=True)
class _Replicas:
    """The controller's view of a partition."""

    in_sync: tuple[str, ...] = ()
    # broker that counts as in sync although it lacks data -> the row of the cause
    damaged: dict[str, TraceRow] = field(default_factory=dict)


class LostData:
    """Follows ISRs, and the in-sync brokers whose disks lost data."""

    def __init__(self) -> None:
        self._replicas: dict[str, _Replicas] = {}
        self._losses: dict[str, list[TraceRow]] = {}  # partition -> elections of a damaged leader

    def observe(self, row: TraceRow) -> None:
        """Take a row of LOSS_KINDS."""
        match row.kind:
            case TraceKind.NODE_KILLED if row.cause == KillCause.POWER_LOSS:
                self._note_damage(row)
            case TraceKind.FAULT_INJECTED if detail_of(row).get("disk") == EMPTY_DISK:
                self._note_damage(row)
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED if row.partition is not None:
                self._note_decision(row, row.partition)
            case _:
                pass

    def is_loss(self, row: TraceRow) -> bool:
        """Return True if a row is the election with which its partition lost data as allowed.

        Call it while `row` is the newest row of its partition, because only the partition's last
        loss is compared.
        """
        losses = self._losses.get(row.partition or "")
        return losses is not None and losses[-1] is row

    def of(self, partition: str) -> list[TraceRow]:
        """Return the elections with which a partition may have lost data."""
        return self._losses.get(partition, [])

    def _note_damage(self, row: TraceRow) -> None:
        """Note that the broker `row.peer` lacks data of every partition in whose ISR it is."""
        for replicas in self._replicas.values():
            if row.peer in replicas.in_sync:
                replicas.damaged[row.peer] = row

    def _note_decision(self, row: TraceRow, partition: str) -> None:
        """Note a new ISR; note a loss if its only member, a damaged broker, was elected."""
        replicas = self._replicas.setdefault(partition, _Replicas())
        replicas.in_sync = tuple(
            broker_name(BrokerId(broker)) for broker in detail_of(row).get("isr", ())
        )
        # A broker that left the ISR copies the data from the leader before it returns.
        removed = [broker for broker in replicas.damaged if broker not in replicas.in_sync]
        for broker in removed:
            del replicas.damaged[broker]
        if row.kind != TraceKind.LEADER_ELECTED or row.peer not in replicas.damaged:
            return
        if replicas.in_sync != (row.peer,):
            # Another in-sync replica had all data, so Kafka allows no loss. It is an error of the
            # controller that it elected the damaged one.
            return
        self._losses.setdefault(partition, []).append(row)
