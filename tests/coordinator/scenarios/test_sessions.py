"""GroupCoordinatorTest, third part: SyncGroup, Heartbeat, sessions and the deadline for SyncGroup.

Each test is a scenario of BEHAVIOUR 10.1 or 10.5 with Kafka's numbers; test_sync_group,
test_heartbeat and test_delayed have the rules one by one.
"""

import pytest

from coordinator.states import GroupState
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import SyncGroupResponse
from protocol.records.batch import decode_records
from protocol.records.offsets import decode_group_metadata_value
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    protocols,
    subscription,
    sync_group,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness
from tests.support.harness.kafka_bench import (
    DELAY_MS,
    NEW_MEMBER_MS,
    OTHER,
    PARTITION,
    REBALANCE_MS,
    SESSION_MS,
    KafkaBench,
)

NONE, REJOIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
LONG_MS = 10 * SESSION_MS
CHANGED = protocols(metadata=subscription("bar"))


def refused(error: ErrorCode) -> SyncGroupResponse:
    """Return Kafka's answer of a SyncGroup that fails: without type, name and assignment."""
    return SyncGroupResponse(error_code=error)


def completing(
    h: KafkaBench,
    size: int = 2,
    *,
    session_timeout_ms: int = SESSION_MS,
    rebalance_timeout_ms: int = REBALANCE_MS,
) -> list[str]:
    """Bring members into generation 1, which nobody has synced; return their ids, leader first."""
    joins = [
        h.add(session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=rebalance_timeout_ms)
        for _ in range(size)
    ]
    h.tick(DELAY_MS + 1)
    h.tick(DELAY_MS + 1)
    ids = [h.join_response(join).member_id for join in joins]
    assert (h.state(), h.group().leader_id) == (GroupState.COMPLETING_REBALANCE, ids[0])
    return ids


# -- SyncGroup --


@pytest.mark.parametrize("who", [0, 1], ids=["leader", "follower"])
def test_sync_with_another_protocol(who: int) -> None:
    """GC-061, GC-062: type or name, and the answer names neither."""
    h = KafkaBench()
    ids = completing(h)
    for body in (
        sync_group(ids[who], 1, {}, protocol_type="connect", protocol_name="range"),
        sync_group(ids[who], 1, {}, protocol_type="consumer", protocol_name="roundrobin"),
    ):
        assert h.sync(body) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert h.state() is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, None), ("consumer", "range")])
def test_sync_with_or_without_its_protocol(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    """GC-063, GC-064: leader and follower are told both."""
    h = KafkaBench()
    ids = completing(h)
    for member_id in ids:
        body = sync_group(
            member_id, 1, {}, protocol_type=protocol_type, protocol_name=protocol_name
        )
        response = h.sync(body, version=4)
        assert (response.error_code, response.protocol_type, response.protocol_name) == (
            NONE,
            "consumer",
            "range",
        )


def test_sync_that_names_what_is_not_there() -> None:
    """GC-079, GC-080, GC-081, GC-082: partition, group, member, generation."""
    h = KafkaBench()
    assert h.sync(sync_group("m", 1, group_id=OTHER)) == refused(ErrorCode.NOT_COORDINATOR)
    assert h.sync(sync_group("m", 1)) == refused(UNKNOWN)
    (member_id,) = completing(h, 1)
    assert h.sync(sync_group("m", 1)) == refused(UNKNOWN)
    for generation_id in (0, 2):
        assert h.sync(sync_group(member_id, generation_id)) == refused(ErrorCode.ILLEGAL_GENERATION)


def test_sync_of_the_leader_without_assignments() -> None:
    """GC-078: it is stored, each gets nothing, and the member lives on."""
    h = KafkaBench()
    (member_id,) = completing(h, 1)
    response = h.sync_response(h.sync_as(member_id, 1, {}))
    assert (response.error_code, response.assignment) == (NONE, b"")
    assert h.beat(member_id, 1) is NONE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["leader first", "follower first"])
