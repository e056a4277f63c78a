"""Targets: a fault names what it hits by a role, such as `coordinator-of(readers)`.

When the fault is injected, the run reads the status of the cluster, and resolves the target. The
result is a Hit with the nodes that have the role. If no node has the role at this time, the result
is a Miss with a reason. A target that can never exist is refused when the experiment file is read.

The tests get the status from a FakeRuntime, which has no nodes. It reports a healthy cluster with
the brokers 0 to 2, the topic `orders` with two partitions, and the group `readers` with two
members. `runtime.leader` is the broker that leads all partitions, by default broker-0. A test gives
another status of single partitions in `runtime.partitions`.
"""

from dataclasses import replace

import pytest

from chaos.experiment.structs import Experiment
from chaos.run.blast_radius import blast_radius_of
from chaos.targets.base import Hit, Miss, Situation
from chaos.targets.registry import TARGET_KINDS, check_target, resolve_target
from cluster.host.randomness import stream
from cluster.runtime import ClusterStatus, NodeState, PartitionStatus, ZooKeeperStatus
from protocol.ids import BrokerId, NodeName, TopicPartition, broker_name, zookeeper_name
from results_schema.journal import BlastRadius
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime


async def _status(runtime: FakeRuntime) -> ClusterStatus:
    return await runtime.status()


def situation_of(runtime: FakeRuntime, *, seed: int = 0) -> Situation:
    """Return what is needed to resolve a target: the experiment, the status, and random numbers."""
    return Situation(
        experiment=runtime.experiment,
        status=runtime.run(_status(runtime)),
        rng=stream(seed, "target", "crash-0"),  # for the target of the fault crash-0
    )


def hit(target: str, runtime: FakeRuntime) -> Hit:
    """Resolve a target that must be hit."""
    resolved = resolve_target(target, situation_of(runtime))
    assert isinstance(resolved, Hit), resolved
    return resolved


def miss(target: str, runtime: FakeRuntime) -> str:
    """Resolve a target that must be missed, and return the reason."""
    resolved = resolve_target(target, situation_of(runtime))
    assert isinstance(resolved, Miss), resolved
    return resolved.reason


def led_by(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionStatus:
    """Return the status of a partition in leader epoch 4."""
    return PartitionStatus(
        leader=BrokerId(leader),
        leader_epoch=4,
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
    )


def with_late_members() -> Experiment:
    """Return an experiment whose group has two members, and two that start at 3 s."""
    return experiment(
        groups={
            "readers": {
                "members": 2,
                "topics": ["orders"],
                "late_members": [{"at": "3s", "members": 2}],
            }
        },
        producers=[{"topic": "orders", "records_per_second": 1}],
    )


def test_coordinator_of_is_the_leader_of_the_groups_offsets_partition() -> None:
    """The detail of the hit says in `loaded_by` which brokers have the group in memory."""
    runtime = FakeRuntime(experiment())
    runtime.leader = BrokerId(1)

    coordinator = hit("coordinator-of(readers)", runtime)

    assert coordinator.nodes == ("broker-1",)
    assert [partition.topic for partition in coordinator.partitions] == ["__consumer_offsets"]
    assert coordinator.detail["loaded_by"] == [1]


def test_coordinator_during_a_leadership_move_is_the_controllers_choice() -> None:
    """The old leader, broker-0, still has the group in memory.

    But the new leader, broker-1, is hit.
    """
    runtime = FakeRuntime(experiment())
    status_before_move = situation_of(runtime).status
    runtime.leader = BrokerId(1)
    after_move = situation_of(runtime)
    # The partition has its new leader, but the group is still in the memory of the old leader.
    during_move = replace(after_move.status, groups=status_before_move.groups)

    coordinator = resolve_target("coordinator-of(readers)", replace(after_move, status=during_move))

    assert isinstance(coordinator, Hit)
    assert coordinator.nodes == ("broker-1",)
    assert coordinator.detail["loaded_by"] == [0]


def test_leader_of_is_the_partitions_own_leader() -> None:
    """broker-2 leads orders-1, while broker-0 leads the partitions of `__consumer_offsets`."""
    runtime = FakeRuntime(experiment())
    runtime.partitions[TopicPartition("orders", 1)] = led_by(
        leader=2, replicas=(1, 2, 0), isr=(2, 0)
    )

    leader = hit("leader-of(orders-1)", runtime)

    assert leader.nodes == ("broker-2",)
    assert leader.detail == {"partition": "orders-1", "leader_epoch": 4}
    assert hit("leader-of(__consumer_offsets-1)", runtime).nodes == ("broker-0",)


@pytest.mark.parametrize(
    ("isr", "down", "follower"),
    [
        # The replicas are 1, 2, 0, and 2 is the leader. So broker-0 is next.
        ((2, 1, 0), (), "broker-0"),
        ((2, 1), (), "broker-1"),
        ((2, 1, 0), (0,), "broker-1"),
    ],
)
def test_follower_of_is_the_next_in_sync_replica_that_is_up(
    isr: tuple[int, ...], down: tuple[int, ...], follower: str
) -> None:
    """From the leader on, the replicas are tried in their order, until a replica is in sync and up.

    The order of the ISR may differ from run to run, so it does not matter. A plan must always mean
    the same.
    """
    runtime = FakeRuntime(experiment())
    runtime.partitions[TopicPartition("orders", 1)] = led_by(leader=2, replicas=(1, 2, 0), isr=isr)
    for broker in down:
        runtime.nodes[broker_name(broker)] = NodeState.DOWN

    assert hit("follower-of(orders-1)", runtime).nodes == (follower,)


def test_follower_of_a_leader_alone_is_a_miss() -> None:
    """The leader is the only replica in sync, so there is no follower in sync."""
    runtime = FakeRuntime(experiment())
    runtime.partitions[TopicPartition("orders", 1)] = led_by(leader=2, replicas=(1, 2, 0), isr=(2,))

    assert miss("follower-of(orders-1)", runtime) == "orders-1 has no in-sync follower that is up"


@pytest.mark.parametrize("target", ["coordinator-of(readers)", "leader-of(orders-0)"])
def test_partition_without_leader_is_a_miss(target: str) -> None:
    """In the status, the leader -1 means that no broker leads the partition."""
    runtime = FakeRuntime(experiment())
    runtime.leader = BrokerId(-1)

    assert "has no leader" in miss(target, runtime)


def test_any_broker_is_drawn_by_the_seed_among_those_that_are_up() -> None:
    """A seed always draws the same broker. Many seeds together draw each broker that is up.

    broker-1 is paused, so it is never drawn.
    """
    runtime = FakeRuntime(experiment())
    runtime.nodes[broker_name(1)] = NodeState.PAUSED

    def draw(seed: int) -> NodeName:
        resolved = resolve_target("any-broker", situation_of(runtime, seed=seed))
        assert isinstance(resolved, Hit)
        return resolved.nodes[0]

    drawn = [draw(seed) for seed in range(40)]

    assert drawn == [draw(seed) for seed in range(40)]
    assert sorted(set(drawn)) == ["broker-0", "broker-2"]


def test_any_broker_with_none_up_is_a_miss() -> None:
    """All three brokers are down, so there is no process that could be hit."""
    runtime = FakeRuntime(experiment())
    for broker in range(3):
        runtime.nodes[broker_name(broker)] = NodeState.DOWN

    assert miss("any-broker", runtime) == "no broker is up"


def test_controller_is_the_active_or_the_only_one() -> None:
    """If a cluster has several controllers, the active controller is hit.

    A stopped controller does not report that it is active. A fault hits a stopped controller
    nevertheless if the cluster has no other controller, as here.
    """
    runtime = FakeRuntime(experiment())

    assert hit("controller", runtime).nodes == ("controller-100",)
    runtime.controller = None
    assert hit("controller", runtime).nodes == ("controller-100",)


def test_leader_member_is_found_by_its_member_id() -> None:
    """The status of a group has the member id of its leader.

    The status of the members says which node has this member id.
    """
    runtime = FakeRuntime(experiment())
    runtime.group_leader = "id-of-consumer-readers-1"

    assert hit("leader-member-of(readers)", runtime).nodes == ("consumer-readers-1",)


def test_leader_member_that_does_not_answer_is_a_miss() -> None:
    """A killed member remains leader of the group until its session ends.

    By default consumer-readers-0 is the leader.
    """
    runtime = FakeRuntime(experiment())
    runtime.nodes[NodeName("consumer-readers-0")] = NodeState.DOWN

    assert "no member that answers is id-of-consumer-readers-0" in miss(
        "leader-member-of(readers)", runtime
    )


@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        ("member(readers, 3)", ["consumer-readers-3"]),
        ("members(readers)", [f"consumer-readers-{index}" for index in range(4)]),
        ("clients", [*(f"consumer-readers-{index}" for index in range(4)), "producer-0"]),
        ("brokers", ["broker-0", "broker-1", "broker-2"]),
    ],
)
def test_sets_include_late_members_and_dead_brokers(target: str, nodes: list[str]) -> None:
    """A cut may name a set of nodes. The cut must also affect the nodes that start while it lasts.

    So the set includes the members 2 and 3, which start during the run, and broker-1, which is
    down.
    """
    runtime = FakeRuntime(with_late_members())
    runtime.nodes[broker_name(1)] = NodeState.DOWN

    assert list(hit(target, runtime).nodes) == nodes


