"""A broker's identity, and its connections to other nodes.

A broker has a connection to the controller for each purpose (heartbeats, AlterPartition, fetches of
metadata and so on). So a slow request of one kind does not hold up requests of other kinds. The
channels here open such a connection when it is needed, and replace it when it has ended.

Source: Kafka `BrokerToControllerChannelManager`, `InterBrokerSendThread`.
"""

from dataclasses import dataclass

from cluster.host.host import Connection, Host, ResponseCallback
from protocol.api import AnyRequest
from protocol.ids import BrokerEpoch, BrokerId, NodeName, broker_name

SETUP_TIMEOUT_US = 10_000_000
"""socket.connection.setup.timeout.ms of a broker."""
REQUEST_TIMEOUT_US = 30_000_000
"""request.timeout.ms of a broker."""
NO_BROKER_EPOCH = BrokerEpoch(-1)
"""The broker epoch before the registration."""


@dataclass(slots=True, kw_only=True)
class BrokerIdentity:
    """A broker's id, and the epoch that the broker got from the controller.

    A broker gets a new epoch whenever it starts. `broker_epoch` is -1 until the controller has
    registered the broker. Only the module `registration` sets this field.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


class ControllerChannel:
    """The connection to the active controller for one purpose.

    A broker has a list of all controllers, but does not know which of them is active. If the
    connection has ended, the channel connects to the next controller of the list. If a controller
    answers NOT_CONTROLLER, the caller must call `try_next_controller`.
    """

    def __init__(self, host: Host, controllers: tuple[NodeName, ...], purpose: str) -> None:
        self._host = host
        self._controllers = controllers
        self._purpose = purpose
        self._index = 0
        """Index in `_controllers` of the controller to which the channel connects."""
        self._connection: Connection | None = None
        """The present connection; None at first, and after `try_next_controller`."""

    def connection(self) -> Connection:
        """Return the connection, which is open or opening; open a new one if it has ended."""
        if self._connection is not None and self._connection.is_closed:
            self.try_next_controller()  # the controller of a closed connection may be dead
        if self._connection is None:
            self._connection = self._host.connect(
                self._controllers[self._index], self._purpose, setup_timeout_us=SETUP_TIMEOUT_US
            )
        return self._connection

    def try_next_controller(self) -> None:
        """Close the present connection, and use the next controller of the list from now on."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._index = (self._index + 1) % len(self._controllers)


class BrokerChannels:
    """One connection to each broker, all for one purpose.

    As in Kafka, a broker may have a connection to itself, too.
    """

    def __init__(self, host: Host, purpose: str) -> None:
        self._host = host
        self._purpose = purpose
        self._connections: dict[BrokerId, Connection] = {}

    def send(self, broker: BrokerId, request: AnyRequest, on_response: ResponseCallback) -> None:
        """Send `request`, and call `on_response` exactly once, after this method has returned."""
        connection = self._connections.get(broker)
        if connection is None or connection.is_closed:
            connection = self._connections[broker] = self._host.connect(
                broker_name(broker), self._purpose, setup_timeout_us=SETUP_TIMEOUT_US
            )
        connection.send(request, timeout_us=REQUEST_TIMEOUT_US, on_response=on_response)
