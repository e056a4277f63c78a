"""The needless-rebalance checker finds rebalances that a failover must not cause."""

from dataclasses import replace

import pytest

from chaos.checkers.base import CheckContext, GroupExpectation
from chaos.checkers.needless_rebalance import NeedlessRebalance
from protocol.causes import RebalanceCause, RemovalCause
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


def check(rows: Rows) -> CheckReport:
    checker = NeedlessRebalance(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def stable_group_loses_its_coordinator() -> Rows:
    """A Stable group in generation 1, its coordinator killed at 10 s, loaded again at 18 s."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0")
    rows.group_loaded(18, "broker-1")
    return rows


def rebalance(rows: Rows, time_s: float, cause: str = "member joined") -> None:
    rows.add(time_s, "broker-1", TraceKind.REBALANCE_STARTED, group="g", generation=1, cause=cause)
    rows.group_state(time_s, "broker-1", "Stable", "PreparingRebalance")


def test_failover_that_keeps_the_generation_passes() -> None:
    """MEASURED_FAILOVER 6: no failover of a Stable group caused a rebalance."""
    rows = stable_group_loses_its_coordinator()
    rows.stage(40, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen == {
        "failovers_of_a_stable_group": 1,
        "needless_rebalances": 0,
        "rebalances_that_were_needed": 0,
    }


def test_rebalance_after_the_load_is_found() -> None:
    """Planted bug: members rejoin although the new coordinator knows them."""
    rows = stable_group_loses_its_coordinator()
    rebalance(rows, 19)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "all its members survived crash-0, yet broker-1 began a rebalance" in finding.summary
    assert [row.kind for row in finding.evidence] == [
        TraceKind.GROUP_STATE,
        TraceKind.FAULT_INJECTED,
        TraceKind.GROUP_LOADED,
        TraceKind.REBALANCE_STARTED,
    ]


def test_member_that_never_had_its_assignment_may_ask_again() -> None:
    """Its SyncGroup was answered by nobody: the log has the assignment, and the member has not."""
    for state, outcome in (
        ("STABLE", CheckOutcome.VIOLATED),
        ("COMPLETING_REBALANCE", CheckOutcome.NOTHING_SEEN),
    ):
        rows = Rows()
        rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
        rows.member_state(4.1, C0, "STABLE")
        rows.member_state(4.1, C1, state)
        rows.fault(10, "broker-0")
        rows.group_loaded(18, "broker-1")
        rebalance(rows, 19, cause="member rejoined")

        assert check(rows).outcome is outcome


def test_generation_from_nothing_on_the_new_coordinator_is_found() -> None:
    """Planted bug: the group record was lost, so the new coordinator begins at generation 1."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable", generation=3)
    rows.fault(10, "broker-0")
    rows.load_completed(18, "broker-1", 1)
    rows.add(19, "broker-1", TraceKind.GENERATION_STARTED, group="g", generation=1)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_session_expiry_of_a_living_member_is_found() -> None:
    """Planted bug: the new coordinator starts its session timers with the old one's ends."""
    rows = stable_group_loses_its_coordinator()
    rows.add(
        18.1, "broker-1", TraceKind.MEMBER_REMOVED, group="g", member="m", cause="session expiry"
    )
    rebalance(rows, 18.1, cause="session expiry")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "session expiry" in "\n".join(report.findings[0].story)


