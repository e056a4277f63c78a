"""Trace events of messages: a request that was sent, received, answered, or that failed.

Each event becomes a row of the run's trace. For a client's request, the row also has the group,
member and generation from the request, so that one can look for all requests of a member. Requests
of different APIs have these values in different fields; `Api.subject` has the paths to them.
"""

from collections.abc import Callable
from typing import Any

from protocol.api import Api, RequestSubject
from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind

_Read = Callable[[object], Any]
"""A function that returns one field of a request."""
_GroupColumns = Callable[[object], tuple[str | None, str | None, int | None]]
"""A function that returns the group, member and generation of a request."""


def client_event(
    kind: TraceKind,
    envelope: RequestEnvelope,
    *,
    peer: NodeName,
    purpose: str,
    error: str | None = None,
) -> TraceEvent:
    """Return the event of a client's request that was sent, answered or failed."""
    # `_GROUP_COLUMNS`, at the end of this module, has a reader for each type of request.
    group, member, generation = _GROUP_COLUMNS[type(envelope.body)](envelope.body)
    return TraceEvent(
        kind=kind,
        peer=peer,
        api=envelope.api_key.label,
        correlation_id=envelope.correlation_id,
        group=group,
        member=member,
        generation=generation,
        cause=purpose,  # the column `cause` holds the connection's purpose here
        error=error,
    )


def server_event(
    kind: TraceKind, envelope: RequestEnvelope, *, peer: NodeName, error: str | None = None
) -> TraceEvent:
    """Return the event of a request that a server received or answered."""
    return TraceEvent(
        kind=kind,
        peer=peer,
        api=envelope.api_key.label,
        correlation_id=envelope.correlation_id,
        error=error,
    )


def _group_columns_of(subject: RequestSubject | None) -> _GroupColumns:
    """Return a reader of a request's group, member and generation.

    `subject` has the paths to these values. The reader returns None for a value that requests of
    this type do not have.
    """
    if subject is None:
        return lambda request: (None, None, None)
    # A RequestSubject is a tuple of three paths.
    group, member, generation = (_reader_of(path) for path in subject)
    return lambda request: (group(request), member(request), generation(request))


def _reader_of(path: str | None) -> _Read:
    """Return a function that reads the field of a request at a dotted path.

    For the path "members.member_id" it returns `request.members[0].member_id`: of a tuple it takes
    the first item, because a column of the trace holds one value. It returns None if the tuple is
    empty, or if `path` is None.
    """
    if path is None:
        return lambda request: None
    names = path.split(".")

    def read(request: object) -> object:
        value = request
        for name in names:
            value = getattr(value, name)
            if isinstance(value, tuple):
                if not value:
                    return None
                value = value[0]
        return value

    return read


_GROUP_COLUMNS: dict[type, _GroupColumns] = {
    api.request: _group_columns_of(api.subject) for api in Api
}
"""For each type of request, the reader of its group, member and generation.

The readers are made once, because a run traces thousands of messages."""
