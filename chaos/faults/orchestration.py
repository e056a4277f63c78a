"""Rollout and Scaling: an orchestrator replaces a group's members, or changes their number.

An orchestrator is a system such as Kubernetes, which starts and stops the processes of an
application. When a new version is deployed, the orchestrator replaces the old members one after the
other by successors. This is called a rollout, and the class Rollout imitates it. The caller calls
its method `step` again and again. A step looks at the cluster's status, starts and stops members,
and returns the time of the next step.

Members run on nodes that the cluster has from the beginning, which we call places. There are two
ways to replace a member:

- As in a StatefulSet of Kubernetes, the member stops first, and then its successor starts in its
  place.
- As in a Deployment, the successor starts first, in a spare place. For a while the group has more
  members than usual, which is called surge. When the old member has stopped, its place is free for
  another successor.

A successor does not start as soon as its place is free. It takes a start-up time, because a real
orchestrator must find a machine, load the program and start it.

One step of a rollout does this:

1. Note what has changed since the last step: which places became free, which successors are ready.
2. Kill members that are still stopping after their grace period.
3. Give up if a successor is not ready in time, or if no member could be stopped for long. The
   rollout then hangs, or it is rolled back to the old version.
4. Give free places to successors, and start those successors whose start-up time is over.
5. Stop members, as long as enough others are available.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from cluster.runtime import ClusterStatus, NodeState, Runtime, UnknownNode
from protocol.ids import NodeName

LOOK_AGAIN_US = 250_000
"""Time until the next step while the rollout waits for something, such as a member's end.

Nobody knows when the awaited event will come, so the status is looked at again and again.
"""
_STABLE = "STABLE"  # state of a consumer that has joined its group and got its assignment
_GONE = frozenset({NodeState.DOWN, NodeState.NOT_STARTED})  # states of a node without a process


class Replacement(msgspec.Struct, kw_only=True):
    """A member that leaves its place, or a successor that takes a place; an entry of the journal.

    Of a leaving member, `of` is its name, and `stopped_at_us`, `down_at_us` and `was_killed` tell
    what happened to it. Of a successor, `of` is None, and the other fields are set. Times are on
    the run's clock. None means that the event has not happened.
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
    """The rules of a rollout, from the arguments of the fault (`RolloutArgs` in `rollouts`)."""

    max_unavailable: int  # most members that may be missing at a time
    max_surge: int  # most members beyond the size of the group at a time
    in_batches: bool  # stop further members only when all successors so far are ready
    kills: bool  # kill members (True), or ask them to stop (False)
    grace_us: int  # time that a member has to stop by itself
    start_ups_us: tuple[int, ...]  # start-up time of the first successor, the second, ...
    ready_when_assigned: bool  # a successor is ready only when it has its assignment
    ready_after_us: tuple[int, ...]  # shortest time from each successor's start until it is ready
    progress_deadline_us: int  # longest time without progress; then the rollout gives up
    broken_from: int | None  # this successor, counted from 0, and all later ones never start
    rolls_back: bool  # when it gives up: roll back (True), or hang (False)


class Outcome(Enum):
    """State of a rollout."""

    UNDER_WAY = "under way"
    COMPLETED = "completed"
    HUNG = "hung"
    ROLLED_BACK = "rolled back"


