"""TCP links between node processes: length-prefixed MessagePack frames, never pickle.

In real time, nodes live in several processes. A Transport sends frames (messages between nodes) to
other processes and receives theirs.

1. A process *dials* (opens a TCP link) when it first has a frame for another process. It sends only
   on the link that it has dialed, and receives only on the link that the other process has dialed.
   So each pair of processes has one link in each direction. Both processes may dial at the same
   time. The two links carry all connections between the nodes of the two processes.
2. If one of the two links ends, the other link is closed, and the process at the other end is
   reported as lost.
3. The first message on a link is a Hello with the run's secret token. The receiver refuses a caller
   that has a wrong token, wants to reach another process, or sends invalid bytes. It reports the
   refused caller, and goes on to serve all other callers.
4. Received frames are delivered in the next turn of the event loop. So after a pause (SIGSTOP), the
   timers that are due fire before the frames that waited in the socket are delivered.

A *guest* is a process that does not belong to the run, for example one that connects to ask
something. It is in no list of addresses, so it tells its own address in its Hello.
"""

import asyncio
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cluster.host.frames import MAX_FRAME_BYTES, Frame
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName

LINK_VERSION = 2
"""Version of the link's format, which both ends must have."""
MAX_HELLO_BYTES = 64 * 1024
"""Longest Hello that is accepted."""
HELLO_TIMEOUT_S = 10.0
"""A caller that has not sent its Hello after this time is disconnected."""
DRAIN_TIMEOUT_S = 0.25
"""After the link to a dead process has ended, its last frames may still come for this long."""
MAX_UNSENT_BYTES = 256 * 1024 * 1024
"""If more bytes than this are unsent, the peer does not read, and the link is closed."""

_HEADER = struct.Struct(">I")
"""The length of the following message."""
_PLACEHOLDER = bytes(_HEADER.size)
"""Bytes at the place of a length, until the message is encoded."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="hello"):
    """The first message on a link.

    `nodes` are the sender's nodes at that moment. `listens_at` is the host and port at which a
    guest gets its answers; None from a process of the run, whose address is in the directory.
    """

    version: int
    token: str
    process_id: str
    target_process_id: str
    nodes: tuple[tuple[NodeName, Incarnation], ...]
    listens_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAddress:
    """Address of a process. `process_id` is unique in a run; a restart gives a new id."""

    process_id: str
    host: str
    port: int


def _no_guest(_address: ProcessAddress, _nodes: tuple[NodeName, ...]) -> None:
    """Ignore a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportEvents:
    """Functions that a Transport calls.

    `on_frame` gets each received frame. `on_peer_lost` gets the id of a lost process, and its
    nodes. `on_refused` gets the address ("host:port") of a refused caller, and the reason.
    `before_write` is called before bytes are written, so that the process can write its trace rows
    first. `on_guest` gets the address and the nodes of a guest, before its first frame.
    """

    on_frame: Callable[[Frame], None]
    on_peer_lost: Callable[[str, tuple[NodeName, ...]], None]
    on_refused: Callable[[str, str], None]
    before_write: Callable[[], None]
    on_guest: Callable[[ProcessAddress, tuple[NodeName, ...]], None] = _no_guest


@dataclass(slots=True, kw_only=True)
class _Peer:
    """The two links with one process; each may be missing.

    The keys of `nodes` are the nodes that the process named in its Hello, and the nodes to which
    frames were sent. All of them are reported when the process is lost.
    """

    process_id: str
    outgoing: "_OutgoingLink | None" = None
    incoming: "_IncomingLink | None" = None
    nodes: dict[NodeName, None] = field(default_factory=dict)
    draining: asyncio.TimerHandle | None = None
    """The timer for the last frames of the process, once `outgoing` has ended."""


