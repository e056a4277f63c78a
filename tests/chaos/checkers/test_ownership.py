"""The ownership checker measures overlaps, and finds those that nothing excuses.

An overlap is the time in which two members own one partition. It is allowed under two conditions:

1. It begins after the first owner has been silent for a session, which is 45 s here. Before that a
   coordinator must not give a member's partitions to another member.
2. It ends soon after nothing is broken any more, in about 10 s.

The coordinator of a group is the broker that leads its offsets partition (OFFSETS_0); it loads the
group from the log. A member expires (`rows.member_removed` without another cause) when the
coordinator has not heard of it for a session, and therefore removes it. A zombie is a replaced
coordinator, or a removed member, that does not know this yet. A fenced broker is one that the
controller considers dead, until it is unfenced. "Planted bug" in a docstring names a bug that the
test would find. Citations name a file of docs/kafka and a section.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.ownership import Ownership
from protocol.causes import MemberStateCause
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1, LATE = "consumer-g-0", "consumer-g-1", "consumer-g-2"
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=(C0, C1, LATE), offsets_partition=OFFSETS_0, commits=False, late=(LATE,)
        )
    }
)


def check(rows: Rows, clock_error_us: int = 0) -> CheckReport:
    """Return the report of a trace, whose rows the checker observes in the order of time."""
    checker = Ownership(replace(CONTEXT, clock_error_us=clock_error_us))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def split(rows: Rows) -> None:
    """Add a split at 0 s: broker-0, the coordinator, is cut off from the other brokers.

    broker-1 loads the group at 7.1 s. C0, the owner of t-0, stays with broker-0. Times before the
    split are negative.
    """
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], peer="broker-0")
    rows.fault(0, "broker-0", fault="cut")
    rows.group_loaded(7.1, "broker-1", members=[f"{C0}-id"])
    rows.load_completed(7.1, "broker-1", leader_epoch=1)


def split_brain(*, assigned_s: float = 52.169, lost_s: float = 83.05) -> Rows:
    """Return rows of a split brain as it was measured with Kafka (MEASURED_FAILOVER two-owners).

    The link is healed at 80.002 s. LATE is assigned C0's partition at `assigned_s`; C0 learns that
    it has lost the partition at `lost_s`. The defaults are the measured times. The other rows keep
    their measured distance from these two.
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
    """The partition has two owners for 31 s.

    The overlap begins a session after the load (7.1 s + 45 s), and ends 3 s after the healing.
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
    """Planted bug: the new coordinator gives loaded members less than a session.

    The overlap begins at 50 s, which is 42.9 s after the load at 7.1 s.
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
    """Planted bug: a zombie gets no error.

    A zombie must get an error within about 10 s of the healing at 80 s, and then give up its
    partition.
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
    """Planted bug: an assignor that shares a partition."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0", "t-1"])
    rows.assigned(1.2, C1, names=["t-1"])
    rows.stage(30, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nothing was broken" in report.findings[0].summary


def test_overlaps_of_one_pair_of_members_are_one_finding() -> None:
    """C0 and C1 share twelve partitions. Twelve findings of one kind would hide other findings."""
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
    """The overlap is 0.4 ms long. If clocks may differ by more than that, there may be none."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.assigned(2.0, C1, names=["t-0"])
    rows.revoked(2.0004, C0)

    assert check(rows, clock_error_us=500).outcome is CheckOutcome.PASS
    assert check(rows, clock_error_us=300).outcome is CheckOutcome.VIOLATED


def test_member_that_joins_with_its_partitions_is_found() -> None:
    """Planted bug: UNKNOWN_MEMBER_ID resets the member's id but not its partitions."""
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
    """Before its JoinGroup the member has lost its partitions (as here) or revoked them."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.member_state(2, C0, "UNJOINED")
    rows.revoked(2.05, C0, lost=True)
    rows.member_state(2.1, C0, "PREPARING_REBALANCE")

    assert check(rows).findings == ()


def test_dead_member_owns_nothing() -> None:
    """A killed member owns nothing from its death on, although its session ends 45 s later."""
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.add(5, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.assigned(51, C1, names=["t-0"], generation=2)

    report = check(rows)

    assert (report.outcome, report.measured) == (CheckOutcome.PASS, {"overlaps": 0})


def paused_member(*, expired_s: float, heard_s: float) -> Rows:
    """Return rows of C0, which is paused from 10 s to 70 s and expires at `expired_s`.

    C1 gets C0's partition 3 s after the expiry. At `heard_s` C0 gets an error and loses the
    partition. C0's last heartbeat may have come up to 3 s before the pause, so the expiry is right
    from 52 s (7 s + 45 s) on.
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


def test_zombie_may_overlap_until_its_first_answer_after_the_resume() -> None:
    """A resumed member learns of its removal from the answer to its first heartbeat."""
    report = check(paused_member(expired_s=53.2, heard_s=70.3))

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 14_100  # 70.3 s - (53.2 s + 3 s)


def test_member_expired_long_before_the_end_of_its_session_is_found() -> None:
    """Planted bug: a session timer in the wrong unit, so that a session ends much too early."""
    report = check(paused_member(expired_s=20, heard_s=70.3))

    assert report.outcome is CheckOutcome.VIOLATED
    assert "while a silent member may be dropped after 45 s" in report.findings[0].summary


@pytest.mark.parametrize(("expired_s", "is_allowed"), [(53.2, True), (79, False)])
def test_member_expired_in_time_may_be_overtaken_long_after_the_fault(
    expired_s: float, is_allowed: bool
) -> None:
    """The fault lasts from 10 s to 60 s. It excuses an expiry at 53.2 s, but none at 79 s.

    The time of the expiry counts, not the time of the assignment, which is 80 s in both cases.
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
    """broker-1, the new coordinator, loads the group at 26 s, and expires C0 at 71 s.

    A resumed coordinator, broker-2, still answers JoinGroup and SyncGroup, although it is replaced.

    - If C0 was assigned by broker-2 at 29.2 s, it sends nothing to broker-1. So broker-1 may expire
      it one session after the load (26 s + 45 s).
    - If C0 was assigned at 25 s, before the load, it sends heartbeats to broker-1 until its pause
      at 60 s. So the expiry at 71 s is too early.
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
    ("unfenced_s", "ghost", "is_allowed"),
    [(110, False, True), (110, True, True), (70.5, False, False)],
)
def test_broker_that_waits_for_its_old_session_counts_as_down(
    unfenced_s: float, ghost: bool, is_allowed: bool
) -> None:
    """broker-1 is killed and starts again, but stays fenced until its old session has ended.

    C0 may know only this broker, and gets no answer before `unfenced_s`. Until then something is
    broken, so the overlap from 71 s to 112 s is allowed. If broker-1 is unfenced at 70.5 s, nothing
    is broken, and the overlap is too long.

    `ghost`: late heartbeats of the old process unfence the broker at 70.2 s, although the new
    process has not registered yet. This does not count. The run of
    tests/corpus/broker_unfenced_for_heartbeats_of_its_old_life.yaml is such a case.
    """
    rows = Rows()
    rows.add(0.1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.load_completed(0.5, "broker-0", leader_epoch=0)
    rows.assigned(1, C0, names=["t-0"], peer="broker-0")
    rows.add(10, "driver", TraceKind.NODE_KILLED, peer="broker-1")
    rows.member_removed(60, "broker-0", f"{C0}-id")
    # broker-1 starts again, and C1 gets the partition of C0.
    rows.add(70, "broker-1", TraceKind.NODE_STARTED, incarnation=1)
    if ghost:
        rows.add(70.2, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
        rows.assigned(71, C1, names=["t-0"], generation=2, peer="broker-0")
        rows.add(unfenced_s, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
    else:
        rows.add(70.4, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
        rows.assigned(71, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.add(unfenced_s, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.revoked(112, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed


def test_zombie_that_continues_for_ever_is_found() -> None:
    """Planted bug: UNKNOWN_MEMBER_ID is treated as retriable, so the member never rejoins."""
    assert check(paused_member(expired_s=53.2, heard_s=110)).outcome is CheckOutcome.VIOLATED


def test_length_of_an_overlap_is_not_judged_during_another_fault() -> None:
    """The link is healed at 80 s, and clogged from 82 s to 120 s: C0 gets no answer until then."""
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
    """Only a coordinator answers UNKNOWN_MEMBER_ID, from which C0 learns of its removal.

    The link is healed at 61 s, but a coordinator exists only from 90.2 s on. So the time in which
    nothing is broken begins there.
    """
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.elected(60, "", isr=[0])
    rows.healed(61, "broker-0", fault="cut")
    rows.elected(90, "broker-0", isr=[0])
    rows.load_completed(90.2, "broker-0", leader_epoch=2)
    rows.revoked(93, C0, lost=True)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("cause", ["the member", "the coordinator"])
def test_owner_that_exceeds_max_poll_interval_may_be_overtaken(cause: str) -> None:
    """If an application polls too late, its group removes the member, or the member leaves.

    The limit is a setting of the application, so this explains an overlap without any fault.
    """
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    if cause == "the member":
        rows.member_state(20, C0, "UNJOINED", before="STABLE", cause=MemberStateCause.MISSED_POLL)
    else:
        rows.member_removed(20, "broker-0", f"{C0}-id", "did not rejoin")
    rows.assigned(21, C1, names=["t-0"], generation=2)
    rows.revoked(23, C0, lost=True)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 2_000  # 23 s - 21 s


def test_members_removed_by_an_administrator_may_be_overtaken_at_once() -> None:
    """As in Kafka, such members learn of their removal from the answer to their next heartbeat.

    Until then they go on processing.
    """
    rows = Rows()
    rows.assigned(1, C0, names=["t-0"])
    rows.member_removed(20, "broker-0", f"{C0}-id", "leave")
    rows.member_removed(20.5, "broker-1", f"{C0}-id", "session expiry")  # a zombie removes it, too
    rows.assigned(21, C1, names=["t-0"], generation=2, peer="broker-0")
    rows.revoked(23, C0, lost=True)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["longest_overlap_ms"] == 2_000  # 23 s - 21 s


def test_short_failover_excuses_no_later_overlap() -> None:
    """A leadership move at 0 s does not explain two owners at 60 s."""
    rows = Rows()
    rows.assigned(-5, C0, names=["t-0"])
    rows.fault(0, "broker-0", fault="leadership_move", momentary=True)
    rows.assigned(60, C1, names=["t-0"], generation=2)
    rows.stage(90, "stopping")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nothing was broken" in report.findings[0].summary


def test_figures_are_available_during_the_overlap() -> None:
    """The live view shows an overlap before its end is known: here from 53 s to 60 s."""
    rows = Rows()
    split(rows)
    rows.assigned(53, LATE, names=["t-0"], generation=2, peer="broker-1")
    rows.add(60, "driver", TraceKind.NODE_PAUSED, peer="broker-2")
    checker = Ownership(CONTEXT)
    for row in rows.rows:
        checker.observe(row)

    assert checker.measured()["longest_overlap_ms"] == 7_000


def test_member_removed_before_the_load_has_no_session_at_the_new_coordinator() -> None:
    """The old coordinator expired C0 and stored a generation without it, which broker-1 loads."""
    rows = Rows()
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], peer="broker-0")
    # C0 is cut off, and its old coordinator expires it.
    rows.fault(0, C0, fault="cut", members_survive=False)
    rows.member_removed(44, "broker-0", f"{C0}-id")
    # The old coordinator crashes. The new one assigns C0's partition to C1 soon after its load.
    rows.fault(46, "broker-0")
    rows.group_loaded(54, "broker-1", members=[f"{C1}-id"])
    rows.load_completed(54, "broker-1", leader_epoch=1)
    rows.assigned(57, C1, names=["t-0"], generation=3, peer="broker-1")
    rows.revoked(70, C0, lost=True)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("groups", "generation", "is_allowed"),
    [
        (0, 1, True),  # the load finds no group: it was deleted
        (1, 3, True),  # the load finds the generation in which C1 is assigned
        (1, 2, False),  # C1 is assigned in an older generation than the loaded one
    ],
)
def test_overlap_that_the_log_explains_may_begin_at_the_load(
    groups: int, generation: int, is_allowed: bool
) -> None:
    """C1 is assigned C0's partition right after a load, at 54 s. The loaded log may explain this.

    - A deleted group has no members for whose sessions the coordinator must wait.
    - The loaded generation, 3, has its assignment in the log. C0 may be a member of it without an
      assignment: a static member that did not rejoin.
    """
    rows = Rows()
    rows.load_completed(-20, "broker-0", leader_epoch=0)
    rows.assigned(-15, C0, names=["t-0"], generation=1, peer="broker-0")
    # broker-1 loads the group with C0, and much later loads it again in epoch 2.
    rows.fault(-10, "broker-0")
    rows.group_loaded(0, "broker-1", members=[f"{C0}-id"])
    rows.load_completed(0, "broker-1", leader_epoch=1)
    if groups:
        rows.group_loaded(54, "broker-1", generation=3, members=[f"{C0}-id", f"{C1}-id"])
    rows.load_completed(54, "broker-1", leader_epoch=2)
    rows.assigned(54.1, C1, names=["t-0"], generation=generation, peer="broker-1")
    rows.revoked(54.2, C0, lost=True)

    assert (check(rows).outcome is CheckOutcome.PASS) is is_allowed
