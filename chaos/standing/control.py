"""The sockets between a standing cluster and those who ask it.

A cluster listens on a free port of the loopback address, in threads of its own: they answer while
the run's loop is not running, too. A frame is four bytes of length and JSON; a connection carries
one request and one answer. Who does not know the token is sent away. Sockets and JSON, no pickle:
nothing of a frame is executed, and nothing here is one system's alone.
"""

import hmac
import socket
import socketserver
import struct
import threading
from collections.abc import Callable

import msgspec

from chaos.standing.messages import (
    CONTROL_VERSION,
    Answer,
    Envelope,
    OrderRefusal,
    PresenceAnswer,
    PresenceRequest,
    RefusalKind,
    Request,
)

LOOPBACK = "127.0.0.1"
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The status of the largest cluster that a file may describe is below it."""
FRAME_TIMEOUT_S = 10.0
"""Time in which a caller sends its whole request."""
_CLOSES_WITHIN_S = 0.05
_LENGTH = struct.Struct(">I")


class Unreachable(Exception):
    """Nothing listens at a cluster's port, or something that does not know its token."""


class SilentCluster(Exception):
    """A cluster that took a request and did not answer; says why."""


class ControlServer:
    """Takes requests, and answers with what `handle` returns; each request has its own thread.

    `handle` may block for as long as the request takes.
    """

    def __init__(self, handle: Callable[[Request], Answer], *, token: str) -> None:
        """Listen. Raises: OSError."""
        self._server = _Server(handle, token)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CLOSES_WITHIN_S,), name="control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Answers that are on their way are sent."""
        self._server.shutdown()
        self._server.server_close()
        for thread in self._server.answering():
            thread.join(FRAME_TIMEOUT_S)


class _Server(socketserver.ThreadingTCPServer):
    """Listens; keeps the threads that still owe an answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handle: Callable[[Request], Answer], token: str) -> None:
        self.handle_request_of_caller = handle
        self.token = token
        self._answering: dict[threading.Thread, None] = {}
        super().__init__((LOOPBACK, 0), _Caller)

    def answering(self) -> tuple[threading.Thread, ...]:
        """Return the threads that have a caller."""
        return tuple(self._answering)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer one caller."""
        me = threading.current_thread()
        self._answering[me] = None
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._answering.pop(me, None)

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Drop a caller that went away: nobody is there to be told."""


class _Caller(socketserver.BaseRequestHandler):
    """One connection of a caller."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        """Read a request and send its answer."""
        self.request.settimeout(FRAME_TIMEOUT_S)
        try:
            envelope = msgspec.json.decode(_receive(self.request), type=Envelope)
        except (OSError, EOFError, msgspec.MsgspecError):
            return  # no caller of ours: it gets nothing
        if not hmac.compare_digest(envelope.token.encode(), self.server.token.encode()):
            return
        if isinstance(envelope.request, PresenceRequest):
            answer: Answer = PresenceAnswer()
        elif envelope.version != CONTROL_VERSION:
            answer = OrderRefusal(
                kind=RefusalKind.UNKNOWN,
                problems=(
                    f"the cluster takes orders of version {CONTROL_VERSION}, this is "
                    f"{envelope.version}: ask with the coordlab that runs it",
                ),
            )
        else:
            answer = self.server.handle_request_of_caller(envelope.request)
        _send(self.request, msgspec.json.encode(answer))


def ask_at(port: int, token: str, request: Request, *, timeout_s: float | None = None) -> Answer:
    """Send a request to the cluster that listens at `port`, and return its answer.

    Without `timeout_s` the answer may take as long as it takes.
    Raises: Unreachable, SilentCluster.
    """
    try:
        connection = socket.create_connection((LOOPBACK, port), timeout=FRAME_TIMEOUT_S)
    except ConnectionRefusedError as error:
        raise Unreachable(f"nothing listens at port {port}") from error
    except OSError as error:
        raise SilentCluster(f"port {port} does not answer: {error}") from error
    with connection:
        try:
            _send(connection, msgspec.json.encode(Envelope(token=token, request=request)))
            connection.settimeout(timeout_s)
            content = _receive(connection)
        except EOFError as error:
            if isinstance(request, PresenceRequest):
                raise Unreachable(f"what listens at port {port} is another program") from error
            raise SilentCluster("the cluster ended before it answered") from error
        except OSError as error:
            raise SilentCluster(f"the cluster does not answer: {error}") from error
        try:
            answer: Answer = msgspec.json.decode(content, type=Answer)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"what listens at port {port} is another program") from error
    return answer


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)) + content)


def _receive(connection: socket.socket) -> bytes:
    """Return the content of the next frame. Raises: EOFError, OSError."""
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(min(size - len(content), 1 << 16))
        if not part:
            raise EOFError(f"the connection ended after {len(content)} of {size} bytes")
        content += part
    return bytes(content)
