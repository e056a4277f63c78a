"""Metrics of the controller, which have Kafka's names (docs/kafka, BEHAVIOUR 8.3).

`lab` passes requests to a controller without brokers and network. `start_brokers` registers brokers
and unfences them. A broker without a heartbeat for a session of 9 s is fenced: it counts as dead.
"""

import pytest

from cluster.controller.controller_metrics import COUNTED_CONTROLLER_EVENTS, ControllerMetrics
from protocol.config import BrokerConfig
from protocol.ids import TopicPartition
from protocol.records.metadata import NO_LEADER
from tests.support.harness.controllers import ControllerLab, cluster_of, topic
from tests.support.harness.virtual_hosts import HostLab

SESSION_MS = 9_000
P0 = TopicPartition("orders", 0)


def values(lab: ControllerLab) -> dict[str, float]:
    """Return the metrics that follow from the controller's trace, its recorded events so far."""
    metrics = ControllerMetrics(HostLab().host("controller-100"), lab.image, interval_us=0)
    for event in lab.trace:
        if event.kind in COUNTED_CONTROLLER_EVENTS:
            metrics.observe(event)
    return metrics.values()


def end_other_sessions(lab: ControllerLab, *alive: int) -> None:
    """Let a session pass, in which only the brokers `alive` send heartbeats, every 3 s."""
    for _ in range(SESSION_MS // 3_000):
        lab.advance_ms(3_000)
        for broker_id in alive:
            lab.heartbeat(broker_id)


def test_brokers_are_counted_as_fenced_or_active() -> None:
    """Each registered broker counts once: as fenced until its first heartbeat, and then as active.

    The broker whose session ends counts as fenced again.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1)
    lab.register(2)
    metrics = values(lab)
    assert metrics["ActiveControllerCount"] == 1
    assert (metrics["FencedBrokerCount"], metrics["ActiveBrokerCount"]) == (1, 2)

    lab.heartbeat(2)
    end_other_sessions(lab, 1, 2)
    metrics = values(lab)
    assert (metrics["FencedBrokerCount"], metrics["ActiveBrokerCount"]) == (1, 2)
    # This metric counts fencings and unfencings, as in Kafka's ZooKeeper controller, and not
    # elections. Three brokers were unfenced, and one was fenced.
    assert metrics["LeaderElectionRateAndTimeMs.Count"] == 4


@pytest.mark.parametrize("unclean", [True, False])
def test_election_of_a_replica_outside_the_isr_counts_as_unclean(unclean: bool) -> None:
    """Only unclean elections count, once for each partition.

    An election is unclean if the new leader was outside of the ISR (the in-sync replicas).
    Creations, clean elections and elections without a new leader do not count.
    """
    config = BrokerConfig(
        auto_leader_rebalance_enable=False, unclean_leader_election_enable=unclean
    )
    lab = ControllerLab(cluster_of(topic(), config=config))
    lab.start_brokers(0, 1, 2)
    end_other_sessions(lab, 1, 2)
    # Broker 1 leads, and removes broker 2 from the ISR. Below, the session of broker 1 ends, too.
    lab.alter_partition(P0, (1,), by=1)
    assert lab.partition(P0).leader == 1
    assert values(lab)["UncleanLeaderElectionsPerSec.Count"] == 0

    end_other_sessions(lab, 2)
    assert lab.partition(P0).leader == (2 if unclean else NO_LEADER)
    assert values(lab)["UncleanLeaderElectionsPerSec.Count"] == (1 if unclean else 0)
