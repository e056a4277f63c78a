"""Ids and offsets that could be mixed up, each with a type of its own."""

from functools import cache
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
"""Kafka's `node.id` of a broker or controller; -1 where Kafka says "none"."""
NodeName = NewType("NodeName", str)
"""A node of the cluster by its host name, e.g. `broker-0`, `controller-100`, `consumer-g-3`."""
Incarnation = NewType("Incarnation", int)
"""Counts the lives of a node from 0; a restart is a new incarnation."""
Offset = NewType("Offset", int)
"""Position of a record in a partition's log, from 0."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Grows by one with each leader of a partition, from 0; -1 where none is known."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Grows by one with each change of a partition's leader or ISR, from 0."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Given to a broker at registration: the metadata offset of its registration record."""
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
"""Made by the coordinator: `<client id or instance id>-<uuid4>`; empty before the first join."""
GenerationId = NewType("GenerationId", int)
"""Counts the completed join phases of a group, from 0; -1 where a member has none."""
ProducerId = NewType("ProducerId", int)
RequestId = NewType("RequestId", int)
"""Names one request inside one broker incarnation, so that a parked reply finds its caller."""
AppendId = NewType("AppendId", int)
"""Names one append that a core asked for, so that its completion finds the parked reply."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"

NO_BROKER = BrokerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_GENERATION = GenerationId(-1)
UNKNOWN_MEMBER = MemberId("")
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka does: `topic-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def offsets_partition(index: int) -> TopicPartition:
    """Return partition `index` of `__consumer_offsets`."""
    return TopicPartition(CONSUMER_OFFSETS, index)


def transaction_partition(index: int) -> TopicPartition:
    """Return partition `index` of `__transaction_state`."""
    return TopicPartition(TRANSACTION_STATE, index)


METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, 0)


@cache
def broker_name(broker_id: int) -> NodeName:
    """Return the host name under which broker `broker_id` is reached.

    Cached because clients ask for it with every request; a run has few brokers.
    """
    return NodeName(f"broker-{broker_id}")


def controller_name(node_id: int) -> NodeName:
    """Return the host name under which controller `node_id` is reached."""
    return NodeName(f"controller-{node_id}")


def zookeeper_name(server_id: int) -> NodeName:
    """Return the host name under which ZooKeeper server `server_id` is reached."""
    return NodeName(f"zookeeper-{server_id}")
