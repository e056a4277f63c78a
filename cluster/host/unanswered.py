"""The invariant that each request gets an answer: a node holds each request until its answer.

Without this check, the loss of a request shows only as a timeout of the client. The client repeats
the request, so nothing else goes wrong.
"""

from collections.abc import Set
from types import UnionType

from cluster.host.host import Host
from protocol.errors import InvariantViolation
from protocol.ids import RequestId


def check_unanswered(
    host: Host, waiting: Set[RequestId], *, elsewhere: tuple[type, ...] | UnionType = ()
) -> None:
    """Check that each unanswered request of a live connection is in `waiting`.

    `elsewhere` are the types of requests that another check covers.
    Raises: InvariantViolation.
    """
    for request_id, envelope, is_connected in host.unanswered():
        if is_connected and request_id not in waiting and not isinstance(envelope.body, elsewhere):
            raise InvariantViolation(
                "a request is answered, or its node holds it",
                f"{envelope.api_key.label} {request_id} of {envelope.client_host} has no answer, "
                "and no part of the node holds it",
            )
