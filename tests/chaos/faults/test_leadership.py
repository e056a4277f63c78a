"""Faults that move the leadership of a partition to another broker.

The fault `leadership_move` moves the leadership to a broker that the experiment file names, or else
to the next broker that can lead. The fault `preferred_leader_election` moves the leadership to the
preferred leader, which is the first of the partition's replicas.

The tests need no cluster. `Injecting(fault)` injects the fault into a runtime without nodes. There
broker 0 leads every partition, and the replicas 0, 1 and 2 are in sync. A test that needs something
else changes `run.runtime.partitions`. `run.runtime.acts` lists what the fault did to the cluster,
as text: "move_leader orders-1 0".

A fault that finds nothing to hit is called a miss.
"""

from typing import Any

import pytest

from cluster.client.admin.orders import ElectionFailed
from cluster.runtime import NodeState, PartitionStatus
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome, LeaderMove
from tests.support.builders.injecting import Injecting


def move(target: str = "coordinator-of(readers)", **args: str) -> dict[str, Any]:
    """Return a fault that moves the leadership of the target's partition."""
    return {"at": "1s", "fault": "leadership_move", "target": target, "args": args}


def elect(target: str) -> dict[str, Any]:
    """Return a fault that elects the preferred leader of each partition of the target."""
    return {"at": "1s", "fault": "preferred_leader_election", "target": target}


