"""The check `processing` judges what a member reads, delivers and commits in one assignment.

An assignment lasts from the row that gives C0 its partitions to their revocation or loss. A
position is the offset of the record that a member reads next. A generation is the number of a
group's rebalance.

Each violation here is a bug of a consumer that other checks of the group might not notice, because
records are processed once more, or another member processes the records that C0 leaves out. The
checker waits `commit_patience_us` (5 s) for a commit. A trace in which no record is due has the
outcome NOTHING_SEEN, so the tests only assert that the outcome is not VIOLATED.
"""

from dataclasses import replace

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.evidence.deliveries import LOST_POSITION, STALE_COMMIT
from chaos.checkers.processing import Processing
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=(C0, C1),
            offsets_partition=OFFSETS_0,
            commits=True,
            commit_patience_us=5_000_000,
        )
    },
    in_virtual_time=True,
)


def check(rows: Rows, context: CheckContext = CONTEXT) -> CheckReport:
    checker = Processing(context)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def claim_of(rows: Rows) -> str:
    """Return what the only finding says, without its beginning (group and partition)."""
    report = check(rows)
    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert (finding.group, finding.partition) == ("g", "t-0")
    assert finding.evidence
    return finding.summary.removeprefix("g, t-0: ")


def begun(*, offset: int) -> Rows:
    """Return rows of C0, which is assigned t-0 and begins at the committed offset `offset`."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=offset)
    rows.position_reset(1.1, C0, offset=offset)
    return rows


# -- positions -----------------------------------------------------------------------------------


def test_member_that_reads_on_from_its_committed_offset_passes() -> None:
    """C0 has two assignments; both begin at the committed offset.

    At 6 s the leader's log lacks C0's position, so C0 rightly goes back to the earliest offset.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=14)
    rows.consumed(3, C0, first=15, last=19)
    rows.committed(4, C0, offset=20)
    rows.revoked(4.1, C0)
    rows.assigned(4.2, C0, generation=2)
    rows.fetched(4.3, C0, offset=20)
    rows.position_reset(4.3, C0, offset=20)
    rows.consumed(5, C0, first=20, last=29)
    rows.position_reset(6, C0, offset=0, cause="earliest")
    rows.consumed(7, C0, first=0, last=4)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_member_without_a_committed_offset_begins_where_the_reset_policy_says() -> None:
    """The coordinator's answer, -1, means that nothing is committed."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=-1)
    rows.position_reset(1.2, C0, offset=7, cause="latest")
    rows.consumed(2, C0, first=7, last=9)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_offset_fetched_in_an_earlier_assignment_is_found() -> None:
    """The answer to an OffsetFetch of generation 1 is used in generation 2.

    Another member may have committed since then. Kafka's PendingCommittedOffsetRequest.sameRequest
    compares the generation for this reason.
    """
    rows = begun(offset=10)
    rows.revoked(1.2, C0)
    rows.fetched(1.3, C0, offset=10)
    rows.assigned(2, C0, generation=2)
    rows.position_reset(2.1, C0, offset=10)

    assert claim_of(rows) == (
        f"{C0} began at the committed offset 10, but it fetched none in this assignment"
    )


def test_position_that_is_not_the_fetched_offset_is_found() -> None:
    """For example a consumer may use the offset of another partition, here 12 instead of 10."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=10)
    rows.position_reset(1.1, C0, offset=12)

    assert claim_of(rows) == (
        f"{C0} began at the committed offset 12, but it fetched 10 in this assignment"
    )


def test_reset_although_an_offset_is_committed_is_found() -> None:
    """With `earliest` no record is lost, but every record is processed again."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=10)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")

    assert claim_of(rows) == (
        f"{C0} began at 0 (earliest), although it had fetched the committed offset 10"
    )


def test_reset_before_the_committed_offset_is_known_is_found() -> None:
    """C0 got no answer to an OffsetFetch, so it cannot know that nothing is committed."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")

    assert claim_of(rows) == (
        f"{C0} began at 0 (earliest), and had not fetched the committed offset in this assignment"
    )


