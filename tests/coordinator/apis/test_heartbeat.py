"""Heartbeat over every state (BEHAVIOUR 2.4)."""

from coordinator.states import GroupState
from protocol.config import Guards
from protocol.errors import ErrorCode
from tests.support.builders.requests import heartbeat, join_group, leave_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_heartbeat_with_empty_group_id_is_refused() -> None:
    """The gate comes first."""
    h = CoordinatorHarness()
    request_id = h.submit(heartbeat("m", 1, group_id=""))
    assert h.response(request_id) is not None
    assert h.responses[request_id].error_code is ErrorCode.INVALID_GROUP_ID  # type: ignore[union-attr]


def test_heartbeat_to_a_partition_that_is_not_here_is_refused() -> None:
    """GC-065."""
    assert CoordinatorHarness(owned=()).beat("m", 1) is ErrorCode.NOT_COORDINATOR


def test_heartbeat_while_loading_is_waved_through() -> None:
    """GC-001: clients are left in peace."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, 0, h.now_us)
    assert h.beat("m", 1) is ErrorCode.NONE


def test_heartbeat_to_a_missing_group_is_refused() -> None:
    """GC-066."""
    assert CoordinatorHarness().beat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_to_an_empty_group_is_refused() -> None:
    """GC-068."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    assert h.state() is GroupState.EMPTY
    assert h.beat(member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_an_unknown_member_is_refused_before_its_generation() -> None:
    """GC-069; a pending id is unknown, too."""
    h = CoordinatorHarness()
    h.stable_group()
    assert h.beat("who", 7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.beat(h.new_member_id(), 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_another_generation_is_refused() -> None:
    """GC-071."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    for generation_id in (-1, 0, 2):
        assert h.beat(ids[0], generation_id) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeat_of_another_generation_without_the_guard_is_accepted() -> None:
    """What generation_check prevents."""
    h = CoordinatorHarness(guards=Guards(generation_check=False))
    ids = h.stable_group()
    assert h.beat(ids[0], 7) is ErrorCode.NONE


def test_heartbeat_in_stable_and_completing_is_fine() -> None:
    """GC-070, GC-072: REBALANCE_IN_PROGRESS comes only while joins are awaited (KAFKA-10134)."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    assert h.beat(ids[0], 1) is ErrorCode.NONE
    for member_id in ids:
        h.submit(join_group(member_id))
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.beat(ids[1], 2) is ErrorCode.NONE


def test_heartbeat_in_preparing_tells_to_rejoin() -> None:
    """GC-120; with the old generation, which is still the group's."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.submit(join_group(ids[0]))
    assert h.beat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_keeps_a_member_alive() -> None:
    """GC-074: also past the original deadline, and no longer than a session timeout."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    for _ in range(3):
        h.advance(6_000)
        assert h.beat(member_id, 1) is ErrorCode.NONE
    h.advance(10_000)
    assert h.beat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
