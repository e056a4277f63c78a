"""All roles by name, and functions that parse, check and resolve targets.

A target such as `coordinator-of(readers)` consists of a role (`coordinator-of`) and an argument.
Each role has a class, a subclass of TargetKind. A target is checked before a run (`check_target`).
When its fault is injected, the target is resolved to nodes (`resolve_target`). `base` explains
both. A new role needs a class, and a line in TARGET_KINDS.
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
"""A role and its argument. Group 1 is the role; group 2 is the argument, without its parentheses.

The argument may itself be a target, as in `machine-of(broker(0))`. So an argument may have
parentheses, but no parentheses inside parentheses.
"""


def split_target(target: str) -> tuple[str, str] | None:
    """Return the role and the argument of a target; None if `target` has another form.

    If a role has no argument, such as `controller`, the argument is "".
    """
    match = _TARGET.fullmatch(target)
    return None if match is None else (match[1], (match[2] or "").strip())


def check_target(target: str, experiment: Experiment) -> Unknown | None:
    """Return an error if `target` can never exist in `experiment`; otherwise None."""
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
            # If the user wrote only the name of a group, `role` is this name, and the group's
            # coordinator was probably meant. Otherwise the role was perhaps misspelled. If no role
            # is similar, `near_miss` returns None, and then `target_text` returns None, too.
            near_miss=target_text(CoordinatorOf.name, role)
            if role in experiment.groups
            else target_text(near_miss(role, TARGET_KINDS), argument),
        )
    return kind.check(argument, experiment)


def _role_of_node(word: str, experiment: Experiment) -> str | None:
    """Return the target of the node with the name `word`; None if there is no such node.

    A user may copy the name of a node from a trace. For example, for `broker-0` the result is
    `broker(0)`.
    """
    name = "-".join(word.split())  # the user may also write `broker 0`
    for broker_id in range(experiment.cluster.brokers):
        if name == broker_name(broker_id):
            return target_text(Broker.name, str(broker_id))
    # The ids of controllers begin at FIRST_CONTROLLER_ID, so that no broker has the same id.
    for index in range(experiment.cluster.controllers):
        if name == controller_name(FIRST_CONTROLLER_ID + index):
            return Controller.name  # the role means the active controller, and has no argument
    for server_id in zookeeper_ids(experiment):
        if name == zookeeper_name(server_id):
            return target_text(ZooKeeperServer.name, str(server_id))
    for group_id, group in experiment.groups.items():
        for index in range(group.members_total):
            if name == consumer_name(group_id, index):
                return target_text(MemberTarget.name, f"{group_id}, {index}")
    return None


def resolve_target(target: str, situation: Situation) -> Hit | Miss:
    """Return the nodes that have the role of `target` now. They may be in any state.

    Raises: ValueError if `target` is no target, or if its role is unknown.
    """
    role, argument = split_target(target) or ("", "")  # no role is ""
    kind = TARGET_KINDS.get(role)
    if kind is None:
        raise ValueError(f"not a target: {target!r}")
    return kind.resolve(argument, situation)


# MachineOf is added last. Its argument is a target, so it needs the two functions above.
TARGET_KINDS[MachineOf.name] = MachineOf(check=check_target, resolve=resolve_target)
