"""The processing checker counts duplicates and finds records that no member processed.

A committed offset promises that a member has processed all records before it. A record is due if
it lies before a committed offset of its group, and after the group's first position. A position is
the offset of the record that a member reads next; `position_reset` sets it. A marker is the record
that ends a transaction; it stores the transaction's pending offsets. "Planted bug" in a docstring
names a bug that the test would find.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.processing import Processing
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


def check(rows: Rows, *, retention_s: int = 604_800) -> CheckReport:
    """Return the report of a trace; offsets expire after `retention_s`, by default 7 days."""
    checker = Processing(replace(CONTEXT, offsets_retention_us=retention_s * 1_000_000))
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def group_that_commits() -> Rows:
    """Return rows of C0, which reads t-0 from the beginning and commits 10, then 20."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")
    rows.consumed(2, C0, first=0, last=9)
    rows.committed(2.1, C0, offset=10)
    rows.consumed(3, C0, first=10, last=19)
    rows.committed(3.1, C0, offset=20)
    return rows


def reassign_to_c1(rows: Rows, time_s: float, offset: int, cause: str = "committed") -> None:
    """Move t-0 from C0 to C1, which begins at `offset`."""
    rows.revoked(time_s, C0)
    rows.assigned(time_s + 0.1, C1, generation=2)
    rows.position_reset(time_s + 0.2, C1, offset=offset, cause=cause)


def set_offset_as_administrator(rows: Rows, time_s: float, offset: int) -> None:
    """Let broker-0 store a commit of an administrator: no member id, and the generation -1."""
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
        "records_due": 20,  # the last commit is 20
        "records_processed": 30,
        "gaps": 0,
    }
    assert report.measured["processed_again"] == 0


def test_commit_beyond_the_processed_records_is_found_with_the_committer() -> None:
    """Planted bug: an application commits records before it processes them.

    Then C0 loses the partition, and C1 begins at the committed offset 30.
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
    """No member continues at 30, but the commit alone says that all records before 30 are done."""
    rows = group_that_commits()
    rows.committed(3.5, C0, offset=30)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "records 20 to 29 were never processed" in report.findings[0].summary


def test_dropped_records_are_found() -> None:
    """Planted bug: a fetcher moves its position past records that it has not returned."""
    rows = group_that_commits()
    rows.consumed(4, C0, first=25, last=29)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "consumer-g-0 went on at 25 without them" in report.findings[0].summary


def test_gap_that_a_member_processes_later_is_no_violation() -> None:
    """Each record must be processed at least once, in any order.

    C1 reads ahead of C0 while both own the partition.
    """
    rows = group_that_commits()
    rows.assigned(3.9, C1)
    rows.position_reset(4, C1, offset=30, cause="committed")
    rows.consumed(5, C1, first=30, last=39)
    rows.consumed(6, C0, first=20, last=29)

    assert check(rows).outcome is CheckOutcome.PASS


def test_records_before_the_first_commit_may_be_skipped() -> None:
    """The group never committed before C0 died, so C1 starts from the latest offset, as C0 did."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    rows.add(2.5, "driver", TraceKind.NODE_KILLED, peer=C0)
    # C1 skips the records 60 to 79.
    rows.assigned(3, C1)
    rows.position_reset(3.1, C1, offset=80, cause="latest")
    rows.consumed(4, C1, first=80, last=89)
    rows.committed(4.1, C1, offset=90)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_reset_to_latest_of_a_group_that_never_commits_is_counted() -> None:
    """The configuration asks for the reset, so the report only counts the skipped records."""
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
    """Planted bug: a coordinator that forgets offsets; the client then resets as configured."""
    rows = group_that_commits()
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    summary = report.findings[0].summary
    assert "records 20 to 79 were never processed" in summary
    assert "consumer-g-1 found no committed offset it could use, although 10 and more" in summary
    assert "auto.offset.reset" in summary


