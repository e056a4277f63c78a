"""Check that brokers ignore loads and unloads of an older leadership than they know.

Each load or unload has a leader epoch, and one older than the last must be ignored. A late unload
would drop the groups while the broker leads them; a late load would make it serve groups that
another broker leads (BEHAVIOUR 5.4, 5.5; KAFKA-10614). A second unload drops nothing more and is
not judged. A new incarnation of a broker has no epoch yet. An unload without an epoch, of a deleted
replica, is always carried out.
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
        self._newest: dict[tuple[str, int, str], TraceRow] = {}  # broker, its life, partition

    def observe(self, row: TraceRow) -> Overtaken | None:
        """Take a row of NOTICE_KINDS; return its violation, if there is one."""
        if row.leader_epoch is None or row.partition is None:
            return None
        life = (row.node, row.incarnation, row.partition)
        newest = self._newest.get(life)
        if newest is None or newest.leader_epoch is None or row.leader_epoch >= newest.leader_epoch:
            self._newest[life] = row
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
