"""The needless-rebalance checker finds rebalances that a failover must not cause.

In a failover another broker becomes the coordinator of a group, and loads the group's members from
the log. So a Stable group whose members all survive needs no rebalance. If there is a rebalance
nevertheless, the checker looks for a reason: something that has happened to a member. For example,
a member "expires": the coordinator has got no request of the member for a session (45 s), and
removes it. A rebalance without a reason is a finding.

A failover is not judged if the group already needs a rebalance when the fault hits. The outcome
NOTHING_SEEN means that the trace has no failover to judge.

Each test writes a trace by hand. The first number of a row is its time in seconds.
`rows.member_removed` adds the row of a removal, by default because the session has expired. The
stage "stopping" is the end of the run. Where a docstring says "Planted bug", it describes a bug
that would leave such a trace. "Corpus" names an experiment of tests/corpus in which this happens.
References such as BEHAVIOUR 6.6 name a file of docs/kafka and a section.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.needless_rebalance import LATE_JOIN, NeedlessRebalance
from protocol.causes import (
    IgnoredCause,
    KillCause,
    MemberStateCause,
    RebalanceCause,
    RemovalCause,
)
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

# The two consumers of the group. The member id of C0 is f"{C0}-id", unless a test gives another.
C0, C1 = "consumer-g-0", "consumer-g-1"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


def check(rows: Rows) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    `seen` of the report counts the cases that the checker had to judge, and `excused` those that
    were excused.
    """
    checker = NeedlessRebalance(CONTEXT)
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def stable_group_loses_its_coordinator() -> Rows:
    """Return rows of a failover from broker-0, which crashes at 10 s, to broker-1.

    The group is Stable in generation 1. broker-1 loads it at 18 s.
    """
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0")
    rows.group_loaded(18, "broker-1")
    return rows


def rebalance(rows: Rows, time_s: float, cause: RebalanceCause = RebalanceCause.JOIN) -> None:
    """Let broker-1 begin a rebalance of the Stable group, by default because a member joins."""
    rows.add(time_s, "broker-1", TraceKind.REBALANCE_STARTED, group="g", generation=1, cause=cause)
    rows.group_state(time_s, "broker-1", "Stable", "PreparingRebalance")


def join_under_a_new_id(rows: Rows, time_s: float, member: str) -> None:
    """Let C0 join at broker-1 under the new id `member`, which begins a rebalance."""
    rows.add(
        time_s,
        "broker-1",
        TraceKind.MEMBER_ADDED,
        group="g",
        member=member,
        generation=1,
        detail={"client_id": C0, "instance": None},
    )
    rebalance(rows, time_s, RebalanceCause.JOIN)


def test_failover_that_keeps_the_generation_passes() -> None:
    """After the failover there is no rebalance, as in a real cluster (MEASURED_FAILOVER 6)."""
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
    """Planted bug: the members rejoin, although the new coordinator has loaded the group."""
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


def test_member_without_its_assignment_may_join_again() -> None:
    """C1 may still wait for the answer to its SyncGroup when the coordinator crashes.

    Then C1 never gets its assignment, and must join again. If C1 is STABLE, it has its assignment,
    and need not join again.
    """
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
        rebalance(rows, 19, cause=RebalanceCause.REJOIN)

        assert check(rows).outcome is outcome


def test_member_of_an_earlier_generation_may_join_again() -> None:
    """The group is in generation 2. C1 may still believe that it is in generation 1.

    C1 believes this if a replaced coordinator, which does not know of generation 2, answers the
    heartbeats of C1. Then generation 2 has begun without C1, and C1 must join again. If C1 is a
    member of generation 2, it need not join again.
    """
    only_c0, both = [f"{C0}-id"], [f"{C0}-id", f"{C1}-id"]
    for generation_of_c1, members, outcome in (
        (2, both, CheckOutcome.VIOLATED),
        (1, only_c0, CheckOutcome.NOTHING_SEEN),
    ):
        rows = Rows()
        rows.generation_started(4, "broker-0", generation=2, members=members)
        rows.group_state(4.1, "broker-0", "CompletingRebalance", "Stable", generation=2)
        rows.member_state(4.2, C0, "STABLE", generation=2)
        rows.member_state(4.2, C1, "STABLE", generation=generation_of_c1)
        rows.fault(10, "broker-0")
        rows.group_loaded(18, "broker-1", generation=2)
        rebalance(rows, 19, cause=RebalanceCause.REJOIN)

        assert check(rows).outcome is outcome


