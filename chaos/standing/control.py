"""The sockets between a standing cluster and the commands that send it requests.

A command such as `coordlab status` calls `ask_at`. This function connects to the cluster, sends one
request, and waits for the answer. The request and the answer are one frame each: four bytes with
the length, and then JSON.

The cluster listens on a free port of the loopback address, which every user of the machine can
reach. So each request has a secret token, which only the owner of the cluster can read
(`registry`). A request with a wrong token gets no answer. The server has threads of its own, so it
can answer even while the event loop of the run is busy.

The frames contain JSON instead of pickles, because the decoding of a pickle can execute code. The
sockets are TCP sockets instead of Unix sockets, because Python has no Unix sockets on Windows.
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
"""Maximum length of a frame. Even the status of the largest possible cluster is shorter."""
FRAME_TIMEOUT_S = 10.0
"""Timeout of connects, of each read of a request, and of the wait for the last answers."""
_CHUNK_BYTES = 64 * 1024
"""Maximum number of bytes that one call of `recv` reads."""
_CLOSE_POLL_S = 0.05
"""Interval in which the server's thread checks whether `close` was called."""
_LENGTH = struct.Struct(">I")
"""The four bytes in front of each frame: the length of its content, most significant byte first."""


class Unreachable(Exception):
    """The cluster is dead: nothing listens at its port, or another program does."""


class SilentCluster(Exception):
    """The cluster has not answered a request, but may be alive. The message has the reason."""


class ControlServer:
    """Takes requests, and answers them with the results of `handle`.

    Each request has a thread of its own, so `handle` may block for as long as the request takes.
    The server itself answers each PresenceRequest, and refuses each request of another version. All
    other requests are passed to `handle`.
    """

    def __init__(self, handle: Callable[[Request], Answer], *, token: str) -> None:
        """Listen. Raises: OSError."""
        self._server = _Server(handle, token)
        self.port: int = self._server.server_address[1]  # the address is (host, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CLOSE_POLL_S,), name="control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and then wait until all requests that were taken are answered.

        The wait for each answer takes at most FRAME_TIMEOUT_S.
        """
        self._server.shutdown()
        self._server.server_close()
        for thread in self._server.answering():
            thread.join(FRAME_TIMEOUT_S)


class _Server(socketserver.ThreadingTCPServer):
    """Listens, and knows the threads that have not answered their request yet."""

    # By default two waits for all threads have no timeout: in `server_close`, and at the end of the
    # process. But a thread may never get the answer to its request, for example if the healing of a
    # fault hangs. So these two settings switch the waits off. Instead, `ControlServer.close` waits
    # with a timeout.
    daemon_threads = True
    block_on_close = False

    def __init__(self, handle: Callable[[Request], Answer], token: str) -> None:
        self.handle_request_of_command = handle
        self.token = token
        self._answering: dict[threading.Thread, None] = {}
        super().__init__((LOOPBACK, 0), _Connection)  # port 0: the system chooses a free port

    def answering(self) -> tuple[threading.Thread, ...]:
        """Return the threads that have a request and have not answered it."""
        # This is a copy, because each thread removes itself from the dict when it has answered.
        return tuple(self._answering)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer one command. The base class calls this in a new thread for each connection."""
        thread = threading.current_thread()
        self._answering[thread] = None
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._answering.pop(thread, None)

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Ignore the error: the command has closed its connection, and needs no answer.

        The base class would print a traceback into the live view of the terminal.
        """


class _Connection(socketserver.BaseRequestHandler):
    """One connection of a command."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        """Read a request and send its answer."""
        self.request.settimeout(FRAME_TIMEOUT_S)
        try:
            envelope = msgspec.json.decode(_receive(self.request), type=Envelope)
        except (OSError, EOFError, msgspec.MsgspecError):
            return  # the other side is another program, not a command of coordlab
        # `compare_digest` takes the same time for each wrong token. So the time of an answer
        # reveals nothing about the right token. Bytes are compared, because `compare_digest`
        # refuses texts that are not ASCII.
        if not hmac.compare_digest(envelope.token.encode(), self.server.token.encode()):
            return
        # A PresenceRequest only asks whether the cluster is alive. It is answered here, without the
        # run and for every version. Otherwise a cluster that is busy, or of another version, would
        # be taken for dead.
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
            answer = self.server.handle_request_of_command(envelope.request)
        _send(self.request, msgspec.json.encode(answer))


def ask_at(port: int, token: str, request: Request, *, timeout_s: float | None = None) -> Answer:
    """Send a request to the cluster that listens at `port`, and return its answer.

    If `timeout_s` is None, wait for the answer without a limit. For example, `down` waits until the
    run has ended.

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
            # The connection was closed without an answer. A cluster always answers a
            # PresenceRequest that has the right token. So if this request was one, another program
            # listens.
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
        # No command and no cluster sends a frame of this length. So the other side is another
        # program, and the caller treats this like a connection that has ended early.
        raise EOFError(f"a frame of {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(min(size - len(content), _CHUNK_BYTES))
        if not part:
            raise EOFError(f"the connection ended after {len(content)} of {size} bytes")
        content += part
    return bytes(content)
