"""Mark: a rare situation, and the condition that detects the situation in the trace of a run.

For example, a run reaches the mark `two_owners` if two living members own a partition at once.

A search that finds no violation proves little about situations that none of its runs reached. So a
search reports which marks its runs have reached.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.trace import TraceKind, TraceRow

Condition = Callable[[SeenCluster, TraceRow], bool]
"""Function that returns True if a row shows the situation of a mark.

Its arguments are the state of the cluster before the row, and the row.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A rare situation of a run.

    - `meaning`: the situation, in a sentence for people.
    - `kinds`: the kinds of rows that can show the situation. Only these rows are checked.
    """

    name: str
    meaning: str
    kinds: tuple[TraceKind, ...]
    condition: Condition


class MarkList:
    """The marks of one module, in the order in which the module defines them."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def add(self, name: str, meaning: str, *kinds: TraceKind) -> Callable[[Condition], Condition]:
        """Return a decorator, which adds a mark to the list.

        The decorated function is the condition of the mark.
        """

        def register(condition: Condition) -> Condition:
            self.marks.append(Mark(name=name, meaning=meaning, kinds=kinds, condition=condition))
            return condition

        return register
