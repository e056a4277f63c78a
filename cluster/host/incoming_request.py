"""A request as the handler of a server gets it: a Struct, in a module of its own.

mypyc compiles `host`, and no Struct.
"""

from typing import NamedTuple

import msgspec

from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName, RequestId


class AcceptedConnection(NamedTuple):
    """A connection as its server names it: the client, and the number that it gave to it."""

    peer: NodeName
    connection_id: int


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a server's handler gets it. A Struct, because they are built by the thousand.

    `request_id` is unique in the server's incarnation: Host.reply names it. `peer` is the client,
    `connection_id` the number that it gave its connection.
    """

    request_id: RequestId
    peer: NodeName
    connection_id: int
    envelope: RequestEnvelope

    @property
    def connection(self) -> AcceptedConnection:
        """The connection that it came on: Host.notify and Host.hang_up name it."""
        return AcceptedConnection(self.peer, self.connection_id)
