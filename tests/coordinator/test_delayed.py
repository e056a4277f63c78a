"""Delayed operations: every timer of BEHAVIOUR 3, in virtual time."""

from collections.abc import Callable, Sequence

import pytest

from coordinator.states import GroupState
from protocol.api import GroupRequest
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.trace import TraceEvent, TraceKind
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

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 30_000


def delayed() -> CoordinatorHarness:
    """Return a harness with Kafka's initial rebalance delay of three seconds."""
    return CoordinatorHarness(config=BrokerConfig())


def join_v3(h: CoordinatorHarness, *, rebalance_timeout_ms: int = REBALANCE_MS) -> RequestId:
    """Let a new member join at once, as clients did before KIP-394."""
    return h.submit(join_group(rebalance_timeout_ms=rebalance_timeout_ms), version=3)


def answered(h: CoordinatorHarness, *requests: RequestId) -> list[bool]:
    """Return which of the requests have an answer."""
    return [h.response(request_id) is not None for request_id in requests]


# -- the initial delayed join (BEHAVIOUR 3.3) --


def test_initial_join_waits_the_whole_delay_although_everyone_is_there() -> None:
    """GC-157: it cannot know who else will come."""
    h = delayed()
    request_id = join_v3(h)
    h.advance(DELAY_MS - 0.001)
    assert answered(h, request_id) == [False]
    h.advance(0.001)
    assert answered(h, request_id) == [True]


def test_initial_join_is_extended_by_one_delay_when_a_member_came() -> None:
    """GC-158: and by one only."""
    h = delayed()
    first = join_v3(h)
    h.advance(DELAY_MS - 1)
    second = join_v3(h)
    h.advance(DELAY_MS)
    assert answered(h, first, second) == [False, False]
    h.advance(1)
    assert answered(h, first, second) == [True, True]
    assert h.join_response(first).generation_id == 1


def test_initial_join_is_bounded_by_the_rebalance_timeout_of_the_first() -> None:
    """GC-159: members that keep coming cannot hold it up for ever."""
    h = delayed()
    requests = [join_v3(h, rebalance_timeout_ms=2 * DELAY_MS) for _ in range(2)]
    h.advance(DELAY_MS + 1)
    requests.append(join_v3(h, rebalance_timeout_ms=9 * DELAY_MS))
    h.advance(DELAY_MS - 2)
    assert answered(h, *requests) == [False] * 3
    h.advance(1)
    assert answered(h, *requests) == [True] * 3


def test_initial_join_with_a_rebalance_timeout_below_the_delay_is_not_extended() -> None:
    """Recording delay-short-rebalance: the delay itself is not cut, though."""
    h = delayed()
    first = join_v3(h, rebalance_timeout_ms=1_000)
    h.advance(1_000)
    join_v3(h, rebalance_timeout_ms=1_000)
    h.advance(1_999)
    assert answered(h, first) == [False]
    h.advance(1)
    assert answered(h, first) == [True]


def test_initial_join_is_not_extended_by_a_rejoin_or_a_pending_id() -> None:
    """Only a new member extends it."""
    h = delayed()
    member_id = h.new_member_id()
    h.submit(join_group(member_id))
    h.advance(1_000)
    again = h.submit(join_group(member_id))
    h.new_member_id()
    h.advance(2_000)
    assert answered(h, again) == [True]


def test_initial_join_whose_only_member_left_ends_empty() -> None:
    """JC-68: at the end of the delay, with a generation of its own."""
    h = delayed()
    member_id = h.new_member_id()
    h.submit(join_group(member_id))
    h.advance(1_000)
    h.leave(leave_group(member_id))
    assert h.state() is GroupState.PREPARING_REBALANCE
    h.advance(2_000)
    assert (h.state(), h.summary().generation) == (GroupState.EMPTY, 1)


def test_initial_join_of_a_later_generation_is_not_extended() -> None:
    """[S]: only generation 0 extends; an emptied group waits one delay."""
    h = delayed()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    first = join_v3(h)
    h.advance(1_000)
    second = join_v3(h)
    h.advance(2_000)
    assert answered(h, first, second) == [True, True]


# -- the delayed join (BEHAVIOUR 3.2) --


