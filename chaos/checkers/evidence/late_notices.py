"""Check that brokers ignore late notices: those about an older leadership than they know.

The leader of a partition of `__consumer_offsets` coordinates the groups stored there. The
controller notifies a broker of each leadership that the broker gains or loses. The broker then
loads the groups into memory, or unloads (drops) them. A notice has the leader epoch, the number of
the partition's leadership. If the epoch is older than that of the last notice, the notice came
late, and the broker must ignore it. A late unload would drop groups while the broker leads them. A
late load would make the broker serve groups that another broker leads (BEHAVIOUR 5.4, 5.5;
KAFKA-10614).

Three cases are no violation:
- a second unload, because it drops nothing more;
- the first notice to a new incarnation (life of the process), because it knows no epoch yet;
- an unload without an epoch, because it is about a deleted replica.
"""

from dataclasses import dataclass

from protocol.trace import TraceKind, TraceRow

NOTICE_KINDS = frozenset({TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED})
"""Kinds of rows that LateNotices must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """A load or unload that a broker carried out after a newer one."""

    summary: str
    evidence: list[TraceRow]


class LateNotices:
    """Follows the newest leadership that each incarnation of a broker has loaded or unloaded."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int, str], TraceRow] = {}  # (broker, incarnation, partition)

    def observe(self, row: TraceRow) -> Overtaken | None:
        """Take a row of NOTICE_KINDS; return the violation if the row shows one."""
        if row.leader_epoch is None or row.partition is None:
            return None
        key = (row.node, row.incarnation, row.partition)
        newest = self._newest.get(key)
        if newest is None or newest.leader_epoch is None or row.leader_epoch >= newest.leader_epoch:
            self._newest[key] = row
            return None
        if row.kind == newest.kind == TraceKind.UNLOAD_COMPLETED:
            return None
        return Overtaken(
            summary=f"{row.partition}: {row.node} {_verb(row)} it as of epoch {row.leader_epoch} "
            f"after it had {_verb(newest)} it in epoch {newest.leader_epoch}",
            evidence=[newest, row],
        )


def _verb(row: TraceRow) -> str:
    return "loaded" if row.kind == TraceKind.LOAD_COMPLETED else "unloaded"
