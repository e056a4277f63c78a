"""All coverage marks, and their detection in one run.

A mark is a rare situation of a run. For example, `two_owners` means that two living members own a
partition at once. Each mark has a condition, which gets a row of the trace, and the state of the
cluster before this row. `seen_cluster` collects this state from the rows.

Each subject has a module with its marks: `coordinators`, `servers`, `members`, `administrators`,
`transactions`, `operations` and `zookeeper`. The module `column_values` has the marks that a row
shows by the value of one or two columns. To add a mark, write a function with `@mark` in the module
of its subject, or an entry in `column_values`.
"""

from collections.abc import Collection

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.board import Evidence
from chaos.exploration.marks.administrators import ORDERS
from chaos.exploration.marks.base import Mark
from chaos.exploration.marks.column_values import COLUMN_VALUES
from chaos.exploration.marks.coordinators import COORDINATORS
from chaos.exploration.marks.members import MEMBERS
from chaos.exploration.marks.operations import OPERATIONS
from chaos.exploration.marks.seen_cluster import SeenCluster
from chaos.exploration.marks.servers import SERVERS
from chaos.exploration.marks.transactions import TRANSACTIONS
from chaos.exploration.marks.zookeeper import ON_ZOOKEEPER
from protocol.trace import TraceRow

ALL_MARKS: tuple[Mark, ...] = (
    *COORDINATORS.marks,
    *SERVERS.marks,
    *MEMBERS.marks,
    *ORDERS.marks,
    *TRANSACTIONS.marks,
    *COLUMN_VALUES.marks,
    *OPERATIONS.marks,
    *ON_ZOOKEEPER.marks,
)
MARKS: dict[str, str] = {mark.name: mark.meaning for mark in ALL_MARKS}
"""Meaning of each mark, by name."""
ZOOKEEPER_MARKS = tuple(mark.name for mark in ON_ZOOKEEPER.marks)
_OPTIONAL_SETS = (frozenset(mark.name for mark in OPERATIONS.marks), frozenset(ZOOKEEPER_MARKS))
"""Sets of marks that most searches cannot reach: the marks of operations, and of ZooKeeper.

A search can reach them only if the space from which it draws its experiments has operations
(rollouts and scalings), or groups on ZooKeeper.
"""


def expected_marks(reached: Collection[str]) -> dict[str, str]:
    """Return the marks that a search can reach, with their meanings.

    A search of a space without ZooKeeper cannot reach the marks of ZooKeeper, and should not report
    these marks as missing. So the marks of an optional set are expected only if the search has
    reached at least one mark of this set.
    """
    # The names of all marks in the optional sets of which no mark was reached.
    not_in_space = {name for names in _OPTIONAL_SETS if names.isdisjoint(reached) for name in names}
    return {name: meaning for name, meaning in MARKS.items() if name not in not_in_space}


class CoverageMarks:
    """Detects the marks that one run reaches.

    The conditions of the marks need facts that the checkers of a run collect anyway, such as the
    present owners of each partition. These facts are called the evidence. If the caller passes the
    evidence of its checkers, the checkers must add each row to the evidence after `observe` was
    called with the row. If `evidence` is None, this class collects the evidence itself.
    """

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        self._evidence = Evidence(context) if evidence is None else evidence
        self._feeds_evidence = evidence is None  # False: the checkers add the rows
        self._seen = SeenCluster(context, self._evidence)
        self._reached: dict[str, None] = {}
        self._open: dict[str, tuple[Mark, ...]] = {}
        """For each kind of row, the marks to check with such a row that are not reached yet."""
        for mark in ALL_MARKS:
            for kind in mark.kinds:
                self._open[kind] = (*self._open.get(kind, ()), mark)

    def observe(self, row: TraceRow) -> None:
        """Check the marks against the next row, then add the row to the state of the cluster.

        The order matters, because a condition compares the row with the state before the row.
        """
        kind = row.kind
        for mark in self._open.get(kind, ()):
            if mark.condition(self._seen, row):
                self._reach(mark)
        update = self._seen.updates.get(kind)
        if update is not None:
            update(row)
        update = self._seen.on_zookeeper.updates.get(kind)
        if update is not None:
            update(row)
        if self._feeds_evidence:
            self._evidence.observe(row)

    def reached(self) -> tuple[str, ...]:
        """Return the names of the reached marks, sorted."""
        return tuple(sorted(self._reached))

    def _reach(self, mark: Mark) -> None:
        """Record that a mark was reached, and stop checking it."""
        self._reached[mark.name] = None
        for kind in mark.kinds:
            self._open[kind] = tuple(other for other in self._open[kind] if other is not mark)
