"""Acts of an orchestrator: a deploy that replaces the members of a group, and a change of its size.

They are not over when they return: the runner asks again when they say so (`chaos.run.injection`).
"""

import math
import random
import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import (
    MAX_MEMBERS,
    Duration,
    Experiment,
    FaultDefinition,
    GroupDefinition,
    consumer_name,
    microseconds,
)
from chaos.faults.base import Aim, FaultKind, FaultTools
from chaos.faults.orchestration import Orders, Outcome, Rollout, Scaling
from chaos.faults.processes import bring_back
from chaos.run.blast_radius import blast_radius_of
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import split_target
from cluster.runtime import NodeState
from protocol.ids import NodeName
from results_schema.manifest import PlannedFault

_PERCENT = re.compile(r"^(100|[1-9]?[0-9])%(?!\n)$")

CountOrPercent = (
    Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] | Annotated[str, Meta(pattern=_PERCENT.pattern)]
)

DurationOrRange = Duration | tuple[Duration, Duration]
"""A length of time, or the shortest and the longest of lengths that are evenly drawn."""


class RolloutArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the members are replaced; Kubernetes' names where it has them."""

    max_unavailable: CountOrPercent = 1
    """how many members may be missing at once, a number or a percentage (`25%`, rounded down):
    those that stop, are down, or are not ready"""
    max_surge: CountOrPercent = 0
    """how many members more than the group has may be there meanwhile (a percentage is rounded up):
    their places are the group's `spare_members`; 0: each successor takes its predecessor's place"""
    in_batches: bool = False
    """whether nobody is stopped before all that were stopped together have successors that are
    ready"""
    partition: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] = 0
    """the members with a smaller index keep the former version and are not replaced"""
    start_up: DurationOrRange = "5s"
    """what a successor takes from its place being free to its first poll: scheduling, the image,
    the start of the process; of two durations, evenly drawn between them"""
    stop: Literal["term", "kill"] = "term"
    """`term`: SIGTERM, upon which the application closes its consumer, and one without
    `group.instance.id` leaves the group; `kill`: the process ends at once and nobody leaves"""
    grace_period: Duration = "30s"
    """how long after SIGTERM a member that is still there is killed"""
    ready: Literal["started", "assigned"] = "assigned"
    """when a successor counts as available: once it has started, or once it is stable in its
    group"""
    ready_after: DurationOrRange = "0s"
    """how long after its start it counts as available at the earliest; of two durations, evenly
    drawn between them"""
    progress_deadline: Duration = "600s"
    """how long after its start-up a successor may take to be ready, and how long a rollout may wait
    until a member may be stopped, or the rollout has failed"""
    broken_from: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] | None = None
    """the successors from this one on, counted from 0, never start: the new version is broken"""
    at_deadline: Literal["hang", "roll_back"] = "hang"
    """what a rollout that has failed does: nothing more, or it starts the former version where it
    had started the new one"""


class ScaleArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To what size, and how fast."""

    to: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)]
    """how many members the group has then; beyond its own ones, its `spare_members`"""
    step: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)] = MAX_MEMBERS
    """how many are started or stopped at once"""
    every: Duration = "10s"
    """how far apart steps are"""
    stop: Literal["term", "kill"] = "term"
    """`term`: SIGTERM, upon which the application closes its consumer, and one without
    `group.instance.id` leaves the group; `kill`: the process ends at once and nobody leaves"""
    grace_period: Duration = "30s"
    """how long after SIGTERM a member that is still there is killed"""


class _Gradual(FaultKind):
    """An act on all members of a group that goes on by itself."""

    targets = ("members",)
    spares_members = False
    is_gradual = True

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the members that are up, and the places of those that may come."""
        _, group_id = split_target(planned.target) or ("", "")
        group = situation.experiment.groups[group_id]
        first = self.first_index(planned)
        places = tuple(
            place
            for index in range(first, group.places_total)
            if not _is_awaited(place := consumer_name(group_id, index), index, group, situation)
        )
        up = tuple(place for place in places if situation.is_up(place))
        if not up:
            which = f" with an index of at least {first}" if first else ""
            return Miss(reason=f"no member of {group_id}{which} is up")
        return Aim(
            nodes=places,
            blast_radius=blast_radius_of(up, situation.experiment, situation.status),
            detail={"up": list(up), "members": group.members_total},
        )

    def first_index(self, planned: PlannedFault) -> int:
        """Return the index of the first member that the act is about."""
        del planned
        return 0