def why_join_phase_ended(h: CoordinatorHarness) -> tuple[str | None, str | None]:
    """The cause, and its text, with which the group last left PreparingRebalance."""
    (*_, ended) = (
        event
        for event in h.events(TraceKind.GROUP_STATE)
        if (event.detail or {})["from"] == GroupState.PREPARING_REBALANCE.value
    )
    return ended.cause, ended.cause_text


def rejoin_all(h: CoordinatorHarness, ids: list[str]) -> None:
    for member_id in ids:
        h.submit(join_group(member_id))


def rejoin_one(h: CoordinatorHarness, ids: list[str]) -> None:
    h.submit(join_group(ids[0], offers=protocols(metadata=subscription("bar"))))
    for _ in range(6):
        h.advance(5_000)
        for member_id in ids[1:]:
            h.beat(member_id, 1)


def expire_after_a_newcomer(h: CoordinatorHarness, _ids: list[str]) -> None:
    join_v3(h)
    h.advance(SESSION_MS)


def leave_last(h: CoordinatorHarness, ids: list[str]) -> None:
    h.submit(join_group(ids[0]))
    h.leave(leave_group(ids[1]))


def leave_pending(h: CoordinatorHarness, ids: list[str]) -> None:
    h.submit(join_group(ids[0]))
    pending = h.new_member_id()
    h.submit(join_group(ids[1]))
    h.leave(leave_group(pending))


def expire_all(h: CoordinatorHarness, _ids: list[str]) -> None:
    h.advance(SESSION_MS)