@dataclass(slots=True, kw_only=True)
class Rollout:
    """One rollout.

    When a member is stopped, it goes from `old` to `stopped`, where it stays, and to `_stopping`.
    When its process has ended, its place goes to `_free`. A successor in `done` gets the place from
    there.
    """

    orders: Orders
    old: list[NodeName]
    """Members that are not stopped yet. The first one is stopped next."""
    spare: list[NodeName]
    """Places without a member at the beginning, for surge."""
    extra: frozenset[NodeName]
    """All spare places of the group. An earlier rollout may have left a member in one of them."""
    lost: dict[NodeName, None]
    """The run's record of members that nobody else may start or wait for; see FaultTools."""
    joined: dict[NodeName, None]
    """The run's record of members in extra places; see FaultTools."""
    outcome: Outcome = Outcome.UNDER_WAY
    done: list[Replacement] = field(default_factory=list)
    """Successors that have a place. The last of them may not have started yet."""
    replaced: list[Replacement] = field(default_factory=list)
    """After the beginning of a rollback: the successors of the new version."""
    stopped: list[Replacement] = field(default_factory=list)
    """Members that were asked to stop, or killed, in this order."""
    _stopping: list[Replacement] = field(default_factory=list)
    """Members in `stopped` whose processes have not ended."""
    _asked_to_stop: set[str] = field(default_factory=set)
    """Places of members in `_stopping` that got a SIGTERM or were killed."""
    _free: list[NodeName] = field(default_factory=list)
    """Places that have no member, and are not given to a successor yet."""
    _wanted: int = 0
    """Number of successors that the rollout needs altogether."""
    _is_rolling_back: bool = False
    _size: int = 0
    """Number of members at the beginning."""
    _blocked_since_us: int | None = None
    """Time since which the rollout has waited for nothing, and could do nothing; None otherwise."""
    _untouched: list[NodeName] = field(default_factory=list)
    """After the beginning of a rollback: old members that had not been stopped, and stay."""

    def __post_init__(self) -> None:
        """Begin with a successor wanted for each member, and with the spare places free."""
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
        """Return the places in which members must be started to give the group its full size.

        This is for a rollout that is broken off. The group's own places are filled before spare
        ones. But a successor that has started in a spare place stays there.
        """
        started = [
            NodeName(successor.place)
            for successor in self.done
            if successor.started_at_us is not None
        ]
        missing = self._size - len({*self.old, *self._untouched, *started})
        # First come places of successors that have not started, then free places, and last places
        # of stopping members.
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
        # `place in self.spare` is False for own places, and False comes before True.
        own_places_first = sorted(empty, key=lambda place: place in self.spare)
        # With surge, more members than usual may be up. Then `missing` is negative.
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
            # A process that was asked to stop does not become up again. So if the place is up,
            # another fault, such as a scaling, has started a new member there.
            is_taken = state is NodeState.UP and leaving.place in self._asked_to_stop
            if state not in _GONE and not is_taken:
                continue
            leaving.down_at_us = now_us
            self._stopping.remove(leaving)
            self._asked_to_stop.discard(leaving.place)
            if not is_taken:
                self._free.append(NodeName(leaving.place))
            # That new member counts as a successor.
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
                # The status is from before this step. If the node has ended by itself since then,
                # `_crash` does nothing.
                if status.nodes.get(NodeName(leaving.place)) not in _GONE:
                    await _crash(NodeName(leaving.place), runtime)

    def _is_late(self, now_us: int) -> bool:
        """Return True if the rollout or one of its successors has made no progress for too long."""
        deadline_us = self.orders.progress_deadline_us
        if self._blocked_since_us is not None and now_us >= self._blocked_since_us + deadline_us:
            return True
        return any(
            now_us >= successor.start_at_us + deadline_us
            for successor in self.done
            if successor.ready_at_us is None and successor.start_at_us is not None
        )

    def _note_blockage(self, now_us: int) -> None:
        """Note since when the rollout has been blocked, or that it is not blocked.

        The rollout is blocked if it does not wait for anything that it has begun (no member is
        stopping, all successors are ready) and still cannot go on. For example, other faults have
        ended so many members that no further member may be stopped.
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
        # A rollback is a rollout in the other direction:
        # - Members of the old version that were not stopped stay as they are.
        # - Successors that have started are the members to be replaced now, the last one first.
        # - The places of successors that have not started are free.
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
        """Give free places to successors, and start successors whose start-up time is over."""
        # A successor needs a free place. And the group must not have more members than its size
        # and the surge allow.
        most_members = self._wanted + self.orders.max_surge
        while (
            self._free
            and len(self.done) < self._wanted
            and len(self.old) + len(self.done) < most_members  # stopping members do not count
        ):
            place = self._free.pop(0)
            number = len(self.done)
            # A rollout may have more successors than drawn times. Then the times repeat.
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
            # A paused member cannot react, so it is not asked to stop. After its grace period it is
            # killed.

    # -- the state -------------------------------------------------------------------------------

    def _started_not_ready(self) -> list[Replacement]:
        """Return the successors that have started and are not ready yet."""
        return [
            successor
            for successor in self.done
            if successor.started_at_us is not None and successor.ready_at_us is None
        ]

    def _is_ready(
        self, number: int, successor: Replacement, status: ClusterStatus, now_us: int
    ) -> bool:
        """Return True if a successor that has started is ready now.

        `number` is its place in the order of all successors, from 0. If there are more successors
        than drawn times, the times repeat.
        """
        ready_after_us = self.orders.ready_after_us[number % len(self.orders.ready_after_us)]
        if now_us < (successor.started_at_us or 0) + ready_after_us:
            return False
        if not self.orders.ready_when_assigned:
            return True
        member = status.members.get(NodeName(successor.place))
        return member is not None and member.state == _STABLE

    def _may_stop(self, status: ClusterStatus) -> bool:
        """Return True if the first member of `old` may be stopped now."""
        if self.orders.in_batches and not self._is_batch_open():
            return False
        # Available are old members that are up and not stopped, and successors that are ready.
        available = sum(status.nodes.get(node) is NodeState.UP for node in self.old)
        available += sum(successor.ready_at_us is not None for successor in self.done)
        # A member that is down already is not counted as available. So if it is stopped, the number
        # of available members stays the same.
        candidate = status.nodes.get(self.old[0])
        available_after = available - (1 if candidate is NodeState.UP else 0)
        # When the rollout is done, `_wanted` members are there. Some may be missing until then.
        return available_after >= self._wanted - self.orders.max_unavailable

    def _is_batch_open(self) -> bool:
        """Return True if more members may be stopped, in a rollout that stops them in batches.

        As soon as a stopped member has a successor, which is not ready yet, the batch is closed.
        The next batch may begin when all successors are ready.
        """
        return self._all_ready()

    def _all_ready(self) -> bool:
        """Return True if every successor is ready."""
        return all(successor.ready_at_us is not None for successor in self.done)

    def _never_starts(self, number: int) -> bool:
        """Return True if this successor does not start, because the new version is broken."""
        broken_from = self.orders.broken_from
        return broken_from is not None and not self._is_rolling_back and number >= broken_from

    def _has_ended(self) -> bool:
        """Return True if all members have stopped, and all successors are ready."""
        return (
            not self.old
            and not self._stopping
            and len(self.done) == self._wanted
            and self._all_ready()
        )

    def _next_us(self, now_us: int) -> int:
        """Return the time of the next step.

        The next step comes when the next successor is to start. If the rollout also waits for an
        event whose time is not known, the next step comes in LOOK_AGAIN_US at the latest.
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

    To grow, it fills the free places with the lowest indices. To shrink, it stops the members with
    the highest indices.
    """

    to: int  # the number of members to reach
    step_size: int  # number of members that start or stop at once
    every_us: int  # time between two such steps
    kills: bool  # kill members (True), or ask them to stop (False)
    grace_us: int  # time that a member has to stop by itself
    places: tuple[NodeName, ...]  # all places of the group, by index
    spare: frozenset[NodeName]  # places that had no member when the group began
    lost: dict[NodeName, None]  # records of the run, as in Rollout
    joined: dict[NodeName, None]
    started: list[NodeName] = field(default_factory=list)
    stopped: list[NodeName] = field(default_factory=list)
    is_superseded: bool = False
    """True if a later scaling of the group has set another size.

    Then this scaling starts and stops no more members. It only kills members that it has asked to
    stop, if they do not stop within their grace period.
    """
    _kill_at_us: dict[NodeName, int] = field(default_factory=dict)
    """Members that are stopping, each with the end of its grace period."""
    _next_step_us: int = 0
    _acts: list[dict[str, object]] = field(default_factory=list)
    """For the journal, such as {"at_us": 61000000, "place": "consumer-g-2", "act": "stop"}."""

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Take one step; return the time of the next step, or None after the last step."""
        now_us = runtime.now_us()
        await self._kill_late(runtime, status, now_us)
        if self.is_superseded:
            return now_us + LOOK_AGAIN_US if self._kill_at_us else None
        occupied = [place for place in self.places if self._is_occupied(place, status)]
        if len(occupied) != self.to and now_us >= self._next_step_us:
            # At least 1, because the next step must be later than now, even if `every` is 0.
            self._next_step_us = now_us + max(self.every_us, 1)
            if len(occupied) < self.to:
                count = min(self.step_size, self.to - len(occupied))
                occupied += await self._grow(count, runtime, status)
            else:
                count = min(self.step_size, len(occupied) - self.to)
                await self._shrink(occupied[-count:], runtime, status, now_us)
                occupied = occupied[:-count]
        if self._kill_at_us:
            # Some members are stopping. Nobody knows when they will have ended.
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
        """Return True if the place has a member that is not about to go."""
        return status.nodes.get(place) not in _GONE and place not in self.lost

    async def _grow(self, count: int, runtime: Runtime, status: ClusterStatus) -> list[NodeName]:
        """Fill `count` free places, and return them.

        Fewer places may be filled, because places of stopping members are not free yet.
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
        """Stop the members in `places`, the last one first."""
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
        """Kill members whose grace period is over; forget members that have ended by themselves."""
        for place, kill_at_us in list(self._kill_at_us.items()):
            if status.nodes.get(place) in _GONE:
                del self._kill_at_us[place]
            elif now_us >= kill_at_us:
                del self._kill_at_us[place]  # no need to wait for a process that is killed
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