class RolloutFault(_Gradual):
    """A deploy."""

    name = "rollout"
    doc = (
        "Replaces every member of the group as an orchestrator does in a deploy, the last first: "
        "some are stopped, their successors start, and when those are ready the next are stopped. "
        "It goes on until all are replaced, however long that takes, while the plan goes on."
    )
    args_type = RolloutArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Refuse a rollout that can replace nobody, or that has no places for its surge."""
        args = msgspec.convert(fault.args, RolloutArgs)
        for name, length in (("start_up", args.start_up), ("ready_after", args.ready_after)):
            if isinstance(length, tuple) and microseconds(length[0]) > microseconds(length[1]):
                yield problem(
                    f"args.{name}",
                    "the first is longer than the second",
                    expected="the shortest and the longest",
                    found=f"`{length[0]}, {length[1]}`",
                )
        definition = _group_of(fault, experiment)
        if definition is None:
            return
        if args.partition >= definition.members_total > 0:
            yield problem(
                "args.partition",
                f"the group has {definition.members_total} members: none has an index of at least "
                f"{args.partition}",
                expected=f"at most {definition.members_total - 1}",
                found=f"`{args.partition}`",
            )
        surge = _count(args.max_surge, definition.members_total, rounded_up=True)
        if surge == 0 and _count(args.max_unavailable, definition.members_total) == 0:
            yield problem(
                "args.max_unavailable",
                f"of {definition.members_total} members none may be missing and none be too many: "
                "nobody could be replaced",
                expected="more, or a `max_surge`",
                found=f"`{args.max_unavailable}`",
            )
        if surge > definition.spare_members:
            yield problem(
                "args.max_surge",
                f"needs {surge} places beside the group's own",
                expected=f"`spare_members: {surge}` in the group",
                found=f"`spare_members: {definition.spare_members}`",
            )

    def first_index(self, planned: PlannedFault) -> int:
        """Return the index of the first member that is replaced."""
        return msgspec.convert(planned.args, RolloutArgs).partition

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Take the orders; the first step is the runner's next one."""
        args = msgspec.convert(planned.args, RolloutArgs)
        up = _up(aim)
        total = int(str(aim.detail["members"]))
        surge = _count(args.max_surge, total, rounded_up=True)
        spare = [place for place in aim.nodes if place not in up][:surge]
        tools.under_way[planned.fault_id] = Rollout(
            orders=Orders(
                max_unavailable=_count(args.max_unavailable, total),
                max_surge=len(spare),
                in_batches=args.in_batches,
                kills=args.stop == "kill",
                grace_us=microseconds(args.grace_period),
                start_ups_us=_drawn(args.start_up, len(up), tools.rng),
                ready_when_assigned=args.ready == "assigned",
                ready_after_us=_drawn(args.ready_after, len(up), tools.rng),
                progress_deadline_us=microseconds(args.progress_deadline),
                broken_from=args.broken_from,
                rolls_back=args.at_deadline == "roll_back",
            ),
            old=up[::-1],
            spare=spare,
            extra=frozenset(place for place in aim.nodes if _index_of(place) >= total),
            lost=tools.lost,
            joined=tools.joined,
        )
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Bring a rollout that did not end back to its full size; say how it ended."""
        rollout = tools.under_way.get(planned.fault_id)
        if not isinstance(rollout, Rollout):
            return None
        if rollout.outcome in {Outcome.UNDER_WAY, Outcome.HUNG}:
            for node in rollout.places_to_fill():
                status = await tools.runtime.status()
                if status.nodes.get(node) is NodeState.NOT_STARTED:
                    await tools.runtime.start_node(node)
                else:
                    await bring_back(node, tools.runtime, kill_at_us=tools.kill_at_us)
                tools.lost.pop(node, None)
                if node in rollout.extra:
                    tools.joined[node] = None
        if rollout.outcome is Outcome.COMPLETED:
            return None
        return f"the rollout {_ENDED[rollout.outcome]} with {len(rollout.done)} replaced"


class ScaleFault(_Gradual):
    """More members, or fewer."""

    name = "scale"
    doc = (
        "Starts or stops members until the group has as many as it shall, as an autoscaler does: "
        "the last go first. They stay started or stopped. A later scaling of the group supersedes "
        "one that goes on."
    )
    args_type = ScaleArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Refuse a size for which the group has no places."""
        definition = _group_of(fault, experiment)
        if definition is None:
            return
        to = msgspec.convert(fault.args, ScaleArgs).to
        places = definition.places_total
        if to > places:
            yield problem(
                "args.to",
                f"the group has {places} places",
                expected=f"`spare_members: {to - definition.members_total}` in the group",
                found=f"`{to}`",
            )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Take the orders; the first step is the runner's next one."""
        args = msgspec.convert(planned.args, ScaleArgs)
        total = aim.detail["members"]
        # An autoscaler has one desired size. Two of them in force would undo each other for ever.
        for earlier in tools.under_way.values():
            if isinstance(earlier, Scaling) and not set(aim.nodes).isdisjoint(earlier.places):
                earlier.is_superseded = True
        tools.under_way[planned.fault_id] = Scaling(
            to=args.to,
            step_size=args.step,
            every_us=microseconds(args.every),
            kills=args.stop == "kill",
            grace_us=microseconds(args.grace_period),
            places=aim.nodes,
            spare=frozenset(aim.nodes[total:] if isinstance(total, int) else ()),
            lost=tools.lost,
            joined=tools.joined,
        )
        return aim