@pytest.mark.parametrize(
    ("end", "cause", "text"),
    [
        (rejoin_all, GroupStateCause.ALL_JOINED, None),
        (rejoin_one, GroupStateCause.REBALANCE_TIMEOUT, None),
        (
            expire_after_a_newcomer,
            GroupStateCause.LAST_MISSING_WENT,
            "session expiry of the last member that had not joined",
        ),
        (
            leave_last,
            GroupStateCause.LAST_MISSING_WENT,
            "leave of the last member that had not joined",
        ),
        (
            leave_pending,
            GroupStateCause.LAST_MISSING_WENT,
            "leave of the last member id that had not joined",
        ),
        (expire_all, GroupStateCause.NO_MEMBER_LEFT, None),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_join_phase_says_what_ended_it(
    end: Callable[[CoordinatorHarness, list[str]], None], cause: GroupStateCause, text: str | None
) -> None:
    """A report that says "all members joined" of members that expired misleads its reader."""
    h = CoordinatorHarness()
    end(h, h.stable_group())
    assert why_join_phase_ended(h) == (cause, text)


def test_join_phase_ends_when_the_last_member_has_rejoined() -> None:
    """And each gets its answer, the leader with the members."""
    h = CoordinatorHarness()
    ids = h.stable_group(3)
    joins = [h.submit(join_group(member_id)) for member_id in ids]
    assert answered(h, *joins) == [True] * 3
    assert [len(h.join_response(j).members) for j in joins] == [3, 0, 0]
    started = h.events(TraceKind.GENERATION_STARTED)[-1]
    assert started.detail == {"members": ids, "leader": ids[0], "protocol": "range"}


def test_join_phase_ends_at_the_rebalance_timeout_without_those_who_did_not_rejoin() -> None:
    """GC-076: heartbeats do not save them."""
    h = CoordinatorHarness()
    ids = h.stable_group(3)
    join = h.submit(join_group(ids[1], offers=protocols(metadata=subscription("bar"))))
    for _ in range(6):
        h.advance(5_000 - 1)
        for member_id in (ids[0], ids[2]):
            assert h.beat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert answered(h, join) == [False]
    h.advance(6)
    response = h.join_response(join)
    assert (response.generation_id, response.leader) == (2, ids[1])
    assert h.summary().members == (ids[1],)
    assert [e.cause for e in h.events(TraceKind.MEMBER_REMOVED)] == ["did not rejoin"] * 2
    assert h.beat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_phase_lasts_as_long_as_the_slowest_member_at_its_start_may_take() -> None:
    """Recording rebalance-timeout-max: a later joiner with a longer timeout does not extend it."""
    h = CoordinatorHarness()
    h.stable_group(2, session_timeout_ms=100_000)
    newcomer = join_v3(h, rebalance_timeout_ms=40_000)
    join_v3(h, rebalance_timeout_ms=90_000)
    h.advance(39_999)
    assert answered(h, newcomer) == [False]
    h.advance(1)
    assert answered(h, newcomer) == [True]


def test_join_phase_waits_for_a_pending_id() -> None:
    """GC-086: until it joins."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    joins = [h.submit(join_group(ids[0]))]
    pending = h.new_member_id()
    joins.append(h.submit(join_group(ids[1])))
    assert answered(h, *joins) == [False, False]
    joins.append(h.submit(join_group(pending)))
    assert answered(h, *joins) == [True] * 3


def test_join_phase_goes_on_when_a_pending_id_expires() -> None:
    """GC-087: after the session timeout that the client asked for."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    first = h.submit(join_group(ids[0]))
    pending = h.submit(join_group(session_timeout_ms=6_000))
    h.submit(join_group(ids[1]))
    h.advance(5_999)
    assert answered(h, first) == [False]
    h.advance(1)
    assert h.join_response(first).generation_id == 2
    member_id = h.join_response(pending).member_id
    assert h.join(join_group(member_id)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_id_that_expires_in_stable_changes_nothing() -> None:
    """GC-085: no rebalance."""
    h = CoordinatorHarness()
    ids = h.stable_group(1, session_timeout_ms=30_000)
    h.submit(join_group(session_timeout_ms=6_000))
    h.advance(6_000)
    assert (h.state(), list(h.group().pending_members)) == (GroupState.STABLE, [])
    assert h.summary().members == tuple(ids)


def test_join_phase_without_the_leader_elects_one_who_came() -> None:
    """BEHAVIOUR 3.2."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    join = h.submit(join_group(ids[1], offers=protocols(metadata=subscription("bar"))))
    h.advance(REBALANCE_MS)
    assert h.join_response(join).leader == ids[1]
    assert [m.member_id for m in h.join_response(join).members] == [ids[1]]


# -- the delayed sync (BEHAVIOUR 3.4) --


def completing(h: CoordinatorHarness, size: int = 3) -> list[str]:
    """Bring a group into CompletingRebalance with sessions that outlast the sync deadline."""
    ids = [h.new_member_id() for _ in range(size)]
    for member_id in ids:
        h.submit(join_group(member_id, session_timeout_ms=60_000))
    h.advance(0)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    return ids


def test_sync_deadline_removes_everyone_when_nobody_syncs() -> None:
    """GC-089: heartbeats do not rescue them (KAFKA-12890)."""
    h = CoordinatorHarness()
    ids = completing(h)
    h.advance(REBALANCE_MS - 1)
    assert [h.beat(m, 1) for m in ids] == [ErrorCode.NONE] * 3
    h.advance(1)
    assert [h.beat(m, 1) for m in ids] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert h.state() is GroupState.EMPTY


def test_sync_deadline_removes_followers_that_do_not_sync() -> None:
    """GC-090: although the group is Stable by then."""
    h = CoordinatorHarness()
    ids = completing(h)
    h.submit(sync_group(ids[0], 1, {ids[0]: b"a"}))
    assert h.state() is GroupState.STABLE
    h.advance(REBALANCE_MS)
    assert [h.beat(m, 1) for m in ids] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [e.cause for e in h.events(TraceKind.MEMBER_REMOVED)] == ["sync deadline"] * 2


def test_sync_deadline_removes_the_leader_that_does_not_sync() -> None:
    """GC-091: the followers' parked requests are answered."""
    h = CoordinatorHarness()
    ids = completing(h)
    syncs = [h.submit(sync_group(m, 1)) for m in ids[1:]]
    h.advance(REBALANCE_MS)
    assert [h.sync_response(s).error_code for s in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert [h.beat(m, 1) for m in ids] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]


def test_sync_deadline_means_nothing_when_all_have_synced() -> None:
    """GC-092: its timer is stopped, whoever was last."""
    h = CoordinatorHarness()
    ids = completing(h)
    for member_id in ids:
        assert "sync-group" in h.timer_keys()
        h.submit(sync_group(member_id, 1, {}))
    assert h.state() is GroupState.STABLE
    assert "sync-group" not in h.timer_keys()
    h.advance(REBALANCE_MS)
    assert [h.beat(m, 1) for m in ids] == [ErrorCode.NONE] * 3


def test_sync_deadline_of_an_old_generation_means_nothing() -> None:
    """A rebalance stops it and the next generation has its own."""
    h = CoordinatorHarness()
    ids = completing(h)
    h.advance(REBALANCE_MS - 1)
    for member_id in ids:
        h.submit(
            join_group(
                member_id, session_timeout_ms=60_000, offers=protocols(metadata=subscription("bar"))
            )
        )
    assert h.summary().generation == 2
    h.advance(REBALANCE_MS - 1)
    assert len(h.summary().members) == 3
    h.advance(1)
    assert h.summary().members == ()


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_rebalance_timeout_of_nothing_evicts_the_member_before_it_can_sync(
    rebalance_timeout_ms: int,
) -> None:
    """BEHAVIOUR 0.1."""
    h = CoordinatorHarness()
    join_v3(h, rebalance_timeout_ms=rebalance_timeout_ms)
    h.advance(0)
    assert h.summary().members == ()


# -- sessions (BEHAVIOUR 3.5) --


def test_session_of_a_silent_member_ends_after_its_timeout() -> None:
    """GC-073: it rebalances those who stay, and says why."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.advance(SESSION_MS - 1)
    assert h.beat(ids[0], 1) is ErrorCode.NONE
    h.advance(1)
    assert h.beat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    (removed,) = h.events(TraceKind.MEMBER_REMOVED)
    assert (removed.member, removed.cause) == (ids[1], "session expiry")
    started = h.events(TraceKind.REBALANCE_STARTED)[-1]
    assert (started.cause, started.detail) == (RebalanceCause.SESSION_EXPIRY, None)
    assert started.cause_text == f"member {ids[1]} expired: no heartbeat"


def test_sessions_of_all_members_end_in_an_empty_group() -> None:
    """GC-020, GC-021."""
    h = CoordinatorHarness()
    h.stable_group(3)
    h.advance(SESSION_MS)
    assert (h.state(), h.summary().generation) == (GroupState.EMPTY, 2)
    assert h.timer_keys() == []


def test_session_of_the_leader_that_ends_before_it_syncs_frees_the_followers() -> None:
    """GC-093."""
    h = CoordinatorHarness()
    ids = [h.new_member_id() for _ in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)
    sync = h.submit(sync_group(ids[1], 1))
    h.advance(SESSION_MS)
    assert h.sync_response(sync).error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_session_of_a_member_parked_in_join_does_not_end() -> None:
    """Recording session-parked-join: its JoinGroup keeps it, and its answer starts a session."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    join = h.submit(join_group(ids[0]))
    for _ in range(3):
        h.advance(9_000)
        h.beat(ids[1], 1)
    assert ids[0] in h.summary().members
    h.submit(join_group(ids[1]))
    assert h.join_response(join).error_code is ErrorCode.NONE
    h.advance(SESSION_MS - 1)
    assert len(h.summary().members) == 2
    h.advance(1)
    assert h.summary().members == ()


def test_session_of_a_member_parked_in_sync_does_not_end() -> None:
    """Recording session-parked-sync."""
    h = CoordinatorHarness()
    ids = [h.new_member_id() for _ in range(2)]
    for member_id in ids:
        h.submit(join_group(member_id))
    h.advance(0)
    sync = h.submit(sync_group(ids[1], 1))
    for _ in range(3):
        h.advance(9_000)
        h.beat(ids[0], 1)
    assert answered(h, sync) == [False]
    h.submit(sync_group(ids[0], 1, {ids[1]: b"x"}))
    assert h.sync_response(sync).assignment == b"x"
    h.beat(ids[0], 1)
    h.advance(SESSION_MS - 1)
    assert len(h.summary().members) == 2
    h.advance(1)
    assert len(h.summary().members) < 2


def test_session_that_ends_while_a_rebalance_is_prepared_completes_it() -> None:
    """GC-076: the newcomer need not wait for the rebalance timeout."""
    h = CoordinatorHarness()
    ids = h.stable_group(1)
    newcomer = join_v3(h)
    h.advance(5_000)
    assert h.beat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    h.advance(SESSION_MS)
    assert h.join_response(newcomer).generation_id == 2
    assert h.beat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_has_five_minutes_in_its_first_join() -> None:
    """GC-019: its session timeout does not matter, and it is told that it is unknown."""
    h = CoordinatorHarness()
    (old,) = h.stable_group(1, session_timeout_ms=1_800_000)
    h.submit(
        join_group(old, session_timeout_ms=1_800_000, rebalance_timeout_ms=600_000)
    )  # a leader rejoins, alone: generation 2, with a long rebalance timeout
    h.submit(sync_group(old, 2, {}))
    newcomer = join_v3(h)
    h.advance(299_999)
    assert answered(h, newcomer) == [False]
    h.advance(1)
    response = h.join_response(newcomer)
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert h.summary().members == (old,)


def test_new_member_has_its_own_session_timeout_once_it_has_joined() -> None:
    """GC-018: the five minutes are over, and a longer session is not cut."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1, session_timeout_ms=305_000)
    assert not h.group().members[member_id].is_new
    h.advance(300_100)
    assert h.summary().members == (member_id,)
    h.advance(305_000)
    assert h.summary().members == ()


def test_new_member_that_heartbeats_while_parked_lives_by_its_session() -> None:
    """Kafka replaces the five-minute operation: the id was known from MEMBER_ID_REQUIRED."""
    h = CoordinatorHarness()
    h.stable_group(1, session_timeout_ms=60_000)
    newcomer = h.new_member_id()
    join = h.submit(join_group(newcomer))
    h.advance(1_000)
    assert h.beat(newcomer, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    h.advance(SESSION_MS)
    assert h.join_response(join).error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("what", "api"),
    [
        ("heartbeat", "Heartbeat"),
        ("commit", "OffsetCommit"),
        ("sync", "SyncGroup"),
        ("join", None),
    ],
)
def test_session_is_restarted_by(what: str, api: str | None) -> None:
    """BEHAVIOUR 3.5; the JoinGroup of a follower that is answered at once does not restart it.

    What restarts a session is traced, with the request and how long the member has: checkers judge
    an expiry by these rows.
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.advance(6_000)
    h.beat(ids[0], 1)
    bodies: dict[str, GroupRequest] = {
        "heartbeat": heartbeat(ids[1], 1),
        "commit": offset_commit({("foo", 0): 1}, ids[1], 1),
        "sync": sync_group(ids[1], 1),
        "join": join_group(ids[1]),
    }
    before = len(h.trace)
    h.submit(bodies[what])
    restarts = restarted_sessions(h.trace[before:])
    assert restarts == ([] if api is None else [(ids[1], 1, api)])
    h.advance(6_000)
    assert (ids[1] in h.summary().members) == (api is not None)


def test_answers_to_parked_requests_restart_sessions() -> None:
    """BEHAVIOUR 3.5: also of a JoinGroup and a SyncGroup that have waited; a load is no request."""
    h = CoordinatorHarness()
    ids = h.stable_group()

    assert restarted_sessions(h.trace) == [
        *((member, 1, "JoinGroup") for member in ids),
        *((member, 1, "SyncGroup") for member in ids),
    ]
    (detail,) = {str(e.detail) for e in h.trace if e.kind is TraceKind.SESSION_RESTARTED}
    assert detail == str({"session_timeout_ms": SESSION_MS})

    assert restarted_sessions(h.failover().trace) == []


def restarted_sessions(trace: Sequence[TraceEvent]) -> list[tuple[str | None, int | None, str]]:
    """Return member, generation and request of every restarted session."""
    return [
        (event.member, event.generation, event.api or "")
        for event in trace
        if event.kind is TraceKind.SESSION_RESTARTED
    ]


def test_timer_that_is_not_known_changes_nothing() -> None:
    """It was cancelled, and the host fired it all the same."""
    h = CoordinatorHarness()
    h.stable_group()
    before = h.coordinator.groups()
    for key in ("join-group", "sync-group", "heartbeat-group-who", "anything"):
        result = h.coordinator.timer_fired(key, h.now_us)
        assert (result.replies, result.timers, result.trace) == ([], [], [])
    assert h.coordinator.groups() == before
