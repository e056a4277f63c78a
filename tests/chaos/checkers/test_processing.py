"""The processing checker counts duplicates and finds records that nobody processed."""

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


def check(rows: Rows) -> CheckReport:
    checker = Processing(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def group_that_commits() -> Rows:
    """C0 reads t-0 from the beginning and has 10, then 20 committed."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 0, "earliest")
    rows.consumed(2, C0, 0, 9)
    rows.committed(2.1, C0, 10)
    rows.consumed(3, C0, 10, 19)
    rows.committed(3.1, C0, 20)
    return rows


def hand_over(rows: Rows, time_s: float, offset: int, cause: str = "committed") -> None:
    rows.given_up(time_s, C0)
    rows.assigned(time_s + 0.1, C1, generation=2)
    rows.position_reset(time_s + 0.2, C1, offset, cause)


def test_group_that_processes_everything_passes() -> None:
    """The ordinary run, with a rebalance in the middle."""
    rows = group_that_commits()
    hand_over(rows, 4, 20)
    rows.consumed(5, C1, 20, 29)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen == {
        "partitions": 1,
        "records_due": 20,
        "records_processed": 30,
        "gaps": 0,
    }
    assert report.measured["processed_again"] == 0


def test_commit_beyond_what_was_processed_is_found_with_the_committer() -> None:
    """Planted bug: an application that commits before it processes, and dies in between."""
    rows = group_that_commits()
    rows.committed(3.5, C0, 30)
    hand_over(rows, 4, 30)
    rows.consumed(5, C1, 30, 39)

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


def test_commit_beyond_the_end_of_what_was_processed_is_found() -> None:
    """Nobody needs to go on from there: the group has reached it."""
    rows = group_that_commits()
    rows.committed(3.5, C0, 30)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "records 20 to 29 were never processed" in report.findings[0].summary


def test_fetched_records_that_are_dropped_are_found() -> None:
    """Planted bug: a fetcher that moves its position past what it never handed out."""
    rows = group_that_commits()
    rows.consumed(4, C0, 25, 29)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "consumer-g-0 went on at 25 without them" in report.findings[0].summary


def test_hole_that_somebody_comes_back_to_is_none() -> None:
    """At least once, in whatever order: two owners, one of them ahead."""
    rows = group_that_commits()
    rows.assigned(3.9, C1)
    rows.position_reset(4, C1, 30, "committed")
    rows.consumed(5, C1, 30, 39)
    rows.consumed(6, C0, 20, 29)

    assert check(rows).outcome is CheckOutcome.PASS


def test_records_before_the_first_commit_may_be_skipped() -> None:
    """Nothing was promised yet: a group that starts from the latest, and dies, starts anew."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 50, "latest")
    rows.consumed(2, C0, 50, 59)
    rows.add(2.5, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.assigned(3, C1)
    rows.position_reset(3.1, C1, 80, "latest")
    rows.consumed(4, C1, 80, 89)
    rows.committed(4.1, C1, 90)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_reset_to_latest_of_a_group_that_never_commits_is_counted() -> None:
    """It asked for that: the records are skipped, and the report says so."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 50, "latest")
    rows.consumed(2, C0, 50, 59)
    hand_over(rows, 3, 80, "latest")
    rows.consumed(5, C1, 80, 89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_reset_to_latest"] == 20


def test_reset_to_latest_after_a_lost_commit_is_found_as_what_it_is() -> None:
    """Planted bug: a coordinator that forgets offsets; the client then does what it is told."""
    rows = group_that_commits()
    hand_over(rows, 4, 80, "latest")
    rows.consumed(5, C1, 80, 89)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    summary = report.findings[0].summary
    assert "records 20 to 79 were never processed" in summary
    assert "consumer-g-1 found no committed offset it could use, although 10 and more" in summary
    assert "auto.offset.reset" in summary


def test_duplicates_are_counted_by_who_had_processed_the_record() -> None:
    """The same member after a reset, another one after a crash: no violation."""
    rows = group_that_commits()
    rows.position_reset(4, C0, 15)
    rows.consumed(4.1, C0, 15, 24)
    hand_over(rows, 5, 10)
    rows.consumed(6, C1, 10, 29)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["processed_again"] == 20
    assert report.measured["processed_again_by_the_same_member"] == 5
    assert report.measured["processed_again_by_another_member"] == 15
    assert report.measured["processed_again_while_two_owned_it"] == 0


def test_duplicates_of_a_split_brain_are_told_apart() -> None:
    """Two owners at the same time: each processes what the other does."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 0, "earliest")
    rows.consumed(2, C0, 0, 99)
    rows.assigned(50, C1, generation=2)
    rows.position_reset(50.1, C1, 0, "earliest")
    rows.consumed(51, C1, 0, 99)
    rows.consumed(52, C0, 100, 109)
    rows.consumed(52.1, C1, 100, 109)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["processed_again_while_two_owned_it"] == 110
    assert report.measured["processed_again_by_another_member"] == 110


def test_new_life_of_a_member_is_another_member() -> None:
    """It knows nothing of what its former life processed."""
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


def test_commit_of_a_member_that_died_before_it_wrote_its_rows_is_not_accused() -> None:
    """A kill may take the last rows of a trace with it, and the commit gets through."""
    rows = group_that_commits()
    rows.commit_stored(3.5, "broker-0", f"{C0}-id", 1, 1, offset=30)
    rows.add(3.6, "driver", TraceKind.NODE_KILLED, peer=C0)
    rows.assigned(50, C1, generation=2)
    rows.position_reset(50.1, C1, 30)
    rows.consumed(51, C1, 30, 39)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_a_member_that_died"] == 10


def test_records_that_an_administrator_skipped_are_counted_and_no_violation() -> None:
    """He sets the offsets of a group whose members are gone; and it goes on from there."""
    rows = group_that_commits()
    rows.given_up(4, C0)
    rows.commit_stored(5, "broker-0", "", -1, 1, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 50)
    rows.consumed(7, C1, 50, 59)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 30


def test_records_skipped_beyond_what_an_administrator_said_are_found() -> None:
    """His word excuses what lies before it, and nothing else."""
    rows = group_that_commits()
    rows.given_up(4, C0)
    rows.commit_stored(5, "broker-0", "", -1, 1, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 55)
    rows.consumed(7, C1, 55, 59)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def admin_commit(rows: Rows, time_s: float, offset: int, error: str) -> None:
    """An administrator's commit, and how it ended for him."""
    rows.add(
        time_s,
        "admin-0",
        TraceKind.ADMIN_COMMIT,
        group="g",
        partition="t-0",
        member="",
        generation=-1,
        offset=offset,
        peer="broker-0",
        error=error,
    )


def test_member_that_commits_what_an_administrator_said_did_not_skip_it() -> None:
    """It began there, and its auto-commit says so again before anything was processed."""
    rows = group_that_commits()
    rows.given_up(4, C0)
    rows.commit_stored(5, "broker-0", "", -1, 1, offset=50)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 50)
    rows.committed(6.2, C1, 50)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 30


def test_group_is_not_held_to_what_an_administrator_committed_first() -> None:
    """It began behind that by its own choice, and lost nothing of what it had committed itself."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 50, "latest")
    rows.consumed(2, C0, 50, 59)
    rows.given_up(3, C0)
    rows.commit_stored(4, "broker-0", "", -1, 1, offset=0)
    deleted(rows, 5)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 80, "latest")
    rows.consumed(7, C1, 80, 89)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED", "REQUEST_TIMED_OUT"])
def test_records_that_an_administrator_may_have_skipped_are_no_violation(error: str) -> None:
    """Nobody answered him, or the log did not in time; it was carried out all the same."""
    rows = group_that_commits()
    rows.given_up(4, C0)
    admin_commit(rows, 5, 50, error)
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 50)
    rows.consumed(7, C1, 50, 59)

    assert check(rows).outcome is CheckOutcome.PASS


def test_records_skipped_to_what_a_coordinator_refused_are_found() -> None:
    """What was refused was never committed."""
    rows = group_that_commits()
    rows.given_up(4, C0)
    admin_commit(rows, 5, 50, "UNKNOWN_MEMBER_ID")
    rows.assigned(6, C1, generation=2)
    rows.position_reset(6.1, C1, 50)
    rows.consumed(7, C1, 50, 59)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_that_nobody_answered_promises_nothing() -> None:
    """A group that never commits, but for that: it may start from the latest again."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, 0, "latest")
    rows.consumed(2, C0, 0, 9)
    admin_commit(rows, 2.5, 0, "REQUEST_TIMED_OUT")
    hand_over(rows, 3, 80, "latest")
    rows.consumed(5, C1, 80, 89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_reset_to_latest"] == 70


def deleted(rows: Rows, time_s: float) -> None:
    """An administrator deletes what the group has committed."""
    rows.add(
        time_s,
        "broker-0",
        TraceKind.OFFSET_REMOVED,
        group="g",
        partition="t-0",
        cause="deleted by an administrator",
    )


def test_reset_to_latest_after_the_offsets_were_deleted_is_as_told() -> None:
    """The group starts where auto.offset.reset says: it has no offsets any more."""
    rows = group_that_commits()
    deleted(rows, 3.5)
    hand_over(rows, 4, 80, "latest")
    rows.consumed(5, C1, 80, 89)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["skipped_by_an_administrator"] == 60


@pytest.mark.parametrize(
    ("member", "outcome"),
    [("new", CheckOutcome.VIOLATED), (f"{C0}-id", CheckOutcome.PASS), ("", CheckOutcome.PASS)],
)
def test_reset_to_latest_after_a_deletion_is_found_if_members_had_committed_since(
    member: str, outcome: CheckOutcome
) -> None:
    """A deletion excuses what was there, and what was on its way to the log.

    An administrator's commit waits for a replica, and the group is deleted meanwhile.
    """
    rows = group_that_commits()
    rows.given_up(3.3, C0)
    deleted(rows, 3.5)
    rows.assigned(3.6, C0, generation=1, member="new")
    rows.consumed(3.6, C0, 20, 29)
    rows.commit_stored(3.7, "broker-0", member, 1, 1, offset=30)
    hand_over(rows, 4, 80, "latest")
    rows.consumed(5, C1, 80, 89)

    assert check(rows).outcome is outcome


def test_group_that_reads_nothing_says_so() -> None:
    """No record was due."""
    rows = Rows()
    rows.assigned(1, C0)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN
