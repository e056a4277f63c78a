"""Coverage marks: rare situations that a search must have been in before its silence means much.

Each is seen in the trace, by rows alone. A green exploration that never came there proves nothing.
"""

from protocol.trace import TraceKind, TraceRow

MARKS: dict[str, str] = {
    "leader_elected_again": "a second leader was elected for a partition",
}
"""What each mark means, by its name."""


class CoverageMarks:
    """Watches one run for the situations in `MARKS`."""

    def __init__(self) -> None:
        self._reached: set[str] = set()
        self._elected: set[str] = set()

    def observe(self, row: TraceRow) -> None:
        """Take in the next row of the trace."""
        if row.kind is TraceKind.LEADER_ELECTED and row.partition is not None:
            if row.partition in self._elected:
                self._reached.add("leader_elected_again")
            self._elected.add(row.partition)

    def reached(self) -> tuple[str, ...]:
        """Return the names of the marks that were reached, sorted."""
        return tuple(sorted(self._reached))
