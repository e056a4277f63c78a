"""Heartbeat without a group id.

The answers to other heartbeats, in each state of a group, are in scenarios/heartbeat.txt.
"""

from protocol.errors import ErrorCode
from protocol.messages.group import HeartbeatResponse
from tests.support.builders.requests import heartbeat
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_heartbeat_with_empty_group_id_is_refused() -> None:
    """The group id is checked first, so it does not matter that there is no such member."""
    h = CoordinatorHarness()
    request_id = h.submit(heartbeat("m", generation_id=1, group_id=""))
    assert h.response(request_id) == HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
