"""LeaveGroup over every state, single and in batches (BEHAVIOUR 2.5)."""

from protocol.errors import ErrorCode
from protocol.messages.group import LeaveGroupResponse
from tests.support.builders.requests import leave_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


def errors(response: LeaveGroupResponse) -> list[ErrorCode]:
    """Return the outcomes of a batch."""
    assert response.error_code is ErrorCode.NONE
    return [member.error_code for member in response.members]


def test_leave_of_a_partition_that_is_not_here_is_a_top_level_error() -> None:
    """GC-122, GC-131: without a list of members."""
    h = CoordinatorHarness(owned=())
    assert h.leave(leave_group("a", "b")) == LeaveGroupResponse(
        error_code=ErrorCode.NOT_COORDINATOR
    )


def test_leave_of_a_missing_group_is_an_error_of_each_member() -> None:
    """GC-123, GC-132."""
    h = CoordinatorHarness()
    assert errors(h.leave(leave_group("a", "b"))) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