def test_committed_offset_in_the_middle_of_an_assignment_is_found() -> None:
    """A member looks up the committed offset only while it has no position."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.fetched(3, C0, offset=10)
    rows.position_reset(3, C0, offset=10)

    assert claim_of(rows) == f"{C0} went from 20 to a committed offset, 10"


# -- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [(15, 24), (25, 29)])
def test_records_that_do_not_follow_the_last_ones_are_found(first: int, last: int) -> None:
    """C0 repeats 15 to 19, or leaves out 20 to 24. C1 has processed all records."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.assigned(2.1, C1)
    rows.fetched(2.2, C1, offset=10)
    rows.position_reset(2.2, C1, offset=10)
    rows.consumed(2.3, C1, first=10, last=29)
    rows.consumed(3, C0, first=first, last=last)

    assert claim_of(rows) == f"{C0} got records {first} to {last} while its position was 20"


def test_records_of_a_fetch_from_before_the_rebalance_are_found() -> None:
    """C0 never committed, so its second assignment begins at 0; the late answer has 20 to 29."""
    rows = begun(offset=0)
    rows.consumed(2, C0, first=0, last=19)
    # The attempt excuses the revocation without a commit.
    rows.commit_failed(2.1, C0, offset=20, error="TIMED_OUT")
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2)
    rows.fetched(3.2, C0, offset=0)
    rows.position_reset(3.2, C0, offset=0)
    rows.consumed(3.3, C0, first=20, last=29)

    assert claim_of(rows) == f"{C0} got records 20 to 29 while its position was 0"


@pytest.mark.parametrize("lost", [False, True])
def test_records_of_a_partition_that_is_gone_are_found(lost: bool) -> None:
    """The fetched records of a revoked partition must not reach the application."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(2.5, C0, offset=20)
    rows.revoked(3, C0, lost=lost)
    rows.consumed(4, C0, first=20, last=29)

    assert claim_of(rows) == f"{C0} got records 20 to 29 of it, which was not assigned to it"


def test_position_of_a_partition_that_is_gone_is_found() -> None:
    """For example the late answer to a ListOffsets may set a position after the revocation."""
    rows = begun(offset=10)
    rows.revoked(3, C0)
    rows.position_reset(4, C0, offset=0, cause="earliest")

    assert claim_of(rows) == f"{C0} set a position, 0, in it, which was not assigned to it"


def test_records_from_before_a_reset_may_be_processed_after_it() -> None:
    """C0's application already had the records 20 to 24 when the answer reset the position."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.position_reset(3, C0, offset=0, cause="earliest")
    rows.consumed(3.1, C0, first=20, last=24)
    rows.consumed(4, C0, first=0, last=9)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_new_process_of_a_member_begins_anew() -> None:
    """The new process has another incarnation (number of restarts).

    The killed process never revoked its partition, which is no violation.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.add(3, "driver", TraceKind.NODE_KILLED, peer=C0)
    new_process = {"group": "g", "partition": "t-0", "incarnation": 1}
    rows.add(
        4,
        C0,
        TraceKind.PARTITIONS_ASSIGNED,
        group="g",
        member="new",
        generation=2,
        incarnation=1,
        detail={"partitions": ["t-0"]},
    )
    rows.add(4.1, C0, TraceKind.OFFSETS_FETCHED, offset=10, **new_process)  # type: ignore[arg-type]
    rows.add(4.1, C0, TraceKind.POSITION_RESET, offset=10, cause="committed", **new_process)  # type: ignore[arg-type]

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_deliveries_in_real_time_are_not_judged() -> None:
    """The checker judges deliveries in virtual time only. In real time rows may be missing.

    Also, real producers write markers of transactions, which take offsets without being records.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.consumed(3, C0, first=15, last=24)

    in_real_time = replace(CONTEXT, in_virtual_time=False)
    assert check(rows, in_real_time).outcome is not CheckOutcome.VIOLATED


# -- commits -------------------------------------------------------------------------------------


def test_commit_of_records_that_were_not_delivered_is_found() -> None:
    """C0 processes the records 20 to 24 after the commit. A death before that would lose them."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(3, C0, offset=25)
    rows.consumed(4, C0, first=20, last=29)

    assert claim_of(rows) == (
        f"{C0} committed 25 in generation 1, in which its positions were 10 to 20"
    )


def test_commit_of_an_older_assignment_in_a_new_generation_is_found() -> None:
    """In generation 2, t-0 belongs to another member. C0's commit would undo that member's."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(2.1, C0, offset=20)
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    rows.committed(4, C0, offset=20, generation=2)

    assert claim_of(rows) == f"{C0} committed 20 in generation 2, in which it had no position"


def test_commit_that_waited_for_the_coordinator_is_excused() -> None:
    """Kafka's commitAsync names its generation only when the lookup of the coordinator has ended.

    C0 begins the commit in generation 1 while it looks for its coordinator. The group rebalances
    before the commit is sent, so the commit names generation 2.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.add(2.1, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", peer="broker-0")
    rows.committed(2.5, C0, offset=20)  # the commit that every revocation needs
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    rows.committed(4, C0, offset=20, generation=2)

    report = check(rows)

    assert report.outcome is not CheckOutcome.VIOLATED
    assert report.excused == {STALE_COMMIT: 1}


def test_answer_to_a_commit_may_come_after_the_rebalance() -> None:
    """The row of the answer has the generation that the commit named, which is 1."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    # The attempt excuses the revocation without a commit.
    rows.commit_failed(2.1, C0, offset=20, error="REQUEST_TIMED_OUT")
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    rows.committed(4, C0, offset=20)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


# -- the commit before a revocation --------------------------------------------------------------


def test_revocation_without_a_commit_is_found() -> None:
    """The next owner processes 10 to 19 again, although nothing had failed."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.revoked(3, C0)

    assert claim_of(rows) == f"{C0} revoked it at position 20 without a commit"


@pytest.mark.parametrize("isr", [[0], [0, 1]])
def test_position_behind_the_end_of_a_log_that_lost_data_is_not_committed(isr: list[int]) -> None:
    """broker-0 leads t-0 again after a power loss, with a log that ends before C0's position.

    C0 then has no valid position that it could commit, until it is reset. Only if broker-0 was
    alone in the ISR does Kafka allow the loss of data.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    elected = TraceKind.LEADER_ELECTED
    first, second = ({"isr": isr, "reason": "any"}, {"isr": isr, "reason": "broker unfenced"})
    rows.add(2.1, "controller", elected, partition="t-0", peer="broker-0", detail=first)
    rows.add(2.2, "driver", TraceKind.NODE_KILLED, peer="broker-0", cause="power loss")
    rows.add(2.8, "controller", elected, partition="t-0", peer="broker-0", detail=second)
    rows.revoked(3, C0)

    report = check(rows)

    is_loss_allowed = isr == [0]
    assert (report.outcome is CheckOutcome.VIOLATED) == (not is_loss_allowed)
    assert report.excused == ({LOST_POSITION: 1} if is_loss_allowed else {})


def test_revocation_after_an_older_commit_is_found() -> None:
    """The commit of 15 was sent before the records 15 to 19. A commit of 20 is missing."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=14)
    rows.consumed(2.1, C0, first=15, last=19)
    rows.committed(2.2, C0, offset=15)
    rows.revoked(3, C0)

    assert claim_of(rows) == f"{C0} revoked it at position 20 after a commit of 15"


def test_older_commit_may_be_answered_behind_the_last_one() -> None:
    """C0 begins to commit 15 while its coordinator is unknown, and the commit waits for the lookup.

    C0 has found the coordinator in another way when it commits 20 before the revocation. So 15 is
    sent, and answered, after 20, as with Kafka's client.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=14)
    rows.consumed(2.1, C0, first=15, last=19)
    rows.committed(2.2, C0, offset=20)
    rows.committed(2.3, C0, offset=15)
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_revocation_after_a_failed_commit_passes() -> None:
    """C0 tries to commit before it revokes t-0. Kafka promises delivery at least once only."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.commit_failed(2.2, C0, offset=20, error="COMMIT_FAILED")
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_revocation_after_a_long_wait_passes() -> None:
    """C0 revokes t-0 5 s after its last records. C0 may have tried a commit that left no row.

    A commit leaves no row if C0 finds no coordinator, or gets no answer.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.revoked(7, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_lost_partitions_and_groups_that_never_commit_need_no_commit() -> None:
    """A member that lost its partitions cannot commit, and some groups are set never to commit."""
    lost = begun(offset=10)
    lost.consumed(2, C0, first=10, last=19)
    lost.revoked(3, C0, lost=True)
    assert check(lost).outcome is not CheckOutcome.VIOLATED

    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.revoked(3, C0)
    without_commits = {"g": replace(CONTEXT.groups["g"], commits=False)}
    report = check(rows, replace(CONTEXT, groups=without_commits))
    assert report.outcome is not CheckOutcome.VIOLATED


def test_position_without_records_needs_no_commit() -> None:
    """C0 processes no record, so its position is still the committed offset."""
    rows = begun(offset=10)
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED
