"""The cluster that docs/kafka/MEASURED_FAILOVER.md describes, for tests that repeat its figures."""

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

# One millisecond and one second, in microseconds.
MS = 1_000
SECOND = 1_000_000


def cluster(members: int, *, session_timeout_ms: int = 45_000) -> ClusterSpec:
    """Return the cluster of the measurements. Its group `g` has `members` consumers."""
    two_in_sync = TopicConfig(min_insync_replicas=2)
    config = ConsumerConfig(
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms,
    )
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=index) for index in range(3)),
        topics=(
            TopicSpec(
                name=CONSUMER_OFFSETS, partitions=6, replication_factor=3, config=two_in_sync
            ),
            TopicSpec(name="t", partitions=12, replication_factor=3, config=two_in_sync),
        ),
        consumers=tuple(
            ConsumerSpec(
                name=NodeName(f"consumer-g-{index}"),
                group_id="g",
                index=index,
                topics=("t",),
                config=config,
            )
            for index in range(members)
        ),
        producers=(ProducerSpec(name=NodeName("producer-0"), topic="t", records_per_second=100.0),),
        broker_config=BrokerConfig(offsets_topic_num_partitions=6),
    )
