"""What a client operation ends with when it does not succeed.

Kafka's clients have an exception class per error; here one class carries the name, and subclasses
stand where Kafka's callers tell them apart.
"""

from cluster.host.host import Disconnected, RequestTimedOut
from protocol.errors import ErrorCode

DISCONNECTED = "DISCONNECTED"
"""The connection ended before the answer; the request may have been carried out."""
TIMED_OUT = "TIMED_OUT"
"""No answer within the request's timeout; the request may have been carried out."""
NO_BROKER_AVAILABLE = "NO_BROKER_AVAILABLE"
"""No known node can be connected to right now; nothing was sent."""


class ClientError(Exception):
    """An operation failed. `name` is that of an error code, or one of this module's constants.

    `retriable` says whether the same request may be sent again.
    """

    def __init__(self, name: str, *, retriable: bool) -> None:
        super().__init__(name)
        self.name = name
        self.retriable = retriable


class RebalanceInProgressError(ClientError):
    """Kafka's RebalanceInProgressException: poll finishes the rebalance, then try again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS.name, retriable=False)


class CommitFailedError(ClientError):
    """Kafka's CommitFailedException: the member is no part of the group any more.

    `name` is the coordinator's error code, or COMMIT_FAILED where nothing was sent.
    """

    def __init__(self, name: str = "COMMIT_FAILED") -> None:
        super().__init__(name, retriable=False)


class UnjoinedGroupError(ClientError):
    """Kafka's UnjoinedGroupException: the member left while its JoinGroup was on its way."""

    def __init__(self) -> None:
        super().__init__("UNJOINED_GROUP", retriable=True)


def error_from_code(code: ErrorCode) -> ClientError:
    """Return the error that Kafka's client makes of `code`."""
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError()
    return ClientError(code.name, retriable=code.retriable)


def unexpected(code: ErrorCode) -> ClientError:
    """Return the fatal error for a code that the request's table does not list.

    Source: Kafka throws a KafkaException "unexpected error in ... response", which no loop retries.
    """
    return ClientError(code.name, retriable=False)


def error_from_network(failure: Disconnected | RequestTimedOut) -> ClientError:
    """Return the error for a request that got no answer."""
    name = TIMED_OUT if isinstance(failure, RequestTimedOut) else DISCONNECTED
    return ClientError(name, retriable=True)
