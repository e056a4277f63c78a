"""Failures of handlers, and the translation of the log's errors into a client's errors.

Source: Kafka `GroupMetadataManager.storeGroup`, `convertOffsetCommitError`, Java
`CoordinatorOperationExceptionHelper`; docs/kafka/BEHAVIOUR.md 5.8.
"""

from protocol.config import JavaSwitches
from protocol.errors import ErrorCode


class UnknownServerError(Exception):
    """Raised where Kafka's handler throws: the request is answered with UNKNOWN_SERVER_ERROR.

    The changes that the handler made before the exception stay, as in Kafka. If a timer's handler
    throws, no client is answered, and Kafka only logs the exception.
    """


# If an append fails, the client does not get the log's error. One of the following three tables
# translates it: error of the log -> error for the client. An error that is not in the table is
# passed on unchanged, and so is NONE.

# Kafka's Scala coordinator, for the append of a group's record (its members, their assignment):
_GROUP_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # REBALANCE_IN_PROGRESS makes the member rejoin, because its generation was not stored.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# Kafka's Scala coordinator, for the append of committed offsets:
_OFFSET_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    # NETWORK_EXCEPTION is no error of the log. It is the error of a verification that failed: a
    # transaction is verified before the append of its offsets. COORDINATOR_LOAD_IN_PROGRESS makes
    # the client try again.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
# Kafka's Java coordinator, for every append:
_JAVA_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def group_append_error(error: ErrorCode, java: JavaSwitches) -> ErrorCode:
    """Return the error that the client gets after the append of a group's record.

    `error` is the log's error. `java` says whether to imitate Kafka's Java coordinator.
    """
    errors = _JAVA_APPEND_ERRORS if java.append_errors else _GROUP_APPEND_ERRORS
    return errors.get(error, error)


def offset_append_error(error: ErrorCode, java: JavaSwitches) -> ErrorCode:
    """Return the error that the client gets after the append of its committed offsets.

    `error` and `java` have the same meaning as in `group_append_error`.
    """
    # With the switch `commits_apply_on_append`, commits are handled as in the Java coordinator. So
    # their errors are translated with the table of the Java coordinator, too.
    as_java = java.append_errors or java.commits_apply_on_append
    errors = _JAVA_APPEND_ERRORS if as_java else _OFFSET_APPEND_ERRORS
    return errors.get(error, error)