def test_rebalance_because_a_member_was_killed_too_passes() -> None:
    """Not all members survived."""
    rows = stable_group_loses_its_coordinator()
    rows.add(20, "driver", TraceKind.NODE_KILLED, peer=C1)
    rebalance(rows, 66, cause="session expiry")

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_because_a_member_left_passes() -> None:
    """A member that leaves on its own accord is not the failover's doing."""
    rows = stable_group_loses_its_coordinator()
    rows.add(20, "broker-1", TraceKind.MEMBER_REMOVED, group="g", member="m", cause="leave")
    rebalance(rows, 20.1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_under_a_fault_that_cuts_members_off_is_not_judged() -> None:
    """Members out of reach expire: that rebalance is needed."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="cut", members_survive=False)
    rebalance(rows, 60)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN


@pytest.mark.parametrize(
    ("former", "outcome"),
    [((f"{C1}-former",), CheckOutcome.NOTHING_SEEN), ((), CheckOutcome.VIOLATED)],
)
def test_group_with_an_id_that_nobody_has_any_more_is_not_judged(
    former: tuple[str, ...], outcome: CheckOutcome
) -> None:
    """Standard space, seed 5008: it died while its JoinGroup waited, and expires a session later.

    Without it, the same expiry is one that nothing explains.
    """
    rows = Rows()
    rows.generation_started(4, "broker-0", 4, [f"{C0}-a", f"{C1}-b", *former])
    rows.group_state(4.1, "broker-0", "CompletingRebalance", "Stable", generation=4)
    rows.fault(10, "broker-2")
    rows.member_removed(12, "broker-0", f"{C1}-former", generation=4)
    rows.add(12, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=4)

    assert check(rows).outcome is outcome


def test_group_that_was_rebalancing_when_the_fault_came_is_not_judged() -> None:
    """Only a Stable group can keep its generation."""
    rows = Rows()
    rows.group_state(4, "broker-0", "Stable", "PreparingRebalance")
    rows.fault(10, "broker-0")
    rebalance(rows, 19)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_rebalance_while_the_run_stops_is_not_judged() -> None:
    """Consumers that are stopped leave."""
    rows = stable_group_loses_its_coordinator()
    rows.stage(40, "stopping")
    rebalance(rows, 40.1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_before_any_fault_is_not_judged() -> None:
    """Members join one after another while the cluster starts."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rebalance(rows, 5)
    rows.group_state(6, "broker-0", "CompletingRebalance", "Stable", generation=2)
    rows.fault(10, "broker-0")

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_of_a_zombie_is_not_the_groups() -> None:
    """On resume a paused coordinator expires members that left it long ago (BEHAVIOUR 6.6 i)."""
    rows = stable_group_loses_its_coordinator()
    rows.load_completed(18, "broker-1", 1)
    rows.add(
        30, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1, cause="session expiry"
    )

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_owed_to_a_member_that_died_before_the_fault_passes() -> None:
    """The group is Stable until the session of the dead member ends, behind the failover."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.add(6, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.fault(10, "broker-0")
    rows.group_loaded(18, "broker-1")
    rebalance(rows, 19, "session expiry")

    report = check(rows)

    assert report.outcome is not CheckOutcome.VIOLATED
    assert report.seen == {
        "failovers_of_a_stable_group": 0,
        "needless_rebalances": 0,
        "rebalances_that_were_needed": 0,
    }


def attached_to_the_old_coordinator(*, expired_s: float) -> Rows:
    """Broker 0 is cut from the brokers, not from its members; broker 1 loads the group at 18 s."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="cut")
    rows.group_loaded(18, "broker-1")
    rows.load_completed(18, "broker-1", 1)
    rows.member_removed(expired_s, "broker-1", "m")
    rebalance(rows, expired_s, "member m expired: no heartbeat")
    return rows


def test_rebalance_of_members_that_stay_with_a_cut_coordinator_is_explained() -> None:
    """They live, but not for the new coordinator: a session after its load it drops them."""
    report = check(attached_to_the_old_coordinator(expired_s=63))

    assert report.outcome is CheckOutcome.PASS
    assert report.measured == {"rebalances_after_faults": 1, "rebalances_that_were_needed": 1}
    assert (report.seen["needless_rebalances"], report.seen["rebalances_that_were_needed"]) == (
        0,
        1,
    )
    assert "broker-0, coordinator in epoch 0, still served it" in report.note


def test_expiry_sooner_than_a_session_after_the_load_is_found_in_a_split_too() -> None:
    """Planted bug: the new coordinator does not give its members a full session of grace."""
    report = check(attached_to_the_old_coordinator(expired_s=40))

    assert report.outcome is CheckOutcome.VIOLATED


def test_expiry_long_after_the_old_coordinator_died_is_found() -> None:
    """Planted bug: a client that never asks anew. Nobody else served the member."""
    rows = stable_group_loses_its_coordinator()
    rows.load_completed(18, "broker-1", 1)
    rows.member_removed(63, "broker-1", "m")
    rebalance(rows, 63, "member m expired: no heartbeat")

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("length_s", "needed"), [(44, True), (20, False)])
def test_coordinator_that_was_stopped_for_a_session_finds_its_members_expired(
    length_s: int, *, needed: bool, again: bool
) -> None:
    """Due timers fire before waiting heartbeats are read; a shorter pause excuses nothing.

    One that is stopped again before it does anything was stopped all the time.
    """
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-1", fault="pause")
    rows.add(10, "driver", TraceKind.NODE_PAUSED, peer="broker-1")
    rows.add(10 + length_s, "driver", TraceKind.NODE_RESUMED, peer="broker-1")
    if again:
        rows.add(10 + length_s, "driver", TraceKind.NODE_PAUSED, peer="broker-1")
        rows.add(10 + length_s, "driver", TraceKind.NODE_RESUMED, peer="broker-1")
    rows.member_removed(10 + length_s, "broker-1", "m")
    rebalance(rows, 10 + length_s, "member m expired: no heartbeat")

    assert (check(rows).outcome is CheckOutcome.PASS) is needed