def test_sync_gives_each_its_own_bytes(order: tuple[int, int]) -> None:
    """GC-094, GC-095: a follower that is early waits for the leader."""
    h = KafkaBench()
    ids = completing(h)
    syncs: dict[int, RequestId] = {}
    for who in order:
        given = {ids[0]: b"zero", ids[1]: b"one"} if who == 0 else None
        syncs[who] = h.sync_as(ids[who], 1, given)
        assert (h.response(syncs[who]) is None) == (order == (1, 0) and who == 1)
    assert [h.sync_response(syncs[who]).assignment for who in (0, 1)] == [b"zero", b"one"]
    assert h.state() is GroupState.STABLE


def test_leader_that_expires_before_it_syncs() -> None:
    """GC-093: the follower's SyncGroup, which keeps it, is told to rejoin."""
    h = KafkaBench()
    ids = completing(h, rebalance_timeout_ms=LONG_MS)
    sync = h.sync_as(ids[1], 1)
    h.tick(SESSION_MS)
    assert h.response(sync) is None
    h.group().members[ids[1]].assignment = b"of the generation before"
    h.tick(100)
    assert h.sync_response(sync) == refused(REJOIN)
    assert h.group().members[ids[1]].assignment == b""
    assert (h.members(), h.state()) == ({ids[1]}, GroupState.PREPARING_REBALANCE)


def test_sync_whose_append_fails_with_the_leadership() -> None:
    """JC-117."""
    h = KafkaBench()
    (member_id,) = completing(h, 1)
    h.holds_appends = True
    sync = h.sync_as(member_id, 1, {})
    assert h.response(sync) is None
    h.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert h.sync_response(sync) == refused(ErrorCode.NOT_COORDINATOR)


# -- the deadline for SyncGroup --


def awaiting_syncs(h: KafkaBench) -> list[str]:
    """Bring three members into generation 1, with sessions that outlast the deadline."""
    return completing(h, 3, session_timeout_ms=5_000, rebalance_timeout_ms=1_000)


def beats(h: KafkaBench, ids: list[str]) -> list[ErrorCode]:
    """Return what a Heartbeat of each is answered."""
    return [h.beat(member_id, 1) for member_id in ids]


def test_nobody_syncs() -> None:
    """GC-089: all are removed at the deadline, and not before, although they heartbeat."""
    h = KafkaBench()
    ids = awaiting_syncs(h)
    h.tick(500)
    assert beats(h, ids) == [NONE] * 3
    h.tick(500)
    assert beats(h, ids) == [NONE] * 3
    h.tick(1)
    assert beats(h, ids) == [UNKNOWN] * 3
    assert h.state() is GroupState.EMPTY


def test_only_the_leader_syncs() -> None:
    """GC-090: the group is Stable, and loses its followers at the deadline."""
    h = KafkaBench()
    ids = awaiting_syncs(h)
    assert h.sync_error(h.sync_as(ids[0], 1, {})) is NONE
    h.tick(500)
    assert (h.state(), beats(h, ids)) == (GroupState.STABLE, [NONE] * 3)
    h.tick(501)
    assert beats(h, ids) == [REJOIN, UNKNOWN, UNKNOWN]
    assert h.members() == {ids[0]}


def test_only_the_followers_sync() -> None:
    """GC-091: they are told to rejoin when the leader is removed at the deadline."""
    h = KafkaBench()
    ids = awaiting_syncs(h)
    syncs = [h.sync_as(member_id, 1) for member_id in ids[1:]]
    h.tick(1_000)
    assert [h.response(sync) for sync in syncs] == [None, None]
    h.tick(1)
    assert [h.sync_response(sync) for sync in syncs] == [refused(REJOIN)] * 2
    assert beats(h, ids) == [UNKNOWN, REJOIN, REJOIN]
    assert h.state() is GroupState.PREPARING_REBALANCE


def test_everybody_syncs() -> None:
    """GC-092: nothing happens at the deadline, nor after it."""
    h = KafkaBench()
    ids = awaiting_syncs(h)
    for member_id in ids:
        assert h.sync_error(h.sync_as(member_id, 1, {})) is NONE
    for _ in range(3):
        h.tick(1_001)
        assert beats(h, ids) == [NONE] * 3
    assert h.state() is GroupState.STABLE


# -- Heartbeat --