def led_by(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionStatus:
    """Return the status of a partition. The preferred leader is the first of `replicas`."""
    return PartitionStatus(
        leader=BrokerId(leader),
        leader_epoch=0,
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
    )


def test_leadership_moves_to_the_next_in_sync_replica_that_is_up() -> None:
    """The injector goes through the replicas 0, 1 and 2 in a circle, and begins after the leader.

    The leader is 1. The next replica is 2, which is paused. So replica 0 is chosen. Nothing is
    drawn at random, so that a plan always means the same.
    """
    run = Injecting(move("leader-of(orders-1)"))
    run.runtime.partitions[TopicPartition("orders", 1)] = led_by(
        leader=1, replicas=(0, 1, 2), isr=(0, 1, 2)
    )
    run.runtime.nodes[broker_name(2)] = NodeState.PAUSED

    entry = run.inject()

    assert run.runtime.acts == ["move_leader orders-1 0"]
    assert entry.moves == (LeaderMove(partition="orders-1", from_broker=1, to_broker=0),)
    assert entry.hit == "orders-1: 1 to 0"


def test_leadership_moves_to_the_replica_of_the_file() -> None:
    """The file asks for broker 2.

    Without its `to` the next replica, on broker 1, would be chosen.
    """
    run = Injecting(move(to="broker(2)"))

    run.inject()

    assert run.runtime.acts == ["move_leader __consumer_offsets-0 2"]


def test_moved_leadership_is_momentary_and_affects_only_its_partition() -> None:
    """The fault is over as soon as the leadership has moved, so there is nothing to heal.

    If a fault names a group, checkers may excuse a rebalance of this group. So `groups` has only
    the group whose partition moved, and no other group that broker-0 coordinates.
    """
    run = Injecting(move())

    entry = run.inject()
    run.heal_everything()

    assert entry.outcome is FaultOutcome.HIT
    assert not entry.in_force
    assert (entry.in_force_from_us, entry.healed_at_us) == (None, None)
    assert [kind for kind, _, _ in run.traced()] == [TraceKind.FAULT_INJECTED]
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert detail == {
        "fault": "leadership_move",
        "target": "coordinator-of(readers)",
        "nodes": ["broker-0"],
        "from": ["broker-0"],
        "to": ["broker-1"],
        "groups": ["readers"],
        "partitions": ["__consumer_offsets-0"],
        "members_survive": True,
        "momentary": True,
    }


@pytest.mark.parametrize(
    ("status", "to", "reason"),
    [
        (
            led_by(leader=0, replicas=(0, 1, 2), isr=(0,)),
            None,
            "orders-1 has no in-sync follower that is up",
        ),
        (
            led_by(leader=0, replicas=(0, 1, 2), isr=(0, 1)),
            2,
            "broker 2 is not in sync with the leader of orders-1",
        ),
        (led_by(leader=1, replicas=(0, 1, 2), isr=(0, 1)), 1, "broker 1 leads orders-1 already"),
        (led_by(leader=0, replicas=(0, 1), isr=(0, 1)), 2, "broker 2 holds no replica of orders-1"),
    ],
    ids=["no follower in sync", "not in sync", "leads already", "no replica"],
)
def test_leadership_that_cannot_move_is_a_miss(
    status: PartitionStatus, to: int | None, reason: str
) -> None:
    """The injector sees in the status of the partition that nothing can move, and sends no request.

    `to` is the broker that the file asks for. If it is None, the injector would choose the broker.
    """
    if to is None:
        fault = move("leader-of(orders-1)")
    else:
        fault = move("leader-of(orders-1)", to=f"broker({to})")
    run = Injecting(fault)
    run.runtime.partitions[TopicPartition("orders", 1)] = status

    entry = run.inject()

    assert (entry.outcome, entry.error) == (FaultOutcome.MISSED, reason)
    assert run.runtime.acts == []


@pytest.mark.parametrize("fault", [move("leader-of(orders-1)"), elect("all-topic-partitions")])
def test_election_without_a_controller_is_a_miss_at_once(fault: dict[str, Any]) -> None:
    """The injector sees that there is no controller, so it need not wait for a timeout."""
    run = Injecting(fault)
    run.runtime.controller = None

    assert run.inject().error == "no controller answers, and only it elects leaders"
    assert run.runtime.acts == []


@pytest.mark.parametrize("error", [ElectionFailed("orders-1: X"), TimeoutError("no answer")])
def test_election_that_the_cluster_refuses_is_a_miss(error: Exception) -> None:
    """The cluster may refuse because the leadership moved just before, or it may not answer.

    In both cases the lab itself has not failed, so the outcome is MISSED and not FAILED.
    """
    run = Injecting(move())
    run.runtime.admin_answer = error

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert str(error) in (entry.error or "")


def test_preferred_election_of_all_names_every_leadership_that_moves() -> None:
    """The first of the replicas is the preferred leader: 2 for orders-0, and 1 for orders-1.

    Before the fault, orders-0 is led by 0, and orders-1 by 2. So the fault hits both partitions.
    The partitions of `__consumer_offsets` have their preferred leaders already.
    """
    run = Injecting(elect("all-topic-partitions"))
    run.runtime.partitions[TopicPartition("orders", 0)] = led_by(
        leader=0, replicas=(2, 0, 1), isr=(0, 1, 2)
    )
    run.runtime.partitions[TopicPartition("orders", 1)] = led_by(
        leader=2, replicas=(1, 2, 0), isr=(2, 1)
    )

    entry = run.inject()

    # "None" instead of a list of partitions stands for all of them.
    assert run.runtime.acts == ["elect_preferred_leaders None"]
    assert entry.hit == "orders-0: 0 to 2, orders-1: 2 to 1"
    assert entry.nodes == ("broker-0", "broker-2")  # the old leaders
    assert entry.blast_radius.partitions == ("orders-0", "orders-1")
    assert entry.blast_radius.groups == ()


def test_preferred_election_of_one_partition_requests_that_one() -> None:
    """With the target `leader-of(orders-0)` the request names only orders-0."""
    run = Injecting(elect("leader-of(orders-0)"))
    run.runtime.partitions[TopicPartition("orders", 0)] = led_by(
        leader=0, replicas=(2, 0, 1), isr=(0, 1, 2)
    )

    run.inject()

    assert run.runtime.acts == ["elect_preferred_leaders orders-0"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("coordinator-of(readers)", "broker 0 leads __consumer_offsets-0 already"),
        (
            "all-topic-partitions",
            "no partition has a preferred leader that could lead and does not",
        ),
    ],
)
def test_preferred_election_with_nothing_to_elect_is_a_miss(target: str, reason: str) -> None:
    """No request is sent, because Kafka would only answer ELECTION_NOT_NEEDED."""
    run = Injecting(elect(target))

    assert reason in (run.inject().error or "")
    assert run.runtime.acts == []
