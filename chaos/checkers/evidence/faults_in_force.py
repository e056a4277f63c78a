"""The faults that are in force at each moment of a run.

Many promises are judged only while nothing is broken. Four rules say when a fault is in force:

1. A fault of the run's plan is in force from its row FAULT_INJECTED to its row FAULT_HEALED.
2. A node that is down or paused counts as a fault, too, whatever the reason.
3. A broker that starts again counts as down until the controller unfences it, because clients
   cannot use a fenced broker. This may take a while after the start of its process: the broker can
   register only when its former session has ended.
4. A momentary fault, such as a leadership move or a reset of connections, has no duration. It ends
   in the moment in which it begins.
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
"""Kinds of rows that FaultsInForce must see."""
KEPT_FAULTS = 64
"""Number of faults that are kept after their end. If there are more, the oldest are dropped."""
ENDING = frozenset({"crash", "power_loss"})
"""Faults whose only effect is that processes end."""
OF_PROCESSES = frozenset({*ENDING, "pause"})
"""Faults whose only effect is that processes end or are paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """A fault that is over."""

    began: TraceRow  # the row with which the fault began
    ended_us: int  # time of the run in microseconds


class FaultsInForce:
    """Follows every fault of a run.

    The death of a member counts as a fault only if the run's plan ordered it. Other deaths of
    members do not count, because the checkers of groups follow the members themselves.
    """

    def __init__(self, context: CheckContext) -> None:
        self._consumers = {
            consumer for known in context.groups.values() for consumer in known.consumers
        }
        # Faults in force, each with the row with which it began. The keys are ("fault", fault id),
        # ("down", node) and ("paused", node). A planned crash of broker-0 has two entries, such as
        # ("fault", "crash-1") and ("down", "broker-0").
        self._active: dict[tuple[str, str], TraceRow] = {}
        self._past: list[PastFault] = []
        self._brokers: dict[str, None] = {}  # nodes that have been unfenced, and so are brokers
        # Brokers that have started again, and whose new process has not registered yet
        self._unregistered: dict[str, None] = {}
        self._changed_us = 0  # time of the last beginning or end of a fault
        # Keys of the faults in `_active` that disturb no server; see `cluster_quiet_since_us`
        self._settled: dict[tuple[str, str], None] = {}
        # Time at which a disturbance of the servers last began or ended
        self._cluster_changed_us = 0
        self.was_quiet_since_us: int | None = 0
        """Value of the property `quiet_since_us` before the last row of FAULT_KINDS."""

    @property
    def quiet_since_us(self) -> int | None:
        """Time since which no fault has been in force; None while a fault is in force."""
        return None if self._active else self._changed_us

    @property
    def cluster_quiet_since_us(self) -> int | None:
        """Time since which no fault has disturbed the servers; None while a fault does.

        Two kinds of faults in force do not disturb the servers. The code calls such faults settled.

        - A fault that only ends or pauses consumers is settled from its beginning.
        - The death of a broker is settled when the controller has fenced this broker, because no
          other node waits for a fenced broker any more.
        """
        # Every settled fault is also in `_active`, so the difference is the number of the others.
        is_disturbed = len(self._active) > len(self._settled)
        return None if is_disturbed else self._cluster_changed_us

    def observe(self, row: TraceRow) -> None:
        """Apply a row of FAULT_KINDS."""
        self.was_quiet_since_us = self.quiet_since_us
        peer = row.peer or ""
        match row.kind:
            # Some rows begin a fault: their cases set `key`, and the rest of this method adds the
            # fault. The cases of all other rows return.
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
            case TraceKind.NODE_STARTED if row.node not in self._brokers:
                # The node is not a broker, or this is the first start of the broker.
                self._end(("down", row.node), row)
                return
            case TraceKind.NODE_STARTED:
                # A broker that starts again stays down until it is unfenced (rule 3).
                key = ("down", row.node)
                self._unregistered[row.node] = None
            case TraceKind.BROKER_REGISTERED:
                self._unregistered.pop(peer, None)
                return
            case TraceKind.BROKER_UNFENCED if peer in self._unregistered:
                # The new process has not registered yet, so this row is about the former process.
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

        # A fault begins. If it is in force already, its first row is kept.
        self._active.setdefault(key, row)
        self._changed_us = row.time_us
        if self._concerns_members_only(row):
            self._settled[key] = None
        else:
            self._settled.pop(key, None)  # a fenced broker that starts again disturbs the servers
            self._cluster_changed_us = row.time_us

    def since(self, time_us: int) -> list[TraceRow]:
        """Return the first row of each fault that was in force at `time_us` or later."""
        past = [fault.began for fault in self._past if fault.ended_us >= time_us]
        return [*past, *self._active.values()]

    def _end(self, key: tuple[str, str], row: TraceRow) -> None:
        """Note that a fault is over. If it is not in force, nothing happens."""
        began = self._active.pop(key, None)
        if began is None:
            return
        # The end of a settled fault disturbs no server if the fault is about members only. But if
        # the fault is the death of a fenced broker, its end is the broker's return, which does
        # disturb the servers.
        concerned_members_only = key in self._settled and self._concerns_members_only(began)
        self._settled.pop(key, None)
        self._note_past(began, row.time_us, concerned_members_only=concerned_members_only)

    def _settle_fenced(self, row: TraceRow) -> None:
        """Note that a dead broker is fenced now, so that its death no longer disturbs servers."""
        if ("down", row.peer or "") not in self._active:
            return
        for key, began in self._active.items():
            detail = detail_of(began)
            # The entry for the node that is down, or the entry of a planned fault that ended it
            is_its_death = key == ("down", row.peer) or (
                detail.get("fault") in ENDING and detail.get("nodes") == [row.peer]
            )
            if is_its_death and key not in self._settled:
                self._settled[key] = None
                self._cluster_changed_us = row.time_us

    def _concerns_members_only(self, row: TraceRow) -> bool:
        """Return True if the fault that begins with `row` only ends or pauses consumers."""
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
        """Add a fault to the faults that are over, and note the time of this change."""
        self._past.append(PastFault(began=began, ended_us=ended_us))
        del self._past[:-KEPT_FAULTS]
        self._changed_us = ended_us
        if not concerned_members_only:
            self._cluster_changed_us = ended_us


def is_momentary(row: TraceRow) -> bool:
    """Return True if a FAULT_INJECTED says in its detail that the fault has no duration."""
    return detail_of(row).get("momentary") is True
