"""A small cluster of real nodes, for runs in virtual time (a simulated clock).

Real nodes are coordlab's own brokers and clients, in contrast to the fake nodes of `fake_cluster`.
The timeouts of this cluster are short, so that failovers are quick.
"""

from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ConsumerSpec,
    ControllerSpec,
    ProducerSpec,
    TopicSpec,
)
from protocol.config import BrokerConfig, ConsumerConfig, TopicConfig
from protocol.ids import CONSUMER_OFFSETS, NodeName

GROUP = "readers"
TOPIC = "orders"


def real_spec(
    *, consumers: int = 12, records_per_second: float = 50, commit_interval_ms: int = 200
) -> ClusterSpec:
    """Return a cluster of a controller, three brokers, a producer and a group of consumers."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=index) for index in range(3)),
        topics=(
            TopicSpec(
                name=CONSUMER_OFFSETS,
                partitions=3,
                replication_factor=3,
                config=TopicConfig(cleanup_policy="compact"),
            ),
            TopicSpec(name=TOPIC, partitions=12, replication_factor=3),
        ),
        consumers=tuple(
            ConsumerSpec(
                name=NodeName(f"consumer-{GROUP}-{index}"),
                group_id=GROUP,
                index=index,
                topics=(TOPIC,),
                config=ConsumerConfig(
                    session_timeout_ms=6_000,
                    heartbeat_interval_ms=1_000,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                ),
                commit_interval_ms=commit_interval_ms,
            )
            for index in range(consumers)
        ),
        producers=(
            ProducerSpec(
                name=NodeName("producer-0"), topic=TOPIC, records_per_second=records_per_second
            ),
        ),
        broker_config=BrokerConfig(
            group_initial_rebalance_delay_ms=500,
            offsets_topic_num_partitions=3,
            min_insync_replicas=2,
            broker_heartbeat_interval_ms=500,
            broker_session_timeout_ms=2_000,
            # With False, a restarted broker does not get its leaderships back.
            auto_leader_rebalance_enable=False,
        ),
    )
