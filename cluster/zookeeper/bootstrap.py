"""Znodes of brokers and topics, which are in every server's tree before the run.

DEVIATION: topics are created at the controller, so a topic's znode keeps the partitions that the
topic had at the beginning. Brokers register with the controller, so their znodes are persistent and
stay when a broker dies. In a cluster with `brokers_register_in_zookeeper`, the brokers register in
ZooKeeper too, and create their znodes themselves.
Source: Kafka `ZkUtils`; docs/kafka/ZOOKEEPER_CONSUMER.md, section 2.
"""

import json

from cluster.spec import ClusterSpec, TopicSpec
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerId, broker_name

BROKER_IDS = "/brokers/ids"
"""Parent of the znodes of the brokers."""
BROKER_TOPICS = "/brokers/topics"
"""Parent of the znodes of the topics."""
CONSUMERS = "/consumers"
"""Parent of the znodes of the groups on ZooKeeper."""
# Topics of Kafka that get no znode here.
_INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


def initial_znodes(cluster: ClusterSpec) -> tuple[tuple[str, str], ...]:
    """Return (path, data) of the znodes of a cluster's brokers and topics, parents first."""
    znodes = [("/brokers", ""), (BROKER_IDS, ""), (BROKER_TOPICS, ""), (CONSUMERS, "")]
    if not cluster.brokers_register_in_zookeeper:
        znodes += [broker_znode(BrokerId(broker.broker_id)) for broker in cluster.brokers]
    for topic in cluster.topics:
        if topic.name not in _INTERNAL:
            content: dict[str, object] = {
                "version": 1,
                "partitions": {
                    str(partition): list(_replicas(topic, partition, len(cluster.brokers)))
                    for partition in range(topic.partitions)
                },
            }
            znodes.append((f"{BROKER_TOPICS}/{topic.name}", _json(content)))
    return tuple(znodes)


def broker_znode(broker_id: BrokerId) -> tuple[str, str]:
    """Return path and data of a broker's registration."""
    # `version` is the number of Kafka's format for this znode. The port is Kafka's default, and has
    # no meaning here: nodes address each other by name.
    content: dict[str, object] = {"host": broker_name(broker_id), "port": 9092, "version": 4}
    return f"{BROKER_IDS}/{broker_id}", _json(content)


def _replicas(topic: TopicSpec, partition: int, brokers: int) -> tuple[int, ...]:
    """Return the brokers with a replica of a partition, by the controller's rule.

    `brokers` is the number of brokers, whose ids are 0, 1 and so on. TopicSpec describes the rule.
    """
    if topic.assignments:
        return topic.assignments[partition]
    return tuple((partition + index) % brokers for index in range(topic.replication_factor))


def _json(content: dict[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"))
