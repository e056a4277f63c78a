"""Which partitions may have lost what was acknowledged, as Kafka allows: their last replica did.

Kafka promises that what is acknowledged survives as long as one replica in sync does (Kafka's
documentation, Replication). A broker whose machine lost power, or whose disk is empty, no longer
has what the controller believes it to have. Once its session ends it is taken out of every ISR,
unless nobody else is in it: the last one stays, leads again when it is back, and what it lost is
gone, whoever else may still have it. That is a clean election, and no fault of the coordinator.
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
"""The rows that LostData must see."""
EMPTY_DISK = "empty"


@dataclass(slots=True)
class _Replicas:
    """What the controller believes of a partition."""

    in_sync: tuple[str, ...] = ()
    damaged: dict[str, TraceRow] = field(default_factory=dict)  # in sync, with data gone: since


class LostData:
    """Follows who is in sync, and whose disk lost something since."""

    def __init__(self) -> None:
        self._replicas: dict[str, _Replicas] = {}
        self._losses: dict[str, list[TraceRow]] = {}  # partition -> elections of a damaged leader

    def observe(self, row: TraceRow) -> None:
        """Take in a row of LOSS_KINDS."""
        match row.kind:
            case TraceKind.NODE_KILLED if row.cause == KillCause.POWER_LOSS:
                self._damage(row)
            case TraceKind.FAULT_INJECTED if detail_of(row).get("disk") == EMPTY_DISK:
                self._damage(row)
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED if row.partition is not None:
                self._changed(row, row.partition)
            case _:
                pass

    def is_loss(self, row: TraceRow) -> bool:
        """Whether the partition of this row has just lost data with it, as it may."""
        losses = self._losses.get(row.partition or "")
        return losses is not None and losses[-1] is row

    def of(self, partition: str) -> list[TraceRow]:
        """Return the elections with which a partition may have lost data."""
        return self._losses.get(partition, [])

    def _damage(self, row: TraceRow) -> None:
        for replicas in self._replicas.values():
            if row.peer in replicas.in_sync:
                replicas.damaged[row.peer] = row

    def _changed(self, row: TraceRow, partition: str) -> None:
        replicas = self._replicas.setdefault(partition, _Replicas())
        replicas.in_sync = tuple(
            broker_name(BrokerId(broker)) for broker in detail_of(row).get("isr", ())
        )
        for broker in [each for each in replicas.damaged if each not in replicas.in_sync]:
            del replicas.damaged[broker]
        if row.kind != TraceKind.LEADER_ELECTED or row.peer not in replicas.damaged:
            return
        if replicas.in_sync != (row.peer,):
            return  # another had everything: to elect this one is a fault of the controller
        self._losses.setdefault(partition, []).append(row)
