"""What all nodes have in common, and the creation of the node that a spec describes.

A runtime creates a Host, and `build_node` creates the node on it: a broker, a consumer and so on.
The nodes are the same in every runtime.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from cluster.broker.node import BrokerNode
from cluster.client.consumer.node import ConsumerNode
from cluster.client.producer.node import ProducerNode
from cluster.client.zookeeper_consumer.node import ZooKeeperConsumerNode
from cluster.controller.node import ControllerNode
from cluster.host.host import Host
from cluster.runtime import ClusterStatus
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ConsumerSpec,
    ControllerSpec,
    NodeSpec,
    ProducerSpec,
    ZooKeeperConsumerSpec,
    ZooKeeperSpec,
)
from cluster.zookeeper.node import ZooKeeperNode


class Node(Protocol):
    """A node, from its start to its end."""

    def start(self) -> None:
        """Begin to serve and to send requests, and return without waiting."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Begin to stop as on SIGTERM; `on_done` is called once, when the node has finished.

        A broker waits until other brokers lead its partitions. A consumer commits and leaves its
        group. Most other nodes have nothing to do, and finish immediately.
        """

    def report(self, status: ClusterStatus) -> None:
        """Add to `status` what this node knows of the cluster."""


@runtime_checkable
class SelfChecking(Protocol):
    """A node that can check its own invariants, such as a broker or a controller."""

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check all invariants. The runtime calls this between two events.

        If `thoroughly` is True, the records in every log are checked, too.

        Raises: InvariantViolation.
        """


def node_specs(cluster: ClusterSpec) -> tuple[NodeSpec, ...]:
    """Return all nodes of the cluster, in the order of their start: servers before clients."""
    return (
        *cluster.zookeepers,
        *cluster.controllers,
        *cluster.brokers,
        *cluster.consumers,
        *cluster.zookeeper_consumers,
        *cluster.producers,
    )


def build_node(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Return the node that `spec` describes, not yet started, on `host`."""
    match spec:
        case ControllerSpec():
            return ControllerNode(host, cluster, spec)
        case BrokerSpec():
            return BrokerNode(host, cluster, spec)
        case ConsumerSpec():
            return ConsumerNode(host, cluster, spec)
        case ProducerSpec():
            return ProducerNode(host, cluster, spec)
        case ZooKeeperSpec():
            return ZooKeeperNode(host, cluster, spec)
        case ZooKeeperConsumerSpec():
            return ZooKeeperConsumerNode(host, cluster, spec)
