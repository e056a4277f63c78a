"""A connection to the controller for one purpose, opened anew when it has ended.

Source: Kafka `BrokerToControllerChannelManager`: heartbeats, AlterPartition and the metadata pull
each have their own. A standby comes after the active controller in the list: whoever finds the
connection ended, or is told NOT_CONTROLLER, tries the next.
"""

from cluster.host.host import Connection, Host
from protocol.ids import NodeName

SETUP_TIMEOUT_US = 10_000_000
"""socket.connection.setup.timeout.ms"""


class ControllerChannel:
    """Reaches whichever controller answered last."""

    def __init__(self, host: Host, controllers: tuple[NodeName, ...], purpose: str) -> None:
        self._host = host
        self._controllers = controllers
        self._purpose = purpose
        self._index = 0
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Return the open or opening connection."""
        if self._connection is not None and self._connection.is_closed:
            self.try_next_controller()
        if self._connection is None:
            self._connection = self._host.connect(
                self._controllers[self._index], self._purpose, setup_timeout_us=SETUP_TIMEOUT_US
            )
        return self._connection

    def try_next_controller(self) -> None:
        """Forget the present connection: it has ended, or its peer is not the controller."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._index = (self._index + 1) % len(self._controllers)
