"""Addresses at which brokers listen for Kafka clients.

`listener_binding` computes a broker's address from the ClusterSpec, at each start of the broker.
"""

import base64
import hashlib

from cluster.spec import BrokerSpec, ClusterSpec, NodeSpec
from cluster.wire.listener import ListenerBinding
from protocol.ids import Incarnation

CLUSTER_ID_BYTES = 16
"""Length of a UUID."""
_BROKER_SHIFT, _INCARNATION_SHIFT = 48, 32
"""A connection's number has the broker's id above bit 48, and the incarnation above bit 32.

So the connections of different brokers and incarnations have different numbers."""


def listener_binding(
    cluster: ClusterSpec,
    spec: NodeSpec,
    incarnation: Incarnation,
    *,
    run_id: str,
    default_host: str,
    port: int | None = None,
) -> ListenerBinding | None:
    """Return the binding of a node's listener for Kafka clients; None if the node has no listener.

    `port` is the port of the node's earlier incarnation; None for the first incarnation.
    """
    listener = cluster.listener
    if listener is None or not isinstance(spec, BrokerSpec):
        return None
    if port is None:
        index = cluster.brokers.index(spec)
        # With port 0 the system chooses a free port.
        port = listener.first_port + index if listener.first_port else 0
    return ListenerBinding(
        host=listener.host or default_host,
        port=port,
        advertised_host=listener.advertised_host,
        cluster_id=cluster_id(run_id),
        first_number=(spec.broker_id << _BROKER_SHIFT) + (incarnation << _INCARNATION_SHIFT),
        config=cluster.broker_config,
    )


def cluster_id(run_id: str) -> str:
    """Return the cluster id for Metadata responses: 22 characters, like Kafka's encoded UUIDs."""
    # Computed from the run's id, so that all brokers answer with the same cluster id.
    digest = hashlib.sha256(run_id.encode()).digest()[:CLUSTER_ID_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
