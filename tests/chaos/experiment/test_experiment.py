"""An experiment file is translated to the specification of a cluster and to a plan of its faults.

A runtime (simulated in virtual time, or real processes on Ray) builds the cluster from the
specification. The plan has the times at which faults begin and end. `experiment()` has three
brokers, an offsets topic with two partitions, the topic orders with two partitions, and the group
readers with two members.
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
    """The code has one unit of time; a file has a whole number and a unit."""
    assert microseconds(text) == us


@pytest.mark.parametrize("text", ["", "5", "5 s", "-5s", "1.5s", "5s\n", "5S"])
def test_duration_in_another_form_is_refused(text: str) -> None:
    """A number without a unit would be ambiguous; the other forms have no use."""
    with pytest.raises(ValueError, match="not a duration"):
        microseconds(text)


def test_cluster_has_the_offsets_topic_and_equal_members() -> None:
    """The file does not list `__consumer_offsets`; the topic's settings are those of the brokers.

    As in Kafka, the topic is compacted.
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
    """`__transaction_state` comes from the brokers' settings, and the members are transactional."""
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
    """Costs are simulated times of the coordinator's work, here of loading a group's records.

    Kafka has two group coordinators, written in Scala and in Java. The lab's coordinator behaves
    like the Scala one; each Java switch gives it one trait of the Java one. With the switch of this
    test the lab's coordinator refuses the groups of a partition whose load has failed.
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
    """`offsets_log` puts records of commits into `__consumer_offsets` before the run.

    The records are to make a failover slow, so they must be in the partition that the group's
    coordinator loads (reads into memory). With `unreadable` the load fails; experiments need this
    failure, too.
    """
    preload = {"group": "readers", "commit_records": 1_000, "unreadable": True}
    spec = to_cluster_spec(experiment(offsets_log=[preload]))

    assert spec.preload[0].partition == partition_for("readers", 2)  # of two offsets partitions
    assert (spec.preload[0].commit_records, spec.preload[0].unreadable) == (1_000, True)


def test_plan_is_in_time_order_with_ends_before_beginnings() -> None:
    """At 8 s broker-0 returns before broker-1 is crashed, so that two are never down together.

    The number in a fault's id is its place in the file. So crash-1 comes before crash-0 here.
    """
    plan = plan_of(
        experiment(
            faults=[
                {"at": "8s", "fault": "crash", "target": "broker(1)"},
                {"at": "3s", "fault": "crash", "target": "broker(0)", "duration": "5s"},
            ]
        )
    )

    # An act is the beginning or the end (`heals`) of a fault.
    assert [(act.at_us // 1_000_000, act.planned.fault_id, act.heals) for act in acts_of(plan)] == [
        (3, "crash-1", False),
        (8, "crash-1", True),
        (8, "crash-0", False),
    ]
