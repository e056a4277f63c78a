"""Roles of clients: single members of a group, all members of a group, all clients.

`base` explains what a kind of target does. The members of a group have the indices 0, 1, 2 and so
on. First come the members that start with the cluster, then the members that start later in the run
(late members). Last come spare places, in which a fault may start further members.
"""

import re

from chaos.experiment.structs import Experiment, consumer_name, group_partition, producer_name
from chaos.targets.base import (
    Hit,
    Miss,
    Situation,
    TargetKind,
    Unknown,
    check_group_name,
    check_has_coordinator,
    check_no_argument,
    target_text,
)
from chaos.targets.partitions import require_leader
from protocol.ids import NodeName, offsets_partition

_MEMBER = re.compile(r"(.*?)\s*,\s*([0-9]+)")
"""The argument of a target `member`: a group and an index, as in `readers, 0`."""


class MemberTarget(TargetKind):
    """One member of a group, named by its index."""

    name = "member"
    syntax = "member(<group>, <index>)"
    doc = "the group's member with this index; indices count from 0, late members come last"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file does not define the group, or if the index is too large."""
        match = _MEMBER.fullmatch(argument)
        if match is None:
            # If the argument is only the name of a group, its first member was probably meant.
            meant = f"{argument}, 0" if argument in experiment.groups else None
            return Unknown(
                message=f"`{argument}` is no member" if argument else "names no member",
                expected="a group and the index of a member, such as `member(readers, 0)`",
                near_miss=target_text(self.name, meant),
            )
        group_id, index = match[1], int(match[2])
        unknown = check_group_name(self.name, group_id, experiment)
        if unknown is not None:
            # `check_group_name` returns a near miss such as `member(readers)`. The index is added
            # before its closing parenthesis: `member(readers, 0)`.
            meant = None if unknown.near_miss is None else unknown.near_miss[:-1] + f", {index})"
            return Unknown(message=unknown.message, expected=unknown.expected, near_miss=meant)
        members_total = experiment.groups[group_id].members_total
        if index >= members_total:
            indices = f"an index from 0 to {members_total - 1}"
            return Unknown(
                message=f"group `{group_id}` has no member {index}",
                expected=indices if members_total else "a group with members",
            )
        return None

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the member's node."""
        match = _MEMBER.fullmatch(argument)
        if match is None:
            raise ValueError(f"not a member: {argument!r}")
        return Hit(nodes=(consumer_name(match[1], int(match[2])),))


class LeaderMemberOf(TargetKind):
    """The member that computes a group's assignment."""

    name = "leader-member-of"
    syntax = "leader-member-of(<group>)"
    doc = "the member that leads the group: the one that computes its assignment"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file has no such group, or if the group is on ZooKeeper."""
        return check_has_coordinator(self.name, argument, experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the node of the member that is the group's leader at its coordinator."""
        status = situation.status
        partition = offsets_partition(group_partition(situation.experiment, argument))
        partition_status = require_leader(partition, situation)
        if isinstance(partition_status, Miss):
            return partition_status
        # `status.groups` has one entry for each broker that has the group in memory. Only the entry
        # of the coordinator counts, which is the broker that leads the group's partition. So this
        # list has at most one member id.
        leaders = [
            group.leader
            for group in status.groups.get(argument, ())
            if group.coordinator == partition_status.leader and group.leader is not None
        ]
        if not leaders:
            return Miss(reason=f"group {argument} has no leader at its coordinator")
        leader_id = leaders[0]
        for name, member in status.members.items():
            if member.group_id == argument and member.member_id == leader_id:
                return Hit(
                    nodes=(name,),
                    because=f"leads group {argument}",
                    detail={"member_id": member.member_id, "generation": member.generation},
                )
        return Miss(reason=f"no member that answers is {leader_id}, the leader of {argument}")


class Members(TargetKind):
    """All members of a group."""

    name = "members"
    syntax = "members(<group>)"
    doc = "all members of the group; those that join late are hit when they do"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file does not define the group, or if nobody ever joins it."""
        unknown = check_group_name(self.name, argument, experiment)
        if unknown is None and experiment.groups[argument].members_total == 0:
            return Unknown(message=f"nobody ever joins group `{argument}`")
        return unknown

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes of all members, including members that have not started yet."""
        return Hit(nodes=_members(argument, situation.experiment))


class Clients(TargetKind):
    """Every client of the cluster."""

    name = "clients"
    syntax = "clients"
    doc = "all members of all groups, and all producers; late members are hit when they join"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument, or if the file has no clients."""
        unknown = check_no_argument(self.name, argument)
        if unknown is None and not _clients(experiment):
            return Unknown(message="the file has no group with members and no producer")
        return unknown

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes of all consumers and producers."""
        del argument
        return Hit(nodes=_clients(situation.experiment))


def all_members(experiment: Experiment) -> tuple[NodeName, ...]:
    """Return the nodes of all members of all groups, including late members."""
    return tuple(name for group_id in experiment.groups for name in _members(group_id, experiment))


def _members(group_id: str, experiment: Experiment) -> tuple[NodeName, ...]:
    """Return the nodes of all members of a group, including its spare places.

    Spare places are included, because another fault may start a member there later. A fault of
    links must hit this member, too.
    """
    places_total = experiment.groups[group_id].places_total
    return tuple(consumer_name(group_id, index) for index in range(places_total))


def _clients(experiment: Experiment) -> tuple[NodeName, ...]:
    producers = (producer_name(index) for index in range(len(experiment.producers)))
    return (*all_members(experiment), *producers)
