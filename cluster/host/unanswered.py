"""A check that a node does not lose requests: it answers each request, or still holds it.

A lost request is a bug that is easy to miss: the client waits until its timeout and repeats the
request, and everything seems to work.
"""

from collections.abc import Set
from types import UnionType

from cluster.host.host import Host
from protocol.errors import InvariantViolation
from protocol.ids import RequestId


def check_unanswered(
    host: Host, waiting: Set[RequestId], *, elsewhere: tuple[type, ...] | UnionType = ()
) -> None:
    """Check that each unanswered request of a live connection is one of `waiting`.

    `waiting` are the requests that the calling node holds. Requests of the types in `elsewhere` are
    skipped, because another part of the node holds and checks them.
    Raises: InvariantViolation.
    """
    for request_id, envelope, is_connected in host.unanswered():
        if is_connected and request_id not in waiting and not isinstance(envelope.body, elsewhere):
            raise InvariantViolation(
                "a request is answered, or its node holds it",
                f"{envelope.api_key.label} {request_id} of {envelope.client_host} has no answer, "
                "and no part of the node holds it",
            )
