"""GroupCoordinatorTest, first part: loading, group.max.size, new members, the first join phase.

Each test is a scenario of BEHAVIOUR 10.1 with its own numbers; test_join_group and test_delayed
have the rules one by one.
"""

import pytest

from coordinator.states import GroupState
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupResponse, SyncGroupResponse
from protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    protocols,
    sync_group,
)
from tests.support.harness.kafka_bench import (
    DELAY_MS,
    ID_REQUIRED,
    MAX_SIZE,
    OTHER,
    OTHER_PARTITION,
    REBALANCE_MS,
    SESSION_MAX_MS,
    SESSION_MIN_MS,
    SESSION_MS,
    KafkaBench,
)

NONE, FULL = ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return Kafka's answer of a JoinGroup that fails."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def outcomes(h: KafkaBench, joins: list[RequestId]) -> list[ErrorCode]:
    """Return the errors of JoinGroups that are all answered."""
    return [h.join_error(join) for join in joins]


# -- what every API answers while its partition loads --


def loading() -> KafkaBench:
    """Return a bench on which OTHER's partition loads."""
    h = KafkaBench()
    h.coordinator.begin_load(OTHER_PARTITION, 0, h.now_us)
    return h


@pytest.mark.parametrize("instance", [None, "i"])
def test_group_api_while_its_partition_loads(instance: str | None) -> None:
    """GC-001: JoinGroup waits, SyncGroup rejoins, Heartbeat is left in peace."""
    h = loading()
    join = join_group("m", group_id=OTHER, instance=instance, session_timeout_ms=SESSION_MS)
    assert h.join(join) == refused(LOADING, "m")
    sync = sync_group("m", 1, group_id=OTHER, instance=instance)
    assert h.sync(sync) == SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    beat = h.response(h.submit(heartbeat("m", 1, group_id=OTHER, instance=instance)))
    assert beat is not None
    assert beat.error_code is NONE  # type: ignore[union-attr]
    assert h.leave(leave_group("m", group_id=OTHER)).error_code is LOADING


def test_offsets_api_while_its_partition_loads() -> None:
    """GC-001: the error stands at each partition of a commit, and at the group of a fetch."""
    h = loading()
    body = offset_commit({("foo", 0): 1, ("bar", 1): 2}, group_id=OTHER)
    assert h.commit(body) == [LOADING, LOADING]
    (group,) = h.fetch(offset_fetch(("foo", 0), group_id=OTHER)).groups
    assert (group.error_code, group.topics) == (LOADING, ())


def test_admin_api_while_a_partition_loads() -> None:
    """GC-001: a group of another partition is described, and listed, all the same."""
    h = loading()
    h.commit(offset_commit({("foo", 0): 1}))
    described = h.response(h.submit(DescribeGroupsRequest(groups=(OTHER, GROUP))))
    assert described == DescribeGroupsResponse(
        groups=(
            DescribedGroup(group_id=OTHER, error_code=LOADING),
            DescribedGroup(group_id=GROUP, group_state="Empty"),
        )
    )
    listed = h.response(h.submit(ListGroupsRequest()))
    assert isinstance(listed, ListGroupsResponse)
    assert (listed.error_code, [g.group_id for g in listed.groups]) == (LOADING, [GROUP])
    assert h.response(h.submit(DeleteGroupsRequest(groups_names=(OTHER,)))) == DeleteGroupsResponse(
        results=(DeletableGroupResult(group_id=OTHER, error_code=LOADING),)
    )


@pytest.mark.parametrize("instance", [None, "i"])
def test_join_where_the_partition_is_not_owned(instance: str | None) -> None:
    """GC-003."""
    body = join_group(group_id=OTHER, instance=instance, session_timeout_ms=SESSION_MS)
    assert KafkaBench().join(body) == refused(ErrorCode.NOT_COORDINATOR)


# -- group.max.size --


def test_group_of_its_largest_size_refuses_one_more() -> None:
    """GC-004: all of them come through the initial delay, and the next one is not even parked."""
    h = KafkaBench()
    joins = [h.add() for _ in range(MAX_SIZE)]
    h.tick(DELAY_MS + 1)
    h.tick(REBALANCE_MS + 1)
    assert outcomes(h, joins) == [NONE] * MAX_SIZE
    assert h.join_response(h.add(version=ID_REQUIRED)) == refused(FULL)
    assert len(h.members()) == MAX_SIZE


