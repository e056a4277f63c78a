"""Nodes that a seed loses for good: no more than the cluster can spare.

Most faults end: a crashed broker starts again. But the fault `node_loss` ends a node for good. If
too many nodes were lost, the cluster could not work any more, and the run would prove nothing. So
`draw` adds such losses only within limits, which are tested here.

A space is a file from which seeds draw experiments. Its setting `lost` is the share of its seeds
that may lose nodes. The "first members" of a group start with the run. The late members of a group
start at some time during the run.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.exploration.draw.draw import draw
from chaos.exploration.draw.losses import draw_losses, may_lose_a_broker
from chaos.targets.registry import split_target
from tests.support.builders.experiments import experiment
from tests.support.builders.packaged_spaces import packaged_space

SEEDS = 200
"""Number of seeds: enough that each possible number of losses is drawn."""


def all_losses(made: Experiment) -> Iterator[tuple[FaultDefinition, ...]]:
    """Yield the losses that each seed draws for the experiment, if every seed may lose nodes."""
    faults = msgspec.structs.replace(packaged_space("standard").faults, lost=1.0)
    for seed in range(SEEDS):
        yield draw_losses(faults, made, seed)


def roles(losses: tuple[FaultDefinition, ...]) -> list[str]:
    """Return the roles of lost nodes: "broker" for broker(1), "member" for member(readers, 0)."""
    found: list[str] = []
    for loss in losses:
        assert loss.target is not None
        target = split_target(loss.target)
        assert target is not None
        found.append(target[0])
    return found


def test_at_most_one_broker_is_lost_and_each_group_keeps_a_first_member() -> None:
    """A group must keep a member that certainly runs, because a late member may never join."""
    group = {"topics": ["orders"], "commit_interval_ms": 200}
    three_groups = experiment(
        groups={
            "readers": {"members": 3, **group},
            "alone": {"members": 1, **group},
            "late": {"members": 0, "late_members": [{"at": "1s", "members": 2}], **group},
        }
    )
    drawn = list(all_losses(three_groups))

    assert all(loss.fault == "node_loss" for losses in drawn for loss in losses)
    assert {roles(losses).count("broker") for losses in drawn} == {0, 1}
    # The group "readers" has three first members, and at most two of them are lost. The only first
    # member of "alone" must stay, and "late" has no first member.
    assert {roles(losses).count("member") for losses in drawn} == {0, 1, 2}
    targets = {loss.target or "" for losses in drawn for loss in losses}
    lost_members = {target for target in targets if "member" in target}
    assert lost_members == {f"member(readers, {index})" for index in range(3)}


@pytest.mark.parametrize(
    ("offsets_replicas", "topic_replicas", "may_lose"),
    [(3, 3, True), (2, 3, False), (3, 2, False)],
)
def test_broker_is_lost_only_if_every_partition_has_a_replica_to_spare(
    offsets_replicas: int, topic_replicas: int, may_lose: bool
) -> None:
    """min.insync.replicas is 2 here, so a partition with two replicas has none to spare."""
    made = experiment(
        cluster={
            "brokers": 3,
            "config": {
                "offsets.topic.num.partitions": 2,
                "offsets.topic.replication.factor": offsets_replicas,
                "min.insync.replicas": 2,
            },
        },
        topics={"orders": {"partitions": 2, "replication.factor": topic_replicas}},
    )

    assert may_lose_a_broker(made) is may_lose
    assert any("broker" in roles(losses) for losses in all_losses(made)) is may_lose


@pytest.mark.slow
def test_space_sets_the_share_of_seeds_that_lose_nodes() -> None:
    """The share of seeds that lose a node is roughly the share `lost` of the space.

    With a share of 0 no seed loses a node.
    """
    space = packaged_space("standard")
    losing = sum(
        any(fault.fault == "node_loss" for fault in draw(space, seed).faults)
        for seed in range(SEEDS)
    )
    # The lower bound is low, because some seeds that may lose nodes draw no loss, and some clusters
    # can spare no node. The upper bound allows for chance among 200 seeds.
    assert 0.3 * space.faults.lost < losing / SEEDS <= space.faults.lost * 1.5
    without_losses = replace(space, faults=msgspec.structs.replace(space.faults, lost=0.0))
    assert not any(
        fault.fault == "node_loss"
        for seed in range(SEEDS)
        for fault in draw(without_losses, seed).faults
    )
