"""The ownership checker measures overlaps, and finds those that nothing excuses.

An overlap is the time in which two members own the same partition. Kafka cannot prevent overlaps: a
member that is cut off goes on with its partitions, and does not know that its coordinator has given
these partitions to another member. But two conditions must hold:

1. Before the coordinator gives the partitions away, it must have got no request of the member for a
   session, which is 45 s here. Then the session expires, and the coordinator removes the member.
2. When nothing is broken any more, the overlap must end within about 10 s, because the member then
   learns of its removal.

A member is overtaken when another member gets a partition that the first member still owns.

Each test writes a trace by hand. The first number of a row is its time in seconds. In traces whose
first fault is at 0 s, negative times are before this fault. `rows.member_removed` adds the row of a
removal, by default because the session has expired. `members_survive=False` marks a fault that
stops a member or cuts it off. The stage "stopping" is the end of the run. Where a docstring says
"Planted bug", it describes a bug that would leave such a trace.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.ownership import Ownership
from protocol.causes import MemberStateCause
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

# The consumers of the group. LATE joins during the run. The member id of C0 is f"{C0}-id".
C0, C1, LATE = "consumer-g-0", "consumer-g-1", "consumer-g-2"
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=(C0, C1, LATE), offsets_partition=OFFSETS_0, commits=False, late=(LATE,)
        )
    }
)


def check(rows: Rows, clock_error_us: int = 0) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    `measured` of the report has the figures about overlaps.
    """
    checker = Ownership(replace(CONTEXT, clock_error_us=clock_error_us))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def split(rows: Rows) -> None:
    """Add a cut that separates broker-0, the coordinator, from the other brokers at 0 s.

    C0, the owner of t-0, stays with broker-0. The other brokers elect broker-1, which loads the
    group with its member C0 at 7.1 s.
    """
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], peer="broker-0")
    rows.fault(0, "broker-0", fault="cut")
    rows.group_loaded(7.1, "broker-1", members=[f"{C0}-id"])
    rows.load_completed(7.1, "broker-1", leader_epoch=1)


