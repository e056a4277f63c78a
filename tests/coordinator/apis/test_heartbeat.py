"""Heartbeat without a group id; scenarios/heartbeat.txt has its answers in each group state."""

from protocol.errors import ErrorCode
from tests.support.builders.requests import heartbeat
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_heartbeat_with_empty_group_id_is_refused() -> None:
    """The check of the group id precedes all others."""
    h = CoordinatorHarness()
    request_id = h.submit(heartbeat("m", generation_id=1, group_id=""))
    assert h.response(request_id) is not None
    assert h.responses[request_id].error_code is ErrorCode.INVALID_GROUP_ID  # type: ignore[union-attr]
