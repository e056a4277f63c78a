"""An orchestrator's work on a group: members are stopped, started, and waited for, a few at a time.

Owns who is replaced when, and knows nothing of plans or journals. It goes on in steps: each looks
at the cluster, does what is due, and says when to look again. The same in every runtime.

A member is a place (a node of the cluster). Without surge its successor takes the same place, as in
a StatefulSet; with surge it takes a free one, as in a Deployment, and the place that it vacates is
free for the next. A successor is started when `start_up_us` have passed since its place is free.

One step, in this order, so that what a stop makes possible is done in the same step:
1. Take what happened since: places that became free, successors that became ready.
2. Kill what outlived its grace period.
3. Give up if a successor was not ready in time, or if for that long no member could be stopped:
   stop there, or roll back.
4. Start successors in free places whose start-up is over.
5. Stop members, as long as enough others are available.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from cluster.runtime import ClusterStatus, NodeState, Runtime, UnknownNode
from protocol.ids import NodeName

LOOK_AGAIN_US = 250_000
"""How long a step waits for what only a look at the cluster tells."""
_STABLE = "STABLE"
_GONE = frozenset({NodeState.DOWN, NodeState.NOT_STARTED})


class Replacement(msgspec.Struct, kw_only=True):
    """One successor. Units: the run's clock; None for what has not happened.

    Shape: `of` is the member that was stopped for it, None for one that adds to the group.
    """

    place: str
    of: str | None
    stopped_at_us: int | None
    down_at_us: int | None = None
    start_at_us: int | None = None
    started_at_us: int | None = None
    ready_at_us: int | None = None
    was_killed: bool = False
    is_of_old_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How members are replaced. Units: microseconds.

    Shape: `start_ups_us` and `ready_after_us` have one for each successor, in their order.
    `broken_from` is the number of successors of the new version that start at all, None for all.
    """

    max_unavailable: int
    max_surge: int
    in_batches: bool
    kills: bool
    grace_us: int
    start_ups_us: tuple[int, ...]
    ready_when_assigned: bool
    ready_after_us: tuple[int, ...]
    progress_deadline_us: int
    broken_from: int | None
    rolls_back: bool


class Outcome(Enum):
    """How a rollout ended, or that it goes on."""

    UNDER_WAY = "under way"
    COMPLETED = "completed"
    HUNG = "hung"
    ROLLED_BACK = "rolled back"