def split_brain(*, assigned_s: float = 52.169, lost_s: float = 83.05) -> Rows:
    """Return rows of a split brain as it was measured with Kafka.

    In a split brain two brokers coordinate the group. The new one gives C0's partition to LATE at
    `assigned_s`. The cut is healed at 80.002 s. C0 learns at `lost_s` that it has lost its
    partition. The defaults are the times that were measured (section two-owners of
    docs/kafka/MEASURED_FAILOVER.md).
    """
    rows = Rows()
    split(rows)
    rows.member_removed(assigned_s - 0.03, "broker-1", f"{C0}-id")
    rows.assigned(assigned_s, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.healed(80.002, "broker-0", fault="cut")
    rows.revoked(lost_s, C0, lost=True)
    rows.assigned(lost_s + 2.15, C0, names=[], generation=3, peer="broker-1")
    rows.stage(100, "stopping")
    return rows


def test_split_brain_is_measured_to_the_millisecond_and_passes() -> None:
    """The partition has two owners for 31 s, which is right.

    The overlap begins when a session has passed since the load (7.1 s + 45 s), and ends 3 s after
    the healing.
    """
    report = check(split_brain())

    assert report.outcome is CheckOutcome.PASS
    assert report.measured == {
        "overlaps": 1,
        "overlapping_partitions": 1,
        "longest_overlap_ms": 30_881,  # 83.050 s - 52.169 s
        "first_overlap_began_us": 52_169_000,
        "last_overlap_ended_us": 83_050_000,
        # 83.050 s - 80.002 s
        "longest_part_of_an_overlap_after_everything_was_healed_ms": 3_048,
    }
    assert report.note == (
        "g, t-0 had two owners (consumer-g-0 and consumer-g-2) for 30.881 s, the longest of 1, "
        "from 52.169 s to 83.050 s"
    )


def test_overlap_that_begins_sooner_than_a_session_after_the_load_is_found() -> None:
    """Planted bug: the new coordinator expires loaded members too early.

    broker-1 has loaded C0 at 7.1 s, and gives C0's partition away at 50 s, which is 42.9 s later.
    """
    report = check(split_brain(assigned_s=50))

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "only 42.9 s after broker-1 had loaded the group" in finding.summary
    assert [row.kind for row in finding.evidence] == [
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.FAULT_INJECTED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_LOST,
    ]


def test_owner_that_keeps_its_partition_after_healing_is_found() -> None:
    """Planted bug: a member that was removed gets no error when it sends a heartbeat.

    C0 keeps its partition until 95 s, although it can reach its coordinator from 80 s on.
    """
    report = check(split_brain(lost_s=95))

    assert report.outcome is CheckOutcome.VIOLATED
    # 95 s - 80.002 s
    assert "of which 14.998 s with nothing broken any more" in report.findings[0].summary


def test_overlap_that_never_ends_is_found_at_the_end() -> None:
    """The overlap is measured from the assignment at 53 s to the end of the run at 120 s."""
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.healed(80, "broker-0", fault="cut")
    rows.stage(120, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.measured["longest_overlap_ms"] == 67_000


def test_overlap_without_any_fault_is_found() -> None:
    """Planted bug: the assignor gives t-1 to both members."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0", "t-1"])
    rows.assigned(1.2, C1, names=["t-1"])
    rows.stage(30, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nothing was broken" in report.findings[0].summary


def test_overlaps_of_one_pair_of_members_are_one_finding() -> None:
    """C0 and C1 own the same twelve partitions. The report shows one of the twelve findings."""
    rows = Rows()
    rows.assigned(1, C0, partitions=12)
    rows.assigned(1.2, C1, partitions=12)
    rows.stage(30, "stopping")

    report = check(rows)

    assert len(report.findings) == 1
    assert report.findings_total == 12


def test_ordinary_rebalance_has_no_overlap() -> None:
    """In Kafka's eager protocol all members revoke their partitions before any member gets some."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.revoked(2, C0)
    rows.assigned(2.1, C1, names=["t-0"])

    report = check(rows)

    assert (report.outcome, report.measured) == (CheckOutcome.PASS, {"overlaps": 0})


def test_overlap_within_the_clock_error_does_not_count() -> None:
    """The overlap lasts 0.4 ms. If clocks may differ by more than 0.4 ms, it may be no overlap."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.assigned(2.0, C1, names=["t-0"])
    rows.revoked(2.0004, C0)

    assert check(rows, clock_error_us=500).outcome is CheckOutcome.PASS
    assert check(rows, clock_error_us=300).outcome is CheckOutcome.VIOLATED


def test_member_that_joins_with_its_partitions_is_found() -> None:
    """Planted bug: after UNKNOWN_MEMBER_ID a member forgets its id, but keeps its partitions.

    So it still owns t-0 when it sends its next JoinGroup (PREPARING_REBALANCE).
    """
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.member_state(2, C0, "UNJOINED")
    rows.member_state(2.1, C0, "PREPARING_REBALANCE")
    rows.assigned(3, C0, names=["t-0"], generation=2, peer="broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "g, t-0: consumer-g-0 went to join while it still owned it" in finding.summary


def test_member_that_lost_its_partitions_may_join() -> None:
    """As it must, the member gives up its partitions before it sends its next JoinGroup."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.member_state(2, C0, "UNJOINED")
    rows.revoked(2.05, C0, lost=True)
    rows.member_state(2.1, C0, "PREPARING_REBALANCE")

    assert check(rows).findings == ()


def test_dead_member_owns_nothing() -> None:
    """C0 is killed at 5 s. From then on it owns nothing, although its session goes on for 45 s."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.add(5, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.assigned(51, C1, names=["t-0"], generation=2)

    report = check(rows)

    assert (report.outcome, report.measured) == (CheckOutcome.PASS, {"overlaps": 0})


def paused_member(*, expired_s: float, heard_s: float) -> Rows:
    """Return rows of C0, which is paused from 10 s to 70 s, and loses its partition to C1.

    - At `expired_s` the coordinator removes C0, and 3 s later C1 gets the partition. C0's last
      heartbeat may have come 3 s before the pause. So the removal is right from 52 s on (10 s - 3 s
      + 45 s).
    - At `heard_s` C0 gets an error from the coordinator, and gives up the partition.
    """
    rows = Rows()
    rows.load_completed(0.5, "broker-0", leader_epoch=0)
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.fault(10, C0, fault="pause", members_survive=False)
    rows.add(10.01, "driver", TraceKind.NODE_PAUSED, peer=C0)
    rows.member_removed(expired_s, "broker-0", f"{C0}-id")
    rows.assigned(expired_s + 3, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.add(70, "driver", TraceKind.NODE_RESUMED, peer=C0)
    rows.healed(70.01, C0, fault="pause")
    rows.revoked(heard_s, C0, lost=True)
    rows.stage(120, "stopping")
    return rows


def test_resumed_member_may_overlap_until_its_first_answer() -> None:
    """C0 resumes at 70 s, and learns of its removal from the answer to its first heartbeat."""
    report = check(paused_member(expired_s=53.2, heard_s=70.3))

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 14_100  # 70.3 s - (53.2 s + 3 s)


def test_member_expired_long_before_the_end_of_its_session_is_found() -> None:
    """Planted bug: the timer of a session is set in a wrong unit.

    So sessions end much too early.
    """
    report = check(paused_member(expired_s=20, heard_s=70.3))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "while a silent member may be dropped after 45 s" in report.findings[0].summary


@pytest.mark.parametrize(("expired_s", "is_allowed"), [(53.2, True), (79, False)])
def test_member_expired_in_time_may_be_overtaken_long_after_the_fault(
    expired_s: float, is_allowed: bool
) -> None:
    """A fault from 10 s to 60 s may be why C0 expires at 53.2 s, but not why it expires at 79 s.

    In both cases C1 gets the partition only at 80 s. But the time of the expiry decides.
    """
    rows = Rows()
    rows.load_completed(0.5, "broker-0", leader_epoch=0)
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.fault(10, "broker-1", fault="cut")
    rows.healed(60, "broker-1", fault="cut")
    rows.member_removed(expired_s, "broker-0", f"{C0}-id")
    rows.assigned(80, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.revoked(80.5, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed


@pytest.mark.parametrize(("assigned_s", "is_allowed"), [(29.2, True), (25, False)])
def test_member_assigned_by_a_zombie_has_its_session_from_the_load_on(
    assigned_s: float, is_allowed: bool
) -> None:
    """broker-1 replaces broker-2 as the coordinator, and loads the group at 26 s.

    broker-2, the zombie, does not know this yet, and still lets members join. broker-1 removes C0
    at 71 s, which is one session after the load (26 s + 45 s). Whether this is right depends on C0:

    - If C0 joins at 29.2 s, after the load, it sends its heartbeats to broker-2. So broker-1 has
      never got a request of C0, and the removal is right.
    - If C0 joins at 25 s, before the load, it sends its heartbeats to broker-1 after the load,
      until it is paused at 60 s. So the removal is too early.
    """
    rows = Rows()
    rows.fault(24, "broker-2", fault="leadership_move", momentary=True)
    rows.load_completed(26, "broker-1", leader_epoch=6)
    rows.assigned(assigned_s, C0, names=["t-0"], peer="broker-2")
    rows.fault(60, C0, fault="pause", members_survive=False)
    rows.member_removed(71, "broker-1", f"{C0}-id")
    rows.assigned(71.1, C1, names=["t-0"], generation=2, peer="broker-1")
    rows.revoked(72, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed


@pytest.mark.parametrize(
    ("unfenced_s", "has_late_heartbeat", "is_allowed"),
    [(110, False, True), (110, True, True), (70.5, False, False)],
)
def test_broker_that_waits_for_its_old_session_counts_as_down(
    unfenced_s: float, has_late_heartbeat: bool, is_allowed: bool
) -> None:
    """broker-1 is killed, and starts again at 70 s. It serves no client before it is unfenced.

    Until then something is broken, because C0 may know only this broker. There is an overlap from
    71 s to 112 s:

    - If broker-1 is unfenced at 110 s, the overlap ends 2 s later, which is allowed.
    - If broker-1 is unfenced at 70.5 s, nothing is broken after that, and the overlap is too
      long.

    With `has_late_heartbeat` the controller unfences broker-1 at 70.2 s, because of a heartbeat
    that the old process had sent. This unfencing does not count, because the new process has not
    registered yet. The file tests/corpus/broker_unfenced_for_heartbeats_of_its_old_life.yaml is an
    experiment with such a late heartbeat.
    """
    rows = Rows()
    rows.add(0.1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.load_completed(0.5, "broker-0", leader_epoch=0)
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.add(10, "driver", TraceKind.NODE_KILLED, peer="broker-1")
    rows.member_removed(60, "broker-0", f"{C0}-id")
    # broker-1 starts again, and C1 gets the partition of C0.
    rows.add(70, "broker-1", TraceKind.NODE_STARTED, incarnation=1)
    if has_late_heartbeat:
        # The new process registers only after this unfencing.
        rows.add(70.2, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
        rows.assigned(71, C1, names=["t-0"], generation=2, peer="broker-0")
        rows.add(unfenced_s, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
    else:
        rows.add(70.4, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
        rows.assigned(71, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.add(unfenced_s, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.revoked(112, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed


def test_resumed_member_that_continues_for_ever_is_found() -> None:
    """Planted bug: a member answers UNKNOWN_MEMBER_ID by sending its request again and again.

    C0 resumes at 70 s, and should give up its partition soon after that.
    """
    assert check(paused_member(expired_s=53.2, heard_s=110)).outcome is CheckOutcome.VIOLATED


def test_length_of_an_overlap_is_not_judged_during_another_fault() -> None:
    """The first fault is healed at 80 s. From 82 s to 120 s a second fault holds all messages back.

    So C0 gets no answer before 120 s. The overlap ends 3 s after that, which is soon enough.
    """
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.healed(80, "broker-0", fault="cut")
    rows.fault(82, "broker-0", fault="clog")
    rows.healed(120, "broker-0", fault="clog")
    rows.revoked(123, C0, lost=True)
    rows.stage(130, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 70_000  # 123 s - 53 s


def test_overlap_is_not_counted_while_the_group_has_no_coordinator() -> None:
    """C0 can learn of its removal only from a coordinator.

    The cut is healed at 61 s, but the group has no coordinator before 90.2 s. So the 10 s in which
    the overlap must end begin at 90.2 s.
    """
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.elected(60, "", isr=[0])  # no leader
    rows.healed(61, "broker-0", fault="cut")
    rows.elected(90, "broker-0", isr=[0])
    rows.load_completed(90.2, "broker-0", leader_epoch=2)
    rows.revoked(93, C0, lost=True)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("who_acts", ["the member leaves", "the coordinator removes it"])
def test_owner_that_exceeds_max_poll_interval_may_be_overtaken(who_acts: str) -> None:
    """An application that polls too late loses its membership, even without any fault.

    Either its member leaves by itself, or the coordinator removes the member, because the member
    does not rejoin in time. Until the application notices this, another member may own the
    partition, too.
    """
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    if who_acts == "the member leaves":
        rows.member_state(20, C0, "UNJOINED", before="STABLE", cause=MemberStateCause.MISSED_POLL)
    else:
        rows.member_removed(20, "broker-0", f"{C0}-id", "did not rejoin")
    rows.assigned(21, C1, names=["t-0"], generation=2)
    rows.revoked(23, C0, lost=True)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 2_000  # 23 s - 21 s


def test_members_removed_by_an_administrator_may_be_overtaken_at_once() -> None:
    """An administrator may remove a member without its knowledge, and without any fault.

    C0 learns of its removal from the answer to its next heartbeat. Until then it goes on
    processing, as in Kafka.
    """
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.member_removed(20, "broker-0", f"{C0}-id", "leave")
    # broker-1, which was the coordinator before, removes the member, too.
    rows.member_removed(20.5, "broker-1", f"{C0}-id", "session expiry")
    rows.assigned(21, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.revoked(23, C0, lost=True)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 2_000  # 23 s - 21 s


def test_short_failover_excuses_no_later_overlap() -> None:
    """The leadership moves at 0 s. The short move does not explain two owners at 60 s."""
    rows = Rows()
    rows.assigned(-5, C0, names=["t-0"])
    rows.fault(0, "broker-0", fault="leadership_move", momentary=True)
    rows.assigned(60, C1, names=["t-0"], generation=2)
    rows.stage(90, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nothing was broken" in report.findings[0].summary


def test_figures_are_available_during_the_overlap() -> None:
    """A user who watches a run sees an overlap before it has ended.

    The overlap began at 53 s, and the last row is at 60 s.
    """
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.add(60, "driver", TraceKind.NODE_PAUSED, peer="broker-2")
    checker = Ownership(CONTEXT)
    for row in rows.rows:
        checker.observe(row)

    assert checker.measured()["longest_overlap_ms"] == 7_000


def test_member_removed_before_the_load_has_no_session_at_the_new_coordinator() -> None:
    """The new coordinator need not wait for the session of a member that it has never loaded.

    broker-0 removes C0, and stores a generation without C0. broker-1 loads this generation.
    """
    rows = Rows()
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], peer="broker-0")
    # C0 is cut off, and broker-0 removes it at the end of its session.
    rows.fault(0, C0, fault="cut", members_survive=False)
    rows.member_removed(44, "broker-0", f"{C0}-id")
    # broker-0 crashes. broker-1 gives C0's partition to C1 soon after its load.
    rows.fault(46, "broker-0")
    rows.group_loaded(54, "broker-1", members=[f"{C1}-id"])
    rows.load_completed(54, "broker-1", leader_epoch=1)
    rows.assigned(57, C1, names=["t-0"], generation=3, peer="broker-1")
    rows.revoked(70, C0, lost=True)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("is_in_log", "generation", "is_allowed"),
    [
        (False, 1, True),  # the log has no group: it was deleted
        (True, 3, True),  # the log has the generation in which C1 is assigned
        (True, 2, False),  # the log has a newer generation than the one in which C1 is assigned
    ],
)
def test_overlap_that_the_log_explains_may_begin_at_the_load(
    is_in_log: bool, generation: int, is_allowed: bool
) -> None:
    """broker-1 loads its log at 54 s, and gives C0's partition to C1 at once.

    What is in the log may explain this:

    - The log has no group, because the group was deleted. So the coordinator need not wait for the
      session of any member.
    - The log has generation 3 with its assignment, which gives the partition to C1. C0 may still be
      a member, but one without a partition. This happens to a static member that did not rejoin.
    """
    rows = Rows()
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], generation=1, peer="broker-0")
    # broker-1 becomes the coordinator at 0 s. At 54 s it is elected again, and loads its log again.
    rows.fault(-10, "broker-0")
    rows.group_loaded(0, "broker-1", members=[f"{C0}-id"])
    rows.load_completed(0, "broker-1", leader_epoch=1)
    if is_in_log:
        rows.group_loaded(54, "broker-1", generation=3, members=[f"{C0}-id", f"{C1}-id"])
    rows.load_completed(54, "broker-1", leader_epoch=2)
    rows.assigned(54.1, C1, names=["t-0"], generation=generation, peer="broker-1")
    rows.revoked(54.2, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed
