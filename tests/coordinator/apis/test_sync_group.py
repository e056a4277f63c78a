"""SyncGroup: its first checks, and its answers when the append of the group fails.

After the join phase of a rebalance each member sends a SyncGroup. The SyncGroup of the group's
leader has the assignments of all members. The coordinator stores them in the log. Until then it
parks the SyncGroups of all members: it does not answer them. scenarios/sync_group.txt tests the
answers in each state of a group.

`h` is a CoordinatorHarness: a coordinator with a log. The topic `__consumer_offsets` has one
partition, which the coordinator owns; with `owned=()` it owns none. While `h.holds_appends` is
True, an append waits for `h.complete(error)`. GC-061 is a case in docs/kafka/BEHAVIOUR.md 10.1.
"""

import pytest

from coordinator.states import GroupState
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from tests.support.builders.requests import join_group, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


def group_without_assignment() -> tuple[CoordinatorHarness, list[str]]:
    """Return a harness with a group of two members, and their ids; the leader's is first.

    The group is in CompletingRebalance of generation 1: its members have joined, and have no
    assignment yet.
    """
    h = CoordinatorHarness()
    ids = [h.new_member_id(client_id=f"c{i}") for i in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)  # fires the timer of the initial rebalance delay, which is 0
    assert h.state() is GroupState.COMPLETING_REBALANCE
    return h, ids


def refused(error: ErrorCode) -> SyncGroupResponse:
    """Return the answer to a SyncGroup that fails: it has no protocol type or name (GC-061)."""
    return SyncGroupResponse(error_code=error)


def test_sync_with_empty_group_id_is_refused() -> None:
    """The check of the group id precedes all other checks, so the group need not exist."""
    h = CoordinatorHarness()
    assert h.sync(sync_group("m", generation_id=1, group_id="")) == refused(
        ErrorCode.INVALID_GROUP_ID
    )


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None)])
def test_sync_of_version_5_without_protocol_is_refused_before_the_gate(
    kind: str | None, name: str | None
) -> None:
    """A SyncGroup of version 5 must have a protocol type and a protocol name (KIP-559).

    The gate is the check that this coordinator owns the group's partition. It comes after the check
    of the protocol. Here the coordinator owns no partition, so the gate refuses version 4, which
    needs no protocol. Version 5 has the error of the check before the gate.
    """
    h = CoordinatorHarness(owned=())
    body = sync_group("m", generation_id=1, protocol_type=kind, protocol_name=name)
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
    """Each parked SyncGroup is answered, and the group begins another rebalance.

    Kafka maps most of these errors of the append to an error of the group's APIs. It answers with
    any other error as it is.
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
