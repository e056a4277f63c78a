"""The processing checker finds records that no member processed, and counts duplicates.

A commit of offset 20 means that the group has processed all records before 20. So each record from
the group's first position up to its last commit is "due": some member must have processed it. The
checker excuses records that the configuration or an administrator lets the group skip. Duplicates
are no violation, because Kafka promises delivery at least once.

Each test writes the trace of a small group by hand: the members C0 and C1 read t-0. The first
number of a row is its time in seconds. Where a docstring says "Planted bug", it describes a bug
that would leave such a trace.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.evidence.transactions.forgotten_commits import FORGOTTEN
from chaos.checkers.processing import Processing
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

# The two consumers of the group. The member id of C0 is f"{C0}-id".
C0, C1 = "consumer-g-0", "consumer-g-1"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


SEVEN_DAYS_S = 7 * 24 * 60 * 60
"""Kafka's default of the time after which committed offsets expire."""


def check(rows: Rows, *, retention_s: int = SEVEN_DAYS_S) -> CheckReport:
    """Return the checker's report of the rows.

    The committed offsets of a group expire `retention_s` seconds after the group became empty. In
    the report, `seen` counts the cases that the checker had to judge, and `measured` has figures
    that do not decide the outcome.
    """
    checker = Processing(replace(CONTEXT, offsets_retention_us=retention_s * 1_000_000))
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def group_that_commits() -> Rows:
    """Return rows of C0, which processes the records 0 to 19 of t-0, and commits 10 and then 20."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")
    rows.consumed(2, C0, first=0, last=9)
    rows.committed(2.1, C0, offset=10)
    rows.consumed(3, C0, first=10, last=19)
    rows.committed(3.1, C0, offset=20)
    return rows


def reassign_to_c1(rows: Rows, time_s: float, offset: int, cause: str = "committed") -> None:
    """Move t-0 from C0 to C1, which begins to read at `offset`.

    `cause` says why C1 begins there: `offset` is the committed offset, or the latest offset.
    """
    rows.revoked(time_s, C0)
    rows.assigned(time_s + 0.1, C1, generation=2)
    rows.position_reset(time_s + 0.2, C1, offset=offset, cause=cause)


def set_offset_as_administrator(rows: Rows, time_s: float, offset: int) -> None:
    """Let broker-0 store a commit of an administrator.

    Unlike the commit of a member, this commit has no member id and no generation.
    """
    rows.commit_stored(time_s, "broker-0", "", generation=-1, append_id=1, offset=offset)


def test_group_that_processes_everything_passes() -> None:
    """A rebalance gives the partition to C1, which continues at the committed offset 20."""
    rows = group_that_commits()
    reassign_to_c1(rows, 4, offset=20)
    rows.consumed(5, C1, first=20, last=29)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen == {
        "partitions": 1,
        "records_due": 20,  # 0 to 19, because the last commit is 20
        "records_processed": 30,  # 0 to 29
        "gaps": 0,
    }
    assert report.measured["processed_again"] == 0


def test_commit_beyond_the_processed_records_is_found_with_the_committer() -> None:
    """Planted bug: an application commits records before it processes them.

    C0 commits 30 when it has processed the records up to 19. Then C1 gets the partition, and begins
    at 30.
    """
    rows = group_that_commits()
    rows.committed(3.5, C0, offset=30)
    reassign_to_c1(rows, 4, offset=30)
    rows.consumed(5, C1, first=30, last=39)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert finding.summary == (
        "g, t-0: records 20 to 29 were never processed: consumer-g-0 (acknowledged by broker-0) "
        "had committed 30"
    )
    assert [row.kind for row in finding.evidence] == [
        TraceKind.OFFSETS_COMMITTED,
        TraceKind.RECORDS_CONSUMED,
        TraceKind.OFFSETS_COMMITTED,
        TraceKind.POSITION_RESET,
    ]


def test_commit_beyond_the_last_processed_record_is_found() -> None:
    """C0 commits 30 when it has processed the records up to 19.

    No member goes on at 30 afterwards. The wrong commit alone is a violation.
    """
    rows = group_that_commits()
    rows.committed(3.5, C0, offset=30)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "records 20 to 29 were never processed" in report.findings[0].summary


def test_dropped_records_are_found() -> None:
    """Planted bug: a consumer drops the records 20 to 24, and goes on at 25."""
    rows = group_that_commits()
    rows.consumed(4, C0, first=25, last=29)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "consumer-g-0 went on at 25 without them" in report.findings[0].summary


def test_gap_that_a_member_processes_later_is_no_violation() -> None:
    """Each record must be processed at least once, but in any order.

    Two members own the partition. C1 processes 30 to 39, and after that C0 processes 20 to 29.
    """
    rows = group_that_commits()
    rows.assigned(3.9, C1)
    rows.position_reset(4, C1, offset=30, cause="committed")
    rows.consumed(5, C1, first=30, last=39)
    rows.consumed(6, C0, first=20, last=29)

    assert check(rows).outcome is CheckOutcome.PASS


def test_records_before_the_first_commit_may_be_skipped() -> None:
    """C0 dies before it has committed anything, so C1 starts from the latest offset.

    C1 skips the records 60 to 79. These records come after the group's first position, 50, and
    before the commit of C1, 90. Still the group may skip them, because it had no committed offset
    when C1 started, and because `auto.offset.reset` is "latest".
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    rows.add(2.5, "driver", TraceKind.NODE_KILLED, peer=C0)
    # C1 starts from 80, which is the latest offset by now.
    rows.assigned(3, C1)
    rows.position_reset(3.1, C1, offset=80, cause="latest")
    rows.consumed(4, C1, first=80, last=89)
    rows.committed(4.1, C1, offset=90)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_reset_to_latest_of_a_group_that_never_commits_is_counted() -> None:
    """A group that has no committed offset starts from the latest offset, as it is configured.

    C0 starts from 50, and C1 from 80. The skipped records are no violation, and the report only
    counts them.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    reassign_to_c1(rows, 3, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_reset_to_latest"] == 20  # records 60 to 79


def test_reset_to_latest_after_a_lost_commit_is_found_as_a_reset() -> None:
    """Planted bug: the coordinator forgets the commits of 10 and 20.

    So C1 finds no committed offset, and starts from the latest offset, as configured.
    """
    rows = group_that_commits()
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    summary = report.findings[0].summary
    assert "records 20 to 79 were never processed" in summary
    assert "consumer-g-1 found no committed offset it could use, although 10 and more" in summary
    assert "auto.offset.reset" in summary


def transaction_state(rows: Rows, time_s: float, to: str) -> None:
    """Let broker-2, the transaction coordinator, move C0's transaction to the state `to`.

    C0 is producer 0.
    """
    detail = {"transactional_id": C0, "producer_id": 0, "from": "Ongoing", "to": to}
    rows.add(time_s, "broker-2", TraceKind.TRANSACTION_STATE, detail=detail)


@pytest.mark.parametrize("is_behind_load", [True, False])
@pytest.mark.parametrize("had_a_commit_before", [True, False])
def test_reset_to_latest_is_excused_if_kafka_forgot_the_only_commit(
    *, is_behind_load: bool, had_a_commit_before: bool
) -> None:
    """The group's only commit, of offset 60 in a transaction of C0, is lost.

    The group's coordinator is broker-0.

    1. An earlier transaction of C0 is aborted. The marker of the abort has to remove the pending
       offsets of C0 from the group, but broker-0 is loading. So the removal waits until the load
       is over.
    2. The transaction with offset 60 is committed, and C0 gets its acknowledgement.
    3. The load is over. The removal takes place, and removes the offset 60, too, as in Kafka 3.9.
    4. C1 finds no committed offset, and starts from the latest offset, 80. So the records 60 to 79
       are left out.

    If `is_behind_load` is False, there is no load, and nothing can have delayed the removal. Then
    the loss of the commit is a bug.

    `had_a_commit_before` changes nothing. If it is True, the group had committed the offset 50
    before, and an administrator deleted it.
    """
    rows = Rows()
    if had_a_commit_before:
        rows.commit_stored(0.5, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=50)
        rows.offset_removed(0.6)
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    transaction_state(rows, 2.1, "PrepareAbort")
    transaction_state(rows, 2.2, "CompleteAbort")
    rows.add(
        2.5,
        "broker-0",
        TraceKind.TXN_COMMIT_PENDING,
        group="g",
        member=f"{C0}-id",
        partition="t-0",
        offset=60,
        detail={"producer_id": 0},
    )
    transaction_state(rows, 2.6, "PrepareCommit")
    rows.committed(2.7, C0, offset=60)
    if is_behind_load:
        rows.load_completed(3, "broker-0", leader_epoch=3)
    rows.add(
        3,
        "broker-0",
        TraceKind.TRANSACTION_COMPLETED,
        group="g",
        detail={"producer_id": 0, "committed": False, "offsets": 0},
    )
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.excused == ({FORGOTTEN: 1} if is_behind_load else {})
    assert report.outcome is (CheckOutcome.PASS if is_behind_load else CheckOutcome.VIOLATED)


def test_duplicates_are_counted_by_the_member_that_processed_the_record_before() -> None:
    """The checker distinguishes whether the same member has processed the record before.

    - C0 goes back to 15, and processes 15 to 19 again: 5 records, by the same member.
    - C1 begins at 10, and processes 10 to 24 again: 15 records, by another member.
    """
    rows = group_that_commits()
    rows.position_reset(4, C0, offset=15)
    rows.consumed(4.1, C0, first=15, last=24)
    reassign_to_c1(rows, 5, offset=10)
    rows.consumed(6, C1, first=10, last=29)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["processed_again"] == 20
    assert report.measured["processed_again_by_the_same_member"] == 5
    assert report.measured["processed_again_by_another_member"] == 15
    assert report.measured["processed_again_while_two_owned_it"] == 0


def test_duplicates_of_a_split_brain_are_counted_separately() -> None:
    """From 50 s on, C0 and C1 both own the partition (a split brain).

    C1 processes 0 to 99, which C0 has processed before 50 s, and 100 to 109, which C0 has processed
    just before C1. These are 110 duplicates.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")
    rows.consumed(2, C0, first=0, last=99)
    rows.assigned(50, C1, generation=2)
    rows.position_reset(50.1, C1, offset=0, cause="earliest")
    rows.consumed(51, C1, first=0, last=99)
    rows.consumed(52, C0, first=100, last=109)
    rows.consumed(52.1, C1, first=100, last=109)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["processed_again_while_two_owned_it"] == 110
    assert report.measured["processed_again_by_another_member"] == 110