@dataclass(slots=True, kw_only=True)
class Rollout:
    """One rollout over `old` members, the first of them first, with `spare` places free.

    `extra` are the group's places beyond the members that the experiment names; an earlier rollout
    may have left a member in one of them. `lost` and `joined` are the run's own: members that are
    not expected back, and members that are up in extra places.
    """

    orders: Orders
    old: list[NodeName]
    spare: list[NodeName]
    extra: frozenset[NodeName]
    lost: dict[NodeName, None]
    joined: dict[NodeName, None]
    outcome: Outcome = Outcome.UNDER_WAY
    done: list[Replacement] = field(default_factory=list)
    """Successors that were started, or are about to be, in their order."""
    replaced: list[Replacement] = field(default_factory=list)
    """Of a rollout that is rolled back: what `done` was before."""
    stopped: list[Replacement] = field(default_factory=list)
    """Members that were asked to stop, or killed, in their order."""
    _stopping: list[Replacement] = field(default_factory=list)
    _asked_to_stop: set[str] = field(default_factory=set)
    """Places in `_stopping` whose process got SIGTERM or was killed."""
    _free: list[NodeName] = field(default_factory=list)
    _wanted: int = 0
    """How many members the group shall have."""
    _is_rolling_back: bool = False
    _size: int = 0
    """How many members the rollout began with."""
    _blocked_since_us: int | None = None
    """Since when no member stops or starts, and none may be stopped; None while one does."""
    _untouched: list[NodeName] = field(default_factory=list)
    """Of a rollout that is rolled back: members that were not replaced yet."""

    def __post_init__(self) -> None:
        """Begin: nothing is stopped yet, the spare places are free."""
        self._wanted = self._size = len(self.old)
        self._free = list(self.spare)

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Do what is due; return when to look again, None once it has ended.

        Units: microseconds of the run's clock.
        """
        now_us = runtime.now_us()
        self._take(status, now_us)
        await self._kill_late(runtime, status, now_us)
        if self._is_late(now_us) and not self._give_up():
            return None
        await self._start(runtime, status, now_us)
        await self._stop(runtime, status, now_us)
        self._note_blockage(now_us)
        if self._has_ended():
            self.outcome = Outcome.ROLLED_BACK if self._is_rolling_back else Outcome.COMPLETED
            return None
        return self._next_us(now_us)

    def progress(self) -> dict[str, object]:
        """Return who was replaced when."""
        return {
            "outcome": self.outcome.value,
            "stopped": [msgspec.to_builtins(each) for each in self.stopped],
            "replaced": [msgspec.to_builtins(each) for each in (*self.replaced, *self.done)],
        }

    def places_to_fill(self) -> tuple[NodeName, ...]:
        """Return the places to start members in, if nothing more is replaced: back to full size.

        The group's own places come before spare ones: a successor that has started in a spare place
        stays, and its predecessor's place stays empty.
        """
        started = [NodeName(each.place) for each in self.done if each.started_at_us is not None]
        missing = self._size - len({*self.old, *self._untouched, *started})
        empty = dict.fromkeys(
            (
                *(NodeName(each.place) for each in self.done if each.started_at_us is None),
                *self._free,
                *(NodeName(each.place) for each in self._stopping),
            )
        )
        return tuple(sorted(empty, key=lambda place: place in self.spare)[: max(0, missing)])

    @property
    def hangs(self) -> bool:
        """True after a rollout that made no progress in time; it does nothing more."""
        return self.outcome is Outcome.HUNG

    # -- one step --------------------------------------------------------------------------------

    def _take(self, status: ClusterStatus, now_us: int) -> None:
        for each in list(self._stopping):
            state = status.nodes.get(NodeName(each.place))
            # A process that was asked to stop is never up again: another operation on the group has
            # started a successor in the place since the last step.
            is_taken = state is NodeState.UP and each.place in self._asked_to_stop
            if state not in _GONE and not is_taken:
                continue
            each.down_at_us = now_us
            self._stopping.remove(each)
            self._asked_to_stop.discard(each.place)
            if not is_taken:
                self._free.append(NodeName(each.place))
            elif len(self.done) < self._wanted:
                self.done.append(self._successor(each.place, now_us, started_at_us=now_us))
        for number, each in enumerate(self.done):
            if each.started_at_us is None or each.ready_at_us is not None:
                continue
            if self._is_ready(number, each, status, now_us):
                each.ready_at_us = now_us

    async def _kill_late(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        for each in self._stopping:
            stopped_at_us = each.stopped_at_us or 0
            if not each.was_killed and now_us >= stopped_at_us + self.orders.grace_us:
                each.was_killed = True
                self._asked_to_stop.add(each.place)
                if status.nodes.get(NodeName(each.place)) not in _GONE:
                    await _crash(NodeName(each.place), runtime)

    def _is_late(self, now_us: int) -> bool:
        deadline_us = self.orders.progress_deadline_us
        if self._blocked_since_us is not None and now_us >= self._blocked_since_us + deadline_us:
            return True
        return any(
            now_us >= each.start_at_us + deadline_us
            for each in self.done
            if each.ready_at_us is None and each.start_at_us is not None
        )

    def _note_blockage(self, now_us: int) -> None:
        """Note since when the rollout waits for nothing that it has begun itself.

        Such a rollout may wait for ever: every place is taken and no member may be missing, or
        other faults ended members that stay down.
        """
        is_busy = self._stopping or any(each.ready_at_us is None for each in self.done)
        if is_busy:
            self._blocked_since_us = None
        elif self._blocked_since_us is None:
            self._blocked_since_us = now_us

    def _give_up(self) -> bool:
        """Stop there, or turn round; return whether it goes on."""
        if self._is_rolling_back or not self.orders.rolls_back:
            self.outcome = Outcome.HUNG
            return False
        self._is_rolling_back = True
        self._blocked_since_us = None
        # Those that were replaced are replaced once more, the last first; who never came up makes
        # its place free for its predecessor's version.
        self._wanted -= len(self.old)
        self._untouched = self.old
        self.replaced, self.done = self.done, []
        self._free += [NodeName(each.place) for each in self.replaced if not each.started_at_us]
        self.old = [NodeName(each.place) for each in reversed(self.replaced) if each.started_at_us]
        return True

    async def _start(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        while self._free and len(self.done) < self._wanted and self._members() < self._room():
            place = self._free.pop(0)
            number = len(self.done)
            start_up_us = self.orders.start_ups_us[number % len(self.orders.start_ups_us)]
            self.done.append(self._successor(place, now_us + start_up_us))
        for number, each in enumerate(self.done):
            if each.started_at_us is None and now_us >= (each.start_at_us or 0):
                if self._never_starts(number):
                    continue
                await self._bring_up(NodeName(each.place), runtime, status)
                each.started_at_us = runtime.now_us()

    def _successor(
        self, place: str, start_at_us: int, *, started_at_us: int | None = None
    ) -> Replacement:
        """Return the record of a successor; `started_at_us`: None if it is yet to be started."""
        return Replacement(
            place=place,
            of=None,
            stopped_at_us=None,
            start_at_us=start_at_us,
            started_at_us=started_at_us,
            is_of_old_version=self._is_rolling_back,
        )

    async def _bring_up(self, node: NodeName, runtime: Runtime, status: ClusterStatus) -> None:
        await start_or_restart(node, runtime, status)
        self.lost.pop(node, None)
        if node in self.extra:
            self.joined[node] = None

    async def _stop(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        while self.old and self._may_stop(status):
            node = self.old.pop(0)
            replacement = Replacement(place=node, of=node, stopped_at_us=now_us)
            self._stopping.append(replacement)
            self.stopped.append(replacement)
            self.lost[node] = None
            self.joined.pop(node, None)
            state = status.nodes.get(node)
            if self.orders.kills and state not in _GONE:
                self._asked_to_stop.add(node)
                await _crash(node, runtime)
            elif state is NodeState.UP:
                self._asked_to_stop.add(node)
                with suppress(UnknownNode):  # it ended by itself meanwhile
                    await runtime.shut_down(node)
            elif state is NodeState.STOPPING:  # another operation has asked it already
                self._asked_to_stop.add(node)

    # -- what is so ------------------------------------------------------------------------------

    def _waiting(self) -> list[Replacement]:
        return [
            each
            for each in self.done
            if each.started_at_us is not None and each.ready_at_us is None
        ]

    def _is_ready(self, number: int, each: Replacement, status: ClusterStatus, now_us: int) -> bool:
        ready_after_us = self.orders.ready_after_us[number % len(self.orders.ready_after_us)]
        if now_us < (each.started_at_us or 0) + ready_after_us:
            return False
        if not self.orders.ready_when_assigned:
            return True
        member = status.members.get(NodeName(each.place))
        return member is not None and member.state == _STABLE

    def _members(self) -> int:
        """Return how many members there are or will be, those aside that stop."""
        return len(self.old) + len(self.done)

    def _room(self) -> int:
        return self._wanted + self.orders.max_surge

    def _may_stop(self, status: ClusterStatus) -> bool:
        busy = self._stopping or any(each.ready_at_us is None for each in self.done)
        if self.orders.in_batches and busy and not self._in_this_batch():
            return False
        available = sum(status.nodes.get(node) is NodeState.UP for node in self.old)
        available += sum(each.ready_at_us is not None for each in self.done)
        first = status.nodes.get(self.old[0])
        after = available - (1 if first is NodeState.UP else 0)
        return after >= self._wanted - self.orders.max_unavailable

    def _in_this_batch(self) -> bool:
        """Return whether nothing of the batch that is being stopped has gone further yet."""
        return all(each.ready_at_us is not None for each in self.done)

    def _never_starts(self, number: int) -> bool:
        broken_from = self.orders.broken_from
        return broken_from is not None and not self._is_rolling_back and number >= broken_from

    def _has_ended(self) -> bool:
        return (
            not self.old
            and not self._stopping
            and len(self.done) == self._wanted
            and all(each.ready_at_us is not None for each in self.done)
        )

    def _next_us(self, now_us: int) -> int:
        """Return the next moment at which something is due that no look could bring forward."""
        starts = [each.start_at_us or 0 for each in self.done if each.started_at_us is None]
        due = [at_us for at_us in starts if at_us > now_us]
        if self._stopping or self._waiting() or not due:
            due.append(now_us + LOOK_AGAIN_US)
        return min(due)


async def _crash(node: NodeName, runtime: Runtime) -> None:
    with suppress(UnknownNode):  # it ended by itself meanwhile
        await runtime.crash(node)


@dataclass(slots=True, kw_only=True)
class Scaling:
    """A group that is made larger or smaller, over its `places`, the lowest index first.

    Units: microseconds. A step starts or stops `step` members; the next one is `every_us` later.
    `lost` and `joined` are as in Rollout; `spare` are the places that the group began without.
    """

    to: int
    step_size: int
    every_us: int
    kills: bool
    grace_us: int
    places: tuple[NodeName, ...]
    spare: frozenset[NodeName]
    lost: dict[NodeName, None]
    joined: dict[NodeName, None]
    started: list[NodeName] = field(default_factory=list)
    stopped: list[NodeName] = field(default_factory=list)
    is_superseded: bool = False
    """Whether a later scaling of the group has set another size: then only its kills go on."""
    _kill_at_us: dict[NodeName, int] = field(default_factory=dict)
    _next_step_us: int = 0
    _acts: list[dict[str, object]] = field(default_factory=list)

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Do what is due; return when to look again, None once it has ended."""
        now_us = runtime.now_us()
        await self._kill_late(runtime, status, now_us)
        if self.is_superseded:
            return now_us + LOOK_AGAIN_US if self._kill_at_us else None
        there = [place for place in self.places if self._is_there(place, status)]
        if len(there) != self.to and now_us >= self._next_step_us:
            self._next_step_us = now_us + max(self.every_us, 1)
            if len(there) < self.to:
                count = min(self.step_size, self.to - len(there))
                await self._grow(count, runtime, status)
            else:
                count = min(self.step_size, len(there) - self.to)
                await self._shrink(there[-count:], runtime, status, now_us)
            there = there[:-count] if len(there) > self.to else [*there, *self.started[-count:]]
        if len(there) == self.to and not self._kill_at_us:
            return None
        if len(there) != self.to and not self._kill_at_us:
            return self._next_step_us
        return now_us + LOOK_AGAIN_US

    def progress(self) -> dict[str, object]:
        """Return who was started and stopped, and when."""
        return {
            "started": list(self.started),
            "stopped": list(self.stopped),
            "acts": [dict(act) for act in self._acts],
        }

    @property
    def hangs(self) -> bool:
        """Never: its members need not be ready."""
        return False

    def _is_there(self, place: NodeName, status: ClusterStatus) -> bool:
        return status.nodes.get(place) not in _GONE and place not in self.lost

    async def _grow(self, count: int, runtime: Runtime, status: ClusterStatus) -> None:
        free = [place for place in self.places if status.nodes.get(place) in _GONE]
        for place in free[:count]:
            await start_or_restart(place, runtime, status)
            self.lost.pop(place, None)
            if place in self.spare:
                self.joined[place] = None
            self.started.append(place)
            self._acts.append({"at_us": runtime.now_us(), "place": place, "act": "start"})

    async def _shrink(
        self, places: list[NodeName], runtime: Runtime, status: ClusterStatus, now_us: int
    ) -> None:
        for place in reversed(places):
            self.lost[place] = None
            self.joined.pop(place, None)
            self.stopped.append(place)
            self._acts.append({"at_us": now_us, "place": place, "act": "stop"})
            if self.kills:
                await _crash(place, runtime)
                continue
            self._kill_at_us[place] = now_us + self.grace_us
            if status.nodes.get(place) is NodeState.UP:
                with suppress(UnknownNode):
                    await runtime.shut_down(place)

    async def _kill_late(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        for place, kill_at_us in list(self._kill_at_us.items()):
            if status.nodes.get(place) in _GONE:
                del self._kill_at_us[place]
            elif now_us >= kill_at_us:
                del self._kill_at_us[place]
                await _crash(place, runtime)


async def start_or_restart(node: NodeName, runtime: Runtime, status: ClusterStatus) -> None:
    """Start a node for the first time or again; nothing happens to one that is up."""
    match status.nodes.get(node):
        case NodeState.NOT_STARTED:
            await runtime.start_node(node)
        case NodeState.DOWN:
            await runtime.restart(node)
        case _:
            pass
