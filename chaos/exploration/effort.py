"""Effort of a run: how many rebalances, failed commits and other costly events it had.

Each of these events is allowed now and then, so no checker reports them. But if a change of the
code makes one of them more frequent, something is wrong. So each run of a search counts them, and
the results of the search show the distribution of each count over all runs.
"""

from protocol.trace import TraceKind, TraceRow

_Generation = tuple[str, int, str | None, int | None]
"""A generation of a group at one coordinator: (node, incarnation, group, generation)."""
# The kinds of trace rows that are counted, each with the name of its count.
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
"""Name of the count of generations that ended before their members got an assignment."""


class Effort:
    """Counts the costly events of one run. `observe` gets every row of the trace, in order."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((*_COUNTED.values(), UNUSED), 0)
        self._without_assignment: set[_Generation] = set()

    def observe(self, row: TraceRow) -> None:
        """Count a row."""
        name = _COUNTED.get(row.kind)
        if name is not None:
            self._counts[name] += 1
        elif row.kind == TraceKind.GENERATION_STARTED:
            self._without_assignment.add(_generation(row))
        elif row.kind == TraceKind.ASSIGNMENT_STORED:
            self._without_assignment.discard(_generation(row))

    def counts(self) -> dict[str, int]:
        """Return all counts, zeros included."""
        # A generation that is still in the set has never got an assignment.
        return {**self._counts, UNUSED: len(self._without_assignment)}


def _generation(row: TraceRow) -> _Generation:
    return (row.node, row.incarnation, row.group, row.generation)