def test_new_incarnation_of_a_member_is_another_member() -> None:
    """C0 is killed after it has processed 0 to 19. Its new process begins at 15.

    So 15 to 19 are processed again. The new process (incarnation 1) knows nothing of the old one.
    So these records count as processed again by another member.
    """
    rows = group_that_commits()
    rows.add(4, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.add(
        5,
        C0,
        TraceKind.RECORDS_CONSUMED,
        incarnation=1,
        group="g",
        partition="t-0",
        offset=15,
        detail={"count": 10, "last": 24},
    )

    assert check(rows).measured["processed_again_by_another_member"] == 5


def test_commit_of_a_member_that_died_before_it_wrote_its_rows_is_no_violation() -> None:
    """The kill of a member may lose the last rows that it wrote.

    Here no row says that C0 has processed the records 20 to 29. But C0 has committed 30 before its
    death, so it may have processed these records.
    """
    rows = group_that_commits()
    rows.commit_stored(3.5, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=30)
    rows.add(3.6, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.assigned(50, C1, generation=2)
    rows.position_reset(50.1, C1, offset=30)
    rows.consumed(51, C1, first=30, last=39)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_a_member_that_died"] == 10


def test_records_skipped_by_an_administrator_are_counted_and_no_violation() -> None:
    """An administrator sets the offset of an empty group to 50, and the group goes on there."""
    rows = group_that_commits()
    rows.revoked(4, C0)
    set_offset_as_administrator(rows, 5, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=50)
    rows.consumed(7, C1, first=50, last=59)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 30  # from the commit at 20 to 50


@pytest.mark.parametrize(("is_stored", "skipped"), [(False, 60), (True, 0)])
def test_deletion_removes_offsets_that_wait_for_their_marker(is_stored: bool, skipped: int) -> None:
    """An administrator deletes the offsets of a group, and C1 then starts at 80.

    There is a row for the deletion of the offset of t-1, but none for that of t-0. The offset of
    t-0 may have been deleted all the same. This depends on the commit of 20, which is in a
    transaction:

    - The commit is not stored yet, because the marker that ends its transaction has not come. The
      deletion removes such a commit without a row. So C1 may start at 80.
    - The commit is stored. Its deletion would have a row of its own, so C1 must go on at 20.
    """
    rows = group_that_commits()
    if is_stored:
        rows.commit_stored(3.2, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=20)
    rows.offset_removed(3.5, partition="t-1")
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    transactional = replace(CONTEXT.groups["g"], transaction_partitions=("__transaction_state-0",))
    checker = Processing(replace(CONTEXT, groups={"g": transactional}))
    for row in rows.rows:
        checker.observe(row)
    report = checker.finish()

    assert (report.outcome is CheckOutcome.VIOLATED) == is_stored
    # The records 20 to 79 were skipped, which are 60.
    assert report.measured["skipped_by_an_administrator"] == skipped


@pytest.mark.parametrize(("is_removed", "skipped"), [(False, 0), (True, 70)])
def test_deletion_removes_a_commit_in_flight_that_is_acknowledged_later(
    is_removed: bool, skipped: int
) -> None:
    """C0's only commit, of 10, is not stored yet when an administrator deletes the group's offsets.

    The deletion removes the commit, which is acknowledged all the same. Then C1 finds no offset,
    and starts at 80. Without the deletion (`is_removed` is False), this is a violation.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")
    rows.consumed(2, C0, first=0, last=9)
    if is_removed:
        rows.pending_commit_removed(2.05)
    rows.committed(2.1, C0, offset=10)
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert (report.outcome is CheckOutcome.VIOLATED) == (not is_removed)
    # The records 10 to 79 were skipped, which are 70.
    assert report.measured["skipped_by_an_administrator"] == skipped


def test_records_skipped_beyond_an_administrators_offset_are_found() -> None:
    """An administrator sets the offset to 50, but C1 begins at 55. Nothing excuses 50 to 54."""
    rows = group_that_commits()
    rows.revoked(4, C0)
    set_offset_as_administrator(rows, 5, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=55)
    rows.consumed(7, C1, first=55, last=59)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_member_that_commits_an_administrators_offset_did_not_skip_to_it() -> None:
    """An administrator sets the offset to 50, and C1 begins there.

    C1 commits 50 by auto-commit before it has processed any record. This commit does not mean that
    C1 has skipped the records before 50: the administrator has skipped them.
    """
    rows = group_that_commits()
    rows.revoked(4, C0)
    set_offset_as_administrator(rows, 5, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=50)
    rows.committed(6.2, C1, offset=50)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 30  # from the commit at 20 to 50


def test_offset_that_an_administrator_committed_first_binds_no_group() -> None:
    """An administrator sets the offset of a group that has never committed, and deletes it again.

    So the group has no commit, and may start from the latest offset, as before.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    rows.revoked(3, C0)
    set_offset_as_administrator(rows, 4, offset=0)
    rows.offset_removed(5)
    # C1 starts from the latest offset, and skips 60 to 79.
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=80, cause="latest")
    rows.consumed(7, C1, first=80, last=89)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("empty_s", "outcome"), [(60.0, CheckOutcome.PASS), (50.0, CheckOutcome.VIOLATED)]
)
def test_records_skipped_after_an_expiry_are_no_violation(
    empty_s: float, outcome: CheckOutcome
) -> None:
    """The offsets of an empty group expire after 60 s here (`offsets.retention.minutes`).

    The group is empty from 5 s on. The coordinator removes the group's offset `empty_s` later. This
    is right after 60 s, and too early after 50 s.
    """
    rows = group_that_commits()
    rows.revoked(4, C0)
    rows.group_state(5, "broker-0", "PreparingRebalance", "Empty")
    rows.offset_removed(5 + empty_s, cause="expired")
    rows.assigned(80, C1, generation=2)
    rows.position_reset(80.1, C1, offset=50, cause="latest")
    rows.consumed(81, C1, first=50, last=59)

    assert check(rows, retention_s=60).outcome is outcome


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED", "REQUEST_TIMED_OUT"])
def test_records_that_an_administrator_may_have_skipped_are_no_violation(error: str) -> None:
    """An administrator tries to set the offset to 50, and does not learn whether it worked.

    The request got no answer (TIMED_OUT, DISCONNECTED), or the replicas did not get the commit in
    time (REQUEST_TIMED_OUT). In both cases the offset may have been set.
    """
    rows = group_that_commits()
    rows.revoked(4, C0)
    rows.admin_commit(5, offset=50, error=error)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=50)
    rows.consumed(7, C1, first=50, last=59)

    assert check(rows).outcome is CheckOutcome.PASS


