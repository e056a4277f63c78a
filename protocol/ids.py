"""Types of ids, epochs and offsets, and names of nodes and internal topics.

The types let mypy find a mistake such as an Offset that is passed in place of a LeaderEpoch.
"""

from functools import cache
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
"""Kafka's `node.id` of a broker or controller. As in Kafka, -1 means that there is no broker."""
NodeName = NewType("NodeName", str)
"""Host name of a node of the cluster, for example `broker-0`, `controller-100`, `consumer-g-3`."""
Incarnation = NewType("Incarnation", int)
"""Number of a node's process: 0 for the first, 1 after the first restart, and so on."""
Offset = NewType("Offset", int)
"""Position of a record in a partition's log, from 0."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a partition's leadership. The number begins with 0, and each election of a leader
increases the number. -1 means that the number is unknown."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Number of changes of a partition's leader or ISR since its creation."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Number of a broker's registration: the offset of the registration's record in the metadata
log."""
# The next three types are about a group of consumers.
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
"""Id that the coordinator gives to a member: `<client id or instance id>-<uuid4>`. Before its first
join, a member has the id ""."""
GenerationId = NewType("GenerationId", int)
"""Number of completed join phases of a group. A member without a generation has -1."""
ProducerId = NewType("ProducerId", int)
RequestId = NewType("RequestId", int)
"""Id of a request, unique within one incarnation of a broker. The Reply to a request has the
request's id."""
AppendId = NewType("AppendId", int)
"""Id of an append that a coordinator requested from its broker.

When the append has ended, an AppendCompleted with this id reports the result to the coordinator.
"""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"

# Kafka's values for "none" and "unknown".
NO_BROKER = BrokerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_GENERATION = GenerationId(-1)
UNKNOWN_MEMBER = MemberId("")
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    """One partition of one topic. As a string it is `topic-3`, as in Kafka."""

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
    """Return the host name of broker `broker_id`.

    The parameter is a plain int, not a BrokerId, because some callers count brokers in a loop or
    read the id from a setting.
    """
    # The result is cached, because clients call this function for every request.
    return NodeName(f"broker-{broker_id}")


def controller_name(node_id: int) -> NodeName:
    """Return the host name of controller `node_id`."""
    return NodeName(f"controller-{node_id}")


def zookeeper_name(server_id: int) -> NodeName:
    """Return the host name of ZooKeeper server `server_id`."""
    return NodeName(f"zookeeper-{server_id}")
