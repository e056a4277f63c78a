"""Faults of leadership: the leaders before and after, and impossible moves.

`Injecting(fault)` injects and heals (undoes) the faults of a small experiment on a runtime without
nodes. `run.runtime.acts` has each call that changes the cluster, as text. Broker 0 leads every
partition, with the replicas 0, 1 and 2 in sync, unless `run.runtime.partitions` says otherwise. The
preferred leader of a partition is the first of its replicas. The coordinator of a group is the
broker that leads its partition of `__consumer_offsets`. A miss is a fault that hit nothing.
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
    return {"at": "1s", "fault": "leadership_move", "target": target, "args": args}


def elect(target: str) -> dict[str, Any]:
    return {"at": "1s", "fault": "preferred_leader_election", "target": target}


def led_by(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionStatus:
    """Return the status of a partition; the preferred leader is the first of `replicas`."""
    return PartitionStatus(
        leader=BrokerId(leader),
        leader_epoch=0,
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
    )


def test_leadership_moves_to_the_next_in_sync_replica_that_is_up() -> None:
    """The first such replica after the leader is chosen, so that a plan always means the same.

    The replicas are 0, 1 and 2. After leader 1 comes 2, which is paused, and then 0.
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
    """The fault's argument is `to: broker(2)`."""
    run = Injecting(move(to="broker(2)"))

    run.inject()

    assert run.runtime.acts == ["move_leader __consumer_offsets-0 2"]


def test_moved_leadership_is_momentary_and_affects_only_its_partition() -> None:
    """The move excuses a rebalance of readers only, not of another group of the same broker.

    The fault is done when the leadership has moved, so nothing is in force, and healing does
    nothing.
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
)
def test_leadership_that_cannot_move_is_a_miss(
    status: PartitionStatus, to: int | None, reason: str
) -> None:
    """The injector knows this from the status, so it sends no request.

    `to` is the broker that the file names as the next leader; None: it names none.
    """
    args = {} if to is None else {"to": f"broker({to})"}
    run = Injecting(move("leader-of(orders-1)", **args))
    run.runtime.partitions[TopicPartition("orders", 1)] = status

    entry = run.inject()

    assert (entry.outcome, entry.error) == (FaultOutcome.MISSED, reason)
    assert run.runtime.acts == []


@pytest.mark.parametrize("fault", [move("leader-of(orders-1)"), elect("all-topic-partitions")])
def test_election_without_a_controller_is_a_miss_at_once(fault: dict[str, Any]) -> None:
    """The injector reads this from the status, so it waits for no timeout."""
    run = Injecting(fault)
    run.runtime.controller = None

    assert run.inject().error == "no controller answers, and only it elects leaders"
    assert run.runtime.acts == []


@pytest.mark.parametrize("error", [ElectionFailed("orders-1: X"), TimeoutError("no answer")])
def test_election_that_the_cluster_refuses_is_a_miss(error: Exception) -> None:
    """The leadership may have moved just before the request, or no controller may answer.

    Neither is a failure of the tool.
    """
    run = Injecting(move())
    run.runtime.admin_answer = error

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert str(error) in (entry.error or "")


def test_preferred_election_of_all_names_every_leadership_that_moves() -> None:
    """A partition is not hit if its preferred leader leads already, here `__consumer_offsets-0`."""
    run = Injecting(elect("all-topic-partitions"))
    run.runtime.partitions[TopicPartition("orders", 0)] = led_by(
        leader=0, replicas=(2, 0, 1), isr=(0, 1, 2)
    )
    run.runtime.partitions[TopicPartition("orders", 1)] = led_by(
        leader=2, replicas=(1, 2, 0), isr=(2, 1)
    )

    entry = run.inject()

    assert run.runtime.acts == ["elect_preferred_leaders None"]  # None: of all partitions
    assert entry.hit == "orders-0: 0 to 2, orders-1: 2 to 1"
    assert entry.nodes == ("broker-0", "broker-2")
    assert entry.blast_radius.partitions == ("orders-0", "orders-1")
    assert entry.blast_radius.groups == ()


def test_preferred_election_of_one_partition_requests_that_one() -> None:
    """`leader-of(orders-0)` names the partition orders-0."""
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
    """Kafka would answer ELECTION_NOT_NEEDED. A run whose fault hits nothing proves nothing."""
    run = Injecting(elect(target))

    assert reason in (run.inject().error or "")
    assert run.runtime.acts == []
