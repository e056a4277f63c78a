"""Faults of an orchestrator: a rollout replaces a group's members, a scaling changes its size.

An orchestrator is a system such as Kubernetes. Both faults are gradual: `inject` only prepares the
work (a Rollout or Scaling of `chaos.faults.orchestration`). Afterwards the runner calls its `step`,
which does a part of the work and returns the time of the next step (`chaos.run.injection`).

Members come and go, but the nodes on which they may run are fixed from the beginning. We call such
a node a place. For a group with `members: 3`, one late member and `spare_members: 2`, the places
are

- consumer-readers-0 to 2: the members with which the cluster starts;
- consumer-readers-3: a late member, which the plan starts at a given time;
- consumer-readers-4 and 5: spare places, which only the faults of this module fill.

`members_total` of this group is 4, and `places_total` is 6.
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

# Without `(?!\n)`, `25%` with a line break at the end would match, too, because of `$`.
_PERCENT = re.compile(r"^(100|[1-9]?[0-9])%(?!\n)$")

CountOrPercent = (
    Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] | Annotated[str, Meta(pattern=_PERCENT.pattern)]
)
"""A number of members, or a percentage of the group, such as `25%`."""

DurationOrRange = Duration | tuple[Duration, Duration]
"""A duration, or the bounds of a range from which each duration is drawn evenly."""


class RolloutArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules of a rollout, with Kubernetes' names where Kubernetes has the rule."""

    max_unavailable: CountOrPercent = 1
    """the most members that may be missing at once because they stop, are down or are not ready: a
    number, or a percentage of the group (`25%`, rounded down)"""
    max_surge: CountOrPercent = 0
    """the most members beyond the group's size during the rollout: a number, or a percentage
    (rounded up). Their places are the group's `spare_members`. With 0 each successor takes its
    predecessor's place"""
    in_batches: bool = False
    """true: members stop in batches, and a batch stops only when all successors of the batch before
    are ready"""
    partition: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] = 0
    """members with a smaller index keep the former version and are not replaced"""
    start_up: DurationOrRange = "5s"
    """the time from a place being free to its successor's first poll: scheduling, the image, the
    start of the process. Of two durations, drawn evenly between them"""
    stop: Literal["term", "kill"] = "term"
    """`term`: SIGTERM; the application closes its consumer, which leaves the group if it has no
    `group.instance.id`. `kill`: the process ends at once, and the member leaves no group"""
    grace_period: Duration = "30s"
    """a member that has not ended this long after SIGTERM is killed"""
    ready: Literal["started", "assigned"] = "assigned"
    """`started`: a successor counts as available once it has started; `assigned`: once it is stable
    in its group"""
    ready_after: DurationOrRange = "0s"
    """the shortest time from a successor's start until it counts as available. Of two durations,
    drawn evenly between them"""
    progress_deadline: Duration = "600s"
    """the longest time without progress: the rollout fails if a successor is not ready this long
    after its start-up, or if for this long no member may be stopped"""
    broken_from: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] | None = None
    """this successor and all later ones never start, as with a broken new version. Successors are
    counted from 0, in the order of replacement"""
    at_deadline: Literal["hang", "roll_back"] = "hang"
    """a rollout that fails changes nothing more (`hang`), or replaces its successors by members of
    the former version (`roll_back`)"""


class ScaleArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size to reach, and the pace."""

    to: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)]
    """the number of members to reach; those beyond the group's size take its `spare_members`"""
    step: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)] = MAX_MEMBERS
    """the number of members that are started or stopped at once"""
    every: Duration = "10s"
    """the time between two steps"""
    stop: Literal["term", "kill"] = "term"
    """`term`: SIGTERM; the application closes its consumer, which leaves the group if it has no
    `group.instance.id`. `kill`: the process ends at once, and the member leaves no group"""
    grace_period: Duration = "30s"
    """a member that has not ended this long after SIGTERM is killed"""


