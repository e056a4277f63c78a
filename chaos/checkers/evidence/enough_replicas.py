"""Check that appends with acks=all were acknowledged with enough replicas in sync.

If fewer than `min.insync.replicas` are in sync, Kafka refuses an append with NOT_ENOUGH_REPLICAS.
It counts the replicas again when it has replicated the append, and answers
NOT_ENOUGH_REPLICAS_AFTER_APPEND if there are now too few (docs/kafka/BEHAVIOUR.md 6.1; Kafka
Partition.checkEnoughReplicasReachOffset). So an append that was acknowledged must have had enough
replicas at that second moment.

The replicas are counted in the ISR that the leader names in its row of the append. This ISR may
have more brokers than the controller's ISR. One of them may be a broker that the leader is about to
add: the leader already waits for such a broker when it replicates an append. Another may be a
broker that the controller has removed, if the leader does not know this yet.

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
        # partition -> the controller's last row with its ISR; it makes a finding easier to follow
        self._decided: dict[str, TraceRow] = {}

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