def test_heartbeat_that_names_what_is_not_there() -> None:
    """GC-065, GC-066, GC-069, GC-071: partition, group, member, generation."""
    h = KafkaBench()
    elsewhere = h.response(h.submit(heartbeat("m", 1, group_id=OTHER)))
    assert elsewhere is not None
    assert elsewhere.error_code is ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]
    assert h.beat("m", 1) is UNKNOWN
    member_id = h.stable_member()
    assert h.beat("m", 1) is UNKNOWN
    assert h.beat(member_id, 2) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeat_by_state() -> None:
    """GC-070, GC-072, JC-131: only while joins are awaited is a member told to rejoin."""
    h = KafkaBench()
    first = h.give_id()
    h.add(first)
    assert (h.state(), h.beat(first, 0)) == (GroupState.PREPARING_REBALANCE, REJOIN)
    h.tick(DELAY_MS + 1)
    assert (h.state(), h.beat(first, 1)) == (GroupState.COMPLETING_REBALANCE, NONE)
    h.sync_as(first, 1, {})
    assert (h.state(), h.beat(first, 1)) == (GroupState.STABLE, NONE)


def test_heartbeat_of_a_member_in_a_state_that_has_none() -> None:
    """GC-067, GC-068: by the state alone, the member being there."""
    for states, error in (
        ((GroupState.DEAD,), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ((GroupState.PREPARING_REBALANCE, GroupState.EMPTY), UNKNOWN),
    ):
        h = KafkaBench()
        member_id = h.stable_member()
        h.force(*states)
        assert member_id in h.group().members
        assert h.beat(member_id, 1) is error
        assert h.sync_response(h.sync_as(member_id, 1)) == refused(error)


def test_newcomer_is_told_to_the_member_by_its_heartbeat() -> None:
    """GC-120."""
    h = KafkaBench()
    first = h.stable_member()
    h.add()
    assert (h.beat(first, 1), h.state()) == (REJOIN, GroupState.PREPARING_REBALANCE)


# -- sessions --


def test_silent_member_is_removed() -> None:
    """GC-073."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.tick(SESSION_MS)
    assert h.members() == {member_id}
    h.tick(100)
    assert (h.members(), h.beat(member_id, 1)) == (set(), UNKNOWN)


@pytest.mark.parametrize("by", ["heartbeat", "commit"])
def test_session_is_counted_from_the_last_sign_of_life(by: str) -> None:
    """GC-074, GC-075: at half of it, and from there a whole one."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.tick(SESSION_MS // 2)
    if by == "heartbeat":
        assert h.beat(member_id, 1) is NONE
    else:
        assert h.commit(offset_commit({("foo", 0): 1}, member_id, 1)) == [NONE]
    h.tick(SESSION_MS // 2 + 100)
    assert h.members() == {member_id}
    h.tick(SESSION_MS // 2 - 99)
    assert h.members() == set()


def test_member_that_falls_silent_during_a_rebalance() -> None:
    """GC-076: the newcomer goes on alone, long before the rebalance timeout."""
    h = KafkaBench()
    first = h.stable_member(session_timeout_ms=1_000, rebalance_timeout_ms=2_000)
    newcomer = h.add(rebalance_timeout_ms=2_000)
    h.tick(500)
    assert h.beat(first, 1) is REJOIN
    h.tick(1_000)
    assert h.response(newcomer) is None
    h.tick(1)
    response = h.join_response(newcomer)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert [m.member_id for m in response.members] == [response.member_id]
    assert h.beat(first, 1) is UNKNOWN


def test_session_timer_of_a_dead_group() -> None:
    """GC-160: it fires, and the member stays where it is."""
    h = KafkaBench()
    member_id = h.stable_member()
    group = h.group()
    h.force(GroupState.DEAD)
    assert h.timer_keys() == [f"heartbeat-group-{member_id}"]
    h.tick(SESSION_MS + 1)
    assert h.timer_keys() == []
    assert list(group.members) == [member_id]


def test_session_timer_of_a_removed_member() -> None:
    """GC-161: it is stopped, and means nothing if it fires all the same."""
    h = KafkaBench()
    ids = completing(h)
    key = f"heartbeat-group-{ids[1]}"
    assert key in h.timer_keys()
    h.leave(leave_group(ids[1]))
    assert key not in h.timer_keys()
    before = h.summary()
    result = h.coordinator.timer_fired(key, h.now_us)
    assert (result.timers, result.trace, h.summary()) == ([], [], before)


# -- what only Java's tests pin --


def test_pending_id_of_a_new_group_expires() -> None:
    """JC-67: the group stays, and holds nothing."""
    h = KafkaBench()
    h.give_id()
    h.tick(SESSION_MS)
    assert len(h.group().pending_members) == 1
    h.tick(1)
    assert (h.state(), len(h.group().pending_members)) == (GroupState.EMPTY, 0)


def test_only_member_that_changes_its_protocols_while_completing() -> None:
    """JC-71: nobody is waited for, so the next generation begins at once."""
    h = KafkaBench()
    member_id = h.first_member()
    response = h.join_response(h.add(member_id, offers=protocols("roundrobin", "range")))
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert response.protocol_name == "roundrobin"
    assert h.group().members[member_id].protocol_names() == ("roundrobin", "range")
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_only_member_that_rejoins_in_stable() -> None:
    """JC-72."""
    h = KafkaBench()
    member_id = h.stable_member()
    response = h.join_response(h.add(member_id))
    assert (response.generation_id, response.leader) == (2, member_id)
    assert h.state() is GroupState.COMPLETING_REBALANCE


def test_follower_that_changes_its_protocols_in_stable() -> None:
    """JC-73: the leader is waited for; then both are told the next generation."""
    h = KafkaBench()
    ids = completing(h)
    h.sync_as(ids[0], 1, {})
    h.sync_as(ids[1], 1)
    follower = h.add(ids[1], offers=CHANGED)
    assert (h.response(follower), h.state()) == (None, GroupState.PREPARING_REBALANCE)
    leader = h.add(ids[0])
    assert [h.join_response(join).generation_id for join in (leader, follower)] == [2, 2]
    metadata = {m.member_id: m.metadata for m in h.join_response(leader).members}
    assert metadata == {ids[0]: subscription("foo"), ids[1]: subscription("bar")}


def test_member_that_is_not_back_at_the_rebalance_timeout() -> None:
    """JC-76: a dynamic one is removed, and the newcomer is alone."""
    h = KafkaBench()
    first = h.stable_member(session_timeout_ms=LONG_MS)
    newcomer = h.add()
    h.tick(REBALANCE_MS)
    assert h.response(newcomer) is None
    h.tick(1)
    response = h.join_response(newcomer)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert h.members() == {response.member_id}
    assert h.beat(first, 1) is UNKNOWN


def test_group_that_died_during_its_initial_delay() -> None:
    """JC-77: the timer fires, and no generation begins."""
    h = KafkaBench()
    join = h.add()
    group = h.group()
    h.force(GroupState.DEAD)
    h.tick(DELAY_MS + 1)
    assert (group.generation_id, h.response(join)) == (0, None)
    assert h.events(TraceKind.GENERATION_STARTED) == []


def test_new_member_whose_five_minutes_end_during_a_long_initial_delay() -> None:
    """JC-68: it is told that it is unknown; when the delay ends the group is stored as Empty."""
    h = CoordinatorHarness(config=BrokerConfig(group_initial_rebalance_delay_ms=600_000))
    join = h.submit(join_group(), version=3)
    h.advance(NEW_MEMBER_MS - 1)
    assert h.response(join) is None
    h.advance(1)
    assert h.join_response(join).error_code is UNKNOWN
    assert h.summary().members == ()
    assert h.log == {}
    h.advance(300_000)
    assert (h.state(), h.summary().generation) == (GroupState.EMPTY, 1)
    (record,) = decode_records(h.log[0][0].records)
    value = decode_group_metadata_value(record.value or b"")
    assert (value.generation, value.members, value.leader) == (1, (), None)
    assert (value.protocol_type, value.protocol) == ("consumer", None)


def test_last_member_that_leaves_has_its_group_stored_as_empty() -> None:
    """MM-32: one record, with generation and type, and neither protocol nor leader."""
    h = KafkaBench()
    member_id = h.stable_member()
    before = len(h.log[PARTITION])
    h.leave(leave_group(member_id))
    (batch,) = h.log[PARTITION][before:]
    (record,) = decode_records(batch.records)
    value = decode_group_metadata_value(record.value or b"")
    assert (value.protocol_type, value.protocol, value.leader) == ("consumer", None, None)
    assert (value.generation, value.members) == (2, ())
    assert value.current_state_timestamp_ms == record.timestamp_ms == h.now_us // 1_000
