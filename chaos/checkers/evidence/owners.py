"""The members that own each partition, by what the members themselves believe.

A member owns a partition from the poll in which it gets the assignment. The ownership ends with the
first of these events:

- The member revokes the partition in a rebalance.
- It loses the partition, because it is no longer a member of the group.
- It gets another assignment.
- Its process ends.

The coordinator may give the partition to another member before the first member has noticed any of
these events. Then the partition has two owners for a while.
"""

from collections.abc import Mapping

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

OWNER_KINDS = frozenset(
    {
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_REVOKED,
        TraceKind.PARTITIONS_LOST,
        TraceKind.NODE_STARTED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
    }
)
"""Kinds of rows that Owners must see."""

Owner = tuple[str, int]
"""A process of a member: the node's name and the number of its restarts, ("consumer-a-1", 0)."""
Ended = tuple[str, str, Owner]
"""An ownership that has ended: group, partition, and the former owner."""


class Owners:
    """Follows the assignments of all members."""

    def __init__(self) -> None:
        # (group, partition) -> its owners, each with the row of the assignment
        self._of: dict[tuple[str, str], dict[Owner, TraceRow]] = {}
        self._owned: dict[Owner, tuple[str, tuple[str, ...]]] = {}  # owner -> group, partitions
        self.ended: list[Ended] = []
        """The ownerships that were ended by the row which `observe` took last."""

    def of(self, group: str, partition: str) -> Mapping[Owner, TraceRow]:
        """Return the owners of a partition, each with its PARTITIONS_ASSIGNED, oldest first."""
        return self._of.get((group, partition), {})

    def owned_by(self, owner: Owner) -> tuple[str, ...]:
        """Return the partitions of an owner."""
        return self._owned.get(owner, ("", ()))[1]

    def partitions_of(self, node: str) -> list[tuple[str, str]]:
        """Return (group, partition) of each partition that a process of the node owns."""
        return [
            (group, partition)
            for (owner_node, _), (group, partitions) in self._owned.items()
            if owner_node == node
            for partition in partitions
        ]

    def observe(self, row: TraceRow) -> None:
        """Take a row of OWNER_KINDS."""
        owner = (row.node, row.incarnation)
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                self.ended = self._end(owner)
                group = row.group or ""
                partitions = tuple(detail_of(row).get("partitions", ()))
                self._owned[owner] = group, partitions
                for partition in partitions:
                    self._of.setdefault((group, partition), {})[owner] = row
            case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
                # In the eager rebalance protocol, the only one here, a member gives up all of its
                # partitions at once.
                self.ended = self._end(owner)
            case _:  # a start, a kill or a stop: earlier processes of the node have ended
                # The driver of the run may have written the row. Then `peer` is the node that was
                # started or has ended. A node that writes the row itself names no peer.
                node = row.peer or row.node
                ended_processes = [owner for owner in self._owned if owner[0] == node]
                self.ended = [ended for owner in ended_processes for ended in self._end(owner)]

    def _end(self, owner: Owner) -> list[Ended]:
        """End all ownerships of an owner, and return them."""
        group, partitions = self._owned.pop(owner, ("", ()))
        for partition in partitions:
            del self._of[group, partition][owner]
        return [(group, partition, owner) for partition in partitions]