@dataclass(slots=True, kw_only=True)
class Transport:
    """All TCP links of one node process, on one asyncio loop.

    `nodes` returns the nodes of this process, with their incarnations, for its Hello. `is_guest` is
    True if the process does not belong to the run. The keys of `_callers` are the links on which no
    Hello has come yet.
    """

    process_id: str
    token: str
    events: TransportEvents
    nodes: Callable[[], tuple[tuple[NodeName, Incarnation], ...]]
    max_frame_bytes: int = MAX_FRAME_BYTES
    is_guest: bool = False
    _peers: dict[str, _Peer] = field(default_factory=dict)
    _callers: dict["_IncomingLink", None] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _listens_at: tuple[str, int] | None = None
    _closed: bool = False

    async def listen(self, host: str) -> ProcessAddress:
        """Listen on a free port of `host` and return the address.

        Raises: OSError if `host` is no address of this machine.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _IncomingLink(self, loop), host, 0)
        port = self._server.sockets[0].getsockname()[1]
        self._listens_at = (host, port)
        return ProcessAddress(process_id=self.process_id, host=host, port=port)

    def send(self, address: ProcessAddress, frame: Frame) -> None:
        """Send `frame` to the process at `address`; dial if there is no link.

        If the frame cannot be sent, it is lost, and the peer is reported as lost. The functions of
        `events` are only called after `send` returns.
        Raises: SimulationError if the frame is too long.
        """
        if self._closed:
            return
        peer = self._peers.get(address.process_id)
        if peer is None:
            peer = self._peers[address.process_id] = _Peer(process_id=address.process_id)
        peer.nodes[frame.destination] = None
        if peer.draining is not None:
            return  # the process is dead: the frame is lost
        if peer.outgoing is None:
            peer.outgoing = _OutgoingLink(self, address)
        peer.outgoing.send(frame)

    def drop(self, process_id: str) -> None:
        """Close the links with a process that is gone, and report it as lost."""
        peer = self._peers.pop(process_id, None)
        if peer is None:
            return
        if peer.draining is not None:
            peer.draining.cancel()
        if peer.outgoing is not None:
            peer.outgoing.abort()
        if peer.incoming is not None:
            peer.incoming.abort()
        self.events.on_peer_lost(process_id, tuple(peer.nodes))

    async def close(self) -> None:
        """Stop listening and close every link, without any report."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for caller in list(self._callers):
            caller.abort()
        for peer in self._peers.values():
            if peer.draining is not None:
                peer.draining.cancel()
            if peer.outgoing is not None:
                peer.outgoing.close()
            if peer.incoming is not None:
                peer.incoming.abort()
        self._peers.clear()
        await asyncio.sleep(0)  # one turn, in which the loop closes the sockets

    def outgoing_lost(self, link: "_OutgoingLink") -> None:
        """Handle the end of a link that this process dialed, or a failed dial."""
        peer = self._peers.get(link.address.process_id)
        if self._closed or peer is None or peer.outgoing is not link:
            return
        if peer.incoming is None:
            self.drop(peer.process_id)
        elif peer.draining is None:
            # The peer may have sent frames before it died, which this process has not read yet. On
            # a single TCP connection, these frames would arrive before the end of the connection.
            # So we wait a little for them.
            loop = asyncio.get_running_loop()
            peer.draining = loop.call_later(DRAIN_TIMEOUT_S, self.drop, peer.process_id)

    def incoming_opened(self, link: "_IncomingLink", hello: Hello) -> None:
        """Accept a caller that has shown the token."""
        self._callers.pop(link, None)
        peer = self._peers.get(hello.process_id)
        if peer is not None and peer.incoming is not None:
            # The peer dials again, so it has seen that the old links have ended. This process has
            # not seen their end yet.
            self.drop(hello.process_id)
            # `drop` tells the nodes of the loss. One of them may have sent a frame to the peer
            # immediately, which has begun a new pair of links.
            peer = self._peers.get(hello.process_id)
        if peer is None:
            peer = self._peers[hello.process_id] = _Peer(process_id=hello.process_id)
        peer.incoming = link
        names = tuple(name for name, _ in hello.nodes)
        peer.nodes.update(dict.fromkeys(names))
        if hello.listens_at is not None:
            host, port = hello.listens_at
            address = ProcessAddress(process_id=hello.process_id, host=host, port=port)
            self.events.on_guest(address, names)

    def incoming_lost(self, link: "_IncomingLink", process_id: str | None) -> None:
        """Handle the end of a link that the peer dialed."""
        self._callers.pop(link, None)
        peer = None if process_id is None else self._peers.get(process_id)
        if not self._closed and peer is not None and peer.incoming is link:
            self.drop(peer.process_id)

    def calling(self, link: "_IncomingLink") -> None:
        """Remember a caller that has not sent its Hello yet."""
        self._callers[link] = None

    def hello(self, target_process_id: str) -> Hello:
        """Return this process's Hello."""
        return Hello(
            version=LINK_VERSION,
            token=self.token,
            process_id=self.process_id,
            target_process_id=target_process_id,
            nodes=self.nodes(),
            listens_at=self._listens_at if self.is_guest else None,
        )

    def refusal(self, hello: Hello) -> str | None:
        """Return the reason for refusing a caller; None if it is accepted."""
        if hello.version != LINK_VERSION:
            return f"link version {hello.version} instead of {LINK_VERSION}"
        if not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            return "wrong token"
        if hello.target_process_id != self.process_id:
            return f"meant for process {hello.target_process_id}"
        return None


