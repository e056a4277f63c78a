"""Pending offsets of a producer in a group, and which coordinators have them in memory.

An offset that was committed in a transaction is pending until the transaction's marker ends it. If
the group moves to another coordinator in the meantime, the new coordinator loads the pending
offset. Until the earlier coordinator unloads the group, both coordinators have the offset in
memory. Each coordinator ends the offset in its own memory only, and may have to complete a load
before it does so. For example:

1. broker-2 has a pending offset of producer 0.
2. broker-0 becomes the group's coordinator, and loads the offset.
3. The marker comes to broker-0, but its effects wait behind another load. In the meantime
   producer 0 begins its next transaction, and broker-0 gets a second pending offset.
4. At broker-2, the end of the first offset has waited behind an earlier load, which is over now. So
   broker-2 ends the offset in its own memory, and unloads the group. At broker-0 both offsets are
   still pending.
"""

from dataclasses import dataclass, field

from protocol.trace import TraceRow


@dataclass(slots=True)
class PendingOffsets:
    """A producer's pending offsets in a group, and the coordinators that have had them."""

    offsets: list[TraceRow] = field(default_factory=list)
    """The rows TXN_COMMIT_PENDING of the offsets, the oldest first."""
    coordinators: list[tuple[str, int]] = field(default_factory=list)
    """The coordinators that had some of the offsets, as (node, number of the node's restarts).

    The last entry is the present coordinator.
    """

    def held_by(self, row: TraceRow) -> None:
        """Note that the coordinator that wrote `row` has pending offsets of the producer."""
        if not self.is_at(row):
            self.coordinators.append(_coordinator_of(row))

    def is_at(self, row: TraceRow) -> bool:
        """Return True if the present coordinator wrote `row`."""
        return bool(self.coordinators) and self.coordinators[-1] == _coordinator_of(row)

    def were_at(self, row: TraceRow) -> bool:
        """Return True if a former coordinator wrote `row`."""
        return not self.is_at(row) and _coordinator_of(row) in self.coordinators

    def until_last_of(self, row: TraceRow) -> list[TraceRow]:
        """Return the offsets up to the last offset of the coordinator that wrote `row`."""
        coordinator = _coordinator_of(row)
        count = 0  # number of offsets to return
        for number, offset in enumerate(self.offsets, start=1):
            if _coordinator_of(offset) == coordinator:
                count = number
        return self.offsets[:count]


def _coordinator_of(row: TraceRow) -> tuple[str, int]:
    """Return (node, incarnation) of the process that wrote a row."""
    return row.node, row.incarnation
