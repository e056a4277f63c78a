"""GroupCoordinatorTest, second part: static members (KIP-345), and what Java's tests add to it.

Each test is a scenario of BEHAVIOUR 10.1 or 10.5 with Kafka's numbers; test_static_member has the
rules one by one. L and F are the static members of the bench, L leads.
"""

import pytest

from coordinator.apis.join_group import handle_join_group
from coordinator.errors import UnknownServerError
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.turn import Turn
from protocol.causes import RemovalCause
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupResponse, SyncGroupResponse
from protocol.records.batch import Record
from protocol.records.offsets import GroupMetadataKey, decode_group_metadata_value, decode_key
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    envelope,
    join_group,
    leave_group,
    offset_commit,
    protocols,
)
from tests.support.harness.kafka_bench import (
    DELAY_MS,
    ID_REQUIRED,
    PS,
    REBALANCE_MS,
    SESSION_MS,
    KafkaBench,
    P,
)

NONE, FENCED = ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID
UNKNOWN, REJOIN = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
ROUNDROBIN = protocols("roundrobin")
TP = ("foo", 0)


def refused(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return Kafka's answer of a JoinGroup that fails: no generation, no protocol, no leader."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def listed(response: JoinGroupResponse) -> set[str]:
    """Return the ids of the members that a leader is told."""
    return {member.member_id for member in response.members}


def generation_after(h: KafkaBench, *joins: RequestId) -> list[tuple[ErrorCode, int, str]]:
    """Return error, generation and leader that each JoinGroup was answered."""
    responses = [h.join_response(join) for join in joins]
    return [(r.error_code, r.generation_id, r.leader) for r in responses]


# -- joining --


def test_static_member_may_be_the_first() -> None:
    """GC-027: at once, with an id that begins with its instance id."""
    h = KafkaBench()
    join = h.add(instance="L")
    h.tick(DELAY_MS + 1)
    assert h.join_error(join) is NONE
    assert h.join_response(join).member_id.startswith("L-")


def test_static_member_with_an_id_that_was_never_given() -> None:
    """GC-028."""
    h = KafkaBench()
    h.add(instance="L")
    h.tick(DELAY_MS + 1)
    assert h.join_response(h.add("made-up", instance="L")) == refused(FENCED, "made-up")


def test_static_member_repeats_its_join_while_the_generation_completes() -> None:
    """GC-032: its answer got lost; SyncGroup then ends the phase as if nothing had been."""
    h = KafkaBench()
    first = h.add(instance="L")
    h.tick(DELAY_MS + 1)
    member_id = h.join_response(first).member_id
    assert h.join_response(h.add(member_id, instance="L")) == h.join_response(first)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.sync_error(h.sync_as(member_id, 1, {}, instance="L")) is NONE
    assert h.state() is GroupState.STABLE


def test_static_member_comes_back_during_its_own_initial_delay() -> None:
    """JC-66: the first process is fenced, and there is one member."""
    h = KafkaBench()
    old = h.add(instance="L")
    (old_id,) = h.members()
    new = h.add(instance="L")
    assert h.join_response(old) == refused(FENCED, old_id)
    assert len(h.members()) == 1
    h.tick(DELAY_MS)
    assert h.response(new) is None
    h.tick(1)
    assert (h.join_error(new), {h.join_response(new).member_id}) == (NONE, h.members())


def test_pending_id_with_an_instance_is_a_server_error() -> None:
    """JC-70: the state is impossible, and Kafka throws."""
    h = KafkaBench()
    member_id = h.give_id()
    assert h.join_response(h.add(member_id, instance="L", offers=P)) == refused(
        ErrorCode.UNKNOWN_SERVER_ERROR, ""
    )
    assert list(h.group().pending_members) == [member_id]


# -- duplicates of the follower --


def test_duplicate_of_a_follower_that_is_parked_in_join() -> None:
    """GC-029, GM-41: the old process is fenced without a generation; the duplicate waits."""
    h = KafkaBench()
    s = h.static_members()
    h.add(offers=PS)
    assert h.state() is GroupState.PREPARING_REBALANCE
    old = h.add(s.follower, instance="F")
    new = h.add(instance="F")
    assert h.join_response(old) == refused(FENCED, s.follower)
    assert h.response(new) is None
    assert s.follower not in h.members()


def test_duplicate_of_a_follower_that_is_parked_in_sync() -> None:
    """GC-030, GM-41: the old process is fenced; when the leader expires the duplicate is alone."""
    h = KafkaBench()
    s = h.static_members()
    joins = [h.add(s.leader, instance="L"), h.add(s.follower, instance="F")]
    assert generation_after(h, *joins) == [(NONE, 2, s.leader)] * 2
    sync = h.sync_as(s.follower, 2)
    new = h.add(instance="F")
    assert h.sync_response(sync) == SyncGroupResponse(error_code=FENCED)
    assert (h.state(), h.response(new)) == (GroupState.PREPARING_REBALANCE, None)
    h.tick(REBALANCE_MS + 1)
    response = h.join_response(new)
    assert (response.error_code, response.generation_id) == (NONE, 3)
    assert response.leader == response.member_id != s.follower
    assert listed(response) == {response.member_id} == h.members()


def test_duplicate_of_a_follower_that_completes_the_rebalance() -> None:
    """GC-031: the leader gets its new id, and the old id is fenced while completing."""
    h = KafkaBench()
    s = h.static_members()
    leader = h.add(s.leader, instance="L")
    assert h.response(leader) is None
    new = h.add(instance="F")
    assert generation_after(h, leader, new) == [(NONE, 2, s.leader)] * 2
    new_id = h.join_response(new).member_id
    assert new_id != s.follower
    assert listed(h.join_response(leader)) == {s.leader, new_id}
    assert h.join_response(h.add(s.follower, instance="F")) == refused(FENCED, s.follower)
    assert (h.state(), h.generation()) == (GroupState.COMPLETING_REBALANCE, 2)


# -- coming back without the id, in Stable --


@pytest.mark.parametrize("skips", [True, False], ids=["v9", "v8"])
def test_leader_comes_back_without_its_id(skips: bool) -> None:
    """GC-033: no rebalance; from v9 it is told that it leads, and to assign nothing."""
    h = KafkaBench()
    s = h.static_members()
    new = h.join_response(h.add(instance="L", version=9 if skips else 8))
    assert (new.error_code, new.generation_id, new.skip_assignment) == (NONE, 1, skips)
    assert (new.protocol_type, new.protocol_name) == ("consumer", "range")
    assert new.leader == (new.member_id if skips else s.leader)
    assert listed(new) == ({new.member_id, s.follower} if skips else set())
    assert (h.state(), h.group().leader_id) == (GroupState.STABLE, new.member_id)
    assert h.join_response(h.add(s.leader, instance="L")) == refused(FENCED, s.leader)
    assert h.sync_error(h.sync_as(s.leader, 1, instance="L")) is FENCED
    assert h.sync_error(h.sync_as(s.leader, 1)) is UNKNOWN
    assert h.members() == {new.member_id, s.follower}


def test_follower_comes_back_unchanged() -> None:
    """GC-044: same generation, and its assignment is the old one."""
    h = KafkaBench()
    s = h.static_members()
    before = len(h.trace)
    new = h.join_response(h.add(instance="F"))
    assert (new.error_code, new.generation_id, new.leader) == (NONE, 1, s.leader)
    assert (new.members, new.skip_assignment) == ((), False)
    assert new.member_id != s.follower
    told = [(e.kind, e.member, e.cause) for e in h.trace[before:] if e.member is not None]
    assert told == [
        (TraceKind.MEMBER_REMOVED, s.follower, RemovalCause.STATIC_MEMBER_REPLACED),
        (TraceKind.MEMBER_ADDED, new.member_id, RemovalCause.STATIC_MEMBER_REPLACED),
        (TraceKind.SESSION_RESTARTED, new.member_id, None),
    ]
    assert h.sync_response(h.sync_as(new.member_id, 1)).assignment == b"follower's"
    assert (h.state(), h.members()) == (GroupState.STABLE, {s.leader, new.member_id})


def test_follower_comes_back_with_the_selected_protocol_alone() -> None:
    """GC-042: what would be selected stays, so nobody rebalances; the old id is fenced."""
    h = KafkaBench()
    s = h.static_members()
    new = h.join_response(h.add(instance="F", offers=P))
    assert (new.error_code, new.generation_id, new.leader) == (NONE, 1, s.leader)
    assert new.member_id != s.follower
    assert h.state() is GroupState.STABLE
    assert h.join_error(h.add(s.follower, instance="F", offers=P)) is FENCED
    assert h.sync_error(h.sync_as(s.follower, 1, instance="F")) is FENCED
    sync = h.sync_response(h.sync_as(new.member_id, 1, instance="F"))
    assert (sync.error_code, sync.assignment) == (NONE, b"follower's")


def test_follower_comes_back_with_protocols_that_change_the_selected_one() -> None:
    """GC-038, JC-80: everyone rebalances at once; the leader stays away."""
    h = KafkaBench()
    s = h.static_members()
    join = h.add(instance="F", offers=ROUNDROBIN)
    assert (h.response(join), h.state()) == (None, GroupState.PREPARING_REBALANCE)
    assert h.log_of_group() == [1]
    h.tick(REBALANCE_MS + 1)
    new = h.join_response(join)
    assert (new.error_code, new.generation_id, new.protocol_name) == (NONE, 2, "roundrobin")
    assert new.leader == new.member_id != s.follower
    assert h.state() is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("skips", [True, False], ids=["v9", "v8"])
def test_replacement_is_stored_in_one_record_and_answered_then(skips: bool) -> None:
    """JC-79, JC-82: with the new id and timeouts, and everybody's assignment of before."""
    h = KafkaBench()
    s = h.static_members()
    h.holds_appends = True
    join = h.add(
        instance="L",
        offers=protocols("range", "roundrobin", "sticky"),
        session_timeout_ms=450,
        rebalance_timeout_ms=700,
        version=9 if skips else 8,
    )
    assert h.response(join) is None
    (append,) = h.held
    (record,) = append.records
    h.complete()
    new = h.join_response(join)
    assert (new.error_code, new.generation_id, new.skip_assignment) == (NONE, 1, skips)
    assert new.leader == (new.member_id if skips else s.leader)
    group = h.group()
    assert (group.leader_id, group.static_members["L"]) == (new.member_id, new.member_id)
    member = group.members[new.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (450, 700)
    stored = stored_members(record)
    assert stored == {
        new.member_id: (450, 700, b"leader's"),
        s.follower: (SESSION_MS, REBALANCE_MS, b"follower's"),
    }


def stored_members(record: Record) -> dict[str, tuple[int, int, bytes]]:
    """Return session, rebalance timeout and assignment of each member that a record has."""
    assert decode_key(record.key or b"") == GroupMetadataKey(GROUP)
    value = decode_group_metadata_value(record.value or b"")
    return {
        m.member_id: (m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment)
        for m in value.members
    }


def test_both_come_back_with_other_timeouts() -> None:
    """GC-041: which the group takes."""
    h = KafkaBench()
    s = h.static_members()
    follower, leader = (
        h.join_response(
            h.add(
                instance=instance,
                session_timeout_ms=2 * SESSION_MS,
                rebalance_timeout_ms=2 * REBALANCE_MS,
            )
        )
        for instance in ("F", "L")
    )
    assert (follower.error_code, follower.leader, follower.members) == (NONE, s.leader, ())
    assert (leader.error_code, leader.leader) == (NONE, leader.member_id)
    assert (listed(leader), leader.skip_assignment) == (
        {leader.member_id, follower.member_id},
        True,
    )
    assert {(m.session_timeout_ms, m.rebalance_timeout_ms) for m in h.group().members.values()} == {
        (2 * SESSION_MS, 2 * REBALANCE_MS)
    }
    assert (h.state(), h.generation()) == (GroupState.STABLE, 1)


# -- a replacement that cannot be stored --


def test_replacement_that_is_too_large_for_the_log() -> None:
    """GC-039: the old id goes on working, for JoinGroup and SyncGroup."""
    h = KafkaBench()
    s = h.static_members()
    h.holds_appends = True
    join = h.add(instance="F", offers=P)
    h.complete(ErrorCode.MESSAGE_TOO_LARGE)
    h.holds_appends = False
    assert h.join_response(join) == JoinGroupResponse(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=s.leader,
    )
    assert (h.state(), h.members()) == (GroupState.STABLE, {s.leader, s.follower})
    again = h.join_response(h.add(s.follower, instance="F", offers=P))
    assert (again.error_code, again.generation_id, again.leader) == (NONE, 1, s.leader)
    assert h.sync_error(h.sync_as(s.follower, 1, instance="F")) is NONE


def test_timeouts_of_a_replacement_that_is_not_stored() -> None:
    """GC-040: the old ones stay."""
    h = KafkaBench()
    h.static_members()
    h.holds_appends = True
    h.add(
        instance="F",
        offers=P,
        session_timeout_ms=2 * SESSION_MS,
        rebalance_timeout_ms=2 * REBALANCE_MS,
    )
    h.complete(ErrorCode.MESSAGE_TOO_LARGE)
    assert {(m.session_timeout_ms, m.rebalance_timeout_ms) for m in h.group().members.values()} == {
        (SESSION_MS, REBALANCE_MS)
    }


def test_replacement_of_the_leader_that_is_not_stored() -> None:
    """JC-81, but for the protocols, which the Scala coordinator does not bring back."""
    h = KafkaBench()
    s = h.static_members()
    h.holds_appends = True
    join = h.add(instance="L", offers=P, session_timeout_ms=450, rebalance_timeout_ms=700)
    h.complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    response = h.join_response(join)
    assert (response.error_code, response.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    group = h.group()
    assert (group.static_members["L"], group.leader_id) == (s.leader, s.leader)
    member = group.members[s.leader]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert member.protocol_names() == ("range",)
    assert h.beat(s.leader, 1, "L") is NONE


# -- rejoining with the id --


def test_leader_rejoins_and_the_follower_expires_meanwhile() -> None:
    """GC-034: then the leader is alone in the next generation."""
    h = KafkaBench()
    s = h.static_members(session_timeout_ms=SESSION_MS // 2)
    join = h.add(s.leader, instance="L", session_timeout_ms=SESSION_MS // 2)
    h.tick(SESSION_MS // 2)
    assert h.response(join) is None
    h.tick(1)
    response = h.join_response(join)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert (response.leader, listed(response)) == (s.leader, {s.leader})
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_follower_rejoins_unchanged() -> None:
    """GC-045: answered at once, and nothing changes."""
    h = KafkaBench()
    s = h.static_members()
    assert h.join_response(h.add(s.follower, instance="F")) == JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=s.leader,
        member_id=s.follower,
    )
    assert h.state() is GroupState.STABLE


def test_follower_rejoins_with_other_protocols_and_the_leader_stays_away() -> None:
    """GC-037: the absent leader is still a member, but leads no more."""
    h = KafkaBench()
    s = h.static_members(session_timeout_ms=2 * SESSION_MS)
    join = h.add(s.follower, instance="F", offers=ROUNDROBIN, session_timeout_ms=2 * SESSION_MS)
    h.tick(REBALANCE_MS)
    assert h.response(join) is None
    h.tick(1)
    assert generation_after(h, join) == [(NONE, 2, s.follower)]
    assert listed(h.join_response(join)) == {s.leader, s.follower} == h.members()
    assert h.join_response(join).protocol_name == "roundrobin"


def test_follower_changes_its_protocols_while_the_generation_completes() -> None:
    """GC-043: another rebalance, which ends without the leader when its session does."""
    h = KafkaBench()
    s = h.static_members()
    joins = [h.add(s.leader, instance="L"), h.add(s.follower, instance="F")]
    assert generation_after(h, *joins) == [(NONE, 2, s.leader)] * 2
    assert listed(h.join_response(joins[0])) == {s.leader, s.follower}
    h.tick(10)
    join = h.add(s.follower, instance="F", offers=ROUNDROBIN)
    assert (h.state(), h.response(join)) == (GroupState.PREPARING_REBALANCE, None)
    h.tick(SESSION_MS - 9)
    assert generation_after(h, join) == [(NONE, 3, s.follower)]
    assert listed(h.join_response(join)) == {s.follower} == h.members()


def test_replacement_while_the_generation_completes() -> None:
    """JC-83: the leader may be assigning to the old id, so everyone starts over."""
    h = KafkaBench()
    joins = [h.add(instance=instance) for instance in ("L", "F")]
    h.tick(DELAY_MS + 1)
    h.tick(DELAY_MS + 1)
    assert (h.state(), h.generation()) == (GroupState.COMPLETING_REBALANCE, 1)
    leader = h.join_response(joins[0]).member_id
    new = h.add(instance="F")
    assert (h.state(), h.response(new)) == (GroupState.PREPARING_REBALANCE, None)
    again = h.add(leader, instance="L")
    assert generation_after(h, new, again) == [(NONE, 2, leader)] * 2


# -- instance and member id that do not belong together --


def test_join_with_the_ids_of_different_members() -> None:
    """GC-046, GC-047, GC-053."""
    h = KafkaBench()
    s = h.static_members()
    assert h.join_response(h.add(s.follower, instance="L")) == refused(FENCED, s.follower)
    assert h.join_response(h.add(s.leader, instance="F")) == refused(FENCED, s.leader)
    assert h.join_response(h.add(s.leader, instance="X")) == refused(UNKNOWN, s.leader)
    assert (h.state(), h.members()) == (GroupState.STABLE, {s.leader, s.follower})


def test_sync_heartbeat_and_commit_with_an_invalid_member_id() -> None:
    """GC-048, GC-049, GC-052: without the instance id the right member id is enough."""
    h = KafkaBench()
    s = h.static_members()
    assert h.sync_response(h.sync_as("invalid", 1, {}, instance="L")) == SyncGroupResponse(
        error_code=FENCED
    )
    assert (h.beat(s.leader, 1), h.beat("invalid", 1, "L")) == (NONE, FENCED)
    assert h.commit(offset_commit({TP: 1}, s.leader, 1)) == [NONE]
    assert h.commit(offset_commit({TP: 2}, "invalid", 1, instance="L")) == [FENCED]
    assert h.offset(*TP) == 1


def test_leader_comes_back_five_times() -> None:
    """GC-050: under five ids that begin with its instance id."""
    h = KafkaBench()
    s = h.static_members()
    ids = {h.join_response(h.add(instance="L")).member_id for _ in range(5)}
    assert len(ids | {s.leader}) == 6
    assert all(member_id.startswith("L-") for member_id in ids)


# -- states that cannot be, or end --


def test_static_members_of_a_dead_group() -> None:
    """GC-035."""
    h = KafkaBench()
    s = h.static_members()
    h.force(GroupState.DEAD)
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.join_response(h.add(s.leader, instance="L")) == refused(gone, s.leader)
    assert h.join_response(h.add(instance="L")) == refused(gone, "")


def test_known_static_member_joins_a_group_that_is_empty() -> None:
    """GC-036, JC-75: no member can be; so it is unknown, and has no generation."""
    h = KafkaBench()
    s = h.static_members()
    h.force(GroupState.PREPARING_REBALANCE, GroupState.EMPTY)
    assert h.join_response(h.add(s.leader, instance="L")) == refused(UNKNOWN, s.leader)


def test_static_member_comes_back_to_a_group_that_is_empty() -> None:
    """GC-054: Kafka throws, and its message names group and instance."""
    h = KafkaBench()
    h.static_members()
    h.force(GroupState.PREPARING_REBALANCE, GroupState.EMPTY)
    shard = Shard(h.group().partition)
    shard.groups[GROUP] = h.group()
    turn = Turn(h.coordinator._shared, h.now_us)
    body = join_group(instance="F", offers=PS, session_timeout_ms=SESSION_MS)
    with pytest.raises(UnknownServerError, match=rf"{GROUP} .* F$"):
        handle_join_group(turn, shard, RequestId(99), body, envelope(body))
    assert h.join_response(h.add(instance="F")) == refused(ErrorCode.UNKNOWN_SERVER_ERROR, "")


# -- join phases that only absent static members are left in --


def stuck(h: KafkaBench) -> str:
    """Leave L, who is away, alone in a join phase of generation 2; return its id."""
    s = h.static_members(session_timeout_ms=2 * SESSION_MS)
    join = h.add(offers=PS)
    h.tick(REBALANCE_MS + 1)
    response = h.join_response(join)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert response.leader == response.member_id
    assert listed(response) == {s.leader, s.follower, response.member_id}
    assert h.state() is GroupState.COMPLETING_REBALANCE
    h.leave(leave_group(s.follower))
    assert h.state() is GroupState.PREPARING_REBALANCE
    h.tick(REBALANCE_MS + 1)
    assert (h.members(), h.state()) == ({s.leader}, GroupState.PREPARING_REBALANCE)
    assert h.generation() == 2
    return s.leader


def test_join_phase_with_an_absent_static_member_ends_with_its_session() -> None:
    """GC-055: nobody is left then, and nobody leads."""
    h = KafkaBench()
    stuck(h)
    h.tick(REBALANCE_MS + 1)
    assert (h.members(), h.group().leader_id) == (set(), None)
    assert (h.state(), h.generation()) == (GroupState.EMPTY, 3)


def test_join_phase_with_an_absent_static_member_ends_when_it_comes_back() -> None:
    """GC-056."""
    h = KafkaBench()
    leader = stuck(h)
    response = h.join_response(h.add(instance="L"))
    assert (response.error_code, response.generation_id) == (NONE, 3)
    assert response.member_id != leader
    assert listed(response) == {response.member_id} == h.members()
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_join_phase_is_extended_until_the_static_members_rejoin() -> None:
    """JC-78: again and again, with the same members and generation."""
    h = KafkaBench()
    s = h.static_members(session_timeout_ms=20 * SESSION_MS)
    dynamic = h.add(offers=PS)
    instances = {"L": s.leader, "F": s.follower}

    def rejoin() -> list[RequestId]:
        return [
            h.add(member_id, instance=instance, session_timeout_ms=20 * SESSION_MS)
            for instance, member_id in instances.items()
        ]

    rejoin()
    assert h.generation() == 2
    h.leave(leave_group(h.join_response(dynamic).member_id))
    for _ in range(5):
        assert (h.state(), h.generation()) == (GroupState.PREPARING_REBALANCE, 2)
        assert h.members() == {s.leader, s.follower}
        assert "join-group" in h.timer_keys()
        h.tick(REBALANCE_MS + 1)
    joins = rejoin()
    assert generation_after(h, *joins) == [(NONE, 3, s.leader)] * 2
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_static_newcomer_while_the_follower_stays_away() -> None:
    """GC-057: all three are in the next generation, and the leader leads."""
    h = KafkaBench()
    s = h.static_members(session_timeout_ms=2 * SESSION_MS)
    newcomer = h.add(instance="N", session_timeout_ms=2 * SESSION_MS)
    leader = h.add(s.leader, instance="L", session_timeout_ms=2 * SESSION_MS)
    h.tick(REBALANCE_MS)
    assert (h.response(newcomer), h.response(leader)) == (None, None)
    h.tick(1)
    assert generation_after(h, newcomer, leader) == [(NONE, 2, s.leader)] * 2
    everyone = {s.leader, s.follower, h.join_response(newcomer).member_id}
    assert listed(h.join_response(leader)) == everyone == h.members()
    assert h.join_response(newcomer).members == ()


def test_static_newcomer_while_the_leader_stays_away() -> None:
    """GC-058: one of those that joined leads, and the other is told so."""
    h = KafkaBench()
    s = h.static_members(session_timeout_ms=2 * SESSION_MS)
    newcomer = h.add(instance="N", session_timeout_ms=2 * SESSION_MS)
    follower = h.add(s.follower, instance="F", session_timeout_ms=2 * SESSION_MS)
    h.tick(REBALANCE_MS + 1)
    responses = [h.join_response(join) for join in (newcomer, follower)]
    assert [(r.error_code, r.generation_id) for r in responses] == [(NONE, 2)] * 2
    (leader,) = {r.leader for r in responses}
    joined = {r.member_id for r in responses}
    assert leader in joined
    for response in responses:
        leads = response.member_id == leader
        assert listed(response) == ({s.leader, *joined} if leads else set())
    assert h.members() == {s.leader, *joined}


def test_static_leader_that_heartbeats_and_never_rejoins() -> None:
    """GC-077: it stays a member until its session ends, and that costs one rebalance."""
    h = KafkaBench()
    join = h.add(instance="L", rebalance_timeout_ms=3 * REBALANCE_MS)
    h.tick(DELAY_MS + 1)
    first = h.join_response(join).member_id
    h.sync_as(first, 1, {})
    newcomer = h.add(offers=PS, rebalance_timeout_ms=3 * REBALANCE_MS)
    for _ in range(4):
        h.tick(SESSION_MS // 2)
        assert h.response(newcomer) is None
        assert h.beat(first, 1) is REJOIN
    h.tick(REBALANCE_MS)
    assert h.response(newcomer) is None
    assert h.beat(first, 1) is REJOIN
    h.tick(1)
    response = h.join_response(newcomer)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    second = response.member_id
    assert h.members() == {first, second}
    assert h.sync_error(h.sync_as(second, 2, {})) is NONE
    assert h.beat(first, 1) is ErrorCode.ILLEGAL_GENERATION
    h.tick(SESSION_MS // 2)
    assert h.beat(second, 2) is NONE
    h.tick(SESSION_MS // 2 + 1)
    assert h.members() == {second}
    assert h.beat(second, 2) is REJOIN
    again = h.add(second, offers=PS, rebalance_timeout_ms=3 * REBALANCE_MS)
    assert generation_after(h, again) == [(NONE, 3, second)]
    assert h.sync_error(h.sync_as(second, 3, {})) is NONE
    for _ in range(20):
        h.tick(SESSION_MS)
        assert h.beat(second, 3) is NONE
    assert (h.state(), h.generation()) == (GroupState.STABLE, 3)


def test_dynamic_member_needs_an_id_in_a_group_of_static_ones() -> None:
    """KIP-394 beside KIP-345: the version decides for each JoinGroup."""
    h = KafkaBench()
    s = h.static_members()
    response = h.join_response(h.add(offers=PS, version=ID_REQUIRED))
    assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert (h.state(), h.members()) == (GroupState.STABLE, {s.leader, s.follower})
