"""The simulator behind the random traces: it has a clock, and nodes that start, pause and end.

A trace has the recorded events of a run, one row each. `World.add` writes a row. Something that
shall happen later is an action in a calendar. `World.advance` moves the clock, and executes each
action when the clock reaches its time. An action may belong to a node. If the node has died
meanwhile, the action is dropped. While the node is paused, the action waits.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

from protocol.trace import MESSAGE_KINDS, TraceEvent, TraceKind, TraceRow, stamp
from tests.support.builders.rows import Columns

DRIVER = "driver"
"""The process that conducts a run. It writes the rows about the run's stages and faults."""
_RETRY_US = 150_000
"""The time after which the action of a paused node is tried again."""


@dataclass(slots=True)
class Life:
    """A node's process."""

    name: str
    # The number of restarts of the node.
    incarnation: int = 0
    alive: bool = True
    paused: bool = False


@dataclass(slots=True)
class World:
    """Time, nodes and rows of one random run."""

    rng: random.Random
    messages: bool = True
    """If False, the trace has no rows about messages."""
    now_us: int = 0
    rows: list[TraceRow] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    skew_us: dict[str, int] = field(default_factory=dict)
    """Node -> the time by which its clock is ahead of the clock of the run.

    A node without an entry has the run's clock. (The clocks of real machines never agree exactly.)
    """
    clock_resolution_us: int = 1
    """With a coarse resolution, such as 50 ms, many rows have equal times."""
    _calendar: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    """A heap of the planned actions. An entry has a time, a number, and the action.

    The number counts the planned actions. So if two actions have equal times, the action that was
    planned first is executed first.
    """
    _planned_count: int = 0
    _next_seq: dict[tuple[str, int], int] = field(default_factory=dict)
    """The `seq` of the next row of each node and incarnation."""

    def add(
        self,
        node: str,
        kind: TraceKind,
        common: Columns | None = None,
        /,
        **columns: Unpack[Columns],
    ) -> None:
        """Write one row of `node`, with the present time of the node's own clock.

        The row has the columns of `columns` and of the dict `common`. A caller passes `common` if
        several of its rows share some columns. If the world has no rows about messages, and the
        kind is about messages, no row is written.
        """
        filled: Columns = {**(common or {}), **columns}
        if kind in MESSAGE_KINDS and not self.messages:
            return
        life = self.lives.get(node)
        incarnation = 0 if life is None else life.incarnation
        seq = self._next_seq.get((node, incarnation), 0)
        self._next_seq[node, incarnation] = seq + 1
        exact_time_us = max(0, self.now_us + self.skew_us.get(node, 0))
        # Round the time down to a multiple of the resolution.
        time_us = exact_time_us - exact_time_us % self.clock_resolution_us
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
        """Return a random delay: 0, one microsecond, up to 3 ms, or up to `longest_us`."""
        return self.rng.choice((0, 1, self.rng.randint(2, 3_000), self.rng.randint(0, longest_us)))

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Execute an action after a delay. The action belongs to no node.

        Actions with equal times are executed in the order in which they were planned.
        """
        self._planned_count += 1
        heapq.heappush(self._calendar, (self.now_us + delay_us, self._planned_count, act))

    def node_later(self, node: str, delay_us: int, act: Callable[[], None]) -> None:
        """Let a node execute an action after a delay.

        The action is dropped if the node has died by then, even if it was restarted since. While
        the node is paused, the action waits.
        """
        life = self.lives[node]
        incarnation = life.incarnation

        def act_if_alive() -> None:
            if not life.alive or life.incarnation != incarnation:
                return
            if life.paused:
                # Try again later.
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

    def active(self, names: tuple[str, ...]) -> list[str]:
        """Return the nodes among `names` that are alive and not paused."""
        return [name for name in names if self.lives[name].alive and not self.lives[name].paused]

    def start(self, node: str, role: str) -> None:
        """Start a node. If it has lived before, this is its next incarnation."""
        life = self.lives.get(node)
        if life is None:
            self.lives[node] = Life(node)
        else:
            life.incarnation += 1
            life.alive, life.paused = True, False
        self.add(node, TraceKind.NODE_STARTED, detail={"role": role})

    def kill(self, node: str) -> None:
        """Kill a node's process, even if it is paused.

        The driver writes the row about the kill, because a killed process can write no row.
        """
        life = self.lives[node]
        life.alive = False
        life.paused = False
        self.add(DRIVER, TraceKind.NODE_KILLED, peer=node)

    def stop(self, node: str) -> None:
        """Stop a node, as SIGTERM does. It still writes a last row."""
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
