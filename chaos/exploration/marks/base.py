"""What a coverage mark is: a rare situation, and how a row of the trace shows that it is here."""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.trace import TraceKind, TraceRow

Condition = Callable[[SeenCluster, TraceRow], bool]
"""Whether the situation is here, by a row and by what was seen before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One situation. Shape: `meaning` is one sentence for people; `kinds` are all it looks at."""

    name: str
    meaning: str
    kinds: tuple[TraceKind, ...]
    condition: Condition


class MarkList:
    """The marks of one module, in the order in which they stand there."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def add(self, name: str, meaning: str, *kinds: TraceKind) -> Callable[[Condition], Condition]:
        """Return what makes a mark of a condition, which then looks at rows of `kinds`."""

        def register(condition: Condition) -> Condition:
            self.marks.append(Mark(name=name, meaning=meaning, kinds=kinds, condition=condition))
            return condition

        return register
