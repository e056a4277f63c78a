"""The check that brokers ignore notices that come late.

When a broker becomes leader of a partition of `__consumer_offsets`, it loads the partition's
groups. When another broker becomes leader, the former leader unloads these groups. A broker gets a
notice of each of these changes, and the notices may arrive in the wrong order. For example, a
broker gets the notice to load in epoch 5, and only then the notice to unload, because it was
replaced in epoch 4. The broker must ignore the second notice, because epoch 4 is older than epoch
5. If the broker obeyed, it would drop the groups that it now coordinates. If it obeyed a late
notice to load, it would serve groups of which another broker is the coordinator
(docs/kafka/BEHAVIOUR.md 5.4, 5.5; KAFKA-10614).

Three cases are no violation:
- a second unload, because it drops nothing more;
- the first notice after a restart, because the new process knows no epoch yet;
- an unload without an epoch, because it is about a deleted replica.
"""

from dataclasses import dataclass

from protocol.trace import TraceKind, TraceRow

NOTICE_KINDS = frozenset({TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED})
"""Kinds of rows that LateNotices must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """A violation: a broker carried out a load or unload after one of a newer epoch."""

    summary: str
    evidence: list[TraceRow]


class LateNotices:
    """Follows the loads and unloads of every broker."""

    def __init__(self) -> None:
        # (broker, incarnation, partition) -> the load or unload with the newest epoch
        self._newest: dict[tuple[str, int, str], TraceRow] = {}

    def observe(self, row: TraceRow) -> Overtaken | None:
        """Take a row of NOTICE_KINDS; return the violation if the row shows one."""
        if row.leader_epoch is None or row.partition is None:
            return None
        key = (row.node, row.incarnation, row.partition)
        newest = self._newest.get(key)
        if newest is None or newest.leader_epoch is None or row.leader_epoch >= newest.leader_epoch:
            self._newest[key] = row
            return None
        # The row is late. A second unload drops nothing more.
        if row.kind == newest.kind == TraceKind.UNLOAD_COMPLETED:
            return None
        return Overtaken(
            summary=f"{row.partition}: {row.node} {_verb(row)} it as of epoch {row.leader_epoch} "
            f"after it had {_verb(newest)} it in epoch {newest.leader_epoch}",
            evidence=[newest, row],
        )


def _verb(row: TraceRow) -> str:
    return "loaded" if row.kind == TraceKind.LOAD_COMPLETED else "unloaded"
