"""Check that appends with acks=all were acknowledged with enough replicas in sync.

Kafka refuses an append with NOT_ENOUGH_REPLICAS while fewer than min.insync.replicas are in sync.
Later the high watermark (the offset below which every in-sync replica has the records) passes the
append. If too few replicas are in sync then, Kafka answers NOT_ENOUGH_REPLICAS_AFTER_APPEND. At
that moment, replicas that are being added to the ISR (the in-sync replicas) count as well, because
the high watermark has waited for them (BEHAVIOUR 6.1; Kafka
Partition.checkEnoughReplicasReachOffset). The leader's ISR counts, not the controller's: the
controller may have removed a replica for which the leader still waits.

Only the coordinator's appends are judged: commits and assignments. A producer's row does not name
the leader that acknowledged it.
"""

from dataclasses import dataclass

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

REPLICAS_KINDS = frozenset(
    {TraceKind.LEADER_ELECTED, TraceKind.ISR_CHANGED, TraceKind.APPEND_COMPLETED}
)
"""Kinds of rows that EnoughReplicas must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFew:
    """An append acknowledged with too few replicas, and the controller's last decision."""

    summary: str
    evidence: list[TraceRow]


class EnoughReplicas:
    """Checks every acknowledged append, and keeps the controller's decisions as evidence."""

    def __init__(self) -> None:
        self._decided: dict[str, TraceRow] = {}  # partition -> the controller's last decision

    def observe(self, row: TraceRow, needed: int) -> TooFew | None:
        """Take a row of REPLICAS_KINDS; return the violation if the row shows one.

        `needed` is the number of replicas that must be in sync.
        """
        partition = row.partition or ""
        if row.kind != TraceKind.APPEND_COMPLETED:
            self._decided[partition] = row
            return None
        in_sync = detail_of(row).get("isr")
        if row.error != "NONE" or not isinstance(in_sync, list) or len(in_sync) >= needed:
            return None
        decided = self._decided.get(partition)
        return TooFew(
            summary=f"{partition}: {row.node} acknowledged an append with {len(in_sync)} "
            f"replica(s) in sync, where min.insync.replicas asks for {needed}",
            evidence=[row] if decided is None else [decided, row],
        )
