"""SyncGroup: its first checks, and its answers when the group cannot be stored.

When all members have joined, each of them sends a SyncGroup. The SyncGroup of the group's leader
has the assignments of all members. The coordinator appends the assignments to its log, and then
answers all SyncGroups. The file scenarios/sync_group.txt has the answer to a SyncGroup in each
state of a group. The tests here are about the other rules.

`h` is a CoordinatorHarness: a coordinator with a log. The coordinator coordinates all groups, or no
group with `owned=()`. While `h.holds_appends` is True, an append waits until the test ends it by
`h.complete(error)`. GC-061 is a case of Kafka's tests in docs/kafka/BEHAVIOUR.md 10.1.
"""

import pytest

from coordinator.states import GroupState
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from tests.support.builders.requests import join_group, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


def group_without_assignment() -> tuple[CoordinatorHarness, list[str]]:
    """Return a harness with a group of two members, and their ids. The first is the leader's.

    The members have joined in generation 1, and have no assignment yet.
    """
    h = CoordinatorHarness()
    ids = [h.new_member_id(client_id=f"c{i}") for i in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)  # the initial rebalance delay is 0, so its timer fires at once
    assert h.state() is GroupState.COMPLETING_REBALANCE
    return h, ids


def refused(error: ErrorCode) -> SyncGroupResponse:
    """Return the answer to a SyncGroup that fails.

    The answer has no assignment, and neither protocol type nor protocol name (GC-061).
    """
    return SyncGroupResponse(error_code=error)


def test_sync_with_empty_group_id_is_refused() -> None:
    """The group id is checked first, so it does not matter that there is no such member."""
    h = CoordinatorHarness()
    answer = h.sync(sync_group("m", generation_id=1, group_id=""))
    assert answer == refused(ErrorCode.INVALID_GROUP_ID)


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
def test_sync_of_version_5_without_protocol_is_refused_before_the_gate(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    """A SyncGroup of version 5 must have a protocol type and a protocol name (KIP-559).

    The coordinator checks this before it checks whether it coordinates the group. The second check
    is called the gate. Here the coordinator does not coordinate the group. So the gate refuses a
    SyncGroup of version 4, which needs no protocol.
    """
    h = CoordinatorHarness(owned=())
    body = sync_group(
        "m", generation_id=1, protocol_type=protocol_type, protocol_name=protocol_name
    )
    assert h.sync(body, version=5) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert h.sync(body, version=4) == refused(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),  # not in Kafka's mapping
    ],
)
def test_sync_whose_append_fails_is_answered_with_the_mapped_error_and_rebalances(
    error: ErrorCode, answer: ErrorCode
) -> None:
    """The append fails, so all SyncGroups are answered with an error, and the group rebalances.

    `error` is the error of the log, and `answer` is the error that Kafka then sends to the clients.
    """
    h, ids = group_without_assignment()
    followers_request = h.submit(sync_group(ids[1], generation_id=1))
    h.holds_appends = True
    leaders_request = h.submit(
        sync_group(ids[0], generation_id=1, assignments={ids[0]: b"a", ids[1]: b"b"})
    )
    h.complete(error)
    assert h.response(followers_request) == refused(answer)
    assert h.response(leaders_request) == refused(answer)
    assert h.state() is GroupState.PREPARING_REBALANCE