def test_member_that_is_paused_owes_a_rebalance_whatever_breaks_meanwhile() -> None:
    """A broker crashes while a member is stopped: its session ends all the same."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(8, C1, fault="pause", members_survive=False, nodes=[C1])
    rows.fault(10, "broker-0")
    rows.group_loaded(18, "broker-1")
    rebalance(rows, 60, "session expiry")

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_member_at_one_end_of_a_cut_excuses_its_own_group_only() -> None:
    """The other groups' members are heard as before."""
    other = replace(CONTEXT.groups["g"], consumers=("consumer-h-0",))
    checker = NeedlessRebalance(CheckContext(groups={**CONTEXT.groups, "h": other}))
    rows = Rows(checker.observe)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(
        10,
        "broker-0",
        fault="cut",
        members_survive=False,
        nodes=["broker-0"],
        **{"from": ["broker-0"], "to": ["consumer-h-0"]},
    )
    rows.group_loaded(12, "broker-1")
    rebalance(rows, 15)

    assert checker.finish().outcome is CheckOutcome.VIOLATED


def test_graceful_move_that_rebalances_is_found() -> None:
    """Planted bug: an unload that tells members to rejoin."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="leadership_move", momentary=True)
    rows.group_loaded(10.1, "broker-1")
    rows.load_completed(10.1, "broker-1", 1)
    rebalance(rows, 10.5)

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize(("timed_out_s", "needed"), [(50, True), (15, False)])
def test_heartbeats_behind_commits_that_wait_for_a_silent_replica_explain_an_expiry(
    timed_out_s: int, needed: bool
) -> None:
    """One request at a time on a connection: what happened a session ago is no excuse."""
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-2", fault="pause")
    append_id = rows.append_started(timed_out_s - 5, "broker-1", 0, 7)
    rows.append_completed(timed_out_s, "broker-1", 0, 7, append_id, "REQUEST_TIMED_OUT")
    rows.member_removed(62, "broker-1", "m")
    rebalance(rows, 62, "member m expired: no heartbeat")

    report = check(rows)

    assert (report.outcome is CheckOutcome.PASS) is needed
    assert ("waited behind commits" in report.note) is needed


@pytest.mark.parametrize("fault", ["pause", "crash"])
@pytest.mark.parametrize("found", [None, "broker-0", "broker-1"])
def test_member_that_a_silent_server_keeps_from_finding_its_coordinator_is_explained(
    fault: str, found: str | None
) -> None:
    """Its FindCoordinator hangs, or names whom it should not; a dead server misleads nobody."""
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-2", fault=fault)
    rows.add(16, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", member="m", peer="broker-1")
    if found is not None:
        rows.add(
            17, C0, TraceKind.COORDINATOR_FOUND, group="g", member="m", peer=found, cause="broker-2"
        )
    rows.member_removed(62, "broker-1", "m")
    rebalance(rows, 62, "member m expired: no heartbeat")

    needed = fault == "pause" and found != "broker-1"

    assert (check(rows).outcome is CheckOutcome.PASS) is needed


def test_member_that_a_zombie_expired_comes_back_as_a_new_one() -> None:
    """On resume a replaced coordinator expires its members before it learns (BEHAVIOUR 6.6 i)."""
    rows = attached_to_the_old_coordinator(expired_s=63)
    del rows.rows[-3:]
    rows.member_removed(24, "broker-0", f"{C0}-1234")
    rows.add(
        24.5,
        "broker-1",
        TraceKind.MEMBER_ADDED,
        group="g",
        member=f"{C0}-5678",
        generation=1,
        detail={"client_id": C0, "instance": None},
    )
    rebalance(rows, 24.5, f"member {C0}-5678 joined")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert "broker-0, which was not its coordinator then, had dropped it" in report.note


def test_member_that_a_zombie_told_to_rejoin_does() -> None:
    """Standard space, seed 247: on resume a replaced coordinator expires a member, tells others."""
    rows = attached_to_the_old_coordinator(expired_s=63)
    del rows.rows[-3:]
    rows.add(
        24, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1, cause="m2 expired"
    )
    rebalance(rows, 24.3, RebalanceCause.REJOIN)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert "broker-0, which was not its coordinator any more, had told it to" in report.note


@pytest.mark.parametrize("dropped_before", [True, False])
def test_id_that_another_coordinator_dropped_expires_where_it_is_loaded_again(
    *, dropped_before: bool
) -> None:
    """Standard space, seed 1460: its member has been somebody else since, and nobody heartbeats."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    if dropped_before:
        rows.member_removed(5, "broker-0", f"{C0}-1234")
    rows.add(8, "broker-0", TraceKind.UNLOAD_COMPLETED, partition=OFFSETS_0, leader_epoch=1)
    rows.load_completed(9, "broker-1", 1)
    rows.group_loaded(9, "broker-1", members=[f"{C0}-1234", f"{C1}-1234"])
    rows.fault(10, "broker-2")
    rows.member_removed(54, "broker-1", f"{C0}-1234")
    rebalance(rows, 54, f"member {C0}-1234 expired: no heartbeat")

    report = check(rows)

    assert (report.outcome is CheckOutcome.PASS) is dropped_before
    if dropped_before:
        assert "is nobody's any more: broker-0" in report.note


