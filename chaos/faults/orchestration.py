"""Rollout and Scaling: an orchestrator replaces a group's members, or changes their number.

An orchestrator is a system such as Kubernetes, which starts and stops the processes of an
application. A rollout replaces members by successors, such as processes of a new version. The class
Rollout decides which member is replaced at which time. It knows nothing of plans or journals. Its
caller calls `step` again and again: a step reads the cluster's status, acts, and returns the time
of the next step. All runtimes share this code.

A place is a node of the cluster that can be a member of the group. Without surge (additional
members during the rollout) a successor takes the place of its predecessor, as in a StatefulSet of
Kubernetes. With surge it takes a free place, as in a Deployment, and the predecessor's place
becomes free for a later successor. A successor starts `start_up_us` after its place became free.

One step of a rollout:
1. Note the changes since the last step: places that became free, successors that became ready.
2. Kill members that are still stopping after their grace period.
3. Give up (hang or roll back) if for `progress_deadline_us` a successor was not ready, or no member
   could be stopped.
4. Assign free places to successors, and start successors whose start-up time is over.
5. Stop members while enough others are available.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from cluster.runtime import ClusterStatus, NodeState, Runtime, UnknownNode
from protocol.ids import NodeName

LOOK_AGAIN_US = 250_000
"""Time until the next step if an awaited event, such as a member's end, has no known time."""
_STABLE = "STABLE"  # a consumer's own state: it has joined and knows its assignment
_GONE = frozenset({NodeState.DOWN, NodeState.NOT_STARTED})  # states of a node without a process


class Replacement(msgspec.Struct, kw_only=True):
    """A member that leaves its place, or a successor that takes a place.

    - `of`: the name of the leaving member; None for a successor.
    - `stopped_at_us`, `down_at_us` and `was_killed` are set only for a leaving member.
    - `start_at_us`, `started_at_us`, `ready_at_us` and `is_of_old_version` are set only for a
      successor.

    Times are on the run's clock. None means that the event has not happened.
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
    """The rules of a rollout; `RolloutArgs` explains them. Units: microseconds.

    - `start_ups_us`, `ready_after_us`: one entry for each successor, in the order of the
      successors.
    - `broken_from`: this successor of the new version (counted from 0) and all later ones never
      start. None: all start.
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
    """State of a rollout."""

    UNDER_WAY = "under way"
    COMPLETED = "completed"
    HUNG = "hung"
    ROLLED_BACK = "rolled back"


