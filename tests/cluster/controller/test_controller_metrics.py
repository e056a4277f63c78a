"""Metrics of the controller, which have Kafka's names (docs/kafka, BEHAVIOUR 8.3).

`lab` passes requests to a controller, without brokers and network. A registered broker is fenced,
that is, counts as dead, until its first heartbeat, and again 9 s after its last heartbeat.
`lab.start_brokers` registers brokers and sends their first heartbeats.
"""

import pytest

from cluster.controller.controller_metrics import COUNTED_CONTROLLER_EVENTS, ControllerMetrics
from protocol.config import BrokerConfig
from protocol.ids import TopicPartition
from protocol.records.metadata import NO_LEADER
from tests.support.harness.controllers import ControllerLab, cluster_of, topic
from tests.support.harness.virtual_hosts import HostLab

SESSION_MS = 9_000
"""The session of a broker."""
P0 = TopicPartition("orders", 0)


def metric_values(lab: ControllerLab) -> dict[str, float]:
    """Return the metrics that follow from all events of the controller so far: name -> value."""
    # With the interval 0 the metrics take no samples: the test reads the values itself.
    metrics = ControllerMetrics(HostLab().host("controller-100"), lab.image, interval_us=0)
    for event in lab.trace:
        if event.kind in COUNTED_CONTROLLER_EVENTS:
            metrics.observe(event)
    return metrics.values()


def fence_all_except(lab: ControllerLab, *alive: int) -> None:
    """Let 9 s pass, in which only the brokers `alive` send heartbeats, every 3 s."""
    for _ in range(SESSION_MS // 3_000):
        lab.advance_ms(3_000)
        for broker_id in alive:
            lab.heartbeat(broker_id)


def test_brokers_are_counted_as_fenced_or_active() -> None:
    """Each registered broker counts once, as fenced or as active."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1)
    lab.register(2)  # without a heartbeat, so broker 2 is still fenced
    metrics = metric_values(lab)
    assert metrics["ActiveControllerCount"] == 1
    assert (metrics["FencedBrokerCount"], metrics["ActiveBrokerCount"]) == (1, 2)

    lab.heartbeat(2)
    fence_all_except(lab, 1, 2)  # fences broker 0
    metrics = metric_values(lab)
    assert (metrics["FencedBrokerCount"], metrics["ActiveBrokerCount"]) == (1, 2)
    # In spite of its name this metric counts fencings and unfencings, as in Kafka's ZooKeeper
    # controller. Three brokers were unfenced, and one was fenced: 3 + 1 = 4.
    assert metrics["LeaderElectionRateAndTimeMs.Count"] == 4


@pytest.mark.parametrize("is_unclean_enabled", [True, False])
def test_election_of_a_replica_outside_the_isr_counts_as_unclean(is_unclean_enabled: bool) -> None:
    """An election of a member of the ISR does not count.

    An election that finds no leader does not count either.
    """
    config = BrokerConfig(
        auto_leader_rebalance_enable=False, unclean_leader_election_enable=is_unclean_enabled
    )
    lab = ControllerLab(cluster_of(topic(), config=config))
    lab.start_brokers(0, 1, 2)
    fence_all_except(lab, 1, 2)
    # Broker 1 leads now, and removes broker 2 from the ISR.
    lab.alter_partition(P0, new_isr=(1,), by=1)
    assert lab.partition(P0).leader == 1
    assert metric_values(lab)["UncleanLeaderElectionsPerSec.Count"] == 0

    # Now broker 1, the whole ISR, is fenced, too.
    fence_all_except(lab, 2)
    unclean_elections = metric_values(lab)["UncleanLeaderElectionsPerSec.Count"]
    if is_unclean_enabled:
        assert (lab.partition(P0).leader, unclean_elections) == (2, 1)
    else:
        assert (lab.partition(P0).leader, unclean_elections) == (NO_LEADER, 0)