class _Gradual(FaultKind):
    """A gradual fault of the members of one group."""

    targets = ("members",)
    # When a member stops, the others must rebalance.
    spares_members = False
    is_gradual = True

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return all places of the group that the fault may use.

        The fault may not use places with an index below `first_index`. Nor may it use places of
        late members that have not started yet, because the plan will start these members. The Aim's
        detail has `up`, the members that are up now, and `members`, the group's `members_total`.
        """
        _, group_id = split_target(planned.target) or ("", "")
        group = situation.experiment.groups[group_id]
        first = self.first_index(planned)
        all_places = {
            index: consumer_name(group_id, index) for index in range(first, group.places_total)
        }
        places = tuple(
            place
            for index, place in all_places.items()
            if not _is_awaited(place, index, group, situation)
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
        """Return the lowest index of the members that the fault may stop."""
        del planned
        return 0


class RolloutFault(_Gradual):
    """A deploy: an orchestrator replaces all members of a group."""

    name = "rollout"
    doc = (
        "Replaces every member of the group as an orchestrator does in a deploy, the one with the "
        "highest index first: some members are stopped, their successors start, and when those are "
        "ready the next members are stopped. The rollout goes on until all members are replaced; "
        "the plan does not wait for its end."
    )
    args_type = RolloutArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a rollout that can replace no member, or that has no places for its surge."""
        args = msgspec.convert(fault.args, RolloutArgs)
        for name, length in (("start_up", args.start_up), ("ready_after", args.ready_after)):
            if isinstance(length, str):
                continue  # a single duration, not a range
            shortest, longest = length
            if microseconds(shortest) > microseconds(longest):
                yield problem(
                    f"args.{name}",
                    "the first is longer than the second",
                    expected="the shortest and the longest",
                    found=f"`{shortest}, {longest}`",
                )

        definition = _group_of(fault, experiment)
        if definition is None:
            return
        # If the group has no members at all, only the check of targets reports this.
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
                f"of {definition.members_total} members none may be missing, and no member may be "
                "added: no member could be replaced",
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
        """Prepare the rollout; the runner takes its first step."""
        args = msgspec.convert(planned.args, RolloutArgs)
        up = _up(aim)
        # A percentage refers to the size that the experiment defines, not to the members in `up`.
        total = _members_total(aim)
        surge = _count(args.max_surge, total, rounded_up=True)
        # Places without a member, as many as the surge needs. There may be fewer such places than
        # `max_surge` asks for, for example after a scaling.
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
            old=up[::-1],  # as a StatefulSet does: the member with the highest index stops first
            spare=spare,
            extra=_extra_places(aim),  # all spare places, also those that have a member
            lost=tools.lost,
            joined=tools.joined,
        )
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """If the rollout did not end by itself, bring the group back to its full size.

        Return how the rollout ended, such as `the rollout was broken off with 2 replaced`. Return
        None if the rollout was completed, or never began.
        """
        # There is no rollout if `inject` failed.
        rollout = tools.under_way.get(planned.fault_id)
        if not isinstance(rollout, Rollout):
            return None
        if rollout.outcome in {Outcome.UNDER_WAY, Outcome.HUNG}:
            # `step` is not called any more, so the missing members are started here.
            for node in rollout.places_to_fill():
                # The status is read again for each node, because the start of a node takes time.
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
    """A change of the number of a group's members."""

    name = "scale"
    doc = (
        "Starts or stops members until the group has `to` members, as an autoscaler does: the ones "
        "with the highest index stop first. Nothing undoes the change. A later scaling of the "
        "group supersedes one that goes on."
    )
    args_type = ScaleArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a size for which the group has no places."""
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
        """Prepare the change; the runner takes its first step."""
        args = msgspec.convert(planned.args, ScaleArgs)
        # An autoscaler has only one desired size at a time. So an earlier scaling of this group,
        # if it is not done yet, is superseded. Otherwise each of the two would undo the work of the
        # other. Two scalings are of the same group if they share a place.
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
            spare=_extra_places(aim),
            lost=tools.lost,
            joined=tools.joined,
        )
        return aim


# How a rollout ended, for the text that `heal` returns. COMPLETED is missing, because `heal`
# returns no text then.
_ENDED = {
    Outcome.UNDER_WAY: "was broken off",
    Outcome.HUNG: "hung: it made no progress in time,",
    Outcome.ROLLED_BACK: "was rolled back",
}


def _group_of(fault: FaultDefinition, experiment: Experiment) -> GroupDefinition | None:
    """Return the group in the target; None if the experiment has no such group.

    The check of targets reports a missing group.
    """
    parts = split_target(fault.target or "")
    if parts is None:
        return None
    _, group_id = parts
    return experiment.groups.get(group_id)


def _extra_places(aim: Aim) -> frozenset[NodeName]:
    """Return the spare places of the group, by their indices.

    The position of a place in `aim.nodes` is not always its index, because `aim.nodes` lacks the
    places of late members that have not started.
    """
    total = _members_total(aim)
    return frozenset(place for place in aim.nodes if _index_of(place) >= total)


def _index_of(place: NodeName) -> int:
    """Return the index of a place in its group, such as 2 for `consumer-readers-2`."""
    return int(place.rpartition("-")[2])


def _is_awaited(place: NodeName, index: int, group: GroupDefinition, situation: Situation) -> bool:
    """Return True if the place belongs to a late member that the plan has not started yet."""
    is_late = group.members <= index < group.members_total
    return is_late and situation.status.nodes.get(place) is NodeState.NOT_STARTED


def _count(wanted: int | str, members: int, *, rounded_up: bool = False) -> int:
    """Return a number of members that is given as a number or as a percentage of `members`.

    `25%` of 10 members are 2, or 3 if `rounded_up`. As in Kubernetes, maxUnavailable is rounded
    down, and maxSurge up. A percentage above 0 gives at least 1. Otherwise a rollout of a small
    group could neither stop nor add a member, and would never begin.
    """
    if isinstance(wanted, int):
        return wanted
    share = int(wanted.removesuffix("%")) * members / 100
    if share == 0:
        return 0
    return max(1, math.ceil(share) if rounded_up else math.floor(share))


def _drawn(length: DurationOrRange, members: int, rng: random.Random) -> tuple[int, ...]:
    """Return a duration in microseconds for each of `members`, drawn if `length` is a range."""
    if isinstance(length, str):
        return (microseconds(length),) * members
    low, high = map(microseconds, length)
    return tuple(rng.randint(low, high) for _ in range(members))


def _up(aim: Aim) -> list[NodeName]:
    """Return the members that were up when the fault was aimed."""
    up = aim.detail["up"]
    # `aim` has put a list into the detail. The test is for mypy, which knows only an object.
    return [NodeName(str(name)) for name in up] if isinstance(up, list) else []


def _members_total(aim: Aim) -> int:
    """Return the size of the group that the experiment defines, late members included."""
    return int(str(aim.detail["members"]))  # `str` is for mypy, to which the value is an object
