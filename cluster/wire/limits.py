"""Limits of a broker's connections with Kafka clients, named as in Kafka's settings.

Source: Kafka `ConnectionQuotas`, `Selector.IdleExpiryManager`.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

from cluster.wire.connection import WireConnection
from protocol.config import BrokerConfig


class ConnectionLimits:
    """Counts the connections of a broker's listener, and finds idle connections.

    If there are more than max.connections, the newest ones are *held*: they are not served until
    another connection ends.
    DEVIATION: at max.connections, Kafka accepts no further connection; new connections wait in the
    system's backlog. Here they are accepted but not served. A client sees no difference.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._connections_max = config.max_connections
        self._per_address_max = config.max_connections_per_ip
        self._idle_max_us = config.connections_max_idle_ms * 1_000
        self._last_bytes_us: OrderedDict[WireConnection, int] = OrderedDict()
        """Served connection -> time of its last bytes. The connection that has been idle for the
        longest time is first."""
        self._waiting: deque[WireConnection] = deque()
        """Held connections, in the order of their arrival."""
        self._by_address: dict[str, int] = {}
        """Number of connections of each client address, served and held."""

    def admit(self, connection: WireConnection, now_us: int) -> str | None:
        """Count a new connection, and hold it if max.connections are served already.

        Returns: the reason for closing it; None if it may stay.
        """
        address = connection.address[0]
        if self._by_address.get(address, 0) >= self._per_address_max:
            return (
                f"expected at most {self._per_address_max} connections from {address} "
                "(max.connections.per.ip), got one more"
            )
        self._by_address[address] = self._by_address.get(address, 0) + 1
        if len(self._last_bytes_us) >= self._connections_max:
            connection.hold(held=True)
            self._waiting.append(connection)
        else:
            self._last_bytes_us[connection] = now_us
        return None

    def touch(self, connection: WireConnection, now_us: int) -> None:
        """Record that bytes have arrived on a connection."""
        if connection in self._last_bytes_us:
            self._last_bytes_us[connection] = now_us
            self._last_bytes_us.move_to_end(connection)

    def forget(self, connection: WireConnection, now_us: int) -> None:
        """Remove a connection that has ended, and serve a held connection instead."""
        address = connection.address[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if self._last_bytes_us.pop(connection, None) is None:
            # The connection was held, so no place has become free.
            self._waiting.remove(connection)
        elif self._waiting:
            admitted = self._waiting.popleft()
            self._last_bytes_us[admitted] = now_us
            admitted.hold(held=False)

    def idle(self, now_us: int) -> Iterator[WireConnection]:
        """Yield the connections that have been idle for connections.max.idle.ms or longer."""
        # A copy, because the caller closes the connections, which removes them.
        for connection, last_us in list(self._last_bytes_us.items()):
            if now_us - last_us < self._idle_max_us:
                return  # all further connections have been idle for a shorter time
            yield connection

    def next_check_us(self, now_us: int) -> int:
        """Return the time until the next check; before it, no connection is idle for too long."""
        oldest_us = next(iter(self._last_bytes_us.values()), now_us)
        return max(1, oldest_us + self._idle_max_us - now_us)