def test_first_generation_on_the_new_coordinator_is_found() -> None:
    """Planted bug: the new coordinator does not find the group in its log.

    So the coordinator begins at generation 1 again, although the group was in generation 3.
    """
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable", generation=3)
    rows.fault(10, "broker-0")
    rows.load_completed(18, "broker-1", leader_epoch=1)
    rows.generation_started(19, "broker-1", generation=1, members=[f"{C0}-id"])

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_session_expiry_of_a_living_member_is_found() -> None:
    """Planted bug: the new coordinator removes a member 0.1 s after the load.

    The coordinator should give each member that it has loaded a whole session.
    """
    rows = stable_group_loses_its_coordinator()
    rows.member_removed(18.1, "broker-1", "m", RemovalCause.SESSION_EXPIRY)
    rebalance(rows, 18.1, cause=RebalanceCause.SESSION_EXPIRY)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "session expiry" in "\n".join(report.findings[0].story)


def test_rebalance_after_the_kill_of_a_member_passes() -> None:
    """C1 is killed at 20 s. The session of C1 has ended at 66 s, so the group needs a rebalance."""
    rows = stable_group_loses_its_coordinator()
    rows.add(20, "driver", TraceKind.NODE_KILLED, peer=C1)
    rebalance(rows, 66, cause=RebalanceCause.SESSION_EXPIRY)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("given_up_in", "cause", "is_late"),
    [
        pytest.param("PREPARING_REBALANCE", "TIMED_OUT", True, id="late JoinGroup"),
        pytest.param("STABLE", "TIMED_OUT", False, id="no JoinGroup was in flight"),
        pytest.param("PREPARING_REBALANCE", "NOT_COORDINATOR", False, id="JoinGroup was answered"),
    ],
)
def test_joingroup_that_its_member_gave_up_may_begin_a_rebalance(
    given_up_in: str, cause: str, is_late: bool
) -> None:
    """C0, the group's leader, sends a JoinGroup on a slow link, and gets no answer in time.

    C0 sends a second JoinGroup, and is Stable in generation 1 at 4 s. At 20 s, after a failover of
    another broker, the first JoinGroup arrives. A leader that joins again begins a rebalance.

    If there is no JoinGroup that C0 has given up, the rebalance has no reason, and is a finding.
    """
    rows = Rows()
    rows.member_state(1, C0, given_up_in, member=f"{C0}-id", generation=-1)
    rows.add(3, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", peer="broker-1", cause=cause)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.member_state(4.1, C0, "STABLE", member=f"{C0}-id")
    rows.fault(10, "broker-2")
    rows.add(
        20,
        "broker-1",
        TraceKind.REBALANCE_STARTED,
        group="g",
        member=f"{C0}-id",
        generation=1,
        cause=RebalanceCause.REJOIN,
    )

    report = check(rows)

    assert report.outcome is (CheckOutcome.PASS if is_late else CheckOutcome.VIOLATED)
    assert report.excused == ({LATE_JOIN: 1} if is_late else {})


def test_rebalance_because_a_member_left_passes() -> None:
    """A member leaves the group at 20 s, which needs a rebalance."""
    rows = stable_group_loses_its_coordinator()
    rows.member_removed(20, "broker-1", "m", RemovalCause.LEAVE)
    rebalance(rows, 20.1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_under_a_fault_that_cuts_members_off_is_not_judged() -> None:
    """The fault cuts members off, so that they expire. So not all members survive the fault."""
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="cut", members_survive=False)
    rebalance(rows, 60)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN


@pytest.mark.parametrize(
    ("heard_s", "outcome"), [(None, CheckOutcome.PASS), (8, CheckOutcome.VIOLATED)]
)
def test_abandoned_member_id_may_expire(heard_s: float | None, outcome: CheckOutcome) -> None:
    """C1 once died while its JoinGroup waited, and its old id, "former", is still in the group.

    The coordinator removes this id at 50 s, which needs a rebalance. The removal is right one
    session (45 s) after the last request with this id. If such a request came at 8 s (`heard_s`),
    the removal is too early, and is found.
    """
    rows = Rows()
    rows.generation_started(
        4, "broker-0", generation=4, members=[f"{C0}-a", f"{C1}-b", f"{C1}-former"]
    )
    rows.group_state(4.1, "broker-0", "CompletingRebalance", "Stable", generation=4)
    if heard_s is not None:
        rows.session_restarted(heard_s, "broker-0", f"{C1}-former", generation=4)
    rows.fault(10, "broker-2")
    rows.member_removed(50, "broker-0", f"{C1}-former", generation=4)
    rows.add(50, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=4)

    assert check(rows).outcome is outcome


def test_group_that_was_rebalancing_at_the_fault_is_not_judged() -> None:
    """The group is in a rebalance at the fault, so it cannot keep its generation."""
    rows = Rows()
    rows.group_state(4, "broker-0", "Stable", "PreparingRebalance")
    rows.fault(10, "broker-0")
    rebalance(rows, 19)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_rebalance_while_the_run_stops_is_not_judged() -> None:
    """At its end the run stops its consumers, which then leave the group one after the other."""
    rows = stable_group_loses_its_coordinator()
    rows.stage(40, "stopping")
    rebalance(rows, 40.1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_before_any_fault_is_not_judged() -> None:
    """While the cluster starts, members join one after another, which needs rebalances.

    After the fault at 10 s there is no rebalance.
    """
    rows = Rows()
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rebalance(rows, 5)
    rows.generation_started(6, "broker-1", generation=2, members=[f"{C0}-a", f"{C1}-b"])
    rows.group_state(6.1, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.fault(10, "broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["failovers_of_a_stable_group"] == 1


def test_rebalance_at_a_replaced_coordinator_does_not_count() -> None:
    """broker-1 coordinates the group, but broker-0 does not know yet that it was replaced.

    So broker-0 expires the members, because they send their requests to broker-1 (BEHAVIOUR 6.6 i).
    The rebalance at broker-0 does not concern the group.
    """
    rows = stable_group_loses_its_coordinator()
    rows.load_completed(18, "broker-1", leader_epoch=1)
    rows.add(
        30,
        "broker-0",
        TraceKind.REBALANCE_STARTED,
        group="g",
        generation=1,
        cause=RebalanceCause.SESSION_EXPIRY,
    )

    assert check(rows).outcome is CheckOutcome.PASS


def test_rebalance_after_the_death_of_a_member_before_the_fault_passes() -> None:
    """C0 dies at 6 s, before the fault. The group is still Stable when the fault hits.

    But when the session of C0 has ended, the group needs a rebalance in any case.
    """
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.add(6, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.fault(10, "broker-0")
    rows.group_loaded(18, "broker-1")
    rebalance(rows, 19, RebalanceCause.SESSION_EXPIRY)

    report = check(rows)

    assert report.outcome is not CheckOutcome.VIOLATED
    assert report.seen == {
        "failovers_of_a_stable_group": 0,
        "needless_rebalances": 0,
        "rebalances_that_were_needed": 0,
    }


def attached_to_the_old_coordinator() -> Rows:
    """Return rows in which broker-0, the coordinator, is cut off from the other brokers.

    The members can still reach broker-0, and stay with it. broker-1 loads the group at 18 s.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="cut")
    rows.group_loaded(18, "broker-1")
    rows.load_completed(18, "broker-1", leader_epoch=1)
    return rows


def expire_at_the_new_coordinator(rows: Rows, time_s: float) -> None:
    """Let broker-1 remove a member because of its session, and begin a rebalance."""
    rows.member_removed(time_s, "broker-1", "m")
    rebalance(rows, time_s, RebalanceCause.SESSION_EXPIRY)


def test_rebalance_of_members_that_stay_with_a_cut_coordinator_is_explained() -> None:
    """The members send their requests to the old coordinator.

    So they expire at the new coordinator, one session after its load (18 s + 45 s).
    """
    rows = attached_to_the_old_coordinator()
    expire_at_the_new_coordinator(rows, 63)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured == {"rebalances_after_faults": 1, "rebalances_that_were_needed": 1}
    assert report.seen["needless_rebalances"] == 0
    assert report.seen["rebalances_that_were_needed"] == 1
    assert "broker-1, 63 s: member removed: group g, member m" in report.note


def test_expiry_sooner_than_a_session_after_the_load_is_found_in_a_split() -> None:
    """Planted bug: the new coordinator expires a member at 40 s, 22 s after its load."""
    rows = attached_to_the_old_coordinator()
    expire_at_the_new_coordinator(rows, 40)

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize(
    ("expired_s", "outcome"), [(94.9, CheckOutcome.PASS), (95.1, CheckOutcome.VIOLATED)]
)
def test_silence_of_a_stable_member_in_a_healthy_cluster_is_found(
    expired_s: float, outcome: CheckOutcome
) -> None:
    """Planted bug: after a failed request a client never tries again.

    So this member is silent, and expires. The fault is healed at 20 s. The fault may explain an
    expiry until 95 s: 20 s, a session of 45 s, and a request timeout of 30 s.
    """
    rows = stable_group_loses_its_coordinator()
    rows.member_state(4.1, C0, "STABLE", before="COMPLETING_REBALANCE", member="m")
    rows.load_completed(18, "broker-1", leader_epoch=1)
    rows.healed(20, "broker-0")
    expire_at_the_new_coordinator(rows, expired_s)

    assert check(rows).outcome is outcome


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
@pytest.mark.parametrize(
    ("heard_s", "broker", "member", "incarnation", "is_right"),
    [
        (15.0, "broker-1", "m", 0, True),  # exactly a session before the expiry at 60 s
        (15.1, "broker-1", "m", 0, False),  # less than a session before it
        (15.1, "broker-0", "m", 0, True),  # the request arrived at another broker
        (15.1, "broker-1", "other", 0, True),  # it was sent by another member
        (15.1, "broker-1", "m", 1, True),  # it arrived at another process of the broker
    ],
)
def test_expiry_is_right_if_no_request_of_the_member_arrived_for_a_session(
    api: str, heard_s: float, broker: str, member: str, incarnation: int, *, is_right: bool
) -> None:
    """broker-1 expires the member m at 60 s. A request of `member` arrived at `heard_s`.

    It does not matter why the member is silent. Reasons are a pause, a cut, or a long lookup.
    """
    rows = Rows()
    rows.load_completed(1, "broker-1", leader_epoch=0)
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-1", fault="pause")
    rows.session_restarted(heard_s, broker, member, api=api, incarnation=incarnation)
    rows.member_removed(60, "broker-1", "m")
    rebalance(rows, 60, RebalanceCause.SESSION_EXPIRY)

    report = check(rows)

    assert (report.outcome is CheckOutcome.PASS) is is_right
    if not is_right:
        (finding,) = report.findings
        assert "broker-1 expired m 44.9 s after its last request" in finding.summary


def test_early_expiry_is_found_without_a_fault_and_at_a_replaced_coordinator() -> None:
    """An early expiry is a finding by itself.

    The trace has no fault. The expiry is at a coordinator that was replaced: broker-1 replaces
    broker-0 at 2 s, and broker-0 expires m 10 s after the last request of m.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_loaded(2, "broker-1")
    rows.load_completed(2, "broker-1", leader_epoch=1)
    rows.session_restarted(20, "broker-0", "m")
    rows.member_removed(30, "broker-0", "m")

    (finding,) = check(rows).findings

    assert finding.summary == (
        "g: broker-0 expired m 10 s after its last request, while a session takes 45 s"
    )
    assert [row.kind for row in finding.evidence] == [
        TraceKind.SESSION_RESTARTED,
        TraceKind.MEMBER_REMOVED,
    ]


REMOVED_TOO_EARLY = (
    "g: broker-0 removed m, which had not rejoined, 299 s after the rebalance began, while a "
    "member may take 300 s"
)


@pytest.mark.parametrize(("removed_after_s", "summaries"), [(300, []), (299, [REMOVED_TOO_EARLY])])
def test_member_has_the_rebalance_timeout_to_rejoin(
    removed_after_s: int, summaries: list[str]
) -> None:
    """Planted bug: the coordinator does not wait long enough for a member to rejoin.

    A member may take 300 s, its rebalance timeout. The rebalance begins at 20 s. (A JoinGroup of
    version 0 has no such timeout. For its member the coordinator waits only for a session.)
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.add(
        20,
        "broker-0",
        TraceKind.REBALANCE_STARTED,
        group="g",
        generation=1,
        cause=RebalanceCause.JOIN,
    )
    rows.member_removed(20 + removed_after_s, "broker-0", "m", RemovalCause.DID_NOT_REJOIN)

    assert [finding.summary for finding in check(rows).findings] == summaries


def test_member_that_joined_after_the_load_gets_no_session_from_it() -> None:
    """The load at 2 s begins a session for each loaded member, but m is not among them.

    m is a new member. A new member has five minutes to join, which may end at any time after a
    load. So the removal of m at 30 s may be right.
    """
    rows = Rows()
    rows.group_loaded(2, "broker-0", members=["other"])
    rows.member_removed(30, "broker-0", "m")

    assert check(rows).findings == ()


def test_time_of_an_expiry_is_judged_beyond_the_error_of_the_clocks() -> None:
    """The expiry is 44.95 s after the request. This is too early by 50 ms.

    If the clocks of two machines may differ by 50 ms, the expiry may be right.
    """
    rows = Rows()
    rows.session_restarted(10, "broker-0", "m")
    rows.member_removed(54.95, "broker-0", "m")

    for clock_error_us, findings in ((49_000, 1), (50_000, 0)):
        checker = NeedlessRebalance(replace(CONTEXT, clock_error_us=clock_error_us))
        for row in rows.rows:
            checker.observe(row)
        assert len(checker.finish().findings) == findings


def test_paused_member_explains_a_rebalance_during_other_faults() -> None:
    """C1 is paused, and then the coordinator crashes. The next coordinator loads the group at 12 s.

    C1 is silent, so its session ends at 57 s (12 s + 45 s). This needs a rebalance.
    """
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.session_restarted(8, "broker-0", f"{C1}-id")
    rows.fault(8, C1, fault="pause", members_survive=False, nodes=[C1])
    rows.fault(10, "broker-0")
    rows.group_loaded(12, "broker-1")
    rows.member_removed(57, "broker-1", f"{C1}-id")
    rebalance(rows, 57, RebalanceCause.SESSION_EXPIRY)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["rebalances_that_were_needed"] == 1


def test_member_behind_a_cut_excuses_only_its_own_group() -> None:
    """The cut separates broker-0 from a member of group h. The cut is no excuse for group g."""
    group_h = replace(CONTEXT.groups["g"], consumers=("consumer-h-0",))
    checker = NeedlessRebalance(CheckContext(groups={**CONTEXT.groups, "h": group_h}))
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


def test_rebalance_after_a_move_of_the_coordinator_is_found() -> None:
    """Planted bug: when broker-0 is replaced, it asks its members to rejoin.

    broker-0 should answer that it is not their coordinator any more.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0", fault="leadership_move", momentary=True)
    rows.group_loaded(10.1, "broker-1")
    rows.load_completed(10.1, "broker-1", leader_epoch=1)
    rebalance(rows, 10.5)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_member_expired_by_a_replaced_coordinator_may_return_as_a_new_one() -> None:
    """broker-0 was replaced, does not know this yet, and expires C0 (BEHAVIOUR 6.6 i).

    C0 learns that broker-0 has removed it, and joins the new coordinator under a new id. This needs
    a rebalance.
    """
    rows = attached_to_the_old_coordinator()
    rows.member_removed(24, "broker-0", f"{C0}-1234")
    join_under_a_new_id(rows, 24.5, f"{C0}-5678")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert f"broker-0, 24 s: member removed: group g, member {C0}-1234" in report.note


def test_member_that_a_zombie_tells_to_rejoin_may_rejoin() -> None:
    """A zombie is a coordinator that was replaced, and does not know this yet.

    Here the zombie, broker-0, begins a rebalance, and answers heartbeats with
    REBALANCE_IN_PROGRESS. A member then rejoins at the new coordinator, broker-1, which needs a
    rebalance there.

    Corpus: `zombie_coordinator_tells_its_members_to_rejoin`.
    """
    rows = attached_to_the_old_coordinator()
    rows.add(
        24,
        "broker-0",
        TraceKind.REBALANCE_STARTED,
        group="g",
        generation=1,
        cause=RebalanceCause.SESSION_EXPIRY,
    )
    rebalance(rows, 24.3, RebalanceCause.REJOIN)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert "broker-0, 24 s: rebalance started" in report.note


def test_id_removed_by_another_coordinator_may_expire_where_it_is_loaded_again() -> None:
    """broker-0 removes the id of C0 at 11 s. broker-1 has loaded the group with this id before.

    C0 sends no more heartbeats with this id. So the id expires at broker-1, one session after the
    load (9 s + 45 s).
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.generation_started(3, "broker-0", generation=1, members=[f"{C0}-1234", f"{C1}-1234"])
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    # broker-1 takes over with both members.
    rows.load_completed(9, "broker-1", leader_epoch=1)
    rows.group_loaded(9, "broker-1", members=[f"{C0}-1234", f"{C1}-1234"])
    rows.fault(10, "broker-2")
    rows.member_removed(11, "broker-0", f"{C0}-1234")
    rows.member_removed(54, "broker-1", f"{C0}-1234")
    rebalance(rows, 54, RebalanceCause.SESSION_EXPIRY)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert "broker-1, 54 s: member removed" in report.note


def test_removed_member_that_the_next_coordinator_loads_may_return_as_a_new_one() -> None:
    """broker-0 removes C0, but the removal is not in the log yet when broker-1 takes over.

    So broker-1 loads the removed member. C0 knows that it was removed, and joins under a new id.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.member_removed(5, "broker-0", f"{C0}-1234")
    # broker-1 takes over, and loads the removed member.
    rows.load_completed(9, "broker-1", leader_epoch=1)
    rows.group_loaded(9, "broker-1", members=[f"{C0}-1234", f"{C1}-1234"])
    rows.fault(10, "broker-2")
    # The consumer of the removed member joins as a new member.
    join_under_a_new_id(rows, 11, f"{C0}-5678")

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN


def test_rebalance_interrupted_by_a_failover_may_begin_again() -> None:
    """The members are rejoining when broker-1 takes over.

    The rebalance is not in the log, so broker-1 loads the group as Stable. The members go on with
    their rebalance there.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.add(
        5,
        "broker-0",
        TraceKind.REBALANCE_STARTED,
        group="g",
        generation=1,
        cause=RebalanceCause.JOIN,
    )
    rows.group_state(5, "broker-0", "Stable", "PreparingRebalance")
    # The failover: broker-1 loads the group as it was before the rebalance.
    rows.load_completed(9, "broker-1", leader_epoch=1)
    rows.group_loaded(9, "broker-1")
    rows.fault(10, "broker-2")
    rebalance(rows, 11)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_member_left_out_of_a_generation_may_return() -> None:
    """C0 could not be reached, and expired. So generation 2 begins without C0.

    When C0 reaches broker-1 again, broker-1 answers UNKNOWN_MEMBER_ID. So C0 joins as a new member.
    """
    rows = Rows()
    rows.load_completed(1, "broker-1", leader_epoch=0)
    rows.generation_started(2, "broker-1", generation=2, members=[f"{C1}-id"])
    rows.group_state(2, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.fault(10, "broker-0")
    rows.add(11, C0, TraceKind.COORDINATOR_FOUND, group="g", peer="broker-1")
    rows.member_state(12, C0, "UNJOINED", before="STABLE", error="UNKNOWN_MEMBER_ID")
    rebalance(rows, 12)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert f"{C0}, 12 s: member state" in report.note


def test_member_left_out_of_a_generation_may_learn_it_from_an_earlier_coordinator() -> None:
    """As in the test above, C0 is not in generation 2.

    But here C0 asks the earlier coordinator, broker-0, which answers UNKNOWN_MEMBER_ID.
    """
    rows = Rows()
    rows.load_completed(1, "broker-1", leader_epoch=0)
    rows.generation_started(2, "broker-1", generation=2, members=[f"{C1}-id"])
    rows.group_state(2, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.fault(10, "broker-0")
    rows.add(11, C0, TraceKind.COORDINATOR_FOUND, group="g", peer="broker-0")
    rows.member_state(12, C0, "UNJOINED", before="STABLE", error="UNKNOWN_MEMBER_ID")
    rebalance(rows, 12)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("generation", "is_removed", "outcome"),
    [
        (1, False, CheckOutcome.VIOLATED),
        (1, True, CheckOutcome.PASS),
        (0, False, CheckOutcome.PASS),  # the member missed generation 1
    ],
)
@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
def test_live_member_that_its_coordinator_refuses_is_found(
    error: str, generation: int, *, is_removed: bool, outcome: CheckOutcome
) -> None:
    """broker-1 answers C0 with `error`, although C0 is a member of generation 1.

    There are two excuses: broker-1 has removed C0 before, or C0 has missed generation 1 and is
    still in generation 0.
    """
    rows = Rows()
    rows.load_completed(1, "broker-1", leader_epoch=0)
    rows.generation_started(3, "broker-1", generation=1, members=[f"{C0}-id", f"{C1}-id"])
    rows.group_state(3, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(10, "broker-0")
    rows.add(11, C0, TraceKind.COORDINATOR_FOUND, group="g", peer="broker-1")
    if is_removed:
        rows.member_removed(60, "broker-1", f"{C0}-id")
    rows.member_state(61, C0, "UNJOINED", before="STABLE", generation=generation, error=error)
    rebalance(rows, 62)

    assert check(rows).outcome is outcome


@pytest.mark.parametrize(
    ("is_lost", "outcome"), [(True, CheckOutcome.PASS), (False, CheckOutcome.VIOLATED)]
)
@pytest.mark.parametrize("coordinator", ["broker-1", "broker-0"])
def test_member_of_a_lost_generation_may_be_refused(
    coordinator: str, *, is_lost: bool, outcome: CheckOutcome
) -> None:
    """Generation 2, in which C0 joined, was only in the log of broker-1, and broker-1 lost power.

    So when broker-1 leads again, it does not know C0 any more. If there was no power loss
    (`is_lost` is False), no data may be lost, and the refusal is found.

    `coordinator` is the broker that coordinated generation 2. Corpus:
    `members_of_a_generation_lost_with_a_disk` (where it was broker-1) and
    `generation_lost_with_the_disk_of_the_next_leader` (where it was broker-0).
    """
    rows = Rows()
    rows.elected(0.5, coordinator, isr=[0, 1])
    rows.load_completed(1, coordinator, leader_epoch=0)
    rows.generation_started(3, coordinator, generation=2, members=[f"{C0}-id", f"{C1}-id"])
    rows.group_state(3, coordinator, "CompletingRebalance", "Stable", generation=2)
    # broker-1, alone in the ISR, loses power and leads again. It loads the group without C0.
    rows.elected(3.5, "broker-1", isr=[1])
    if is_lost:
        rows.add(4, "driver", TraceKind.NODE_KILLED, peer="broker-1", cause=KillCause.POWER_LOSS)
    rows.elected(6, "broker-1", isr=[1])
    rows.group_loaded(7, "broker-1", members=[f"{C1}-id"])
    rows.load_completed(7, "broker-1", leader_epoch=1)
    rows.fault(10, "broker-2")
    # C0 finds its coordinator, and is refused.
    rows.add(11, C0, TraceKind.COORDINATOR_FOUND, group="g", peer="broker-1")
    rows.member_state(12, C0, "UNJOINED", before="STABLE", generation=2, error="UNKNOWN_MEMBER_ID")
    rebalance(rows, 12)

    assert check(rows).outcome is outcome


def test_group_with_a_started_member_that_has_not_joined_is_not_judged() -> None:
    """C1 has started, but has not joined yet. The join of C1 will need a rebalance in any case."""
    rows = Rows()
    rows.add(2, C1, TraceKind.NODE_STARTED)
    rows.generation_started(3, "broker-1", generation=2, members=[f"{C0}-id"])
    rows.group_state(3, "broker-1", "CompletingRebalance", "Stable", generation=2)
    rows.fault(10, "broker-0")
    rebalance(rows, 12)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_member_that_leaves_by_itself_explains_a_rebalance() -> None:
    """C0 misses its poll interval, and leaves the group at 20 s.

    The coordinator writes no row, because the LeaveGroup of C0 may be lost. But C0 has written a
    row itself.
    """
    rows = stable_group_loses_its_coordinator()
    rows.member_state(20, C0, "UNJOINED", before="STABLE", cause=MemberStateCause.MISSED_POLL)
    rebalance(rows, 21)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("generation", "outcome"), [(0, CheckOutcome.PASS), (1, CheckOutcome.VIOLATED)]
)
def test_sync_deadline_may_expire_an_id_without_an_assignment(
    generation: int, outcome: CheckOutcome
) -> None:
    """The coordinator removes C0 at 12 s, as if C0 had not sent its SyncGroup in time.

    - If C0 is STABLE in generation 1, it has its assignment, so it must have sent its SyncGroup.
      Then the removal is found.
    - If C0 is STABLE in generation 0 only, the removal may be right: C0 may have given up this id
      for a newer id. Kafka waits for the SyncGroup of the old id, too.
    """
    rows = Rows()
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    rows.member_state(4, C0, "STABLE", generation=generation)
    rows.fault(10, "broker-1")
    rows.member_removed(12, "broker-0", f"{C0}-id", RemovalCause.SYNC_DEADLINE)
    rows.add(12, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1)

    assert check(rows).outcome is outcome


@pytest.mark.parametrize("is_heard", [True, False])
def test_member_removed_by_a_broker_before_it_was_elected_again_may_return_as_a_new_one(
    *,
    is_heard: bool,
) -> None:
    """broker-0 is replaced by broker-1 and elected again, and learns of this only at 52 s.

    1. At 5 s broker-1 leads, and loads the group.
    2. At 50 s broker-0 still coordinates the group in its memory. It expires the static member
       member-0, of which it has got no request for a session. The member returns under a new id.
    3. At 52 s broker-0 learns that it leads in epoch 2. broker-0 does not load the group again,
       because the group is in its memory.

    With `is_heard` the member has sent a request to broker-0 at 40 s. Then the expiry is too early,
    and is found.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=0)
    rows.group_loaded(1, "broker-0", members=["member-0-1234", f"{C1}-1234"])
    rows.group_state(4, "broker-0", "CompletingRebalance", "Stable")
    # broker-1 leads in epoch 1. broker-0 does not learn of this.
    rows.load_completed(5, "broker-1", leader_epoch=1)
    rows.group_loaded(5, "broker-1", members=["member-0-1234", f"{C1}-1234"])
    rows.fault(6, "broker-2")
    if is_heard:
        rows.session_restarted(40, "broker-0", "member-0-1234")
    # broker-0 expires the member, which returns. Then broker-0 learns that it leads in epoch 2.
    rows.member_removed(50, "broker-0", "member-0-1234")
    rows.member_added(51, "broker-0", "member-0-5678", generation=1, instance="member-0")
    rows.add(
        52,
        "broker-0",
        TraceKind.LOAD_IGNORED,
        partition=OFFSETS_0,
        leader_epoch=2,
        cause=IgnoredCause.ALREADY_LOADED,
        detail={"known_epoch": 2},
    )
    rows.generation_started(53, "broker-0", generation=2, members=["member-0-5678", f"{C1}-1234"])

    expected = CheckOutcome.VIOLATED if is_heard else CheckOutcome.PASS
    assert check(rows).outcome is expected


@pytest.mark.parametrize(
    "refused_by", ["a replaced coordinator", "a broker that has unloaded", "its coordinator"]
)
@pytest.mark.parametrize("api", ["Heartbeat", "OffsetCommit"])
def test_member_unknown_to_a_replaced_coordinator_may_return_as_a_new_one(
    refused_by: str, api: str
) -> None:
    """A broker answers C0 with UNKNOWN_MEMBER_ID, although the coordinator, broker-1, has C0.

    - "a replaced coordinator" is broker-2, which does not know yet that broker-1 leads. Only in
      this case it is right that C0 joins as a new member.
    - "a broker that has unloaded" is broker-2, which knows that broker-1 leads. So broker-2 should
      have answered that it is not the coordinator.
    - "its coordinator" is broker-1, which should know C0.
    """
    rows = Rows()
    rows.load_completed(0.6, "broker-2", leader_epoch=0)
    if refused_by == "a broker that has unloaded":
        rows.unloaded(0.9, "broker-2", leader_epoch=1)
    rows.load_completed(1, "broker-1", leader_epoch=1)
    rows.group_loaded(1, "broker-1", members=["c-1234", f"{C1}-1234"])
    rows.group_state(4, "broker-1", "CompletingRebalance", "Stable")
    rows.fault(6, "broker-0")

    # C0 asks a broker, is refused there, and joins broker-1 as a new member.
    peer = "broker-1" if refused_by == "its coordinator" else "broker-2"
    rows.add(7, C0, TraceKind.COORDINATOR_FOUND, group="g", peer=peer)
    rows.add(
        8,
        C0,
        TraceKind.MEMBER_STATE,
        group="g",
        cause=MemberStateCause.ERROR,
        api=api,
        error="UNKNOWN_MEMBER_ID",
        detail={"from": "STABLE", "to": "UNJOINED"},
    )
    join_under_a_new_id(rows, 10, f"{C0}-9999")

    report = check(rows)

    is_excused = refused_by == "a replaced coordinator"
    assert (report.outcome is CheckOutcome.PASS) is is_excused
    if is_excused:
        assert f"8 s: member state: group g, api {api}, error UNKNOWN_MEMBER_ID" in report.note