@pytest.mark.parametrize(
    "target",
    [
        "coordinator-of(readers)",
        " coordinator-of( readers ) ",
        "member(readers,0)",
        "member( readers , 1 )",
        "leader-of(__consumer_offsets-1)",
        "any-broker",
        "any-broker()",
        "all-topic-partitions",
    ],
)
def test_spaces_in_a_target_make_no_difference(target: str) -> None:
    """Users write targets with and without spaces."""
    assert check_target(target, experiment()) is None


@pytest.mark.parametrize(
    ("target", "message", "near_miss"),
    [
        ("", "is no target", None),
        ("readers", "unknown target `readers`", "coordinator-of(readers)"),
        ("coordinator-of", "names no group", "coordinator-of(readers)"),
        ("leader-of()", "names no partition", None),
        ("member()", "names no member", None),
        ("broker", "names no broker", None),
        # \u0661 is the Arabic digit 1, which Python's int() would accept.
        ("broker(\u0661)", "there is no broker `\u0661`", None),
        ("broker(-1)", "there is no broker `-1`", None),
        ("broker(1)x", "is no target", None),
        ("leader-of(order-1)", "no topic `order` is defined", "leader-of(orders-1)"),
        ("leader-of(orders-2)", "there is no partition orders-2", None),
        ("leader-of(orders)", "`orders` is no partition", "leader-of(orders-0)"),
        ("follower-of(orders-x)", "`orders-x` is no partition", "follower-of(orders-0)"),
        ("member(readers)", "`readers` is no member", "member(readers, 0)"),
        ("member(reader, 1)", "no group `reader` is defined", "member(readers, 1)"),
        ("member(readers, 2)", "group `readers` has no member 2", None),
        ("leader-member-of(reader)", "no group `reader`", "leader-member-of(readers)"),
        ("controller(0)", "`controller` takes no argument", "controller"),
        ("anybroker", "unknown target `anybroker`", "any-broker"),
        ("broker-1", "is no target", "broker(1)"),
        ("broker 1", "is no target", "broker(1)"),
        ("broker-3", "is no target", None),
        ("controller-100", "is no target", "controller"),
        ("consumer-readers-1", "is no target", "member(readers, 1)"),
        ("controler", "unknown target `controler`", "controller"),
    ],
)
def test_target_that_can_never_exist_is_unknown_with_a_near_miss(
    target: str, message: str, near_miss: str | None
) -> None:
    """The file is refused before the run starts.

    `near_miss` is the target that was probably meant, or None.
    """
    unknown = check_target(target, experiment())

    assert unknown is not None
    assert message in unknown.message
    assert unknown.near_miss == near_miss


def test_follower_of_a_partition_with_one_replica_can_never_exist() -> None:
    """A single replica is always the leader, so the file is refused before the start."""
    topics = {"orders": {"partitions": 2, "replication.factor": 1}}
    unknown = check_target("follower-of(orders-0)", experiment(topics=topics))

    assert unknown is not None
    assert "a single replica" in unknown.message


def test_topic_of_transactions_is_a_target_only_with_transactions() -> None:
    """The leader of a partition of `__transaction_state` coordinates transactions.

    The topic exists only if a group of the experiment uses transactions.
    """
    target = "leader-of(__transaction_state-0)"
    group = {
        "members": 1,
        "topics": ["orders"],
        "commit_interval_ms": 200,
        "transactional": True,
    }

    assert check_target(target, experiment(groups={"readers": group})) is None
    assert check_target(target, experiment()) is not None


def groups_of_both_kinds() -> dict[str, object]:
    """Return a group with a coordinator, and one on ZooKeeper."""
    return {
        "readers": {"members": 2, "topics": ["orders"]},
        "old": {"members": 2, "topics": ["orders"], "coordination": "zookeeper"},
    }


def test_target_of_zookeeper_needs_an_ensemble_and_its_number() -> None:
    """There is an ensemble only if a group is on ZooKeeper.

    The numbers of its servers begin at 1.
    """
    both = experiment(groups=groups_of_both_kinds())

    assert check_target("zookeeper(1)", experiment()) is not None
    assert check_target("zookeeper(1)", both) is None
    assert check_target("zookeeper(0)", both) is not None
    assert check_target("zookeeper(2)", both) is not None
    assert check_target("zookeeper-leader", experiment()) is not None
    assert check_target("zookeepers(1)", both) is not None


def test_group_on_zookeeper_has_no_coordinator_and_no_leader() -> None:
    """ZK-27: no znode holds the group's assignment, a generation, or a leader.

    So no node has these roles. The rules are those of docs/kafka/ZOOKEEPER_CONSUMER.md.
    """
    both = experiment(groups=groups_of_both_kinds())

    for role in ("coordinator-of", "leader-member-of"):
        assert check_target(f"{role}(readers)", both) is None
        unknown = check_target(f"{role}(old)", both)
        assert unknown is not None
        assert "group `old` has no coordinator" in unknown.message


def test_leader_of_the_ensemble_is_that_of_the_newest_epoch() -> None:
    """Two servers say that they lead, because an old leader may not know yet of the new leader."""
    runtime = FakeRuntime(experiment(groups=groups_of_both_kinds()))
    situation = situation_of(runtime)
    # zookeeper-1 leads in epoch 3, and zookeeper-2 still in epoch 2.
    for number, epoch in ((1, 3), (2, 2)):
        # The upper 32 bits of a zxid are the epoch.
        situation.status.zookeepers[zookeeper_name(number)] = ZooKeeperStatus(
            state="LEADING", is_serving=True, epoch=epoch, zxid=epoch << 32, sessions=0
        )

    leader = resolve_target("zookeeper-leader", situation)

    assert isinstance(leader, Hit)
    assert leader.nodes == (zookeeper_name(1),)


def test_every_target_kind_is_read_back_from_its_own_syntax() -> None:
    """The documentation shows the syntax of each kind of target. An example of it must be valid."""
    both = experiment(groups=groups_of_both_kinds(), cluster={"brokers": 3, "machines": 2})
    for kind in TARGET_KINDS.values():
        example = kind.syntax.replace("<number>", "1").replace("<target>", "broker(0)")
        example = example.replace("<group>", "readers").replace("<topic-partition>", "orders-0")
        example = example.replace("<id>", "1").replace("<index>", "1")
        assert check_target(example, both) is None, example
        resolve_target(example, situation_of(FakeRuntime(both)))


def test_blast_radius_of_a_broker_has_its_leaderships_and_groups() -> None:
    """The blast radius of a fault is the groups and partitions that it affects.

    Here broker-0 leads all partitions. broker-2 leads no partition, so its loss affects nothing.
    """
    runtime = FakeRuntime(experiment())
    situation = situation_of(runtime)

    def radius(*nodes: int) -> BlastRadius:
        names = [broker_name(node) for node in nodes]
        return blast_radius_of(names, runtime.experiment, situation.status)

    assert radius(0).groups == ("readers",)
    assert "orders-0" in radius(0).partitions
    assert radius(2) == BlastRadius()
    assert radius(0, 2) == radius(0)


def test_blast_radius_of_a_member_is_its_group_and_its_partitions() -> None:
    """The answer of a member lists its partitions. A paused member does not answer.

    Then the partitions of the member are unknown, but its group is still known.
    """
    runtime = FakeRuntime(experiment())
    member = NodeName("consumer-readers-1")

    def radius() -> BlastRadius:
        return blast_radius_of((member,), runtime.experiment, situation_of(runtime).status)

    assert radius() == BlastRadius(groups=("readers",), partitions=("orders-1",))
    runtime.nodes[member] = NodeState.PAUSED
    assert radius() == BlastRadius(groups=("readers",))


def test_targets_of_kafka_clients_are_those_connected_now() -> None:
    """Kafka clients are other programs, which connect during the run.

    The author of the file cannot know the ids of such clients. So an unknown id is a miss, and no
    error of the file.
    """
    runtime = FakeRuntime(experiment())
    assert miss("kafka-clients", runtime) == "no Kafka client is connected"
    assert miss("kafka-client(pay)", runtime) == "client:pay has no connection; connected: none"

    # Two clients connect. The numbers are those of their connections.
    situation = situation_of(runtime)
    situation.status.kafka_clients.update({NodeName("client:pay"): 2, NodeName("client:b"): 1})
    assert resolve_target("kafka-client(pay)", situation) == Hit(
        nodes=(NodeName("client:pay"),), detail={"connections": 2}
    )
    assert resolve_target("kafka-clients", situation) == Hit(
        nodes=(NodeName("client:pay"), NodeName("client:b"))
    )

    # A target without an id can never be hit.
    unknown = check_target("kafka-client", runtime.experiment)
    assert unknown is not None
    assert unknown.message == "names no client id"
