"""What a run needed: counts of work that is no violation, and a regression if it grows.

A member that rejoins for no reason, a generation that nobody could use, a round of fetches that a
missing epoch costs: each is allowed now and then, and wrong if a change of the code makes it more.
So explored runs are counted, and the distribution over the seeds is told and recorded.
"""

from protocol.trace import TraceKind, TraceRow

_Generation = tuple[str, int, str | None, int | None]
"""Coordinator's node and incarnation, group, generation."""
_COUNTED: dict[TraceKind | str, str] = {
    TraceKind.REBALANCE_STARTED: "rebalances",
    TraceKind.MEMBER_ADDED: "members_added",
    TraceKind.MEMBER_REMOVED: "members_removed",
    TraceKind.LOAD_STARTED: "loads",
    TraceKind.LEADER_ELECTED: "leaders_elected",
    TraceKind.ISR_CHANGED: "isr_changes",
    TraceKind.LOG_TRUNCATED: "truncations",
    TraceKind.COORDINATOR_UNKNOWN: "coordinators_lost",
    TraceKind.COORDINATOR_LOOKUP_FAILED: "coordinator_lookups_failed",
    TraceKind.COMMIT_FAILED: "commits_failed",
    TraceKind.PRODUCE_FAILED: "produces_failed",
    TraceKind.POSITION_RESET: "positions_reset",
}
UNUSED = "generations_unused"
"""Generations that began and whose assignment was never stored: their members joined in vain."""


class Effort:
    """Counts the rows of one run that tell of work."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((*_COUNTED.values(), UNUSED), 0)
        self._without_assignment: set[_Generation] = set()

    def observe(self, row: TraceRow) -> None:
        """Count a row in."""
        name = _COUNTED.get(row.kind)
        if name is not None:
            self._counts[name] += 1
        elif row.kind == TraceKind.GENERATION_STARTED:
            self._without_assignment.add(_generation(row))
        elif row.kind == TraceKind.ASSIGNMENT_STORED:
            self._without_assignment.discard(_generation(row))

    def counts(self) -> dict[str, int]:
        """Return how often each happened; those that never did, too."""
        return {**self._counts, UNUSED: len(self._without_assignment)}


def _generation(row: TraceRow) -> _Generation:
    return (row.node, row.incarnation, row.group, row.generation)