_ENDED = {
    Outcome.UNDER_WAY: "was broken off",
    Outcome.HUNG: "hung: it made no progress in time,",
    Outcome.ROLLED_BACK: "was rolled back",
}


def _group_of(fault: FaultDefinition, experiment: Experiment) -> GroupDefinition | None:
    """Return the target's group; None if there is none such, which the target's check says."""
    split = split_target(fault.target or "")
    return None if split is None else experiment.groups.get(split[1])


def _index_of(place: NodeName) -> int:
    """Return the index of a member's place in its group."""
    return int(place.rpartition("-")[2])


def _is_awaited(place: NodeName, index: int, group: GroupDefinition, situation: Situation) -> bool:
    """Return whether a place is that of a late member that the plan itself is going to start."""
    is_late = group.members <= index < group.members_total
    return is_late and situation.status.nodes.get(place) is NodeState.NOT_STARTED


def _count(wanted: int | str, members: int, *, rounded_up: bool = False) -> int:
    """Return a number of members, of a percentage at least 1 if it is not 0.

    Source: Kubernetes rounds maxUnavailable down and maxSurge up.
    """
    if isinstance(wanted, int):
        return wanted
    share = int(wanted.removesuffix("%")) * members / 100
    if share == 0:
        return 0
    return max(1, math.ceil(share) if rounded_up else math.floor(share))


def _drawn(length: DurationOrRange, members: int, rng: random.Random) -> tuple[int, ...]:
    """Return the length of each successor, in microseconds."""
    if isinstance(length, str):
        return (microseconds(length),) * members
    low, high = map(microseconds, length)
    return tuple(rng.randint(low, high) for _ in range(members))


def _up(aim: Aim) -> list[NodeName]:
    """Return the members that were up when the act began."""
    up = aim.detail["up"]
    return [NodeName(str(name)) for name in up] if isinstance(up, list) else []
