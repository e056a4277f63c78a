"""A request as the handler of a server gets it: a Struct, in a module of its own.

mypyc compiles `host`, and no Struct.
"""

import msgspec

from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName, RequestId


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a server's handler gets it. A Struct, because they are built by the thousand.

    `request_id` is unique in the server's incarnation: Host.reply names it. `peer` is the client.
    """

    request_id: RequestId
    peer: NodeName
    envelope: RequestEnvelope
