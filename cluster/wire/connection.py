"""One TCP connection of a Kafka client: cuts the bytes into requests, and serves one at a time.

While a request is served, all later bytes wait here. So the answers leave in the order of the
requests. Kafka does the same, and calls this muting the channel. If the client closes its side of
the connection after its last request, the requests that it has sent are still served.

The listener accepts the connections and answers the requests. In this module it is called
`ConnectionOwner`.

Source: Kafka `SocketServer.Processor`, `NetworkReceive`.
"""

import asyncio
import socket
import struct
from typing import Protocol, cast

from cluster.wire.exchange import SIZE_BYTES, Exchange
from cluster.wire.headers import foreign_protocol
from protocol.ids import NodeName

UNREAD_BYTES_MAX = 1_048_576
"""While more bytes than this wait behind a request, the socket is not read."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Value of SO_LINGER (on, 0 seconds) with which the system closes a connection by a reset.

Source: socket(7)."""


class ConnectionOwner(Protocol):
    """The methods of the listener that a connection calls."""

    request_max_bytes: int

    def opened(self, connection: "WireConnection") -> None:
        """Called for a new connection."""

    def received(self, connection: "WireConnection") -> None:
        """Called when bytes have arrived."""

    def request(self, connection: "WireConnection", payload: bytes) -> None:
        """Called with the bytes of one request, without its size.

        Sets `connection.exchange`, or closes the connection.
        """

    def refuse(self, connection: "WireConnection", reason: str) -> None:
        """Closes a connection because of its bytes, and reports the reason."""

    def closed(self, connection: "WireConnection") -> None:
        """Called once, when a connection has ended."""


class WireConnection(asyncio.Protocol):
    """A connection. `number` is unique in the run among the connections of its client."""

    def __init__(
        self, owner: ConnectionOwner, number: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.number = number
        self.client: NodeName | None = None
        """Node name of the client; None before its first request."""
        self.exchange: Exchange | None = None
        """The request that is being served; None while there is none."""
        self.address = ("", 0)
        """Host and port of the client; unknown before `connection_made`."""
        self.is_closed = False
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        """asyncio's transport; None before `connection_made`."""
        self._unread = bytearray()
        """The bytes that have arrived after the served request."""
        self._is_scheduled = False
        """True if a call of `_serve_next` is scheduled for the next turn of the loop."""
        self._is_held = False
        """True while requests of this connection are not served, because there are too many
        connections (see `hold`)."""
        self._is_reading = True
        """False while the socket is not read, so that TCP makes the client wait."""
        self._is_first = True
        """True until the first request, which may be in another protocol than Kafka's."""
        self._is_at_end = False
        """True once the client has closed its side."""
        self._is_sending = False
        """True while bytes of an answer have not been sent."""

    @property
    def caller(self) -> str:
        """The client's address, as `host:port`."""
        return f"{self.address[0]}:{self.address[1]}"

    # -- called by the loop ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the transport.

        With a write buffer of 0 bytes, asyncio calls `pause_writing` until an answer is sent
        completely. The next request is not served before that.
        """
        # For a stream socket, asyncio passes a Transport, which can also write.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        peer = self._transport.get_extra_info("peername") or ("", 0)
        self.address = (str(peer[0]), int(peer[1]))
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes; a request in them is served in the next turn of the loop.

        So after a pause of the process (SIGSTOP), the timers that are due fire before the requests
        that waited in the socket are served.
        """
        self._unread += data
        self._owner.received(self)
        # If no request is being served, these bytes belong to the next request. A request must be
        # read to its end, even if it is long.
        if self._is_reading and len(self._unread) > UNREAD_BYTES_MAX and self.exchange is not None:
            self._set_reading(False)
        self._schedule()

    def eof_received(self) -> bool:
        """Serve the requests before the end of the stream, then close."""
        self._is_at_end = True
        self._schedule()
        return True  # asyncio must not close the transport: answers are still to be sent

    def pause_writing(self) -> None:
        """Stop serving requests, because the client does not read its answers fast enough."""
        self._is_sending = True

    def resume_writing(self) -> None:
        """Serve the next request: all bytes have been sent."""
        self._is_sending = False
        self._schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, unless `end` has done so."""
        if not self.is_closed:
            self.is_closed = True
            self._owner.closed(self)

    # -- called by the listener ------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Stop serving this connection if `held` is true, otherwise serve it again."""
        self._is_held = held
        self._set_reading(not held)
        self._schedule()

    def answer(self, frame: bytes | None) -> None:
        """Send the answer to the served request, and serve the next request.

        `frame` has the bytes of the answer; None if the client expects no answer.
        """
        self.exchange = None
        if frame is not None and self._transport is not None and not self.is_closed:
            self._transport.write(frame)
        # `_serve_next` serves the next request, ends the connection, or reads the socket again.
        if self._unread or self._is_at_end or not self._is_reading:
            self._schedule()

    def end(self, *, reset: bool = False) -> None:
        """Close the connection, with a TCP reset if `reset`; bytes not sent yet are lost."""
        if self.is_closed or self._transport is None:
            return
        self.is_closed = True  # now, so that `connection_lost` does not report the end again
        if reset:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()
        self._owner.closed(self)

    # -- requests --------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Call `_serve_next` in the next turn of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve_next)

    def _serve_next(self) -> None:
        """Serve the next request, if it is complete and no other is being served or sent."""
        self._is_scheduled = False
        # Later, `hold`, `answer` or `resume_writing` schedules the next call.
        if self.is_closed or self._is_held or self.exchange is not None or self._is_sending:
            return
        unread = self._unread
        if len(unread) >= SIZE_BYTES:
            size = int.from_bytes(unread[:SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= self._owner.request_max_bytes:
                self._owner.refuse(self, self._illegal_size(bytes(unread[:SIZE_BYTES]), size))
                return
            end = SIZE_BYTES + size
            if len(unread) >= end:
                # A memoryview, because a slice of the bytearray would be one more copy.
                payload = bytes(memoryview(unread)[SIZE_BYTES:end])
                del unread[:end]
                self._is_first = False
                self._set_reading(len(unread) <= UNREAD_BYTES_MAX)
                self._owner.request(self, payload)
                return
        # No complete request is left.
        if self._is_at_end:
            self.end()
        else:
            self._set_reading(True)

    def _illegal_size(self, first_bytes: bytes, size: int) -> str:
        """Return the message about a size that no request has, or about another protocol.

        The first bytes of another protocol (TLS, HTTP) look like an absurd size.
        """
        foreign = foreign_protocol(first_bytes) if self._is_first else None
        return foreign or (
            f"expected a request of at most {self._owner.request_max_bytes} bytes "
            f"(socket.request.max.bytes), got a size of {size}"
        )

    def _set_reading(self, wanted: bool) -> None:
        """Read the socket, or stop reading it; does nothing on a closing connection."""
        if wanted == self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