def test_duplicates_are_counted_by_the_member_that_processed_the_record_before() -> None:
    """Duplicates are no violation, whether the same member or another one caused them.

    C0 has processed 0 to 24, of them 15 to 19 twice (5 records); C1 repeats 10 to 24 (15 records).
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
    """Two owners process the same records while both own the partition: 0 to 99, and 100 to 109."""
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
    """The restarted process of C0 does not know that the killed process has processed 0 to 19.

    So it processes 15 to 19 again. These 5 records count as processed again by another member.
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
    """A kill may lose a member's last rows, here those about the records 20 to 29.

    The commit of 30 is stored, so the member has processed them.
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
    """An administrator sets the offset of an empty group to 50. The group continues from there."""
    rows = group_that_commits()
    rows.revoked(4, C0)
    set_offset_as_administrator(rows, 5, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=50)
    rows.consumed(7, C1, first=50, last=59)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 30  # from the commit at 20 to 50


@pytest.mark.parametrize("stored", [False, True])
def test_deletion_removes_offsets_that_wait_for_their_marker(stored: bool) -> None:
    """A deletion removes offsets that wait for their transaction's marker, but writes no row of it.

    The only row of the deletion is about t-1.

    - If the commit of t-0 was not stored, the deletion may have removed the commit. So C1 may start
      at 80.
    - If the commit was stored, its deletion would have a row of its own. So C1 must not start at
      80.
    """
    rows = group_that_commits()
    if stored:
        rows.commit_stored(3.2, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=20)
    cause = "deleted by an administrator"
    removed = TraceKind.OFFSET_REMOVED
    rows.add(3.5, "broker-0", removed, group="g", partition="t-1", cause=cause)
    reassign_to_c1(rows, 4, offset=80, cause="latest")
    rows.consumed(5, C1, first=80, last=89)

    expected = replace(CONTEXT.groups["g"], transaction_partitions=("__transaction_state-0",))
    checker = Processing(replace(CONTEXT, groups={"g": expected}))
    for row in rows.rows:
        checker.observe(row)
    report = checker.finish()

    assert (report.outcome is CheckOutcome.VIOLATED) == stored
    # 60: records 20 to 79
    assert report.measured["skipped_by_an_administrator"] == (0 if stored else 60)


@pytest.mark.parametrize("is_removed", [False, True])
def test_deletion_removes_a_commit_in_flight_that_is_acknowledged_later(is_removed: bool) -> None:
    """C0's only commit is in flight when an administrator deletes the group's offsets.

    The commit is acknowledged all the same. C1 then finds no offset, and may start at 80.
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
    # 70: records 10 to 79
    assert report.measured["skipped_by_an_administrator"] == (70 if is_removed else 0)


def test_records_skipped_beyond_an_administrators_offset_are_found() -> None:
    """The set offset, 50, excuses only the records before it, not 50 to 54."""
    rows = group_that_commits()
    rows.revoked(4, C0)
    set_offset_as_administrator(rows, 5, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, offset=55)
    rows.consumed(7, C1, first=55, last=59)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_member_that_commits_an_administrators_offset_did_not_skip_to_it() -> None:
    """An administrator sets the offset to 50, and C1 begins there.

    C1's auto-commit repeats the offset before C1 has processed any record.
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
    """The only commit of the group, of 0, was an administrator's, and was deleted again.

    So the group may start from the latest offset again, as before the commit.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=50, cause="latest")
    rows.consumed(2, C0, first=50, last=59)
    rows.revoked(3, C0)
    # The administrator commits 0, and deletes the offset.
    set_offset_as_administrator(rows, 4, offset=0)
    rows.offset_removed(5)
    # The group starts from the latest offset again.
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
    """`offsets.retention.minutes` is 1: an offset of an Empty group expires after 60 s.

    The group is Empty from 5 s on, and the offset is removed `empty_s` later. After 50 s that is
    too early, so the offset is lost.
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
    """The request had no answer, or its append timed out, so it may have been carried out."""
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
    """The only commit of the group, of 0, has no answer, so perhaps the group has no commit.

    A group without a commit may start from the latest offset.
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
    """After the deletion the group has no offsets, so auto.offset.reset decides."""
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
    """A deletion excuses the loss of earlier commits, and of those whose append was under way.

    The commit of 30 is stored at 3.7 s, after the deletion at 3.5 s. A member from before the
    deletion, or an administrator, may have sent it before 3.5 s, if its append waited for a
    replica. A member that joined after the deletion has certainly sent it later.
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
    """The member has no position and no commit, so no record was due."""
    rows = Rows()
    rows.assigned(1, C0)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN
