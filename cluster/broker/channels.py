"""Connections to the brokers for one purpose, one to each, opened anew when they have ended.

A broker may be its own peer: what it asks itself goes over its own listener too, as in Kafka.
Source: Kafka `InterBrokerSendThread`.
"""

from cluster.host.host import Connection, Host, ResponseCallback
from protocol.api import AnyRequest
from protocol.ids import BrokerId, broker_name

SETUP_TIMEOUT_US = 10_000_000
"""socket.connection.setup.timeout.ms"""
REQUEST_TIMEOUT_US = 30_000_000
"""request.timeout.ms of a broker."""


class BrokerChannels:
    """Reaches any broker."""

    def __init__(self, host: Host, purpose: str) -> None:
        self._host = host
        self._purpose = purpose
        self._connections: dict[BrokerId, Connection] = {}

    def send(self, broker: BrokerId, request: AnyRequest, on_response: ResponseCallback) -> None:
        """Send `request`; `on_response` is called exactly once, never before this returns."""
        connection = self._connections.get(broker)
        if connection is None or connection.is_closed:
            connection = self._connections[broker] = self._host.connect(
                broker_name(broker), self._purpose, setup_timeout_us=SETUP_TIMEOUT_US
            )
        connection.send(request, timeout_us=REQUEST_TIMEOUT_US, on_response=on_response)
