"""Faults of leadership: an administrator makes another replica the leader, while all nodes live.

These faults are momentary: an election is done when its answer comes, and nothing undoes it.
`aim` decides which leaders will change, by the cluster's status at that moment. Often no leader can
change, because the wanted leader is down or not in sync. Then the result is a Miss with the reason.
"""

from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec

from chaos.experiment.problems import Problem, one_of
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import Experiment, FaultDefinition, group_partition
from chaos.faults.base import Aim, FaultKind, FaultTools
from chaos.run.blast_radius import blast_radius_of_partitions
from chaos.targets.base import Hit, Miss, Situation
from chaos.targets.partitions import (
    ALL_PARTITIONS,
    in_sync_followers,
    parse_partition,
    replicas_at_start,
    require_leader,
)
from chaos.targets.registry import check_target, resolve_target, split_target
from cluster.client.admin.orders import ElectionFailed, elect_preferred_leaders, move_leader
from cluster.runtime import PartitionStatus
from protocol.ids import BrokerId, TopicPartition, broker_name, offsets_partition
from results_schema.journal import LeaderMove
from results_schema.manifest import PlannedFault

PARTITION_TARGETS = ("coordinator-of", "leader-of")


class MoveArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new leader."""

    to: str | None = None
    """`broker(<id>)`, a replica; default: the next in-sync replica in the partition's replica
    order"""


class LeadershipMove(FaultKind):
    """One partition gets another leader."""

    name = "leadership_move"
    doc = (
        "Moves the leadership of one partition to another replica, as an administrator does: a "
        "reassignment puts the replica first, then the preferred leader is elected. Momentary."
    )
    targets = PARTITION_TARGETS
    args_type = MoveArgs
    momentary = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a destination that is not a broker, or has no replica."""
        to = fault.args.get("to")
        if to is None:
            return
        role, broker_id = split_target(to) or ("", "")  # such as ("broker", "1")
        if role != "broker":
            yield problem(
                "args.to", "is no destination", expected="`broker(<id>)`", found=f"`{to}`"
            )
            return
        unknown = check_target(to, experiment)
        if unknown is not None:
            yield problem("args.to", unknown.message, expected=unknown.expected, found=f"`{to}`")
            return
        partition = None if fault.target is None else _partition_of(fault.target, experiment)
        if partition is None:
            return  # the target names no partition, which the check of targets reports
        replicas = replicas_at_start(partition, experiment)
        if int(broker_id) not in replicas:
            yield problem(
                "args.to",
                f"holds no replica of {partition}",
                expected=one_of(f"broker({replica})" for replica in replicas),
                found=f"`{to}`",
            )

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the partition's leader and the replica that will lead next."""
        hit = _resolve(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        (partition,) = hit.partitions  # each of PARTITION_TARGETS stands for one partition
        partition_status = require_leader(partition, situation)
        if isinstance(partition_status, Miss):
            return partition_status

        args = msgspec.convert(planned.args, MoveArgs)
        to = (
            _next_leader(partition, partition_status, situation)
            if args.to is None
            else _broker_id(args.to)
        )
        if isinstance(to, Miss):
            return to
        reason = _reason_against(to, partition, partition_status, situation)
        if reason is not None:
            return Miss(reason=reason)
        return _aim_of({partition: (partition_status.leader, to)}, hit, situation)

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Move the leadership."""
        (move,) = aim.moves  # `aim` has found exactly one
        partition = parse_partition(move.partition)
        if partition is None:
            raise ValueError(f"{planned.fault_id} moves {move.partition}, which is no partition")
        return await _elect(
            aim, tools.runtime.ask_as_admin(move_leader, partition, BrokerId(move.to_broker))
        )


class PreferredLeaderElection(FaultKind):
    """Preferred leaders lead again."""

    name = "preferred_leader_election"
    doc = (
        "Elects the preferred leader, which is the first in the replica order, of one partition or "
        "of all partitions that another replica leads. Momentary."
    )
    targets = (*PARTITION_TARGETS, ALL_PARTITIONS)
    momentary = True

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the present leaders and the preferred leaders that would replace them."""
        hit = _resolve(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        moves: dict[TopicPartition, tuple[BrokerId, BrokerId]] = {}  # -> (old leader, new leader)
        reasons = []  # for each other partition, why its leader does not change
        for partition in hit.partitions:
            partition_status = require_leader(partition, situation)
            # If one partition cannot get its preferred leader, the others still get theirs.
            if isinstance(partition_status, Miss):
                reasons.append(partition_status.reason)
                continue
            preferred = partition_status.replicas[0]
            reason = _reason_against(preferred, partition, partition_status, situation)
            if reason is None:
                moves[partition] = (partition_status.leader, preferred)
            else:
                reasons.append(reason)
        if not moves:
            return Miss(
                reason=reasons[0]
                if len(reasons) == 1
                else "no partition has a preferred leader that could lead and does not"
            )
        return _aim_of(moves, hit, situation)

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Elect the preferred leaders."""
        partitions = [
            partition
            for move in aim.moves
            if (partition := parse_partition(move.partition)) is not None
        ]
        # As in Kafka, a request with None instead of a list asks for all partitions. So if the
        # target is `all-topic-partitions`, and leaders have changed since `aim`, the election may
        # concern other partitions than `aim` found.
        elects_all = planned.target.strip() == ALL_PARTITIONS
        return await _elect(
            aim,
            tools.runtime.ask_as_admin(elect_preferred_leaders, None if elects_all else partitions),
        )


def _resolve(target: str, situation: Situation) -> Hit | Miss:
    """Return the nodes and partitions of a target; a Miss if there is no active controller."""
    if situation.status.controller is None:
        return Miss(reason="no controller answers, and only it elects leaders")
    return resolve_target(target, situation)


async def _elect(aim: Aim, election: Coroutine[Any, Any, None]) -> Aim | Miss:
    """Carry out an election; return a Miss if the cluster refuses it or does not answer."""
    try:
        await election
    except (ElectionFailed, TimeoutError) as error:
        return Miss(reason=f"{type(error).__name__}: {error}")
    return aim


def _next_leader(
    partition: TopicPartition, partition_status: PartitionStatus, situation: Situation
) -> BrokerId | Miss:
    """Return the first in-sync follower that is up."""
    for broker in in_sync_followers(partition_status):
        if situation.is_up(broker_name(broker)):
            return broker
    return Miss(reason=f"{partition} has no in-sync follower that is up")


def _reason_against(
    to: BrokerId, partition: TopicPartition, partition_status: PartitionStatus, situation: Situation
) -> str | None:
    """Return the reason why the broker `to` cannot become leader, or None if it can."""
    if to == partition_status.leader:
        return f"broker {to} leads {partition} already"
    if to not in partition_status.replicas:
        return f"broker {to} holds no replica of {partition}"
    if to not in partition_status.isr:
        return f"broker {to} is not in sync with the leader of {partition}"
    if not situation.is_up(broker_name(to)):
        return f"broker {to}, which would lead {partition}, is " + situation.state_of(
            broker_name(to)
        )
    return None


def _aim_of(
    moves: dict[TopicPartition, tuple[BrokerId, BrokerId]], hit: Hit, situation: Situation
) -> Aim:
    """Return the Aim of elections. `moves` has the old and the new leader of each partition.

    The nodes of the Aim are the old leaders, each once.
    """
    leaders = dict.fromkeys(broker_name(old) for old, _ in moves.values())
    return Aim(
        nodes=tuple(leaders),
        moves=tuple(
            LeaderMove(partition=str(partition), from_broker=old, to_broker=new)
            for partition, (old, new) in moves.items()
        ),
        blast_radius=blast_radius_of_partitions(moves, situation.experiment),
        detail=hit.detail,
    )


def _partition_of(target: str, experiment: Experiment) -> TopicPartition | None:
    """Return the partition that the target stands for, or None.

    No running cluster is needed for this, so it can be used to check a file.
    """
    role, argument = split_target(target) or ("", "")
    if role == "coordinator-of":
        return offsets_partition(group_partition(experiment, argument))
    return parse_partition(argument)


def _broker_id(target: str) -> BrokerId:
    """Return the id in a target such as `broker(1)`."""
    parts = split_target(target)
    if parts is None:
        raise ValueError(f"not a broker: {target!r}")
    _, broker_id = parts
    return BrokerId(int(broker_id))
