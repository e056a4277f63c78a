"""Partitions that may have lost acknowledged data, as Kafka allows, with their last replica.

Kafka promises that acknowledged data survives while one in-sync replica does (Kafka's
documentation, Replication). A broker whose machine lost power, or whose disk was emptied, no longer
has all the data that the controller believes it to have. When its session ends, it is removed from
every ISR, unless it is the last member. Then it stays, leads again when it is back, and its lost
data is gone, even if another broker still has it. That is a clean election, and no error of the
coordinator.
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


@dataclass(slots=True)
class _Replicas:
    """The controller's view of a partition."""

    in_sync: tuple[str, ...] = ()
    damaged: dict[str, TraceRow] = field(default_factory=dict)  # in sync without their data: cause


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
        """Return True if this row is an election with which its partition legally lost data."""
        losses = self._losses.get(row.partition or "")
        return losses is not None and losses[-1] is row

    def of(self, partition: str) -> list[TraceRow]:
        """Return the elections with which a partition may have lost data."""
        return self._losses.get(partition, [])

    def _note_damage(self, row: TraceRow) -> None:
        for replicas in self._replicas.values():
            if row.peer in replicas.in_sync:
                replicas.damaged[row.peer] = row

    def _note_decision(self, row: TraceRow, partition: str) -> None:
        replicas = self._replicas.setdefault(partition, _Replicas())
        replicas.in_sync = tuple(
            broker_name(BrokerId(broker)) for broker in detail_of(row).get("isr", ())
        )
        for broker in [each for each in replicas.damaged if each not in replicas.in_sync]:
            del replicas.damaged[broker]
        if row.kind != TraceKind.LEADER_ELECTED or row.peer not in replicas.damaged:
            return
        if replicas.in_sync != (row.peer,):
            return  # another replica had all data: electing this one is an error of the controller
        self._losses.setdefault(partition, []).append(row)