def test_one_client_too_many_after_ids_were_given_out() -> None:
    """GC-005: ids that are pending do not count; who was refused is refused again."""
    h = KafkaBench()
    ids = [h.give_id() for _ in range(MAX_SIZE + 1)]
    joins = [h.add(member_id) for member_id in ids]
    h.tick(DELAY_MS + 1)
    h.tick(REBALANCE_MS + 1)
    assert outcomes(h, joins) == [NONE] * MAX_SIZE + [FULL]
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert outcomes(h, [h.add(member_id) for member_id in ids]) == [NONE] * MAX_SIZE + [FULL]
    assert h.state() is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("static", [False, True])
def test_one_client_too_many_of_those_that_are_added_at_once(static: bool) -> None:
    """GC-006, GC-007: again with the ids that they were given, while completing."""
    h = KafkaBench()
    instances = [f"i{n}" if static else None for n in range(MAX_SIZE + 1)]
    joins = [h.add(instance=instance) for instance in instances]
    h.tick(DELAY_MS + 1)
    h.tick(REBALANCE_MS + 1)
    assert outcomes(h, joins) == [NONE] * MAX_SIZE + [FULL]
    again = [
        h.add(h.join_response(join).member_id, instance=instance)
        for join, instance in zip(joins, instances, strict=True)
    ]
    assert outcomes(h, again) == [NONE] * MAX_SIZE + [FULL]
    assert (h.state(), h.generation()) == (GroupState.COMPLETING_REBALANCE, 1)


def test_accepted_members_may_join_again_before_the_first_phase_ends() -> None:
    """GC-008: they do not count twice, and there is still no room for another."""
    h = KafkaBench()
    ids = [h.give_id() for _ in range(MAX_SIZE + 1)]
    for member_id in ids:
        h.add(member_id)
    again = [h.add(member_id) for member_id in ids]
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert h.join_response(again[-1]) == refused(FULL)
    h.tick(DELAY_MS + 1)
    h.tick(REBALANCE_MS + 1)
    assert outcomes(h, again) == [NONE] * MAX_SIZE + [FULL]
    assert h.members() == set(ids[:MAX_SIZE])


# -- the first checks --


