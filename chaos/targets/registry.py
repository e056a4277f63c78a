"""Every role by its name, and how a target is read, checked and resolved.

A new role is one class and one line in `TARGET_KINDS`.
"""

import re

from chaos.experiment import Experiment
from chaos.problems import near_miss
from chaos.targets.base import Hit, Miss, Situation, TargetKind, Unknown, written
from chaos.targets.members import Clients, LeaderMemberOf, Member, Members
from chaos.targets.partitions import AllTopicPartitions
from chaos.targets.servers import (
    AnyBroker,
    Broker,
    Brokers,
    Controller,
    CoordinatorOf,
    FollowerOf,
    LeaderOf,
)

TARGET_KINDS: dict[str, TargetKind] = {
    kind.name: kind
    for kind in (
        CoordinatorOf(),
        LeaderOf(),
        FollowerOf(),
        Broker(),
        AnyBroker(),
        Controller(),
        Member(),
        LeaderMemberOf(),
        Brokers(),
        Members(),
        Clients(),
        AllTopicPartitions(),
    )
}

_TARGET = re.compile(r"\s*([A-Za-z-]+)\s*(?:\(([^()]*)\))?\s*")


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
            near_miss=written(CoordinatorOf.name, role)
            if role in experiment.groups
            else written(near_miss(role, TARGET_KINDS), argument),
        )
    return kind.check(argument, experiment)


def resolve_target(target: str, situation: Situation) -> Hit | Miss:
    """Return who plays the role of `target` in this moment, in whatever state they are.

    Raises: ValueError if the target is none that `check_target` accepts.
    """
    parts = split_target(target)
    kind = None if parts is None else TARGET_KINDS.get(parts[0])
    if parts is None or kind is None:
        raise ValueError(f"not a target: {target!r}")
    return kind.resolve(parts[1], situation)
