"""A connection to one broker for one request at a time, opened when it is needed.

Source: Kafka 1.1 `SimpleConsumer`, `BlockingChannel`.
"""

from typing import TypeVar

from cluster.host.connection_purposes import GENERAL
from cluster.host.host import Connection, Disconnected, Host, RequestTimedOut
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import SimulationError
from protocol.ids import BrokerId, broker_name

R = TypeVar("R", bound=AnyResponse)


class BrokerChannel:
    """A connection to `broker_id`.

    The first request opens it. If the connection has ended, the next request opens it again.
    """

    def __init__(self, host: Host, broker_id: BrokerId, timeout_us: int) -> None:
        self._host = host
        self._broker_id = broker_id
        self._timeout_us = timeout_us
        self._connection: Connection | None = None

    async def ask(self, request: AnyRequest, response_type: type[R]) -> R | None:
        """Send a request and wait for its answer; None if the connection failed or timed out."""
        if self._connection is None or self._connection.is_closed:
            self._connection = self._host.connect(
                broker_name(self._broker_id), GENERAL, setup_timeout_us=self._timeout_us
            )
        try:
            answer = await self._connection.call(request, timeout_us=self._timeout_us)
        except (Disconnected, RequestTimedOut):
            return None
        if not isinstance(answer, response_type):
            raise SimulationError(f"{type(request).__name__} was answered {answer!r}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
