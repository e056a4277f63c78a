"""Static members: replacement without a rebalance, and fencing (BEHAVIOUR 2.2.2, KIP-345)."""

import pytest

from coordinator.states import GroupState
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequestProtocol, JoinGroupResponse
from tests.support.builders.requests import (
    join_group,
    leave_group,
    offset_commit,
    protocols,
    sync_group,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness

BOTH = protocols("range", "roundrobin")


def static_group() -> tuple[CoordinatorHarness, str, str]:
    """Return a Stable group of static members L, the leader, and F, and their ids."""
    h = CoordinatorHarness()
    joins = [h.submit(join_group(instance=i, offers=BOTH)) for i in ("L", "F")]
    h.advance(0)
    leader, follower = (h.join_response(j).member_id for j in joins)
    assert leader.startswith("L-")
    h.sync_all([leader, follower], 1)
    return h, leader, follower


def come_back(
    h: CoordinatorHarness,
    instance: str,
    *,
    version: int = 9,
    offers: tuple[JoinGroupRequestProtocol, ...] = BOTH,
) -> RequestId:
    """Let a new process of an instance join, not knowing its member id."""
    return h.submit(join_group(instance=instance, offers=offers), version=version)


def test_static_member_needs_no_second_join() -> None:
    """GC-027: no MEMBER_ID_REQUIRED; the id begins with the instance id."""
    h = CoordinatorHarness()
    request_id = h.submit(join_group(instance="i"))
    h.advance(0)
    assert h.join_response(request_id).member_id == "i-uuid-1"


def test_static_leader_replaced_in_stable_skips_the_assignment() -> None:
    """GC-033 from v9: it is told that it leads, with all members, and not to assign."""
    h, leader, follower = static_group()
    response = h.join_response(come_back(h, "L"))
    assert response.member_id not in {leader, follower}
    assert (response.leader, response.skip_assignment) == (response.member_id, True)
    assert {m.member_id for m in response.members} == {response.member_id, follower}
    assert (h.state(), response.generation_id) == (GroupState.STABLE, 1)


@pytest.mark.parametrize("version", [5, 8])
def test_static_leader_replaced_in_stable_before_version_9_is_told_the_old_leader(
    version: int,
) -> None:
    """GC-033: so that it does not take itself for the leader and assign."""
    h, leader, _ = static_group()
    response = h.join_response(come_back(h, "L", version=version))
    assert (response.leader, response.members, response.skip_assignment) == (leader, (), False)
    assert h.group().leader_id == response.member_id


def test_static_follower_replaced_in_stable_keeps_its_assignment() -> None:
    """GC-044, GC-042: same generation, and the new id is what a failover finds."""
    h, leader, follower = static_group()
    response = h.join_response(come_back(h, "F", offers=protocols("range")))
    assert (response.leader, response.members) == (leader, ())
    assert h.sync(sync_group(response.member_id, 1)).assignment == b"for-" + follower.encode()
    assert h.failover().group().static_members["F"] == response.member_id


def test_static_member_with_its_old_id_is_fenced_everywhere() -> None:
    """GC-033, GC-048, GC-049, GC-052: with the instance id; without it is unknown."""
    h, leader, _ = static_group()
    come_back(h, "L")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert h.join(join_group(leader, instance="L", offers=BOTH)).error_code is fenced
    assert h.sync(sync_group(leader, 1, instance="L")).error_code is fenced
    assert h.beat(leader, 1, "L") is fenced
    assert h.commit(offset_commit({("foo", 0): 1}, leader, 1, instance="L")) == [fenced]
    assert h.sync(sync_group(leader, 1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_instance_and_member_id_of_different_members_is_fenced() -> None:
    """GC-046, GC-047, GC-053: an instance that nobody has is unknown."""
    h, leader, follower = static_group()
    assert h.beat(follower, 1, "L") is ErrorCode.FENCED_INSTANCE_ID
    assert h.beat(leader, 1, "F") is ErrorCode.FENCED_INSTANCE_ID
    assert h.beat(leader, 1, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_knows_its_id_is_an_ordinary_one() -> None:
    """GC-045, GC-034: the follower is answered at once, the leader rebalances."""
    h, leader, follower = static_group()
    response = h.join(join_group(follower, instance="F", offers=BOTH))
    assert (response.member_id, response.leader, response.generation_id) == (follower, leader, 1)
    h.submit(join_group(leader, instance="L", offers=BOTH))
    assert h.state() is GroupState.PREPARING_REBALANCE


def test_static_member_comes_back_under_a_new_id_each_time() -> None:
    """GC-050."""
    h, leader, _ = static_group()
    ids = [h.join_response(come_back(h, "L")).member_id for _ in range(5)]
    assert len({leader, *ids}) == 6
    assert all(member_id.startswith("L-") for member_id in ids)


def test_static_replacement_that_changes_the_protocol_rebalances() -> None:
    """GC-038."""
    h, leader, _ = static_group()
    join = come_back(h, "F", offers=protocols("roundrobin"))
    assert (h.response(join), h.state()) == (None, GroupState.PREPARING_REBALANCE)
    h.submit(join_group(leader, instance="L", offers=BOTH))
    assert h.join_response(join).protocol_name == "roundrobin"


def test_static_replacement_is_answered_when_the_log_has_the_new_id() -> None:
    """The reply promises persistence, so it waits for the append."""
    h, _, _ = static_group()
    h.holds_appends = True
    join = come_back(h, "F")
    assert h.response(join) is None
    h.complete()
    assert h.join_response(join).error_code is ErrorCode.NONE


def test_static_replacement_that_is_not_stored_is_undone() -> None:
    """GC-039, GC-040: old id and timeouts are back; the protocols are not, as in Kafka."""
    h, leader, follower = static_group()
    h.holds_appends = True
    body = join_group(
        instance="F", offers=protocols("range"), session_timeout_ms=20_000, rebalance_timeout_ms=1
    )
    join = h.submit(body)
    h.complete(ErrorCode.MESSAGE_TOO_LARGE)
    assert h.response(join) == JoinGroupResponse(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
    )
    assert h.state() is GroupState.STABLE
    member = h.group().members[follower]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 30_000)
    assert member.protocol_names() == ("range",)
    assert h.beat(follower, 1, "F") is ErrorCode.NONE


def test_static_replacement_has_the_old_session_timeout_until_the_next_heartbeat() -> None:
    """BEHAVIOUR 0.1: the first session timer keeps the old member's."""
    h, _, _ = static_group()
    body = join_group(instance="F", offers=BOTH, session_timeout_ms=6_000)
    member_id = h.join_response(h.submit(body)).member_id
    h.advance(9_999)
    assert h.beat(member_id, 1, "F") is ErrorCode.NONE
    h.advance(6_000)
    assert h.beat(member_id, 1, "F") is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_replacement_in_preparing_fences_the_parked_join() -> None:
    """GC-029: the duplicate takes its place in the join phase."""
    h, leader, follower = static_group()
    h.submit(join_group(), version=3, client_id="third")
    old = h.submit(join_group(follower, instance="F", offers=BOTH))
    new = come_back(h, "F")
    response = h.join_response(old)
    assert (response.error_code, response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower)
    assert response.protocol_type is None
    h.submit(join_group(leader, instance="L", offers=BOTH))
    assert h.join_response(new).generation_id == 2


def test_static_replacement_in_completing_rebalances_and_fences_the_parked_sync() -> None:
    """GC-030: the leader may be assigning to the old id."""
    h, leader, follower = static_group()
    for member_id, instance in ((leader, "L"), (follower, "F")):
        h.submit(join_group(member_id, instance=instance, offers=BOTH))
    sync = h.submit(sync_group(follower, 2, instance="F"))
    join = come_back(h, "F")
    assert h.sync_response(sync).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert (h.response(join), h.state()) == (None, GroupState.PREPARING_REBALANCE)


def test_static_member_that_does_not_rejoin_stays_in_the_next_generation() -> None:
    """GC-037, GC-057: the leader gets it in its list, and only its session ends it."""
    h, leader, follower = static_group()
    join = h.submit(join_group(follower, instance="F", offers=protocols("roundrobin")))
    for _ in range(4):
        h.advance(7_500)
        h.beat(leader, 1, "L")
    response = h.join_response(join)
    assert (response.generation_id, response.leader) == (2, follower)
    assert [m.member_id for m in response.members] == [leader, follower]
    h.advance(10_000)
    assert leader not in h.summary().members


def test_join_phase_that_only_absent_static_members_are_left_in_goes_on() -> None:
    """GC-055: no generation without someone who joined; sessions end it in the end."""
    h, leader, follower = static_group()
    dynamic = h.submit(join_group(offers=BOTH), version=3, client_id="d")
    dynamic_id = next(m for m in h.summary().members if m.startswith("d-"))
    h.submit(join_group(follower, instance="F", offers=BOTH))
    h.leave(leave_group(dynamic_id))
    h.leave(leave_group(follower))
    assert h.join_response(dynamic).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(5):
        h.advance(9_000)
        h.beat(leader, 1, "L")
    assert (h.state(), h.summary().generation) == (GroupState.PREPARING_REBALANCE, 1)
    assert h.summary().members == (leader,)
    h.advance(10_000)
    assert (h.state(), h.summary().generation) == (GroupState.EMPTY, 2)


def test_static_replacement_that_raced_a_rebalance_is_answered_by_whoever_is_first() -> None:
    """The new id is being stored when a newcomer joins: one answer, and no member is miscounted."""
    h, _, _ = static_group()
    h.holds_appends = True
    leader = come_back(h, "L")
    follower = come_back(h, "F")
    h.submit(join_group(offers=BOTH), version=3, client_id="d")
    assert h.join_response(leader).generation_id == 2
    assert h.join_response(follower).generation_id == 2
    h.complete()
    h.complete(ErrorCode.REQUEST_TIMED_OUT)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.beat(h.join_response(follower).member_id, 2, "F") is ErrorCode.NONE


def test_static_replacement_stored_later_than_its_session_still_has_a_session() -> None:
    """DEVIATION: Kafka would never expire the member; the timer fired while it was parked."""
    h, leader, _ = static_group()
    h.holds_appends = True
    come_back(h, "F")
    h.advance(9_000)
    h.beat(leader, 1, "L")
    h.advance(5_000)
    h.complete()
    h.advance(4_000)
    h.beat(leader, 1, "L")
    assert len(h.summary().members) == 2
    h.advance(6_000)
    assert h.summary().members == (leader,)
