"""ClientMachine: the node that stands for all recorded clients, with many connections.

A recording has the requests of clients to a Kafka cluster; the replayer sends them to a cluster of
this project. The machine sends each request when the replayer says so. It knows nothing of groups
and retries nothing, because a recording has every request that the clients sent, retries included.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from chaos.conformance.comparison import CLIENT_CLOSED, DISCONNECTED, REFUSED
from cluster.host.host import Connection, Disconnected, Host, RequestTimedOut
from cluster.runtime import ClusterStatus
from protocol.api import AnyRequest, AnyResponse
from protocol.ids import broker_name

SETUP_TIMEOUT_US = 10_000_000
"""Time after which an attempt to connect is given up."""
REQUEST_TIMEOUT_US = 86_400_000_000
"""A day, which no scenario lasts: like the recorder, the client waits until the scenario's end."""
HANDSHAKE_US = 1_000
"""Time after which a connection over loopback is open or refused."""
PURPOSE = "transcript"

Ended = Callable[[AnyResponse | str], None]
"""Takes the answer, or the outcome of a request without an answer (a text of `comparison`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One connection of a recorded client; `number` tells its connections to one broker apart."""

    client: str
    client_id: str
    number: int
    broker_id: int


@dataclass(slots=True)
class _Channel:
    """A connection, and the facts that name the outcome of a request when the connection ends."""

    connection: Connection
    was_open: bool = False
    is_closed_by_client: bool = False

    def note_open(self) -> None:
        """Note the connection as open, if it is open now."""
        self.was_open = self.was_open or self.connection.is_open


class ClientMachine:
    """One node with the connections of all clients of a transcript."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._channels: dict[Address, _Channel] = {}

    def start(self) -> None:
        """Do nothing: the replayer calls `send`."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop at once."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Add nothing to `status`."""

    def send(self, to: Address, request: AnyRequest, version: int, on_end: Ended) -> None:
        """Send a request on one of a client's connections; open the connection if necessary."""
        channel = self._channels.get(to)
        if channel is None or channel.connection.is_closed:
            channel = self._channels[to] = _Channel(
                self.host.connect(
                    broker_name(to.broker_id),
                    PURPOSE,
                    setup_timeout_us=SETUP_TIMEOUT_US,
                    client_id=to.client_id,
                )
            )
            # The answer may come late or never. So note early that the connection is open: its end
            # then means DISCONNECTED, not REFUSED.
            self.host.after(HANDSHAKE_US, channel.note_open)
        channel.connection.send(
            request,
            timeout_us=REQUEST_TIMEOUT_US,
            on_response=partial(_report_end, channel, on_end),
            api_version=version,
        )

    async def ask(self, to: Address, request: AnyRequest, version: int) -> AnyResponse | str:
        """Send a request and wait for its outcome."""
        future = self.host.create_future()
        self.send(to, request, version, future.set_result)
        outcome: AnyResponse | str = await future
        return outcome

    def disconnect(self, client: str) -> None:
        """Close every connection of a client; its parked requests get no answer."""
        for address, channel in self._channels.items():
            if address.client == client and not channel.connection.is_closed:
                channel.is_closed_by_client = True
                channel.connection.close()


def _report_end(
    channel: _Channel, on_end: Ended, outcome: AnyResponse | Disconnected | RequestTimedOut
) -> None:
    """Pass on an answer, which shows that the connection was open, or the text of an outcome."""
    if not isinstance(outcome, Disconnected | RequestTimedOut):
        channel.was_open = True
        on_end(outcome)
    elif channel.is_closed_by_client:
        on_end(CLIENT_CLOSED)
    else:
        on_end(DISCONNECTED if channel.was_open else REFUSED)
