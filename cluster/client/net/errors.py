"""Errors of a client's operations.

Kafka's clients have an exception class for each error. Here ClientError with the error's name
stands for nearly all of them. An error has a class of its own only if callers in Kafka's code catch
it separately.
"""

from cluster.host.host import Disconnected, RequestTimedOut
from protocol.errors import ErrorCode

DISCONNECTED = "DISCONNECTED"
"""The connection ended before the answer; the request may have been carried out."""
TIMED_OUT = "TIMED_OUT"
"""No answer came within the request's timeout; the request may have been carried out."""
NO_BROKER_AVAILABLE = "NO_BROKER_AVAILABLE"
"""No known node can be connected to at the moment; nothing was sent."""


class ClientError(Exception):
    """An operation failed. `name` is an error code's name or one of this module's constants.

    `retriable` is True if the same request may be sent again.
    """

    def __init__(self, name: str, *, retriable: bool) -> None:
        super().__init__(name)
        self.name = name
        self.retriable = retriable


class RebalanceInProgressError(ClientError):
    """Kafka's RebalanceInProgressException. The application must poll, then it may try again."""

    def __init__(self) -> None:
        # Not retriable, because the same request fails again until the application has polled.
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS.name, retriable=False)


class CommitFailedError(ClientError):
    """Kafka's CommitFailedException: the member is no longer part of the group.

    `name` is the coordinator's error code, or COMMIT_FAILED if nothing was sent.
    """

    def __init__(self, name: str = "COMMIT_FAILED") -> None:
        super().__init__(name, retriable=False)


class UnjoinedGroupError(ClientError):
    """Kafka's UnjoinedGroupException: the member left the group before JoinGroup was answered."""

    def __init__(self) -> None:
        # Retriable, because the next poll joins again, with a new member id.
        super().__init__("UNJOINED_GROUP", retriable=True)


def error_from_code(code: ErrorCode) -> ClientError:
    """Return the error that Kafka's client raises for `code`."""
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError()
    return ClientError(code.name, retriable=code.retriable)


def unexpected_error(code: ErrorCode) -> ClientError:
    """Return a fatal error for a code that Kafka's handler of the response does not expect.

    Source: Kafka throws a KafkaException "unexpected error in ... response", which no loop retries.
    """
    return ClientError(code.name, retriable=False)


def error_from_network(failure: Disconnected | RequestTimedOut) -> ClientError:
    """Return the error for a request that got no answer."""
    name = TIMED_OUT if isinstance(failure, RequestTimedOut) else DISCONNECTED
    return ClientError(name, retriable=True)
