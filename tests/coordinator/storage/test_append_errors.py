"""The error that a client gets when the coordinator cannot write to its log.

The client usually gets another error than the coordinator has got from the log. For example, if the
broker is no longer the leader of the log's partition, the client gets NOT_COORDINATOR, and looks
for the new coordinator. Kafka has an older coordinator, in Scala, and a newer coordinator, in Java.
The two coordinators map some errors differently. docs/kafka/BEHAVIOUR.md 5.8 has the table. A line
such as "MM-34: ..." says which case of Kafka's tests a test repeats; the same page lists these
cases.

`h` is a CoordinatorHarness: a coordinator with a log. While `h.holds_appends` is True, an append
waits until the test ends it by `h.complete(error)`. `h.failover()` returns a second coordinator,
which has loaded the same log.
"""

import pytest

from coordinator.errors import group_append_error, offset_append_error
from coordinator.states import GroupState
from protocol.config import JavaSwitches
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from tests.support.builders.requests import join_group, offset_commit, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness, commit_errors

E = ErrorCode
ROWS = [
    # 1. The error of the log.
    # 2. The answer of the Scala coordinator if the group could not be stored.
    # 3. The answer of the Scala coordinator if a commit could not be stored.
    # 4. The answer of the Java coordinator in both cases.
    (
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_NOT_AVAILABLE,
    ),
    (
        E.NOT_ENOUGH_REPLICAS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_NOT_AVAILABLE,
    ),
    (
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR, E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    (
        E.REQUEST_TIMED_OUT,
        E.REBALANCE_IN_PROGRESS,
        E.REQUEST_TIMED_OUT,
        E.COORDINATOR_NOT_AVAILABLE,
    ),
    (
        E.MESSAGE_TOO_LARGE,
        E.UNKNOWN_SERVER_ERROR,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.UNKNOWN_SERVER_ERROR,
    ),
    (
        E.RECORD_LIST_TOO_LARGE,
        E.UNKNOWN_SERVER_ERROR,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.UNKNOWN_SERVER_ERROR,
    ),
    (
        E.INVALID_FETCH_SIZE,
        E.UNKNOWN_SERVER_ERROR,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.UNKNOWN_SERVER_ERROR,
    ),
    (
        E.NETWORK_EXCEPTION,
        E.NETWORK_EXCEPTION,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
]
SCALA, JAVA = JavaSwitches(), JavaSwitches(append_errors=True)
"""The switches of a coordinator that maps errors like Kafka's Scala coordinator, or like its Java
coordinator.
"""


@pytest.mark.parametrize(("error", "group_error", "commit_error", "java_error"), ROWS)
def test_error_of_the_log_is_mapped_to_the_error_that_kafka_returns(
    error: ErrorCode, group_error: ErrorCode, commit_error: ErrorCode, java_error: ErrorCode
) -> None:
    """An error outside of Kafka's table, such as CORRUPT_MESSAGE, is passed on unchanged.

    MM-34: errors of storing a group
    MM-42: errors of storing a commit
    JC-84: what append errors become
    """
    assert group_append_error(error, SCALA) is group_error
    assert offset_append_error(error, SCALA) is commit_error
    assert group_append_error(error, JAVA) is java_error
    assert offset_append_error(error, JAVA) is java_error


@pytest.mark.parametrize(("error", "group_error", "commit_error", "java_error"), ROWS)
@pytest.mark.parametrize("java", [SCALA, JAVA], ids=["scala", "java"])
def test_sync_and_commit_whose_append_fails_get_the_mapped_error_and_store_nothing(
    error: ErrorCode,
    group_error: ErrorCode,
    commit_error: ErrorCode,
    java_error: ErrorCode,
    java: JavaSwitches,
) -> None:
    """A commit fails, so no offset is stored. Then a SyncGroup fails, so the group rebalances.

    MM-34: errors of storing a group
    MM-42: errors of storing a commit
    """
    h = CoordinatorHarness(java=java)
    (member_id,) = h.stable_group(size=1)
    h.holds_appends = True
    commit = h.submit(offset_commit({("foo", 0): 5}, member_id, generation_id=1))
    h.complete(error)
    expected_error = java_error if java.append_errors else commit_error
    assert commit_errors(h.response(commit)) == [expected_error]
    assert not h.group().offsets.has_offsets

    # The join begins generation 2. The leader's SyncGroup makes the coordinator append this
    # generation to the log.
    join = h.submit(join_group(member_id))
    assert h.join_response(join).generation_id == 2

    sync = h.submit(sync_group(member_id, generation_id=2, assignments={member_id: b"a"}))
    h.complete(error)
    answer = h.response(sync)
    assert isinstance(answer, SyncGroupResponse)
    expected_error = java_error if java.append_errors else group_error
    assert answer.error_code is expected_error
    assert answer.assignment == b""
    assert h.state() is GroupState.PREPARING_REBALANCE

    # Generation 2 was not stored, so the next coordinator loads generation 1.
    assert h.failover().summary().generation == 1
