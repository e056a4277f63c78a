"""Request headers, which can be read for any API and version.

The header must be readable even if the body is not. For example, an ApiVersions request of an
unknown version must still be answered (KIP-511). The answer needs the request's correlation id,
which is a number that the client has given to the request. The header of an answer has only this
id.

If the bytes are in another protocol, `foreign_protocol` says which protocol it is.

Source: Kafka `RequestHeader.json`, `ResponseHeader.json`.
"""

import struct
from typing import NamedTuple

from cluster.wire.codec import Cursor, MalformedRequest, read_nullable_string
from protocol.api import Api

_API_BY_KEY = {api.value: api for api in Api}
_FIXED = struct.Struct(">hhi")
"""The first fields of every header: API key, API version, correlation id."""

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
"""Keys of the APIs that a client with SASL (a login) calls first."""
_TLS_HANDSHAKE = b"\x16\x03"
"""A TLS record of type handshake, of any version of the protocol."""
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")
"""First four bytes of HTTP requests."""


class RequestHeader(NamedTuple):
    """The header of one request; `api_key` may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str

    @property
    def api(self) -> Api | None:
        """The API; None if this project has no API with this key."""
        return _API_BY_KEY.get(self.api_key)


def read_header(cursor: Cursor) -> RequestHeader:
    """Return the header at the cursor. Raises: MalformedRequest.

    In a flexible version (KIP-482) the header ends with tagged fields. No API is offered in a
    flexible version, so tagged fields are not read.
    """
    api_key, api_version, correlation_id = _FIXED.unpack(cursor.take(_FIXED.size))
    if api_key < 0 or api_version < 0:
        raise MalformedRequest(f"expected an API key and version, got {api_key} v{api_version}")
    return RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=read_nullable_string(cursor) or "",  # null, which is legal, counts as no id
    )


def foreign_protocol(first_bytes: bytes) -> str | None:
    """Return which protocol a connection's first four bytes are in; None if it is not known."""
    if first_bytes.startswith(_TLS_HANDSHAKE):
        return "a TLS handshake: the listener is PLAINTEXT (security.protocol=PLAINTEXT)"
    if first_bytes in _HTTP:
        return "an HTTP request: the listener speaks Kafka's wire protocol"
    return None
