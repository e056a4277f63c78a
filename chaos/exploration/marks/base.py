"""Mark: a rare situation, and how it is seen in the trace of a run.

For example, the mark `two_owners` is reached when two living members own a partition at once. A
search that finds no violation proves little about situations that no run ever reached. So it
reports which marks its runs have reached.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.trace import TraceKind, TraceRow

Condition = Callable[[SeenCluster, TraceRow], bool]
"""Gets the state of the cluster before a row, and the row. Returns True if the mark is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One situation.

    - `meaning`: a sentence for people.
    - `kinds`: only rows of these kinds can show the situation, so only these are checked.
    """

    name: str
    meaning: str
    kinds: tuple[TraceKind, ...]
    condition: Condition


class MarkList:
    """The marks of one module, in the module's order."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def add(self, name: str, meaning: str, *kinds: TraceKind) -> Callable[[Condition], Condition]:
        """Return a decorator, which adds a mark with the decorated function as its condition."""

        def register(condition: Condition) -> Condition:
            self.marks.append(Mark(name=name, meaning=meaning, kinds=kinds, condition=condition))
            return condition

        return register
