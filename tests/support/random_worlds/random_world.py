"""The stage of a random trace: its clock, its nodes with their lives, and the rows they write.

What a node does later is put into the world's calendar. It does it when its time has come: not if
the node died meanwhile, and later if it stands still.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

from protocol.trace import MESSAGE_KINDS, TraceEvent, TraceKind, TraceRow, stamp
from tests.support.builders.rows import Columns

DRIVER = "driver"
_PATIENCE_US = 150_000
"""How often a node that stands still is asked again."""


@dataclass(slots=True)
class Life:
    """A node's process: which incarnation it is, and whether it lives and moves."""

    name: str
    incarnation: int = 0
    alive: bool = True
    paused: bool = False


@dataclass(slots=True)
class World:
    """Time, nodes and rows of one random run. `messages` False: the trace has no messages."""

    rng: random.Random
    messages: bool = True
    now_us: int = 0
    rows: list[TraceRow] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    skew_us: dict[str, int] = field(default_factory=dict)
    """How far each node's clock is ahead of the run's: no two machines agree wholly."""
    grain_us: int = 1
    """How finely the clocks tell moments apart: coarse ones make ties between nodes."""
    _calendar: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _planned: int = 0
    _written: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(
        self,
        node: str,
        kind: TraceKind,
        common: Columns | None = None,
        /,
        **columns: Unpack[Columns],
    ) -> None:
        """Write one row of `node`, now, by the node's own clock; `columns` add to `common`."""
        filled: Columns = {**(common or {}), **columns}
        if kind in MESSAGE_KINDS and not self.messages:
            return
        life = self.lives.get(node)
        incarnation = 0 if life is None else life.incarnation
        seq = self._written.get((node, incarnation), 0)
        self._written[node, incarnation] = seq + 1
        time_us = max(0, self.now_us + self.skew_us.get(node, 0)) // self.grain_us * self.grain_us
        self.rows.append(
            stamp(
                TraceEvent(kind=kind, **filled),
                run="random",
                time_us=time_us,
                node_time_us=time_us,
                seq=seq,
                node=node,
                incarnation=incarnation,
            )
        )

    def stage(self, stage: str) -> None:
        """The run enters a stage."""
        self.add(DRIVER, TraceKind.RUN_STAGE, detail={"stage": stage})

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < probability

    def delay_us(self, longest_us: int) -> int:
        """Return a short delay: often none or a microsecond, at most `longest_us`."""
        return self.rng.choice((0, 1, self.rng.randint(2, 3_000), self.rng.randint(0, longest_us)))

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Do something after a delay, whoever lives then."""
        self._planned += 1
        heapq.heappush(self._calendar, (self.now_us + delay_us, self._planned, act))

    def node_later(self, node: str, delay_us: int, act: Callable[[], None]) -> None:
        """Let a node do something after a delay, in this life of it, and while it moves."""
        life = self.lives[node]
        incarnation = life.incarnation

        def try_it() -> None:
            if not life.alive or life.incarnation != incarnation:
                return
            if life.paused:
                self.later(_PATIENCE_US, try_it)
            else:
                act()

        self.later(delay_us, try_it)

    def advance(self, step_us: int) -> None:
        """Move the clock by `step_us`, doing on the way what is in the calendar."""
        until_us = self.now_us + step_us
        while self._calendar and self._calendar[0][0] <= until_us:
            due_us, _, act = heapq.heappop(self._calendar)
            self.now_us = max(self.now_us, due_us)
            act()
        self.now_us = until_us

    def moving(self, names: tuple[str, ...]) -> list[str]:
        """Return those of `names` that live and do not stand still."""
        return [name for name in names if self.lives[name].alive and not self.lives[name].paused]

    def start(self, node: str, role: str) -> None:
        """Start a node, the next incarnation if it lived before."""
        life = self.lives.get(node)
        if life is None:
            self.lives[node] = Life(node)
        else:
            life.incarnation += 1
            life.alive, life.paused = True, False
        self.add(node, TraceKind.NODE_STARTED, detail={"role": role})

    def kill(self, node: str) -> None:
        """Kill a node's process, also one that stands still."""
        self.lives[node].alive = self.lives[node].paused = False
        self.add(DRIVER, TraceKind.NODE_KILLED, peer=node)

    def stop(self, node: str) -> None:
        """Stop a node in order."""
        self.add(node, TraceKind.NODE_STOPPED)
        self.lives[node].alive = False

    def pause(self, node: str) -> None:
        """Let a node stand still."""
        self.lives[node].paused = True
        self.add(DRIVER, TraceKind.NODE_PAUSED, peer=node)

    def resume(self, node: str) -> None:
        """Let a node go on."""
        self.lives[node].paused = False
        self.add(DRIVER, TraceKind.NODE_RESUMED, peer=node)
