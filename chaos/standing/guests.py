"""Which groups clients from outside have joined, as the trace shows it.

A coordinator writes a row for each member that it takes in; each consumer of the lab writes rows
under its member id. A member id that no consumer of the lab ever had is a client's from outside.
"""

from protocol.trace import TraceKind, TraceRow


class GuestGroups:
    """Takes in all rows of a trace, then knows the groups.

    A consumer of the lab that dies before it learns its member id counts as a guest: its group is
    then judged less strictly, and nobody is accused.
    """

    def __init__(self) -> None:
        self._added: dict[str, dict[str, None]] = {}  # group -> ids that a coordinator took in
        self._of_the_lab: dict[str, None] = {}  # ids of the lab's consumers

    def observe(self, row: TraceRow) -> None:
        """Take in a row."""
        if row.member is None:
            return
        if row.kind == TraceKind.MEMBER_ADDED and row.group is not None:
            self._added.setdefault(row.group, {})[row.member] = None
        elif row.kind in (TraceKind.MEMBER_STATE, TraceKind.PARTITIONS_ASSIGNED):
            self._of_the_lab[row.member] = None

    def groups(self) -> tuple[str, ...]:
        """Return the groups that have, or had, a member that is no consumer of the lab."""
        return tuple(
            sorted(
                group
                for group, members in self._added.items()
                if any(member not in self._of_the_lab for member in members)
            )
        )