def test_records_skipped_to_a_refused_offset_are_found() -> None:
    """The administrator's commit was refused, so nothing explains why C1 begins at 50."""
    rows = group_that_commits()
    rows.revoked(4, C0)
    rows.admin_commit(5, offset=50, error="UNKNOWN_MEMBER_ID")
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=50)
    rows.consumed(7, C1, first=50, last=59)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_unanswered_commit_promises_nothing() -> None:
    """An administrator tries to commit 0 for a group that has never committed.

    The answer does not show whether the offset was stored. So perhaps the group has no commit, and
    may start from the latest offset.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="latest")
    rows.consumed(2, C0, first=0, last=9)
    rows.admin_commit(2.5, offset=0, error="REQUEST_TIMED_OUT")
    reassign_to_c1(rows, 3, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_reset_to_latest"] == 70  # records 10 to 79


def test_reset_to_latest_after_a_deletion_follows_the_configuration() -> None:
    """An administrator deletes the offsets of the group, so `auto.offset.reset` decides again."""
    rows = group_that_commits()
    rows.offset_removed(3.5)
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 60  # records 20 to 79


@pytest.mark.parametrize(
    ("member", "outcome"),
    [
        pytest.param("new", CheckOutcome.VIOLATED, id="a member after the deletion"),
        pytest.param(f"{C0}-id", CheckOutcome.PASS, id="a member before the deletion"),
        pytest.param("", CheckOutcome.PASS, id="an administrator"),
    ],
)
def test_reset_to_latest_after_a_deletion_is_found_if_members_had_committed_since(
    member: str, outcome: CheckOutcome
) -> None:
    """The offsets are deleted at 3.5 s. A commit of 30 is stored at 3.7 s, and is gone at 4 s.

    The question is whether the deletion may have removed this commit:

    - If the committer joined after the deletion, it also sent the commit after the deletion. So the
      commit must stay.
    - If the committer is another member or an administrator, it may have sent the commit before the
      deletion. Then the commit waited for the replicas, and the deletion removed it.
    """
    rows = group_that_commits()
    rows.revoked(3.3, C0)
    rows.offset_removed(3.5)
    rows.assigned(3.6, C0, generation=1, member="new")
    rows.consumed(3.6, C0, first=20, last=29)
    rows.commit_stored(3.7, "broker-0", member, generation=1, append_id=1, offset=30)
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    assert check(rows).outcome is outcome


def test_group_without_due_records_reports_that_nothing_was_judged() -> None:
    """C0 has no position and has committed nothing, so no record is due."""
    rows = Rows()
    rows.assigned(1, C0)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN
