"""Whether a broker carried out a load or an unload of an older leadership than it knew.

Each names a leader epoch, and one that is older than the last is ignored: an unload that comes late
would take the groups from the broker that leads them by then, a load would have it serve what
somebody else leads (BEHAVIOUR 5.4, 5.5; KAFKA-10614). A second unload takes nothing more and is not
judged. A new life of a broker knows nothing yet, and an unload without an epoch, of a replica that
was deleted, is always carried out.
"""

from dataclasses import dataclass

from protocol.trace import TraceKind, TraceRow

NOTICE_KINDS = frozenset({TraceKind.LOAD_COMPLETED, TraceKind.UNLOAD_COMPLETED})
"""The rows that LateNotices must see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """What was carried out although a broker had carried out something newer."""

    summary: str
    evidence: list[TraceRow]


class LateNotices:
    """Follows the newest leadership that each life of a broker has loaded or unloaded."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int, str], TraceRow] = {}  # broker, its life, partition

    def observe(self, row: TraceRow) -> Overtaken | None:
        """Take in a row of NOTICE_KINDS; what is wrong with it."""
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
            summary=f"{row.partition}: {row.node} {_done(row)} it as of epoch {row.leader_epoch} "
            f"after it had {_done(newest)} it in epoch {newest.leader_epoch}",
            evidence=[newest, row],
        )


def _done(row: TraceRow) -> str:
    return "loaded" if row.kind == TraceKind.LOAD_COMPLETED else "unloaded"
