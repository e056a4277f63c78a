"""The sockets between a standing cluster and the commands that send it requests.

A command such as `coordlab status` calls `ask_at`, which connects to the cluster, sends one request
and waits for the answer. Each of the two is one frame: four bytes with the length, and then JSON.

The cluster listens on a free port of the loopback address, which every user of the machine can
reach. So each request has a secret token, which only the cluster's owner can read, and a request
with a wrong token gets no answer. The server has threads of its own, so that it answers even while
the run's event loop is busy.

The content is JSON and not a pickle, because decoding a pickle can execute code. The sockets are
TCP and not Unix sockets, because Python has no Unix sockets on Windows.
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
"""Longer frames are refused. The status of the largest possible cluster is shorter."""
FRAME_TIMEOUT_S = 10.0
"""Longest time for a connect, for each read of a request, and for the last answers in `close`."""
_CLOSE_POLL_S = 0.05
"""Interval in which the server's thread checks whether `close` was called."""
_LENGTH = struct.Struct(">I")
"""The four bytes in front of each frame: the length of its content."""


class Unreachable(Exception):
    """Nothing listens at the port, or something that does not know the token: it is dead."""


class SilentCluster(Exception):
    """The cluster did not answer a request, but may be alive; the message has the reason."""


class ControlServer:
    """Takes requests, and answers with what `handle` returns; each request has its own thread.

    `handle` may block for as long as the request takes. It gets no PresenceRequest and no request
    of another version: the server answers those itself.
    """

    def __init__(self, handle: Callable[[Request], Answer], *, token: str) -> None:
        """Listen. Raises: OSError."""
        self._server = _Server(handle, token)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CLOSE_POLL_S,), name="control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, then wait until each request that was taken has its answer."""
        self._server.shutdown()
        self._server.server_close()
        for thread in self._server.answering():
            thread.join(FRAME_TIMEOUT_S)


class _Server(socketserver.ThreadingTCPServer):
    """Listens, and knows the threads that have not answered yet."""

    # By default the base class waits for all its threads without a timeout, when it is closed and
    # at the end of the process. But a thread may wait forever for its answer, for example if a heal
    # hangs. So these two settings switch the waits off. `ControlServer.close` waits with a timeout.
    daemon_threads = True
    block_on_close = False

    def __init__(self, handle: Callable[[Request], Answer], token: str) -> None:
        self.handle_request_of_command = handle
        self.token = token
        self._answering: dict[threading.Thread, None] = {}
        super().__init__((LOOPBACK, 0), _Connection)  # port 0: the system chooses a free port

    def answering(self) -> tuple[threading.Thread, ...]:
        """Return the threads that have a request and have not answered it."""
        # A copy, because each thread removes itself when it has answered.
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
        """Ignore the error: a command that closed its connection needs no answer.

        The base class would print a traceback over the live view.
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
            return  # another program, not one of this project's commands
        # `compare_digest` takes the same time for each wrong token, so that the time of an answer
        # reveals nothing about the right one. Of texts it takes only ASCII, so bytes are compared.
        if not hmac.compare_digest(envelope.token.encode(), self.server.token.encode()):
            return
        # A PresenceRequest only asks whether the cluster is alive. It is answered here at once,
        # because a busy cluster, or one of another version, must not be taken for a dead one.
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

    `timeout_s` is None for a wait without a limit: a `down` waits for the end of the run.
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
            # A cluster answers each PresenceRequest that has its token. If the connection was
            # closed without an answer, the token was refused, so another program listens.
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
        # No command and no cluster sends a frame of this length, so this is another program. The
        # caller treats the frame like a connection that ended early.
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
