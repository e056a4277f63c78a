"""The faults in force at each moment: they excuse a group from making progress.

The controller fences a broker that it counts as dead: the broker leads no partition and is in no
list of brokers that clients get. Unfencing undoes this. Four rules say when a fault is in force:

1. A planned fault is in force from FAULT_INJECTED to FAULT_HEALED.
2. A node that is down or paused counts as a fault, even if no fault of the plan is the cause.
3. A broker counts as down until the controller unfences it, not only until its process starts. It
   can register only when its former session has ended. Until then, a client that knows only this
   broker waits, too.
4. A momentary fault (a leadership move, a reset of connections) ends in the moment it begins.
"""

from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of
from protocol.trace import TraceKind, TraceRow

FAULT_KINDS = frozenset(
    {
        TraceKind.FAULT_INJECTED,
        TraceKind.FAULT_HEALED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STARTED,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
        TraceKind.BROKER_REGISTERED,
        TraceKind.BROKER_FENCED,
        TraceKind.BROKER_UNFENCED,
    }
)
"""Kinds of trace rows that `observe` needs."""
KEPT_FAULTS = 64
"""Number of past faults that are kept: the most recent ones."""
ENDING = frozenset({"crash", "power_loss"})
"""Faults whose only effect is that processes end."""
OF_PROCESSES = frozenset({*ENDING, "pause"})
"""Faults whose only effect is that processes end or are paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """A fault that is over. Units: microseconds of the run's clock."""

    began: TraceRow
    ended_us: int


class FaultsInForce:
    """Follows every fault of a run, except the deaths of a group's own members."""

    def __init__(self, context: CheckContext) -> None:
        self._consumers = {
            consumer for known in context.groups.values() for consumer in known.consumers
        }
        # Faults in force, each with its first row. Keys: ("fault", fault id), ("down", node) and
        # ("paused", node). A planned crash has two entries: "fault" and "down".
        self._active: dict[tuple[str, str], TraceRow] = {}
        self._past: list[PastFault] = []
        self._brokers: dict[str, None] = {}  # nodes known as brokers: they were unfenced once
        self._unregistered: dict[str, None] = {}  # brokers whose new life has not registered yet
        self._changed_us = 0  # time of the last beginning or end of a fault
        # keys of the faults in `_active` that disturb no server
        self._settled: dict[tuple[str, str], None] = {}
        # time at which a fault last began to disturb servers, or stopped doing so
        self._cluster_changed_us = 0
        self.was_quiet_since_us: int | None = 0
        """Value of `quiet_since_us` before the last row of FAULT_KINDS."""

    @property
    def quiet_since_us(self) -> int | None:
        """Time since which no fault has been in force; None while a fault is in force."""
        return None if self._active else self._changed_us

    @property
    def cluster_quiet_since_us(self) -> int | None:
        """Time since which no fault has disturbed the servers; None while a fault does.

        Two kinds of faults do not disturb servers, and are called settled. The first kind only ends
        or pauses consumers. The second kind is the death of a broker that the controller has
        fenced, because no other server waits for this broker.
        """
        has_others = len(self._active) > len(self._settled)
        return None if has_others else self._cluster_changed_us

    def observe(self, row: TraceRow) -> None:
        """Apply a row of FAULT_KINDS."""
        self.was_quiet_since_us = self.quiet_since_us
        peer = row.peer or ""
        match row.kind:
            # If a fault begins, its case sets `key`. Every other case returns.
            case TraceKind.FAULT_INJECTED:
                key = ("fault", row.cause or "")
                if is_momentary(row):
                    self._note_past(row, row.time_us)
                    return
            case TraceKind.NODE_KILLED:
                if peer in self._consumers:
                    return  # the checkers follow the deaths of members themselves
                key = ("down", peer)
            case TraceKind.NODE_PAUSED:
                key = ("paused", peer)
            case TraceKind.FAULT_HEALED:
                self._end(("fault", row.cause or ""), row)
                return
            case TraceKind.NODE_RESUMED:
                self._end(("paused", peer), row)
                return
            # This case is for all nodes except a restarted broker, which the next case handles.
            case TraceKind.NODE_STARTED if row.node not in self._brokers:
                self._end(("down", row.node), row)
                return
            case TraceKind.NODE_STARTED:
                # A restarted broker stays down until it is unfenced (rule 3 above).
                key = ("down", row.node)
                self._unregistered[row.node] = None
            case TraceKind.BROKER_REGISTERED:
                self._unregistered.pop(peer, None)
                return
            case TraceKind.BROKER_UNFENCED if peer in self._unregistered:
                # The restarted broker has not registered yet, so this row is about its old process.
                return
            case TraceKind.BROKER_FENCED:
                self._settle_fenced(row)
                return
            case TraceKind.BROKER_UNFENCED:
                self._brokers[peer] = None
                self._end(("down", peer), row)
                return
            case _:
                return

        # A fault begins.
        self._active.setdefault(key, row)
        self._changed_us = row.time_us
        if self._concerns_members_only(row):
            self._settled[key] = None
        else:
            self._settled.pop(key, None)  # a fenced broker that starts again disturbs the servers
            self._cluster_changed_us = row.time_us

    def since(self, time_us: int) -> list[TraceRow]:
        """Return the row of the beginning of each fault that was in force at `time_us` or later."""
        past = [fault.began for fault in self._past if fault.ended_us >= time_us]
        return [*past, *self._active.values()]

    def _end(self, key: tuple[str, str], row: TraceRow) -> None:
        """Move a fault in force to the past ones; do nothing if it is not in force."""
        began = self._active.pop(key, None)
        if began is None:
            return
        # A fenced, dead broker is settled, too. But servers notice its return, so the end of such a
        # fault counts as a change.
        concerned_members_only = key in self._settled and self._concerns_members_only(began)
        self._settled.pop(key, None)
        self._note_past(began, row.time_us, concerned_members_only=concerned_members_only)

    def _settle_fenced(self, row: TraceRow) -> None:
        """Settle the faults of a fenced broker: no node waits for the broker while it is dead."""
        if ("down", row.peer or "") not in self._active:
            return
        for key, began in self._active.items():
            detail = detail_of(began)
            is_its_end = key == ("down", row.peer) or (
                detail.get("fault") in ENDING and detail.get("nodes") == [row.peer]
            )
            if is_its_end and key not in self._settled:
                self._settled[key] = None
                self._cluster_changed_us = row.time_us

    def _concerns_members_only(self, row: TraceRow) -> bool:
        """Return True if a fault only ends or stops consumers."""
        if row.kind == TraceKind.NODE_PAUSED:
            return row.peer in self._consumers
        detail = detail_of(row)
        nodes = detail.get("nodes") or ([row.peer] if row.peer else [])
        return detail.get("fault") in OF_PROCESSES and all(
            node in self._consumers for node in nodes
        )

    def _note_past(
        self, began: TraceRow, ended_us: int, *, concerned_members_only: bool = False
    ) -> None:
        """Add a fault to the past ones, and note the time at which things changed."""
        self._past.append(PastFault(began=began, ended_us=ended_us))
        del self._past[:-KEPT_FAULTS]
        self._changed_us = ended_us
        if not concerned_members_only:
            self._cluster_changed_us = ended_us


def is_momentary(row: TraceRow) -> bool:
    """Return True if a FAULT_INJECTED says in its detail that the fault has no duration."""
    return detail_of(row).get("momentary") is True