def test_member_that_the_next_coordinator_loads_again_comes_back_as_a_new_one() -> None:
    """Standard space, seed 119: dropped, but the next coordinator loads what was stored before."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.member_removed(5, "broker-0", f"{C0}-1234")
    rows.load_completed(9, "broker-1", 1)
    rows.group_loaded(9, "broker-1", members=[f"{C0}-1234", f"{C1}-1234"])
    rows.fault(10, "broker-2")
    rows.add(
        11,
        "broker-1",
        TraceKind.MEMBER_ADDED,
        group="g",
        member=f"{C0}-5678",
        generation=1,
        detail={"client_id": C0, "instance": None},
    )
    rebalance(rows, 11, f"member {C0}-5678 joined")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert "broker-0, which was not its coordinator then, had dropped it at 5 s" in report.note


def test_rebalance_that_a_failover_cut_short_is_owed_still() -> None:
    """Standard space, seed 59: its members were told to rejoin; the next one loads it as Stable."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.add(5, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1, cause="joined")
    rows.group_state(5, "broker-0", "Stable", "PreparingRebalance")
    rows.load_completed(9, "broker-1", 1)
    rows.group_loaded(9, "broker-1")
    rows.fault(10, "broker-2")
    rebalance(rows, 11)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


@pytest.mark.parametrize(("ended_s", "needed"), [(60, True), (45, False), (None, True)])
def test_long_wait_for_a_replica_explains_an_expiry_before_the_append_times_out(
    ended_s: int | None, needed: bool
) -> None:
    """Standard space, seed 50: a session shorter than offsets.commit.timeout.ms."""
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-2")
    append_id = rows.append_started(20, "broker-1", 0, 7)
    if ended_s is not None:
        rows.append_completed(ended_s, "broker-1", 0, 7, append_id)
    rows.member_removed(62, "broker-1", "m")
    rebalance(rows, 62, "member m expired: no heartbeat")

    assert (check(rows).outcome is CheckOutcome.PASS) is needed