@pytest.mark.parametrize("session_timeout_ms", [SESSION_MIN_MS - 1, SESSION_MAX_MS + 1])
def test_session_timeout_out_of_bounds(session_timeout_ms: int) -> None:
    """GC-010, GC-011: at the settings, not at Kafka's defaults."""
    h = KafkaBench()
    body = join_group("m", session_timeout_ms=session_timeout_ms)
    assert h.join(body) == refused(ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    body = join_group("m", session_timeout_ms=min(session_timeout_ms + 1, SESSION_MAX_MS))
    assert h.join(body) == refused(ErrorCode.UNKNOWN_MEMBER_ID, "m")


@pytest.mark.parametrize("instance", [None, "i"])
def test_join_without_protocol_type_or_protocols(instance: str | None) -> None:
    """GC-016, GC-017: dynamic and static."""
    h = KafkaBench()
    refusal = refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    for body in (
        join_group(instance=instance, protocol_type="", session_timeout_ms=SESSION_MS),
        join_group(instance=instance, offers=(), session_timeout_ms=SESSION_MS),
    ):
        assert h.join(body) == refusal
        assert h.members() == set()


def test_first_member_is_answered_after_the_initial_delay() -> None:
    """GC-014, GC-157: not at half of it."""
    h = KafkaBench()
    join = h.add()
    h.tick(DELAY_MS // 2)
    assert h.response(join) is None
    h.tick(DELAY_MS // 2 + 1)
    response = h.join_response(join)
    assert (response.error_code, response.generation_id) == (NONE, 1)
    assert (response.leader, [m.member_id for m in response.members]) == (
        response.member_id,
        [response.member_id],
    )


def test_second_member_extends_the_initial_delay_once() -> None:
    """GC-158."""
    h = KafkaBench()
    first = h.add(rebalance_timeout_ms=3 * DELAY_MS)
    h.tick(DELAY_MS - 1)
    second = h.add(rebalance_timeout_ms=3 * DELAY_MS)
    h.tick(2)
    h.tick(DELAY_MS // 2 + 1)
    assert (h.response(first), h.response(second)) == (None, None)
    h.tick(DELAY_MS // 2)
    assert outcomes(h, [first, second]) == [NONE, NONE]


def test_members_that_keep_coming_are_answered_within_the_rebalance_timeout() -> None:
    """GC-159: to the millisecond of Kafka's own clock."""
    h = KafkaBench()
    joins = [h.add(rebalance_timeout_ms=2 * DELAY_MS) for _ in range(2)]
    h.tick(DELAY_MS + 1)
    joins.append(h.add(rebalance_timeout_ms=2 * DELAY_MS))
    h.tick(DELAY_MS)
    assert [h.response(join) for join in joins] == [None] * 3
    h.tick(1)
    assert outcomes(h, joins) == [NONE] * 3


# -- protocols --


def test_second_member_of_another_protocol_type_is_refused_at_once() -> None:
    """GC-015: while the first one waits, and when it is Stable."""
    h = KafkaBench()
    body = join_group(protocol_type="connect", session_timeout_ms=SESSION_MS)
    first = h.add()
    assert h.join(body) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    h.tick(DELAY_MS + 1)
    assert h.join_error(first) is NONE
    assert h.join(body) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_second_member_without_a_common_protocol_is_refused_alone() -> None:
    """GC-022."""
    h = KafkaBench()
    first = h.add()
    second = h.add(offers=protocols("roundrobin"))
    assert h.join_response(second) == refused_v3(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    h.tick(DELAY_MS + 1)
    assert h.join_error(first) is NONE


def refused_v3(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the same before v7, when a missing protocol name was an empty one."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name="")


@pytest.mark.parametrize("instance", [None, "i"])
def test_unknown_member_is_told_no_protocol_type(instance: str | None) -> None:
    """GC-059, GC-023, GC-012: the group is there, or not."""
    h = KafkaBench()
    join = h.add("who", instance=instance)
    assert h.join_response(join) == refused(ErrorCode.UNKNOWN_MEMBER_ID, "who")
    assert h.join_response(join).protocol_type is None
    h.first_member()
    join = h.add("who", instance=instance, offers=protocols("range"))
    assert h.join_response(join) == refused(ErrorCode.UNKNOWN_MEMBER_ID, "who")


def test_members_are_told_the_protocol_type() -> None:
    """GC-060: leader and follower."""
    h = KafkaBench()
    joins = [h.add() for _ in range(2)]
    h.tick(DELAY_MS + 1)
    h.tick(DELAY_MS + 1)
    assert [h.join_response(join).protocol_type for join in joins] == ["consumer"] * 2
    assert [bool(h.join_response(join).members) for join in joins] == [True, False]


def test_pending_id_joins_with_fit_protocols_after_unfit_ones() -> None:
    """GC-026."""
    h = KafkaBench()
    member_id = h.give_id()
    join = h.add(member_id, offers=())
    assert h.join_response(join) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    assert list(h.group().pending_members) == [member_id]
    join = h.add(member_id)
    h.tick(DELAY_MS + 1)
    assert (h.join_error(join), h.members()) == (NONE, {member_id})
    assert list(h.group().pending_members) == []


# -- a group that is Dead, for whoever raced its end --


def test_join_and_sync_to_a_dead_group() -> None:
    """GC-024, GC-025, JC-69: new and known members must look for their coordinator again."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.force(GroupState.DEAD)
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.join_response(h.add()) == refused_v3(gone)
    assert h.join_response(h.add(version=ID_REQUIRED)) == refused(gone)
    assert h.join_response(h.add(member_id)) == refused(gone, member_id)
    assert h.sync_response(h.sync_as(member_id, 1)) == SyncGroupResponse(error_code=gone)


# -- generations --


def test_generations_count_from_one() -> None:
    """GC-121, GC-084: and a leader that rejoins unchanged begins the next."""
    h = KafkaBench()
    member_id = h.stable_member()
    assert h.generation() == 1
    response = h.join_response(h.add(member_id))
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert h.state() is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("stable", [False, True])
def test_follower_that_rejoins_unchanged_begins_nothing(stable: bool) -> None:
    """GC-083, JC-74: it is told the generation and the leader, and no members."""
    h = KafkaBench()
    joins = [h.add() for _ in range(2)]
    h.tick(DELAY_MS + 1)
    h.tick(DELAY_MS + 1)
    leader, follower = (h.join_response(join).member_id for join in joins)
    if stable:
        h.sync_as(leader, 1, {})
        h.sync_as(follower, 1)
    state = GroupState.STABLE if stable else GroupState.COMPLETING_REBALANCE
    response = h.join_response(h.add(follower))
    assert response == JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=follower,
    )
    assert (h.state(), h.generation()) == (state, 1)


# -- the timers of new members --


def test_new_member_with_a_long_session_outlives_the_five_minutes() -> None:
    """GC-018: counted from its answer; then it is gone."""
    h = KafkaBench()
    session_ms = 305_000
    first = h.first_member(session_timeout_ms=session_ms, rebalance_timeout_ms=600_000)
    assert not any(member.is_new for member in h.group().members.values())
    h.sync_as(first, 1, {})
    h.tick(300_100)
    assert h.members() == {first}
    h.tick(session_ms)
    assert h.members() == set()
    assert h.state() is GroupState.EMPTY


def test_new_member_that_is_parked_for_five_minutes_is_let_go() -> None:
    """GC-019: the member that keeps it waiting has a longer session, and stays."""
    h = KafkaBench()
    first = h.stable_member(session_timeout_ms=305_000, rebalance_timeout_ms=600_000)
    newcomer = h.add(session_timeout_ms=305_000, rebalance_timeout_ms=600_000)
    h.tick(300_000)
    assert h.response(newcomer) is None
    h.tick(1)
    assert h.join_response(newcomer) == refused_v3(ErrorCode.UNKNOWN_MEMBER_ID)
    assert (h.members(), h.state()) == ({first}, GroupState.PREPARING_REBALANCE)


@pytest.mark.parametrize("synced", [False, True])
def test_members_of_a_generation_expire_by_their_sessions(synced: bool) -> None:
    """GC-020, GC-021: long before the deadline for SyncGroup could remove them."""
    h = KafkaBench()
    first = h.stable_member(rebalance_timeout_ms=10 * SESSION_MS)
    second = h.add(rebalance_timeout_ms=10 * SESSION_MS)
    h.add(first, rebalance_timeout_ms=10 * SESSION_MS)
    assert (h.join_error(second), h.generation()) == (NONE, 2)
    if synced:
        h.sync_as(first, 2, {})
        h.sync_as(h.join_response(second).member_id, 2)
    h.tick(SESSION_MS + 1)
    assert (h.members(), h.state(), h.generation()) == (set(), GroupState.EMPTY, 3)
    assert {e.cause for e in h.events(TraceKind.MEMBER_REMOVED)} == {"session expiry"}


def test_pending_id_that_expires_does_not_disturb_a_stable_group() -> None:
    """GC-085: nor does it begin a rebalance when it is given out."""
    h = KafkaBench()
    first = h.stable_member()
    h.give_id()
    assert (h.state(), len(h.group().pending_members)) == (GroupState.STABLE, 1)
    h.tick(SESSION_MS // 2)
    assert h.beat(first, 1) is NONE
    h.tick(SESSION_MS // 2 + 1)
    assert (h.state(), len(h.group().pending_members)) == (GroupState.STABLE, 0)
    assert (h.beat(first, 1), h.members(), h.generation()) == (NONE, {first}, 1)


# -- a join phase that waits for a pending id alone --


def test_pending_id_that_joins_ends_the_phase_that_waited_for_it() -> None:
    """GC-086."""
    h = KafkaBench()
    awaited = h.awaiting_pending()
    join = h.add(awaited.pending)
    assert outcomes(h, [*awaited.joins, join]) == [NONE] * 3
    assert (h.state(), h.members()) == (
        GroupState.COMPLETING_REBALANCE,
        {*awaited.members, awaited.pending},
    )
    assert (h.generation(), list(h.group().pending_members)) == (2, [])


def test_pending_id_that_expires_ends_the_phase_that_waited_for_it() -> None:
    """GC-087: after the session that it asked for, which is shorter than the others'."""
    h = KafkaBench()
    awaited = h.awaiting_pending()
    h.tick(100)
    assert h.state() is GroupState.PREPARING_REBALANCE
    h.tick(20)
    assert outcomes(h, list(awaited.joins)) == [NONE] * 2
    assert (h.state(), h.members()) == (GroupState.COMPLETING_REBALANCE, set(awaited.members))
    assert list(h.group().pending_members) == []


def test_pending_id_that_leaves_ends_the_phase_that_waited_for_it() -> None:
    """GC-088."""
    h = KafkaBench()
    awaited = h.awaiting_pending()
    (answer,) = h.leave(leave_group(awaited.pending)).members
    assert answer.error_code is NONE
    assert outcomes(h, list(awaited.joins)) == [NONE] * 2
    assert (h.state(), h.members()) == (GroupState.COMPLETING_REBALANCE, set(awaited.members))
    assert list(h.group().pending_members) == []
