"""SyncGroup over every state, and what becomes of the assignment's append (BEHAVIOUR 2.3)."""

import pytest

from coordinator.states import GroupState
from protocol.errors import ErrorCode
from protocol.messages.group import SyncGroupResponse
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group, leave_group, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


def completing(size: int = 2) -> tuple[CoordinatorHarness, list[str]]:
    """Return a group whose members have generation 1 and no assignment; the leader is first."""
    h = CoordinatorHarness()
    ids = [h.new_member_id(client_id=f"c{i}") for i in range(size)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    return h, ids


def refused(error: ErrorCode) -> SyncGroupResponse:
    """Return Kafka's answer of a SyncGroup that fails: without protocol (GC-061)."""
    return SyncGroupResponse(error_code=error)


def test_sync_with_empty_group_id_is_refused() -> None:
    """The gate."""
    h = CoordinatorHarness()
    assert h.sync(sync_group("m", 1, group_id="")) == refused(ErrorCode.INVALID_GROUP_ID)


def test_sync_to_a_partition_that_is_not_here_is_refused() -> None:
    """GC-079."""
    h = CoordinatorHarness(owned=())
    assert h.sync(sync_group("m", 1)) == refused(ErrorCode.NOT_COORDINATOR)


def test_sync_while_loading_is_told_to_rejoin() -> None:
    """GC-001: old clients cannot handle COORDINATOR_LOAD_IN_PROGRESS here."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, 0, h.now_us)
    assert h.sync(sync_group("m", 1)) == refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_sync_to_a_missing_group_is_refused() -> None:
    """GC-080."""
    h = CoordinatorHarness()
    assert h.sync(sync_group("m", 1)) == refused(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None)])
def test_sync_of_version_5_without_protocol_is_refused_before_the_gate(
    kind: str | None, name: str | None
) -> None:
    """Both became mandatory (KIP-559)."""
    h = CoordinatorHarness(owned=())
    body = sync_group("m", 1, protocol_type=kind, protocol_name=name)
    assert h.sync(body) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert h.sync(body, version=4) == refused(ErrorCode.NOT_COORDINATOR)


def test_sync_checks_member_then_generation_then_protocol() -> None:
    """GC-081, GC-082, GC-061, GC-062: the order is observable."""
    h, ids = completing()
    wrong = "other"
    assert h.sync(sync_group("who", 9, protocol_type=wrong)) == refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert h.sync(sync_group(ids[0], 9, protocol_type=wrong)) == refused(
        ErrorCode.ILLEGAL_GENERATION
    )
    for body in (
        sync_group(ids[0], 1, protocol_type=wrong),
        sync_group(ids[0], 1, protocol_name=wrong),
    ):
        assert h.sync(body) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_sync_in_preparing_is_told_to_rejoin() -> None:
    """GC-120."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.submit(join_group(ids[0]))
    assert h.sync(sync_group(ids[1], 1)) == refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_sync_of_a_member_that_left_an_emptied_group_is_refused() -> None:
    """Empty: nobody is known."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    assert h.sync(sync_group(member_id, 2)) == refused(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("leader_first", [True, False])
def test_sync_gives_each_member_its_own_assignment(leader_first: bool) -> None:
    """GC-094, GC-095, GC-064."""
    h, ids = completing()
    bodies = [sync_group(ids[0], 1, {ids[0]: b"zero", ids[1]: b"one"}), sync_group(ids[1], 1)]
    order = (0, 1) if leader_first else (1, 0)
    requests = {i: h.submit(bodies[i]) for i in order}
    for index, assignment in enumerate((b"zero", b"one")):
        assert h.sync_response(requests[index]) == SyncGroupResponse(
            protocol_type="consumer", protocol_name="range", assignment=assignment
        )
    assert h.state() is GroupState.STABLE


def test_sync_without_protocol_in_an_old_version_is_answered_with_it() -> None:
    """GC-063."""
    h, ids = completing(1)
    body = sync_group(ids[0], 1, {ids[0]: b"a"}, protocol_type=None, protocol_name=None)
    response = h.sync(body, version=4)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")


def test_sync_of_the_leader_fills_in_members_and_ignores_strangers() -> None:
    """GC-078: an assignment that the leader forgot is empty."""
    h, ids = completing()
    h.submit(sync_group(ids[0], 1, {"stranger": b"x"}))
    assert h.state() is GroupState.STABLE
    assert h.sync(sync_group(ids[1], 1)).assignment == b""
    assert h.sync(sync_group(ids[0], 1)).assignment == b""


def test_sync_of_a_follower_with_assignments_stores_nothing() -> None:
    """Only the leader's count."""
    h, ids = completing()
    request_id = h.submit(sync_group(ids[1], 1, {ids[1]: b"mine"}))
    assert h.response(request_id) is None
    assert h.log == {}
    h.submit(sync_group(ids[0], 1, {ids[1]: b"yours"}))
    assert h.sync_response(request_id).assignment == b"yours"


def test_sync_is_answered_only_when_the_log_has_the_assignment() -> None:
    """Hard state changes when the append is acknowledged."""
    h, ids = completing(1)
    h.holds_appends = True
    request_id = h.submit(sync_group(ids[0], 1, {ids[0]: b"a"}))
    assert h.response(request_id) is None
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.group().members[ids[0]].assignment == b""
    h.complete()
    assert h.sync_response(request_id).assignment == b"a"
    stored = h.events(TraceKind.ASSIGNMENT_STORED)
    assert [(e.generation, e.correlation_id is not None) for e in stored] == [(1, True)]


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
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_sync_whose_append_fails_is_answered_with_the_mapped_error_and_rebalances(
    error: ErrorCode, answer: ErrorCode
) -> None:
    """MM-34: every parked SyncGroup, and the group starts over."""
    h, ids = completing()
    follower = h.submit(sync_group(ids[1], 1))
    h.holds_appends = True
    leader = h.submit(sync_group(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"}))
    h.complete(error)
    assert h.response(follower) == refused(answer)
    assert h.response(leader) == refused(answer)
    assert h.state() is GroupState.PREPARING_REBALANCE


def test_append_that_completes_after_a_rebalance_began_is_ignored() -> None:
    """The interleaving: leader syncs, a newcomer joins, then the log acknowledges."""
    h, ids = completing()
    h.holds_appends = True
    leader = h.submit(sync_group(ids[0], 1, {ids[0]: b"a"}))
    newcomer = h.submit(join_group(), version=3)
    assert h.response(leader) == refused(ErrorCode.REBALANCE_IN_PROGRESS)
    h.complete()
    assert h.state() is GroupState.PREPARING_REBALANCE
    for member_id in ids:
        h.submit(join_group(member_id))
    assert h.join_response(newcomer).generation_id == 2
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_append_of_an_old_generation_does_not_end_the_next_one() -> None:
    """The same, but the acknowledgement comes when the next generation waits for its own."""
    h, ids = completing()
    h.holds_appends = True
    h.submit(sync_group(ids[0], 1, {ids[0]: b"old", ids[1]: b"old"}))
    h.submit(join_group(), version=3)
    for member_id in ids:
        h.submit(join_group(member_id))
    assert (h.state(), h.summary().generation) == (GroupState.COMPLETING_REBALANCE, 2)
    h.complete()
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_second_sync_of_the_leader_is_appended_too_and_its_outcome_ignored() -> None:
    """The leader retries: both appends are valid, the first one ends the phase."""
    h, ids = completing(1)
    h.holds_appends = True
    first = h.submit(sync_group(ids[0], 1, {ids[0]: b"a"}))
    second = h.submit(sync_group(ids[0], 1, {ids[0]: b"b"}))
    assert len(h.held) == 2
    h.complete()
    assert h.response(first) is None
    assert h.sync_response(second).assignment == b"a"
    h.complete()
    assert h.group().members[ids[0]].assignment == b"a"


def test_sync_in_stable_is_answered_from_memory() -> None:
    """No append, and the session starts anew."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    size = len(h.log[0])
    h.advance(9_000)
    assert h.sync(sync_group(ids[1], 1)).assignment == b"for-" + ids[1].encode()
    assert len(h.log[0]) == size
    h.advance(9_000)
    assert list(h.summary().members) == [ids[1]]
