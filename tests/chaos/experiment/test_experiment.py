"""From an experiment file the lab makes the specification of a cluster and a plan of faults.

The specification says which nodes and topics the cluster has. The plan says when each fault begins
and ends. Most tests use a small experiment, `experiment()`: three brokers, the topic orders with
two partitions, `__consumer_offsets` with two partitions, and the group readers with two members.
"""

import pytest

from chaos.experiment.structs import microseconds, to_cluster_spec
from chaos.run.plan import acts_of, plan_of
from cluster.spec import CostModel
from protocol.config import JavaSwitches
from protocol.partitioner import partition_for
from tests.support.builders.experiments import experiment


@pytest.mark.parametrize(
    ("text", "us"),
    [("0s", 0), ("250ms", 250_000), ("5s", 5_000_000), ("2m", 120_000_000), ("7us", 7)],
)
def test_duration_is_read_in_microseconds(text: str, us: int) -> None:
    """A duration in a file is a whole number with a unit. The code uses microseconds everywhere."""
    assert microseconds(text) == us


@pytest.mark.parametrize("text", ["", "5", "5 s", "-5s", "1.5s", "5s\n", "5S"])
def test_duration_in_another_form_is_refused(text: str) -> None:
    """A number without a unit would be ambiguous. The other forms are probably typing errors."""
    with pytest.raises(ValueError, match="not a duration"):
        microseconds(text)


def test_cluster_has_the_offsets_topic_and_equal_members() -> None:
    """The file does not list `__consumer_offsets`, but the cluster has this topic, as in Kafka.

    Its numbers come from the settings of the brokers (offsets.topic...), and it is compacted.
    """
    spec = to_cluster_spec(experiment())

    offsets, orders = spec.topics
    assert (offsets.name, offsets.partitions, offsets.replication_factor) == (
        "__consumer_offsets",
        2,
        3,
    )
    assert offsets.config.cleanup_policy == "compact"
    assert orders.partitions == 2
    assert [consumer.name for consumer in spec.consumers] == [
        "consumer-readers-0",
        "consumer-readers-1",
    ]
    # Ids of controllers begin at 100, so that no broker has the same id.
    assert spec.controllers[0].name == "controller-100"


def test_cluster_with_transactions_has_their_topic() -> None:
    """A group with transactions needs `__transaction_state`, so the cluster has this topic, too.

    Its numbers come from the settings of the brokers (transaction.state.log...). Its three replicas
    are Kafka's default.
    """
    spec = to_cluster_spec(
        experiment(
            cluster={
                "brokers": 3,
                "config": {
                    "offsets.topic.num.partitions": 2,
                    "transaction.state.log.num.partitions": 5,
                    "transaction.state.log.min.isr": 1,
                },
            },
            groups={
                "readers": {
                    "members": 1,
                    "topics": ["orders"],
                    "commit_interval_ms": 200,
                    "transactional": True,
                    "transaction_timeout_ms": 9_000,
                    "config": {"enable.auto.commit": False},
                }
            },
        )
    )

    (topic,) = (topic for topic in spec.topics if topic.name == "__transaction_state")
    assert (topic.partitions, topic.replication_factor) == (5, 3)
    assert (topic.config.cleanup_policy, topic.config.min_insync_replicas) == ("compact", 1)
    (consumer,) = spec.consumers
    assert (consumer.transactional, consumer.transaction_timeout_ms) == (True, 9_000)


def test_costs_and_java_switches_are_passed_to_the_cluster() -> None:
    """An experiment can change how the lab's coordinator works, in two ways.

    - Costs say how long the coordinator's work takes in virtual time. The cost in this test is that
      of reading one record when a group is loaded.
    - Kafka has an older coordinator in Scala and a newer one in Java. The lab's coordinator behaves
      like the Scala coordinator. A Java switch gives the lab's coordinator one trait of the Java
      coordinator. The switch in this test makes it refuse the groups of a partition whose load has
      failed.
    """
    spec = to_cluster_spec(
        experiment(
            cluster={
                "brokers": 3,
                "config": {"offsets.topic.num.partitions": 2},
                "costs": {"load_ns_per_record": 1_200},
                "java_coordinator": {"failed_load_refuses": True},
            }
        )
    )
    assert spec.costs == CostModel(load_ns_per_record=1_200)
    assert spec.java == JavaSwitches(failed_load_refuses=True)
    assert to_cluster_spec(experiment()).costs == CostModel()


def test_preloaded_log_is_in_the_groups_own_partition() -> None:
    """`offsets_log` puts old commits of a group into `__consumer_offsets` before the run.

    The old commits make a failover slow, because the next coordinator must read all of them. So the
    old commits must be in the partition of this group. With `unreadable` the coordinator fails to
    read the partition, which an experiment may want to show.
    """
    preload = {"group": "readers", "commit_records": 1_000, "unreadable": True}
    spec = to_cluster_spec(experiment(offsets_log=[preload]))

    (log,) = spec.preload
    offsets_partitions = 2
    assert log.partition == partition_for("readers", offsets_partitions)
    assert (log.commit_records, log.unreadable) == (1_000, True)


def test_plan_is_in_time_order_with_ends_before_beginnings() -> None:
    """The second fault of the file, crash-1, begins at 3 s and ends at 8 s. crash-0 begins at 8 s.

    At 8 s the end comes first: broker-0 returns, and then broker-1 crashes. In the other order both
    brokers would be down for a moment.
    """
    plan = plan_of(
        experiment(
            faults=[
                {"at": "8s", "fault": "crash", "target": "broker(1)"},
                {"at": "3s", "fault": "crash", "target": "broker(0)", "duration": "5s"},
            ]
        )
    )

    # The plan is carried out as a list of acts. An act begins a fault, or heals it.
    acts = [
        (act.at_us // 1_000_000, act.planned.fault_id, "heal" if act.heals else "begin")
        for act in acts_of(plan)
    ]
    assert acts == [(3, "crash-1", "begin"), (8, "crash-1", "heal"), (8, "crash-0", "begin")]