@pytest.mark.parametrize(("found_s", "needed"), [(60, True), (50, False)])
def test_member_that_finds_its_coordinator_too_late_for_a_heartbeat_is_explained(
    found_s: int, needed: bool
) -> None:
    """Standard space, seed 70: it waited for one without power, and found the other at last."""
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-2", fault="power_loss")
    rows.add(16, C0, TraceKind.COORDINATOR_FOUND, group="g", member="m", peer="broker-2")
    rows.add(found_s, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", member="m", peer="broker-2")
    rows.add(found_s, C0, TraceKind.COORDINATOR_FOUND, group="g", member="m", peer="broker-1")
    rows.member_removed(62, "broker-1", "m")
    rebalance(rows, 62, "member m expired: no heartbeat")

    assert (check(rows).outcome is CheckOutcome.PASS) is needed


@pytest.mark.parametrize(
    ("session_s", "misled", "needed"), [(8, True, True), (8, False, False), (9, True, False)]
)
def test_member_that_was_sent_to_a_replaced_coordinator_has_no_time_for_two_backoffs(
    session_s: int, *, misled: bool, needed: bool
) -> None:
    """Each try comes up to a heartbeat and a backoff, 4 s here, after the one before."""
    group = GroupExpectation(
        consumers=(C0,),
        offsets_partition=OFFSETS_0,
        commits=True,
        session_timeout_us=session_s * 1_000_000 - 1,
        eviction_us=session_s * 1_000_000 - 1,
        heartbeat_interval_us=3_000_000,
    )
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0")
    rows.load_completed(20, "broker-1", 1)
    rows.group_loaded(20, "broker-1")
    told = "broker-0" if misled else "broker-1"
    rows.add(19, C0, TraceKind.COORDINATOR_FOUND, group="g", member="m", peer=told)
    rows.add(25.9, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", member="m", peer=told)
    rows.add(25.9, C0, TraceKind.COORDINATOR_FOUND, group="g", member="m", peer="broker-1")
    rows.member_removed(20 + session_s, "broker-1", "m")
    rebalance(rows, 20 + session_s, "member m expired: no heartbeat")
    checker = NeedlessRebalance(CheckContext(groups={"g": group}))
    for row in rows.rows:
        checker.observe(row)

    assert (checker.finish().outcome is CheckOutcome.PASS) is needed


@pytest.mark.parametrize(("asks", "needed"), [(True, True), (False, False)])
def test_member_that_knows_dead_brokers_only_is_explained_as_long_as_it_asks(
    asks: bool, needed: bool
) -> None:
    """Standard space, seed 74: its metadata is from when the brokers that live now were fenced."""
    rows = Rows()
    rows.load_completed(1, "broker-1", 0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-2")
    rows.add(16, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", member="m", peer="broker-2")
    if asks:
        rows.add(61, C0, TraceKind.COORDINATOR_LOOKUP_FAILED, group="g", member="m")
    rows.member_removed(62, "broker-1", "m")
    rebalance(rows, 62, "member m expired: no heartbeat")

    assert (check(rows).outcome is CheckOutcome.PASS) is needed


def test_group_that_waits_for_a_member_is_not_watched() -> None:
    """One that was expired while nobody reached it comes back when it can."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_loaded(2, "broker-0", members=[f"{C1}-id"])
    rows.fault(10, "broker-0", fault="leadership_move", momentary=True)
    rows.group_loaded(10.1, "broker-1", members=[f"{C1}-id"])
    rows.load_completed(10.1, "broker-1", 1)
    rebalance(rows, 12)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


@pytest.mark.parametrize(
    ("replaced", "outcome"),
    [(("old-0", "old-1"), CheckOutcome.PASS), (("old-0",), CheckOutcome.VIOLATED)],
)
def test_static_members_that_came_back_before_their_old_ids_had_synced_are_waited_for(
    replaced: tuple[str, ...], outcome: CheckOutcome
) -> None:
    """Kafka does not put the new id in the place of the old one among those that owe a SyncGroup.

    Found in a space of transactions, seed 342: their commits took the time of the rebalance.
    """
    rows = Rows()
    rows.generation_started(3, "broker-0", 1, ("old-0", "old-1"))
    for old in replaced:
        cause = RemovalCause.STATIC_MEMBER_REPLACED
        rows.add(3.5, "broker-0", TraceKind.MEMBER_REMOVED, group="g", member=old, cause=cause)
        rows.add(
            3.5, "broker-0", TraceKind.MEMBER_ADDED, group="g", member=f"new {old}", cause=cause
        )
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-1")
    rows.add(
        12,
        "broker-0",
        TraceKind.REBALANCE_STARTED,
        group="g",
        generation=1,
        cause=RebalanceCause.NO_SYNC_GROUP,
        detail={"silent_members": ["old-0", "old-1"]},
    )

    assert check(rows).outcome is outcome


@pytest.mark.parametrize("elected_again", [True, False])
def test_member_that_a_broker_dropped_before_it_was_elected_again_comes_back_as_a_new_one(
    elected_again: bool,
) -> None:
    """It never heard that it was replaced, and loads nothing (standard space, seed 13921)."""
    rows = Rows()
    rows.load_completed(1, "broker-0", 0)
    rows.group_loaded(1, "broker-0", members=["member-0-1234", f"{C1}-1234"])
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    if elected_again:
        rows.load_completed(5, "broker-1", 1)
        rows.group_loaded(5, "broker-1", members=["member-0-1234", f"{C1}-1234"])
    rows.fault(6, "broker-2")
    rows.member_removed(50, "broker-0", "member-0-1234")
    rows.member_added(51, "broker-0", "member-0-5678", generation=1, instance="member-0")
    if elected_again:
        rows.add(
            52,
            "broker-0",
            TraceKind.LOAD_IGNORED,
            partition=OFFSETS_0,
            leader_epoch=2,
            cause="already loaded or loading",
            detail={"known_epoch": 2},
        )
    rows.generation_started(53, "broker-0", generation=2, members=["member-0-5678", f"{C1}-1234"])

    assert (check(rows).outcome is CheckOutcome.PASS) is elected_again


@pytest.mark.parametrize("asked", ["a zombie", "one that had heard", "its coordinator"])
@pytest.mark.parametrize("api", ["Heartbeat", "OffsetCommit"])
def test_member_that_a_zombie_does_not_know_comes_back_as_a_new_one(asked: str, api: str) -> None:
    """As its coordinator has not forgotten it (standard space, seeds 16282 and 19542)."""
    rows = Rows()
    if asked == "one that had heard":
        rows.unloaded(0.5, "broker-2", 1)
    rows.load_completed(0.6, "broker-2", 0)
    rows.load_completed(1, "broker-1", 1)
    rows.group_loaded(1, "broker-1", members=["c-1234", f"{C1}-1234"])
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(6, "broker-0")
    peer = "broker-1" if asked == "its coordinator" else "broker-2"
    rows.add(7, C0, TraceKind.COORDINATOR_FOUND, group="g", peer=peer)
    rows.add(
        8,
        C0,
        TraceKind.MEMBER_STATE,
        group="g",
        error="UNKNOWN_MEMBER_ID",
        cause_text=f"{api}: UNKNOWN_MEMBER_ID",
        detail={"from": "STABLE", "to": "UNJOINED"},
    )
    rows.add(
        10,
        "broker-1",
        TraceKind.MEMBER_ADDED,
        group="g",
        member=f"{C0}-9999",
        generation=1,
        detail={"client_id": C0, "instance": None},
    )
    rebalance(rows, 10, f"member {C0}-9999 joined")

    report = check(rows)

    is_zombie = asked == "a zombie"
    assert (report.outcome is CheckOutcome.PASS) is is_zombie
    if is_zombie:
        assert f"had told it at 8 s: {api}: UNKNOWN_MEMBER_ID" in report.note
