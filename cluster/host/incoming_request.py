"""IncomingRequest, and the connection on which it came.

The module is separate from `host`, because mypyc compiles `host` and cannot compile a Struct.
"""

from typing import NamedTuple

import msgspec

from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName, RequestId


class AcceptedConnection(NamedTuple):
    """Identifies a connection at its server: the client, and the id that the client chose."""

    peer: NodeName
    connection_id: int


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a server's handler gets it.

    The server answers it by Host.reply, with `request_id`, which is unique in the server's
    incarnation. `peer` is the client; `connection_id` is the id that the client gave to its
    connection.

    The class is a Struct because a run creates thousands of requests, and a Struct is fast to
    create.
    """

    request_id: RequestId
    peer: NodeName
    connection_id: int
    envelope: RequestEnvelope

    @property
    def connection(self) -> AcceptedConnection:
        """The request's connection, as Host.notify and Host.hang_up take it."""
        return AcceptedConnection(self.peer, self.connection_id)
