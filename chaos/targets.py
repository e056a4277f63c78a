"""Targets: roles such as `coordinator-of(group)`, resolved when the fault fires.

Owns their spelling, what the file must define for them to exist at all, and who plays the role in
a given moment. A new role is one class and one line in `TARGET_KINDS`.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import msgspec

from chaos.experiment import Experiment, group_partition
from chaos.problems import near_miss
from cluster.runtime import ClusterStatus
from protocol.ids import BrokerId, NodeName, broker_name, offsets_partition

_TARGET = re.compile(r"\s*([A-Za-z-]+)\s*(?:\(([^()]*)\))?\s*")


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """Who lives on a broker: every group it coordinates, every partition it leads."""

    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Who plays the role now. `detail` says how that was decided, for the journal."""

    node: NodeName
    blast_radius: BlastRadius
    detail: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Nobody plays the role now, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A target that can never exist: what is wrong, what would be right."""

    message: str
    expected: str | None = None
    near_miss: str | None = None


class TargetKind(ABC):
    """One role. `syntax` is how it is written, `doc` one sentence for people."""

    name: str
    syntax: str
    doc: str

    @abstractmethod
    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Say why `argument` can never name anything in `experiment`, or None if it can."""

    @abstractmethod
    def resolve(self, argument: str, experiment: Experiment, status: ClusterStatus) -> Hit | Miss:
        """Return who plays the role now."""


class CoordinatorOf(TargetKind):
    """The broker that coordinates a group."""

    name = "coordinator-of"
    syntax = "coordinator-of(<group>)"
    doc = "the broker that leads the group's partition of `__consumer_offsets`"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Refuse a group that the file does not define."""
        if argument in experiment.groups:
            return None
        return Unknown(
            message=f"no group `{argument}` is defined",
            expected="one of the file's groups: "
            + (", ".join(f"`{group}`" for group in experiment.groups) or "it has none"),
            near_miss=_wrapped(self.name, near_miss(argument, experiment.groups)),
        )

    def resolve(self, argument: str, experiment: Experiment, status: ClusterStatus) -> Hit | Miss:
        """Return the leader that the controller has for the group's offsets partition.

        While leadership moves, the controller's leader and the broker that has the group loaded
        are two: the controller's is hit, and the detail names the other.
        """
        partition = offsets_partition(group_partition(experiment, argument))
        known = status.partitions.get(partition)
        if known is None:
            return Miss(reason=f"the controller does not know {partition}")
        if known.leader < 0:
            return Miss(reason=f"{partition} has no leader")
        loaded_by = [group.coordinator for group in status.groups.get(argument, ())]
        hit = _hit_broker(known.leader, status)
        if isinstance(hit, Miss):
            return Miss(reason=f"{hit.reason}, which leads {partition}")
        hit.detail.update(
            partition=str(partition),
            leader_epoch=known.leader_epoch,
            loaded_by=[int(broker) for broker in loaded_by],
        )
        return hit


class Broker(TargetKind):
    """One broker by its id."""

    name = "broker"
    syntax = "broker(<id>)"
    doc = "the broker with this id; ids count from 0"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Refuse what is no id of the cluster's brokers."""
        brokers = experiment.cluster.brokers
        if argument.isdecimal() and int(argument) < brokers:
            return None
        return Unknown(
            message=f"there is no broker `{argument}`",
            expected="a broker id from 0 to " + str(brokers - 1),
        )

    def resolve(self, argument: str, experiment: Experiment, status: ClusterStatus) -> Hit | Miss:
        """Return the broker, if its process lives."""
        del experiment
        return _hit_broker(BrokerId(int(argument)), status)


TARGET_KINDS: dict[str, TargetKind] = {kind.name: kind for kind in (CoordinatorOf(), Broker())}


def split_target(target: str) -> tuple[str, str] | None:
    """Return role and argument of `role(argument)`, or None if it is not written so."""
    match = _TARGET.fullmatch(target)
    return None if match is None else (match[1], (match[2] or "").strip())


def check_target(target: str, experiment: Experiment) -> Unknown | None:
    """Say why `target` can never exist in `experiment`, or None if it can."""
    every_syntax = ", ".join(f"`{kind.syntax}`" for kind in TARGET_KINDS.values())
    parts = split_target(target)
    if parts is None:
        return Unknown(message="is no target", expected=f"one of {every_syntax}")
    role, argument = parts
    kind = TARGET_KINDS.get(role)
    if kind is None:
        return Unknown(
            message=f"unknown target `{role}`",
            expected=f"one of {every_syntax}",
            near_miss=_wrapped(near_miss(role, TARGET_KINDS), argument),
        )
    return kind.check(argument, experiment)


def resolve_target(target: str, experiment: Experiment, status: ClusterStatus) -> Hit | Miss:
    """Return who plays the role of `target` in this moment.

    Raises: ValueError if the target is none that `check_target` accepts.
    """
    parts = split_target(target)
    kind = None if parts is None else TARGET_KINDS.get(parts[0])
    if parts is None or kind is None:
        raise ValueError(f"not a target: {target!r}")
    return kind.resolve(parts[1], experiment, status)


def blast_radius(broker: BrokerId, status: ClusterStatus) -> BlastRadius:
    """Return every group that `broker` has loaded and every partition that it leads."""
    return BlastRadius(
        groups=tuple(
            group_id
            for group_id, coordinators in sorted(status.groups.items())
            if any(group.coordinator == broker for group in coordinators)
        ),
        partitions=tuple(
            str(partition)
            for partition, known in sorted(status.partitions.items())
            if known.leader == broker
        ),
    )


def _hit_broker(broker: BrokerId, status: ClusterStatus) -> Hit | Miss:
    if not status.brokers_alive.get(broker, False):
        return Miss(reason=f"broker {broker} is not alive")
    return Hit(node=broker_name(broker), blast_radius=blast_radius(broker, status), detail={})


def _wrapped(role: str | None, argument: str | None) -> str | None:
    if role is None or argument is None:
        return None
    return f"{role}({argument})"
