"""ClientMachine: the node that stands for all recorded clients, with many connections.

When a recording of real Kafka is replayed, its requests are sent to our brokers through this
machine. Each connection of a recorded client has a connection of this machine, on which the same
requests are sent. The machine knows nothing of groups. It never repeats a request, because the
recording already contains all repetitions.
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
"""Time for which the machine waits for an answer: one day, which is longer than any scenario.

So the machine waits until the end of the scenario, as the recorder did.
"""
HANDSHAKE_US = 1_000
"""Time after which a connection over loopback is either open or refused."""
PURPOSE = "transcript"
"""Purpose of the machine's connections. Every connection in a cluster has a purpose."""

Ended = Callable[[AnyResponse | str], None]
"""Function that is called at the end of a request, with the answer.

If there is no answer, it gets a text instead, such as DISCONNECTED. `comparison` has these texts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One connection of a recorded client to a broker.

    If a client has several connections to the same broker, they have different values of `number`.
    """

    client: str
    client_id: str
    number: int
    broker_id: int


@dataclass(slots=True)
class _Channel:
    """A connection, and whether it was ever open, and whether the client has closed it.

    If the connection ends before an answer has come, the outcome of the request depends on these
    two facts (`_report_end`).
    """

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
        """Do nothing. Requests are sent when the replayer calls `send`."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Report immediately that the node has stopped."""
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
            # If a connection ends that was never open, the outcome of its requests is REFUSED,
            # otherwise DISCONNECTED. An answer would show that the connection was open, but the
            # answer may come late or never. So `note_open` looks at the connection itself after the
            # time of the handshake.
            self.host.after(HANDSHAKE_US, channel.note_open)
        channel.connection.send(
            request,
            timeout_us=REQUEST_TIMEOUT_US,
            on_response=partial(_report_end, channel, on_end),
            api_version=version,
        )

    async def ask(self, to: Address, request: AnyRequest, version: int) -> AnyResponse | str:
        """Send a request, wait for its end, and return the answer or the text of the outcome."""
        future = self.host.create_future()
        self.send(to, request, version, future.set_result)
        outcome: AnyResponse | str = await future
        return outcome

    def disconnect(self, client: str) -> None:
        """Close every connection of a client. Requests that still wait get no answer."""
        for address, channel in self._channels.items():
            if address.client == client and not channel.connection.is_closed:
                channel.is_closed_by_client = True
                channel.connection.close()


def _report_end(
    channel: _Channel, on_end: Ended, outcome: AnyResponse | Disconnected | RequestTimedOut
) -> None:
    """Call `on_end` with the answer, or with the text of the outcome."""
    # An answer also shows that the connection was open.
    if not isinstance(outcome, Disconnected | RequestTimedOut):
        channel.was_open = True
        on_end(outcome)
    elif channel.is_closed_by_client:
        on_end(CLIENT_CLOSED)
    else:
        on_end(DISCONNECTED if channel.was_open else REFUSED)
