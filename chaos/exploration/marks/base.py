"""Coverage marks: a mark is a rare situation, with a condition that detects it in a trace row.

A search for violations reports which marks its runs reached, because it proves little about
situations that no run reached.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.trace import TraceKind, TraceRow

Condition = Callable[[SeenCluster, TraceRow], bool]
"""Returns True if a row shows the situation, given the cluster as seen before the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One situation.

    `meaning` is a sentence for people; `condition` is only checked for rows of `kinds`.
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
        """Return a decorator that adds its function, a condition on rows of `kinds`, as a mark."""

        def register(condition: Condition) -> Condition:
            self.marks.append(Mark(name=name, meaning=meaning, kinds=kinds, condition=condition))
            return condition

        return register