@dataclass(slots=True, kw_only=True)
class Rollout:
    """One rollout.

    - `old`: members that are not stopped yet, the next one to stop first.
    - `spare`: places that are free at the beginning.
    - `extra`: the group's places beyond the members that the experiment names. An earlier rollout
      may have left a member in one of them.
    - `lost`: the run's record of members that nothing else may start or wait for.
    - `joined`: the run's record of members that are up in extra places.
    A rollout changes both records.
    """

    orders: Orders
    old: list[NodeName]
    spare: list[NodeName]
    extra: frozenset[NodeName]
    lost: dict[NodeName, None]
    joined: dict[NodeName, None]
    outcome: Outcome = Outcome.UNDER_WAY
    done: list[Replacement] = field(default_factory=list)
    """Successors that have a place, in their order; some have not started yet."""
    replaced: list[Replacement] = field(default_factory=list)
    """In a rollback: the successors of the new version, which were in `done` before it began."""
    stopped: list[Replacement] = field(default_factory=list)
    """Members that were asked to stop, or killed, in their order."""
    _stopping: list[Replacement] = field(default_factory=list)
    """Members of `stopped` whose process has not ended."""
    _asked_to_stop: set[str] = field(default_factory=set)
    """Places in `_stopping` whose process was asked to stop (SIGTERM) or killed."""
    _free: list[NodeName] = field(default_factory=list)
    """Places without a member and without a successor that will start there."""
    _wanted: int = 0
    """Number of all successors that the rollout needs."""
    _is_rolling_back: bool = False
    _size: int = 0
    """Number of members at the beginning."""
    _blocked_since_us: int | None = None
    """Time since which the rollout could neither start nor stop a member; None if it can."""
    _untouched: list[NodeName] = field(default_factory=list)
    """In a rollback: members of the former version, which need no successor."""

    def __post_init__(self) -> None:
        """Set the state of the beginning: nothing is stopped, and the spare places are free."""
        self._wanted = self._size = len(self.old)
        self._free = list(self.spare)

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Take one step; return the time of the next step, or None after the last step.

        Units: microseconds of the run's clock.
        """
        now_us = runtime.now_us()
        self._note_changes(status, now_us)
        await self._kill_late(runtime, status, now_us)
        if self._is_late(now_us) and not self._give_up():
            return None
        await self._start_successors(runtime, status, now_us)
        await self._stop_members(runtime, status, now_us)
        self._note_blockage(now_us)
        if self._has_ended():
            self.outcome = Outcome.ROLLED_BACK if self._is_rolling_back else Outcome.COMPLETED
            return None
        return self._next_us(now_us)

    def progress(self) -> dict[str, object]:
        """Return the stopped members and their successors, with times, for the journal."""
        return {
            "outcome": self.outcome.value,
            "stopped": [msgspec.to_builtins(leaving) for leaving in self.stopped],
            "replaced": [
                msgspec.to_builtins(successor) for successor in (*self.replaced, *self.done)
            ],
        }

    def places_to_fill(self) -> tuple[NodeName, ...]:
        """Return the places to start members in, so that the group has its full size again.

        This is for a rollout that ends early. The group's own places come before spare ones. A
        successor that has started in a spare place stays there, and its predecessor's place stays
        empty.
        """
        started = [
            NodeName(successor.place)
            for successor in self.done
            if successor.started_at_us is not None
        ]
        missing = self._size - len({*self.old, *self._untouched, *started})
        # Places of successors that have not started, free places, places of stopping members.
        empty = dict.fromkeys(
            (
                *(
                    NodeName(successor.place)
                    for successor in self.done
                    if successor.started_at_us is None
                ),
                *self._free,
                *(NodeName(leaving.place) for leaving in self._stopping),
            )
        )
        # False sorts before True, so own places come first. Otherwise the order stays.
        own_places_first = sorted(empty, key=lambda place: place in self.spare)
        # With surge, more members than the full size may be up. Then none is missing.
        return tuple(own_places_first[: max(0, missing)])

    @property
    def hangs(self) -> bool:
        """True if the rollout made no progress in time, and takes no more steps."""
        return self.outcome is Outcome.HUNG

    # -- one step --------------------------------------------------------------------------------

    def _note_changes(self, status: ClusterStatus, now_us: int) -> None:
        """Note places that became free, and successors that became ready."""
        for leaving in list(self._stopping):  # a copy: the loop removes entries
            state = status.nodes.get(NodeName(leaving.place))
            # A process that was asked to stop is never up again. So if the place is up, another
            # operation on the group has started a member there since the last step.
            is_taken = state is NodeState.UP and leaving.place in self._asked_to_stop
            if state not in _GONE and not is_taken:
                continue
            leaving.down_at_us = now_us
            self._stopping.remove(leaving)
            self._asked_to_stop.discard(leaving.place)
            if not is_taken:
                self._free.append(NodeName(leaving.place))
            # The member of the other operation counts as one of this rollout's successors.
            elif len(self.done) < self._wanted:
                self.done.append(self._successor(leaving.place, now_us, started_at_us=now_us))
        for number, successor in enumerate(self.done):
            if successor.started_at_us is None or successor.ready_at_us is not None:
                continue
            if self._is_ready(number, successor, status, now_us):
                successor.ready_at_us = now_us

    async def _kill_late(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        """Kill members whose grace period is over."""
        for leaving in self._stopping:
            stopped_at_us = leaving.stopped_at_us or 0
            if not leaving.was_killed and now_us >= stopped_at_us + self.orders.grace_us:
                leaving.was_killed = True
                self._asked_to_stop.add(leaving.place)
                # The status was read before this step. A node may have ended by itself since then;
                # `_crash` ignores this case.
                if status.nodes.get(NodeName(leaving.place)) not in _GONE:
                    await _crash(NodeName(leaving.place), runtime)

    def _is_late(self, now_us: int) -> bool:
        """Return True if the rollout made no progress within its deadline."""
        deadline_us = self.orders.progress_deadline_us
        if self._blocked_since_us is not None and now_us >= self._blocked_since_us + deadline_us:
            return True
        return any(
            now_us >= successor.start_at_us + deadline_us
            for successor in self.done
            if successor.ready_at_us is None and successor.start_at_us is not None
        )

    def _note_blockage(self, now_us: int) -> None:
        """Note the time since which the rollout is blocked, or that it is not blocked.

        A rollout is blocked if after a step no member is stopping, and all successors are ready.
        Then nothing that it has begun is unfinished, and it may wait for ever. For example, all
        places are taken and no member may be missing, or other faults ended members that stay down.
        """
        is_busy = self._stopping or not self._all_ready()
        if is_busy:
            self._blocked_since_us = None
        elif self._blocked_since_us is None:
            self._blocked_since_us = now_us

    def _give_up(self) -> bool:
        """Hang, or begin to roll back; return True if the rollout goes on."""
        if self._is_rolling_back or not self.orders.rolls_back:
            self.outcome = Outcome.HUNG
            return False
        self._is_rolling_back = True
        self._blocked_since_us = None
        # A rollback is a rollout over the members that the new version has:
        # 1. Members of the former version that are still up stay, and need no successor.
        # 2. Places whose successor never started are free for a member of the former version.
        # 3. Successors that started are stopped and replaced, the last one first.
        self._wanted -= len(self.old)
        self._untouched = self.old
        self.replaced, self.done = self.done, []
        self._free += [
            NodeName(successor.place) for successor in self.replaced if not successor.started_at_us
        ]
        self.old = [
            NodeName(successor.place)
            for successor in reversed(self.replaced)
            if successor.started_at_us
        ]
        return True

    async def _start_successors(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        """Give free places to successors, and start those whose start-up time is over."""
        most_members = self._wanted + self.orders.max_surge
        while (
            self._free
            and len(self.done) < self._wanted
            and len(self.old) + len(self.done) < most_members  # stopping members do not count
        ):
            place = self._free.pop(0)
            number = len(self.done)
            start_up_us = self.orders.start_ups_us[number % len(self.orders.start_ups_us)]
            self.done.append(self._successor(place, now_us + start_up_us))
        for number, successor in enumerate(self.done):
            if successor.started_at_us is None and now_us >= (successor.start_at_us or 0):
                if self._never_starts(number):
                    continue
                await self._bring_up(NodeName(successor.place), runtime, status)
                successor.started_at_us = runtime.now_us()

    def _successor(
        self, place: str, start_at_us: int, *, started_at_us: int | None = None
    ) -> Replacement:
        """Return the record of a successor; `started_at_us` is None if it has not started."""
        return Replacement(
            place=place,
            of=None,
            stopped_at_us=None,
            start_at_us=start_at_us,
            started_at_us=started_at_us,
            is_of_old_version=self._is_rolling_back,
        )

    async def _bring_up(self, node: NodeName, runtime: Runtime, status: ClusterStatus) -> None:
        """Start a successor, and note that the run must expect it as a member."""
        await start_or_restart(node, runtime, status)
        self.lost.pop(node, None)
        if node in self.extra:
            self.joined[node] = None

    async def _stop_members(self, runtime: Runtime, status: ClusterStatus, now_us: int) -> None:
        """Stop members in the order of `old`, as long as enough others are available."""
        while self.old and self._may_stop(status):
            node = self.old.pop(0)
            leaving = Replacement(place=node, of=node, stopped_at_us=now_us)
            self._stopping.append(leaving)
            self.stopped.append(leaving)
            self.lost[node] = None
            self.joined.pop(node, None)
            state = status.nodes.get(node)
            if self.orders.kills and state not in _GONE:
                self._asked_to_stop.add(node)
                await _crash(node, runtime)
            elif state is NodeState.UP:
                self._asked_to_stop.add(node)
                with suppress(UnknownNode):  # the node ended by itself meanwhile
                    await runtime.shut_down(node)
            elif state is NodeState.STOPPING:  # another operation has asked it to stop already
                self._asked_to_stop.add(node)
            # A paused member is not asked: it is killed at the end of its grace period.

    # -- the state -------------------------------------------------------------------------------

    def _started_not_ready(self) -> list[Replacement]:
        return [
            successor
            for successor in self.done
            if successor.started_at_us is not None and successor.ready_at_us is None
        ]

    def _is_ready(
        self, number: int, successor: Replacement, status: ClusterStatus, now_us: int
    ) -> bool:
        """Return True if a successor that has started counts as available now."""
        ready_after_us = self.orders.ready_after_us[number % len(self.orders.ready_after_us)]
        if now_us < (successor.started_at_us or 0) + ready_after_us:
            return False
        if not self.orders.ready_when_assigned:
            return True
        member = status.members.get(NodeName(successor.place))
        return member is not None and member.state == _STABLE

    def _may_stop(self, status: ClusterStatus) -> bool:
        """Return True if the first of `old` may be stopped now."""
        if self.orders.in_batches and not self._is_batch_open():
            return False
        # Available members are those that are up and not stopped yet, and the ready successors.
        available = sum(status.nodes.get(node) is NodeState.UP for node in self.old)
        available += sum(successor.ready_at_us is not None for successor in self.done)
        # A member that is down already is not available, so its stop makes no difference.
        candidate = status.nodes.get(self.old[0])
        available_after = available - (1 if candidate is NodeState.UP else 0)
        return available_after >= self._wanted - self.orders.max_unavailable

    def _is_batch_open(self) -> bool:
        """Return True while more members may join the batch of members that stop together.

        The batch is closed when one of its members has a successor. The next batch is open when all
        successors are ready.
        """
        return self._all_ready()

    def _all_ready(self) -> bool:
        """Return True if every successor is ready."""
        return all(successor.ready_at_us is not None for successor in self.done)

    def _never_starts(self, number: int) -> bool:
        broken_from = self.orders.broken_from
        return broken_from is not None and not self._is_rolling_back and number >= broken_from

    def _has_ended(self) -> bool:
        return (
            not self.old
            and not self._stopping
            and len(self.done) == self._wanted
            and self._all_ready()
        )

    def _next_us(self, now_us: int) -> int:
        """Return the time of the next step.

        This is the time at which the next successor starts. If the rollout waits for a change of
        the cluster's status, the next step comes after at most LOOK_AGAIN_US.
        """
        starts = [
            successor.start_at_us or 0 for successor in self.done if successor.started_at_us is None
        ]
        next_times = [at_us for at_us in starts if at_us > now_us]
        if self._stopping or self._started_not_ready() or not next_times:
            next_times.append(now_us + LOOK_AGAIN_US)
        return min(next_times)


async def _crash(node: NodeName, runtime: Runtime) -> None:
    with suppress(UnknownNode):  # the node ended by itself meanwhile
        await runtime.crash(node)


@dataclass(slots=True, kw_only=True)
class Scaling:
    """A change of the number of a group's members.

    - `to`: the number of members to reach.
    - `step_size`: number of members that start or stop in one step.
    - `every_us`: time between two steps.
    - `places`: all places of the group, in order of index. The free place with the lowest index is
      filled first; the member with the highest index stops first.
    - `spare`: places that had no member when the group began.
    - `lost`, `joined`: as in Rollout.
    Units: microseconds.
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
    """True if a later scaling of the group has set another size.

    Then this scaling starts and stops no more members. It only kills members that are stopping, at
    the end of their grace period (the time that a member has to stop by itself).
    """
    _kill_at_us: dict[NodeName, int] = field(default_factory=dict)
    """Stopping members, each with the end of its grace period."""
    _next_step_us: int = 0
    _acts: list[dict[str, object]] = field(default_factory=list)

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Take one step; return the time of the next step, or None after the last step."""
        now_us = runtime.now_us()
        await self._kill_late(runtime, status, now_us)
        if self.is_superseded:
            return now_us + LOOK_AGAIN_US if self._kill_at_us else None
        occupied = [place for place in self.places if self._is_occupied(place, status)]
        if len(occupied) != self.to and now_us >= self._next_step_us:
            # The next step must be later than now, also with an `every` of 0.
            self._next_step_us = now_us + max(self.every_us, 1)
            if len(occupied) < self.to:
                count = min(self.step_size, self.to - len(occupied))
                occupied += await self._grow(count, runtime, status)
            else:
                count = min(self.step_size, len(occupied) - self.to)
                await self._shrink(occupied[-count:], runtime, status, now_us)
                occupied = occupied[:-count]
        if self._kill_at_us:  # it is not known when stopping members end
            return now_us + LOOK_AGAIN_US
        return None if len(occupied) == self.to else self._next_step_us

    def progress(self) -> dict[str, object]:
        """Return the members that were started and stopped, with times, for the journal."""
        return {
            "started": list(self.started),
            "stopped": list(self.stopped),
            "acts": [dict(act) for act in self._acts],
        }

    @property
    def hangs(self) -> bool:
        """Always False, because a scaling does not wait until its members are ready."""
        return False

    def _is_occupied(self, place: NodeName, status: ClusterStatus) -> bool:
        """Return True if the place has a process that was not stopped for good."""
        return status.nodes.get(place) not in _GONE and place not in self.lost

    async def _grow(self, count: int, runtime: Runtime, status: ClusterStatus) -> list[NodeName]:
        """Fill up to `count` free places, and return them.

        The list has fewer places while members of former steps are still stopping.
        """
        free = [place for place in self.places if status.nodes.get(place) in _GONE][:count]
        for place in free:
            await start_or_restart(place, runtime, status)
            self.lost.pop(place, None)
            if place in self.spare:
                self.joined[place] = None
            self.started.append(place)
            self._acts.append({"at_us": runtime.now_us(), "place": place, "act": "start"})
        return free

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
                del self._kill_at_us[place]  # a killed process needs no further step
                await _crash(place, runtime)


async def start_or_restart(node: NodeName, runtime: Runtime, status: ClusterStatus) -> None:
    """Start a node that is down, for the first time or again; leave other nodes as they are."""
    match status.nodes.get(node):
        case NodeState.NOT_STARTED:
            await runtime.start_node(node)
        case NodeState.DOWN:
            await runtime.restart(node)
        case _:
            pass
