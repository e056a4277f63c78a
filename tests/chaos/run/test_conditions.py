"""What a cluster lacks before it is steady, and before it is live again after the faults.

A run injects no fault before the cluster is steady, and at its end it waits until the cluster is
live again. While the run waits, it queries the status of the cluster, and lists what is missing,
such as `orders-0 has no leader`. The status in these tests comes from a FakeRuntime, which has no
nodes and reports a healthy cluster. Each test changes something in this status.

A cluster is live only if each member has committed since the faults were healed. `commits_before`
has the number of commits of each member at that time. It is empty in these tests, so commits play
no role.
"""

from dataclasses import replace

from chaos.experiment.structs import Experiment
from chaos.run.conditions import missing_for_liveness, missing_for_steady_state
from cluster.runtime import ClusterStatus, MemberStatus, NodeState, ZooKeeperStatus
from protocol.ids import NodeName, TopicPartition, zookeeper_name
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime

FIRST, SECOND = NodeName("consumer-readers-0"), NodeName("consumer-readers-1")


def status_of(runtime: FakeRuntime) -> ClusterStatus:
    """Query the status of the cluster."""

    async def query() -> ClusterStatus:
        return await runtime.status()

    return runtime.run(query())


def test_lost_member_is_not_awaited_and_any_other_dead_one_is() -> None:
    """The fault `node_loss` removes a member for good.

    A member that died in another way must return. In the status the second member is down, and its
    group has only the first member. `lost` has the nodes that a `node_loss` has removed: the second
    member, then none, then the first member.
    """
    runtime = FakeRuntime(experiment())
    runtime.nodes[SECOND] = NodeState.DOWN
    status = status_of(runtime)
    (group,) = status.groups["readers"]
    without_second = replace(group, members=group.members[:1])
    status = replace(status, groups={"readers": [without_second]})

    assert missing_for_liveness(experiment(), status, commits_before={}, lost=(SECOND,)) == []
    assert "consumer-readers-1 does not answer" in missing_for_liveness(
        experiment(), status, commits_before={}
    )
    assert "consumer-readers-1 does not answer" in missing_for_liveness(
        experiment(), status, commits_before={}, lost=(FIRST,)
    )


def test_member_that_its_group_refused_is_not_awaited() -> None:
    """A group refuses a member that supports none of the group's ways to assign partitions.

    The refused member stops with INCONSISTENT_GROUP_PROTOCOL, and need not come back. After any
    other error a member must come back.
    """
    runtime = FakeRuntime(experiment())
    status = status_of(runtime)
    (group,) = status.groups["readers"]
    for error, is_awaited in (("INCONSISTENT_GROUP_PROTOCOL", False), ("UNKNOWN_MEMBER_ID", True)):
        ended = replace(status.members[SECOND], state="UNJOINED", assigned=(), ended_by=error)
        status_with_end = replace(
            status,
            groups={"readers": [replace(group, members=group.members[:1])]},
            members={**status.members, SECOND: ended},
        )

        missing = missing_for_liveness(experiment(), status_with_end, commits_before={})

        assert ("consumer-readers-1 is UNJOINED" in missing) is is_awaited
        assert bool(missing) is is_awaited


def test_partition_of_a_deleted_topic_needs_no_leader() -> None:
    """The status lacks `orders`. This is as it should be only if a fault has deleted the topic."""
    status = status_of(FakeRuntime(experiment()))
    partitions_without_orders = {
        partition: partition_status
        for partition, partition_status in status.partitions.items()
        if partition.topic != "orders"
    }
    status = replace(status, partitions=partitions_without_orders)

    assert (
        missing_for_liveness(experiment(), status, commits_before={}, deleted_topics=("orders",))
        == []
    )
    assert "orders-0 has no leader" in missing_for_liveness(experiment(), status, commits_before={})


def test_group_that_keeps_the_id_of_a_lost_member_is_not_live() -> None:
    """The second member is lost, but its group still assigns partitions to its member id.

    This lasts until the session of the lost member ends. Until then the group has two members in
    the status, but it should have one.
    """
    status = status_of(FakeRuntime(experiment()))

    assert "group readers has 2 of 1 members" in missing_for_liveness(
        experiment(), status, commits_before={}, lost=(SECOND,)
    )


def experiment_with_late_members() -> Experiment:
    """Return an experiment with a group whose members all join during the run."""
    readers = {
        "members": 0,
        "topics": ["orders"],
        "late_members": [{"at": "1s", "members": 2}],
        "commit_interval_ms": 200,
        "config": {"enable.auto.commit": False},
    }
    return experiment(groups={"readers": readers})


def test_members_that_all_join_late_are_missed_only_at_the_end() -> None:
    """Before the late members join, there is no group, and the cluster is steady without it.

    At the end of the run, the late members must be there.
    """
    runtime = FakeRuntime(experiment_with_late_members())
    status = status_of(runtime)

    assert missing_for_steady_state(experiment_with_late_members(), status) == []
    assert "consumer-readers-0 does not answer" in missing_for_liveness(
        experiment_with_late_members(), status, commits_before={}
    )


def test_group_on_zookeeper_is_steady_when_every_partition_has_one_settled_reader() -> None:
    """ZooKeeper does not store the state of a group, so the states of its members decide.

    A member has settled if its state is STABLE. See rule ZK-27 in docs/kafka/ZOOKEEPER_CONSUMER.md.
    """
    old = {"members": 2, "topics": ["orders"], "coordination": "zookeeper"}
    on_zookeeper = experiment(groups={"old": old}, faults=[])
    status = status_of(FakeRuntime(on_zookeeper))
    names = [NodeName("consumer-old-0"), NodeName("consumer-old-1")]

    def missing_if(*assigned: tuple[int, ...], state: str = "STABLE") -> list[str]:
        """Return what is missing if the members have these partitions of orders.

        For example `missing_if((0, 1), ())`: the first member has orders-0 and orders-1, and the
        second member has no partition.
        """
        members = {
            name: MemberStatus(
                group_id="old",
                member_id=name,
                generation=-1,  # a group on ZooKeeper has no generation and no coordinator
                state=state,
                coordinator=None,
                assigned=tuple(TopicPartition("orders", index) for index in partitions),
                records_consumed=0,
                commits_acknowledged=0,
            )
            for name, partitions in zip(names, assigned, strict=True)
        }
        server = ZooKeeperStatus(state="LEADING", is_serving=True, epoch=1, zxid=1, sessions=2)
        answered = replace(status, members=members, zookeepers={zookeeper_name(1): server})
        return missing_for_steady_state(on_zookeeper, answered)

    assert missing_if((0,), (1,)) == []
    assert missing_if((0,), ()) == ["0 members of old read orders-1"]
    assert missing_if((0, 1), (1,)) == ["2 members of old read orders-1"]
    assert missing_if((0,), (1,), state="REBALANCING") == [
        "consumer-old-0 is REBALANCING",
        "consumer-old-1 is REBALANCING",
    ]
    # In the status of the FakeRuntime the ZooKeeper server has not answered.
    assert "zookeeper-1 does not serve" in missing_for_steady_state(on_zookeeper, status)
