"""All roles by name; parsing, checking and resolving of targets.

A target such as `coordinator-of(readers)` is checked before a run (`check_target`), and resolved to
nodes when its fault is injected; `base` explains both. A new role is one class and one line in
`TARGET_KINDS`.
"""

import re

from chaos.experiment.problems import near_miss
from chaos.experiment.structs import FIRST_CONTROLLER_ID, Experiment, consumer_name, zookeeper_ids
from chaos.targets.base import Hit, Miss, Situation, TargetKind, Unknown, target_text
from chaos.targets.kafka_clients import KafkaClient, KafkaClients
from chaos.targets.machines import MachineOf, MachineTarget
from chaos.targets.members import Clients, LeaderMemberOf, Members, MemberTarget
from chaos.targets.partitions import AllTopicPartitions
from chaos.targets.servers import (
    AnyBroker,
    Broker,
    Brokers,
    Controller,
    CoordinatorOf,
    FollowerOf,
    LeaderOf,
    ZooKeeperLeader,
    ZooKeepers,
    ZooKeeperServer,
)
from protocol.ids import broker_name, controller_name, zookeeper_name

# Every role by its name; `machine-of` is added at the end of this module.
TARGET_KINDS: dict[str, TargetKind] = {
    kind.name: kind
    for kind in (
        CoordinatorOf(),
        LeaderOf(),
        FollowerOf(),
        Broker(),
        AnyBroker(),
        Controller(),
        MemberTarget(),
        LeaderMemberOf(),
        Brokers(),
        Members(),
        Clients(),
        AllTopicPartitions(),
        ZooKeeperServer(),
        ZooKeeperLeader(),
        ZooKeepers(),
        MachineTarget(),
        KafkaClient(),
        KafkaClients(),
    )
}

_TARGET = re.compile(r"\s*([A-Za-z-]+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?\s*")
"""A role and its argument, which may itself be a target, as in `machine-of(broker(0))`.

So an argument may have brackets, but no brackets inside brackets.
"""


def split_target(target: str) -> tuple[str, str] | None:
    """Return role and argument of `role(argument)`, or None if `target` has another form.

    The argument is empty for a role that takes no argument, such as `controller`.
    """
    match = _TARGET.fullmatch(target)
    return None if match is None else (match[1], (match[2] or "").strip())


def check_target(target: str, experiment: Experiment) -> Unknown | None:
    """Return the error if `target` can never exist in `experiment`, else None."""
    every_syntax = ", ".join(f"`{kind.syntax}`" for kind in TARGET_KINDS.values())
    parts = split_target(target)
    if parts is None:
        return Unknown(
            message="is no target",
            expected=f"one of {every_syntax}",
            near_miss=_role_of_node(target, experiment),
        )
    role, argument = parts
    kind = TARGET_KINDS.get(role)
    if kind is None:
        return Unknown(
            message=f"unknown target `{role}`",
            expected=f"one of {every_syntax}",
            # A user who wrote only a group's name probably meant its coordinator. If no role is
            # similar, `target_text` returns None.
            near_miss=target_text(CoordinatorOf.name, role)
            if role in experiment.groups
            else target_text(near_miss(role, TARGET_KINDS), argument),
        )
    return kind.check(argument, experiment)


def _role_of_node(word: str, experiment: Experiment) -> str | None:
    """Return the target of the node with this name, or None.

    A user may copy the name from a trace: `broker-0` becomes the near miss `broker(0)`.
    """
    name = "-".join(word.split())  # `broker 0` becomes `broker-0`
    for broker_id in range(experiment.cluster.brokers):
        if name == broker_name(broker_id):
            return target_text(Broker.name, str(broker_id))
    for index in range(experiment.cluster.controllers):
        if name == controller_name(FIRST_CONTROLLER_ID + index):
            return Controller.name  # this role is the active controller, and has no argument
    for server_id in zookeeper_ids(experiment):
        if name == zookeeper_name(server_id):
            return target_text(ZooKeeperServer.name, str(server_id))
    for group_id, group in experiment.groups.items():
        for index in range(group.members_total):
            if name == consumer_name(group_id, index):
                return target_text(MemberTarget.name, f"{group_id}, {index}")
    return None


def resolve_target(target: str, situation: Situation) -> Hit | Miss:
    """Return the nodes that have the role of `target` now, in any state.

    Raises: ValueError if `target` has another form, or its role is unknown.
    """
    parts = split_target(target)
    kind = None if parts is None else TARGET_KINDS.get(parts[0])
    if parts is None or kind is None:
        raise ValueError(f"not a target: {target!r}")
    return kind.resolve(parts[1], situation)


# MachineOf is added last. Its argument is a target, so it needs the functions above.
TARGET_KINDS[MachineOf.name] = MachineOf(check=check_target, resolve=resolve_target)