class _OutgoingLink(asyncio.Protocol):
    """A link that this process dialed.

    The frames that are sent in one turn of the loop are written together.
    """

    def __init__(self, owner: Transport, address: ProcessAddress) -> None:
        self.address = address
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._flush_scheduled = False
        self._append(owner.hello(address.process_id))
        self._dial_task = self._loop.create_task(self._dial(), name=f"dial {address.process_id}")

    def send(self, frame: Frame) -> None:
        """Write `frame` in the loop's next turn, or once the link is open."""
        if self._ended:
            return
        self._append(frame)
        if not self._flush_scheduled and self._transport is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        # This concerns a link that does not open; for an open link, `_flush` looks at asyncio's
        # buffer.
        if len(self._buffer) > MAX_UNSENT_BYTES:
            self.abort()
            self._loop.call_soon(self._owner.outgoing_lost, self)

    def abort(self) -> None:
        """Close the link now; unsent frames are lost."""
        self._ended = True
        self._buffer.clear()
        self._dial_task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the link after all frames have been sent."""
        if self._transport is None:
            self.abort()
        else:
            self._flush()
            self._ended = True
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store asyncio's transport, and write the Hello and the frames so far."""
        if not isinstance(transport, asyncio.Transport):
            raise SimulationError(f"asyncio gave {type(transport).__name__} for a TCP link")
        self._transport = transport
        if self._ended:  # by `abort`, while the connection was being opened
            transport.abort()
        else:
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Ignore the bytes, because a peer sends only on the link that it dialed itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the link, by EOF or reset."""
        self._ended = True
        self._owner.outgoing_lost(self)

    async def _dial(self) -> None:
        """Open the TCP connection; a failure ends the link."""
        try:
            # asyncio asks for the connection's protocol, which is this object.
            await self._loop.create_connection(lambda: self, self.address.host, self.address.port)
        except OSError:
            self._ended = True
            self._buffer.clear()
            self._owner.outgoing_lost(self)

    def _append(self, message: Hello | Frame) -> None:
        """Add the bytes of a message to the buffer. Raises: SimulationError if it is too long."""
        buffer = self._buffer
        start = len(buffer)
        buffer += _PLACEHOLDER
        self._encoder.encode_into(message, buffer, -1)  # -1: at the end
        length = len(buffer) - start - _HEADER.size
        if length > self._owner.max_frame_bytes:
            del buffer[start:]
            raise SimulationError(
                f"{type(message).__name__} to {self.address.process_id} has {length} bytes,"
                f" {self._owner.max_frame_bytes} are allowed"
            )
        _HEADER.pack_into(buffer, start, length)

    def _flush(self) -> None:
        """Write the buffered messages; close the link if the peer does not read them."""
        self._flush_scheduled = False
        if self._ended or self._transport is None:
            return
        self._owner.events.before_write()
        data, self._buffer = self._buffer, bytearray()
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._transport.abort()


class _IncomingLink(asyncio.Protocol):
    """A link that another process dialed; this process never writes to it."""

    def __init__(self, owner: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._hello_decoder = msgspec.msgpack.Decoder(Hello)
        self._decoder = msgspec.msgpack.Decoder(Frame)
        self._buffer = bytearray()
        self._inbox: list[Frame] = []
        """Frames that are delivered in the next turn of the loop."""
        self._transport: asyncio.Transport | None = None
        self._process_id: str | None = None
        """The process at the other end; None before its Hello."""
        self._ended = False
        self._hello_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store asyncio's transport, and start the timer for the caller's Hello."""
        if not isinstance(transport, asyncio.Transport):
            raise SimulationError(f"asyncio gave {type(transport).__name__} for a TCP link")
        self._transport = transport
        self._owner.calling(self)
        self._hello_timer = self._loop.call_later(HELLO_TIMEOUT_S, self._refuse, "no Hello")

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into frames, which are delivered in the loop's next turn."""
        if self._ended:
            return
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(buffer, start)
            greeted = self._process_id is not None
            limit = self._owner.max_frame_bytes if greeted else MAX_HELLO_BYTES
            if length > limit:
                self._refuse(f"a frame of {length} bytes, {limit} are allowed")
                return
            end = start + _HEADER.size + length
            if end > len(buffer):
                break
            # A slice of the memoryview makes no copy, unlike one of the bytearray.
            if not self._take(bytes(memoryview(buffer)[start + _HEADER.size : end])):
                return
            start = end
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the link, after delivering the frames before it."""
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._deliver_inbox()
        self._ended = True
        self._owner.incoming_lost(self, self._process_id)

    def abort(self) -> None:
        """Close the link now; received frames that are not delivered yet are lost."""
        self._ended = True
        self._inbox.clear()
        self._buffer.clear()
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _take(self, payload: bytes) -> bool:
        """Process one message; return False if the link was closed because of it.

        The first message must be a Hello; all later messages are frames.
        """
        try:
            if self._process_id is not None:
                frame = self._decoder.decode(payload)
            else:
                return self._greet(self._hello_decoder.decode(payload))
        except msgspec.MsgspecError as error:
            self._refuse(f"bytes that are no frame: {error}")
            return False
        if not self._inbox:
            self._loop.call_soon(self._deliver_inbox)
        self._inbox.append(frame)
        return True

    def _greet(self, hello: Hello) -> bool:
        """Accept or refuse the caller; return False if it is refused."""
        reason = self._owner.refusal(hello)
        if reason is not None:
            self._refuse(reason)
            return False
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._process_id = hello.process_id
        self._owner.incoming_opened(self, hello)
        return True

    def _refuse(self, reason: str) -> None:
        """Report the caller and close its link; an accepted peer then counts as lost."""
        if self._ended:
            return
        address = self._transport.get_extra_info("peername") if self._transport else None
        caller = f"{address[0]}:{address[1]}" if address else "unknown"
        # Deliver the frames before the invalid bytes, which `abort` would drop.
        self._deliver_inbox()
        self.abort()
        self._owner.events.on_refused(caller, reason)

    def _deliver_inbox(self) -> None:
        """Deliver the received frames, until the link ends."""
        inbox, self._inbox = self._inbox, []
        for frame in inbox:
            if self._ended:
                return
            self._owner.events.on_frame(frame)
