"""Heartbeat over every state (BEHAVIOUR 2.4)."""

from protocol.errors import ErrorCode
from tests.support.builders.requests import heartbeat
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
