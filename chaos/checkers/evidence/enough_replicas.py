"""Whether appends with acks=all were acknowledged on as many replicas as they must be.

Kafka refuses one with NOT_ENOUGH_REPLICAS while fewer than min.insync.replicas are in sync, and
answers NOT_ENOUGH_REPLICAS_AFTER_APPEND if they have become too few by the time the high watermark
passes it. Who is being added to the ISR counts then, for the high watermark has waited for it
(BEHAVIOUR 6.1; Kafka Partition.checkEnoughReplicasReachOffset). In sync is who its leader believes
to be: the controller may have taken out a replica that the leader still waits for, and has.

Judged are the coordinator's appends: commits and assignments. A producer's row does not name the
leader that acknowledged it.
"""

from dataclasses import dataclass

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

REPLICAS_KINDS = frozenset(
    {TraceKind.LEADER_ELECTED, TraceKind.ISR_CHANGED, TraceKind.APPEND_COMPLETED}
)
"""The rows that EnoughReplicas must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFew:
    """An append acknowledged below min.insync.replicas, and what the controller said before."""

    summary: str
    evidence: list[TraceRow]


class EnoughReplicas:
    """Follows who is in sync, and looks at every append that was acknowledged."""

    def __init__(self) -> None:
        self._decided: dict[str, TraceRow] = {}  # partition -> the controller's last word

    def observe(self, row: TraceRow, needed: int) -> TooFew | None:
        """Take in a row of REPLICAS_KINDS; what is wrong with it, if `needed` must be in sync."""
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
