"""Trace events of messages: the API, and the group, member and generation that a request names.

An event becomes one row of the run's trace; a column is one field of the event. `Api` lists all
APIs; `Api.subject` names the fields of a request that hold group, member and generation.
"""

from collections.abc import Callable
from typing import Any

from protocol.api import Api, RequestSubject
from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind

_Read = Callable[[object], Any]
"""Reads one field of a request."""
_GroupColumns = Callable[[object], tuple[str | None, str | None, int | None]]
"""Reads group, member and generation of a request."""


def client_event(
    kind: TraceKind,
    envelope: RequestEnvelope,
    *,
    peer: NodeName,
    purpose: str,
    error: str | None = None,
) -> TraceEvent:
    """Return the event of a client's request that was sent, answered or failed."""
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

    `subject` names the fields with these values. The reader returns None for a missing field.
    """
    if subject is None:
        return lambda request: (None, None, None)
    # A RequestSubject is a tuple of three paths.
    group, member, generation = (_reader_of(path) for path in subject)
    return lambda request: (group(request), member(request), generation(request))


def _reader_of(path: str | None) -> _Read:
    """Return a reader of the field at a dotted path, such as "topics.partitions".

    If a field is a tuple, the reader goes on with its first item, because a column holds one value.
    For an empty tuple it returns None. If `path` is None, the reader returns None for every
    request.
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
"""Readers by type of request, built once, because a run traces thousands of messages."""
