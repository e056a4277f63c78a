"""GuestGroups: finds out from the trace which groups clients from outside have joined.

A user may connect a Kafka client to a standing cluster. Such a client is called a guest. Consumers
that coordlab itself has started write rows into the trace, but a guest writes no rows. So a guest
is found in this way: a coordinator has written a row that it added a member, and no consumer of
coordlab has ever written a row with the id of this member.
"""

from protocol.trace import TraceKind, TraceRow


class GuestGroups:
    """Collects member ids from all rows of a trace.

    One mistake is possible. If a consumer of coordlab dies before it learns its member id, it never
    writes a row with this id, and is taken for a guest. This does not lead to a wrong violation,
    because the checkers judge a group with guests less strictly.
    """

    def __init__(self) -> None:
        self._added: dict[str, dict[str, None]] = {}  # group -> ids that a coordinator added
        self._of_the_lab: dict[str, None] = {}  # ids of coordlab's own consumers

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
