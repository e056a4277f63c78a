"""GuestGroups: the groups that clients from outside have joined, according to the trace.

The trace has the rows that the run's nodes have written. A coordinator writes a row about each
member that it adds. A consumer of the lab (one that the run itself started) also writes rows with
its own member id. A client from outside writes no rows. So if a coordinator has added a member id,
and no consumer of the lab has written a row with it, it belongs to a client from outside.
"""

from protocol.trace import TraceKind, TraceRow


class GuestGroups:
    """Collects member ids from all rows of a trace.

    If a consumer of the lab dies before it knows its member id, the id counts by mistake as that of
    a client from outside. The group is then judged less strictly, so this causes no false finding.
    """

    def __init__(self) -> None:
        self._added: dict[str, dict[str, None]] = {}  # group -> ids that a coordinator added
        self._of_the_lab: dict[str, None] = {}  # ids of the lab's consumers

    def observe(self, row: TraceRow) -> None:
        """Observe the next row of the trace."""
        if row.member is None:
            return
        if row.kind == TraceKind.MEMBER_ADDED and row.group is not None:
            self._added.setdefault(row.group, {})[row.member] = None
        elif row.kind in (TraceKind.MEMBER_STATE, TraceKind.PARTITIONS_ASSIGNED):
            self._of_the_lab[row.member] = None

    def groups(self) -> tuple[str, ...]:
        """Return the groups that had a member from outside at any time."""
        return tuple(
            sorted(
                group
                for group, members in self._added.items()
                if any(member not in self._of_the_lab for member in members)
            )
        )
