"""LeaveGroup over every state, single and in batches (BEHAVIOUR 2.5)."""

import pytest

from coordinator.states import GroupState
from protocol.causes import RebalanceCause
from protocol.errors import ErrorCode
from protocol.messages.group import LeaveGroupResponse, MemberIdentity
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group, leave_group, sync_group
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


@pytest.mark.parametrize("version", [0, 2])
def test_leave_below_version_3_has_the_error_of_its_member_on_top(version: int) -> None:
    """There was one member, and no list."""
    h = CoordinatorHarness()
    h.stable_group(1)
    assert h.leave(leave_group("who"), version=version) == LeaveGroupResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_leave_of_an_unknown_member_changes_nothing() -> None:
    """GC-124."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    assert errors(h.leave(leave_group("who"))) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert (h.state(), list(h.summary().members)) == (GroupState.STABLE, ids)


def test_leave_in_stable_rebalances_those_who_stay() -> None:
    """GC-127; the reason is told."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    assert errors(h.leave(leave_group(ids[1], reason="closing"))) == [ErrorCode.NONE]
    assert (h.state(), list(h.summary().members)) == (GroupState.PREPARING_REBALANCE, ids[:1])
    removed = h.events(TraceKind.MEMBER_REMOVED)
    assert [(e.member, e.cause) for e in removed] == [(ids[1], "leave")]
    started = h.events(TraceKind.REBALANCE_STARTED)[-1]
    assert (started.cause, started.detail) == (RebalanceCause.LEAVE, {"client_reason": "closing"})
    assert started.cause_text == f"member {ids[1]} left; client reason: closing"
    assert not any(ids[1] in key for key in h.timer_keys())


def test_leave_of_the_last_member_empties_the_group_at_once() -> None:
    """A new generation begins without members, and is stored."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    summary = h.summary()
    assert (summary.state, summary.generation, summary.members) == (GroupState.EMPTY, 2, ())
    assert h.failover().summary() == summary
    assert h.timer_keys() == []


def test_leave_of_whom_everyone_waits_for_completes_the_join_phase() -> None:
    """The others are parked already."""
    h = CoordinatorHarness()
    ids = h.stable_group(3)
    joins = [h.submit(join_group(member_id)) for member_id in ids[:2]]
    h.leave(leave_group(ids[2]))
    assert [h.join_response(j).generation_id for j in joins] == [2, 2]


def test_leave_of_a_parked_member_answers_its_join() -> None:
    """From another connection: the JoinGroup gets UNKNOWN_MEMBER_ID with an empty member id."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    request_id = h.submit(join_group(ids[0]))
    leave = h.submit(leave_group(ids[0]))
    response = h.join_response(request_id)
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert h.answer_order[-2:] == [request_id, leave]


def test_leave_in_completing_tells_parked_syncs_to_rejoin() -> None:
    """And the leaving leader's place is taken."""
    h = CoordinatorHarness()
    ids = [h.new_member_id() for _ in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)
    sync = h.submit(sync_group(ids[1], 1))
    h.leave(leave_group(ids[0]))
    assert h.sync_response(sync).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert h.group().leader_id == ids[1]


def test_leave_of_a_pending_id_completes_the_join_phase_that_waited_for_it() -> None:
    """GC-088."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    first = h.submit(join_group(ids[0]))
    pending = h.new_member_id()
    h.submit(join_group(ids[1]))
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert errors(h.leave(leave_group(pending))) == [ErrorCode.NONE]
    assert h.join_response(first).generation_id == 2
    assert not any(pending in key for key in h.timer_keys())


def test_leave_of_a_batch_answers_in_order_and_starts_one_rebalance() -> None:
    """A duplicate is unknown the second time."""
    h = CoordinatorHarness()
    ids = h.stable_group(3)
    before = len(h.events(TraceKind.REBALANCE_STARTED))
    response = h.leave(leave_group(ids[2], "who", ids[1], ids[2]))
    assert errors(response) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [m.member_id for m in response.members] == [ids[2], "who", ids[1], ids[2]]
    assert len(h.events(TraceKind.REBALANCE_STARTED)) == before + 1


def test_leave_without_member_id_removes_the_instance() -> None:
    """GC-129, GC-130, GC-134: how an admin removes static members."""
    h = CoordinatorHarness()
    h.submit(join_group(instance="i"))
    h.advance(0)
    batch = [MemberIdentity(member_id="", group_instance_id=i) for i in ("nobody", "i", None)]
    assert errors(h.leave(leave_group(*batch))) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert h.state() is GroupState.EMPTY


def test_leave_with_another_members_instance_is_fenced() -> None:
    """GC-128, GC-133."""
    h = CoordinatorHarness()
    h.submit(join_group(instance="i"))
    h.advance(0)
    identity = MemberIdentity(member_id="old", group_instance_id="i")
    assert errors(h.leave(leave_group(identity))) == [ErrorCode.FENCED_INSTANCE_ID]
    assert len(h.summary().members) == 1
