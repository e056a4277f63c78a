"""A small simulator that writes random traces: a clock, nodes that start and end, and their rows.

Future actions are in a calendar, and are executed when the clock reaches their times. An action may
belong to a node. If the node has died meanwhile, the action is dropped; while the node is paused,
the action is put off. An incarnation is one life of a node, between two restarts. Rows are those of
a trace (recorded events); the driver is the process that conducts a run.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

from protocol.trace import MESSAGE_KINDS, TraceEvent, TraceKind, TraceRow, stamp
from tests.support.builders.rows import Columns

DRIVER = "driver"
_RETRY_US = 150_000
"""An action of a paused node is tried again after this time, until the node is resumed."""


@dataclass(slots=True)
class Life:
    """A node's process: the number of its incarnation, and whether it is alive and paused."""

    name: str
    incarnation: int = 0
    alive: bool = True
    paused: bool = False


@dataclass(slots=True)
class World:
    """Time, nodes and rows of one random run.

    If `messages` is False, the trace has no rows about messages.
    """

    rng: random.Random
    messages: bool = True
    now_us: int = 0
    rows: list[TraceRow] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    skew_us: dict[str, int] = field(default_factory=dict)
    """How far each node's clock is ahead of the run's: clocks of machines never agree exactly."""
    grain_us: int = 1
    """Resolution of the clocks. With a coarse resolution rows of several nodes have equal times."""
    _calendar: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    """A heap of the planned actions, each with its time and its number.

    Of two actions with equal times, the number decides which is executed first.
    """
    _planned: int = 0
    _written: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of rows that each incarnation of a node has written: the `seq` of its next row."""

    def add(
        self,
        node: str,
        kind: TraceKind,
        common: Columns | None = None,
        /,
        **columns: Unpack[Columns],
    ) -> None:
        """Write one row of `node` with the present time of the node's own clock.

        The row has the columns of `common` and `columns`.
        """
        filled: Columns = {**(common or {}), **columns}
        if kind in MESSAGE_KINDS and not self.messages:
            return
        life = self.lives.get(node)
        incarnation = 0 if life is None else life.incarnation
        seq = self._written.get((node, incarnation), 0)
        self._written[node, incarnation] = seq + 1
        # The node's clock: the run's time plus the skew, at least 0, rounded down to `grain_us`.
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
        """Write that the run enters a stage (`starting`, `steady`, ...)."""
        self.add(DRIVER, TraceKind.RUN_STAGE, detail={"stage": stage})

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < probability

    def delay_us(self, longest_us: int) -> int:
        """Return a random delay: nothing, one microsecond, up to 3 ms, or up to `longest_us`."""
        return self.rng.choice((0, 1, self.rng.randint(2, 3_000), self.rng.randint(0, longest_us)))

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Execute an action after a delay, whether or not nodes are alive then.

        Actions of equal times are executed in the order of the calls of `later`.
        """
        self._planned += 1
        heapq.heappush(self._calendar, (self.now_us + delay_us, self._planned, act))

    def node_later(self, node: str, delay_us: int, act: Callable[[], None]) -> None:
        """Let a node execute an action after a delay.

        The action is dropped if the node's incarnation has ended, and put off while it is paused.
        """
        life = self.lives[node]
        incarnation = life.incarnation

        def act_if_alive() -> None:
            if not life.alive or life.incarnation != incarnation:
                return
            if life.paused:
                self.later(_RETRY_US, act_if_alive)
            else:
                act()

        self.later(delay_us, act_if_alive)

    def advance(self, step_us: int) -> None:
        """Move the clock by `step_us`, and execute the actions that are due on the way."""
        until_us = self.now_us + step_us
        while self._calendar and self._calendar[0][0] <= until_us:
            due_us, _, act = heapq.heappop(self._calendar)
            self.now_us = max(self.now_us, due_us)
            act()
        self.now_us = until_us

    def moving(self, names: tuple[str, ...]) -> list[str]:
        """Return those of `names` that are alive and not paused."""
        return [name for name in names if self.lives[name].alive and not self.lives[name].paused]

    def start(self, node: str, role: str) -> None:
        """Start a node, as the next incarnation if it lived before."""
        life = self.lives.get(node)
        if life is None:
            self.lives[node] = Life(node)
        else:
            life.incarnation += 1
            life.alive, life.paused = True, False
        self.add(node, TraceKind.NODE_STARTED, detail={"role": role})

    def kill(self, node: str) -> None:
        """Kill a node's process, also a paused one.

        The driver writes the row: a killed process writes none.
        """
        self.lives[node].alive = self.lives[node].paused = False
        self.add(DRIVER, TraceKind.NODE_KILLED, peer=node)

    def stop(self, node: str) -> None:
        """Stop a node as SIGTERM does: it writes a last row."""
        self.add(node, TraceKind.NODE_STOPPED)
        self.lives[node].alive = False

    def pause(self, node: str) -> None:
        """Pause a node, as SIGSTOP does."""
        self.lives[node].paused = True
        self.add(DRIVER, TraceKind.NODE_PAUSED, peer=node)

    def resume(self, node: str) -> None:
        """Resume a paused node."""
        self.lives[node].paused = False
        self.add(DRIVER, TraceKind.NODE_RESUMED, peer=node)
