"""The check that appends with acks=all were acknowledged with enough replicas in sync.

A leader counts the replicas in sync twice (docs/kafka/BEHAVIOUR.md 6.1; Kafka
Partition.checkEnoughReplicasReachOffset):

1. Before the append. If fewer than `min.insync.replicas` are in sync, the leader refuses the append
   with NOT_ENOUGH_REPLICAS.
2. When the append is replicated. If too few are in sync now, the leader answers
   NOT_ENOUGH_REPLICAS_AFTER_APPEND.

So when an append is acknowledged, enough replicas must have been in sync at the second count.

When a leader acknowledges an append, it writes a trace row with its ISR. This module counts the
replicas in this ISR, which may have more brokers than the controller's ISR for two reasons:

- The leader is about to add a broker to the ISR. It already waits for this broker when it
  replicates an append.
- The controller has removed a broker from the ISR, and the leader does not know this yet.

Only appends of coordinators are judged, such as commits and assignments. Records of producers are
not judged, because the row of a producer does not name the leader that acknowledged its records.
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
    """A violation: an append that was acknowledged with too few replicas in sync."""

    summary: str
    evidence: list[TraceRow]


class EnoughReplicas:
    """Checks every acknowledged append, and keeps the controller's decisions as evidence."""

    def __init__(self) -> None:
        # Partition -> the controller's last row with the ISR of this partition. A finding shows
        # this row as evidence, because the row tells how the ISR became so small.
        self._decided: dict[str, TraceRow] = {}

    def observe(self, row: TraceRow, needed: int) -> TooFew | None:
        """Take a row of REPLICAS_KINDS; return the violation if the row shows one.

        `needed` is the number of replicas that must be in sync.
        """
        partition = row.partition or ""
        if row.kind != TraceKind.APPEND_COMPLETED:
            self._decided[partition] = row
            return None
        # An append that failed has an error and no ISR. It is no violation.
        in_sync = detail_of(row).get("isr")
        if row.error != "NONE" or not isinstance(in_sync, list) or len(in_sync) >= needed:
            return None
        decided = self._decided.get(partition)
        return TooFew(
            summary=f"{partition}: {row.node} acknowledged an append with {len(in_sync)} "
            f"replica(s) in sync, where min.insync.replicas asks for {needed}",
            evidence=[row] if decided is None else [decided, row],
        )
