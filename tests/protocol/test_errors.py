"""Error codes: Kafka's numbers, and which errors are retriable or definite.

After a retriable error a client sends the request again. After a definite error it is certain that
the request has had no effect. "BEHAVIOUR 5.9" is a section of docs/kafka/BEHAVIOUR.md.
"""

import pytest

from protocol.errors import ErrorCode

# Copied from BEHAVIOUR 5.9, so that a test fails if a number in the enum is wrong.
NUMBERS = {
    "UNKNOWN_SERVER_ERROR": -1,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "REQUEST_TIMED_OUT": 7,
    "COORDINATOR_LOAD_IN_PROGRESS": 14,
    "COORDINATOR_NOT_AVAILABLE": 15,
    "NOT_COORDINATOR": 16,
    "NOT_ENOUGH_REPLICAS": 19,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    "ILLEGAL_GENERATION": 22,
    "INCONSISTENT_GROUP_PROTOCOL": 23,
    "INVALID_GROUP_ID": 24,
    "UNKNOWN_MEMBER_ID": 25,
    "INVALID_SESSION_TIMEOUT": 26,
    "REBALANCE_IN_PROGRESS": 27,
    "INVALID_COMMIT_OFFSET_SIZE": 28,
    "NON_EMPTY_GROUP": 68,
    "GROUP_ID_NOT_FOUND": 69,
    "FENCED_LEADER_EPOCH": 74,
    "MEMBER_ID_REQUIRED": 79,
    "GROUP_MAX_SIZE_REACHED": 81,
    "FENCED_INSTANCE_ID": 82,
    "UNSTABLE_OFFSET_COMMIT": 88,
    "INELIGIBLE_REPLICA": 107,
    "NEW_LEADER_ELECTED": 108,
    "TRANSACTION_ABORTABLE": 120,
}


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_error_code_has_kafkas_number(name: str, number: int) -> None:
    """Engineers know the numbers from Kafka's logs and packets."""
    assert ErrorCode[name] == number


def test_retriable_follows_kafkas_client() -> None:
    """An error is retriable if the same request may succeed later (BEHAVIOUR 7.8).

    After REBALANCE_IN_PROGRESS or MEMBER_ID_REQUIRED a member does not repeat the request, but
    joins the group again. A fenced member cannot go on at all, because another member has replaced
    it.
    """
    assert ErrorCode.NOT_COORDINATOR.retriable
    assert ErrorCode.UNSTABLE_OFFSET_COMMIT.retriable
    assert not ErrorCode.REBALANCE_IN_PROGRESS.retriable
    assert not ErrorCode.MEMBER_ID_REQUIRED.retriable
    assert not ErrorCode.FENCED_INSTANCE_ID.retriable


def test_timed_out_commit_is_indefinite_and_a_fenced_one_definite() -> None:
    """If the append of a record timed out, the record is in the log and may still be committed.

    The same holds if a leader finds after the append that it has too few in-sync replicas. But if
    the leader finds this before the append, it appends nothing (NOT_ENOUGH_REPLICAS). For a commit
    of an old generation (ILLEGAL_GENERATION), nothing is appended either.
    """
    assert not ErrorCode.REQUEST_TIMED_OUT.definite
    assert not ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND.definite
    assert ErrorCode.ILLEGAL_GENERATION.definite
    assert ErrorCode.NOT_ENOUGH_REPLICAS.definite
