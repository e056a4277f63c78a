"""The check `processing` judges what a member reads, delivers and commits in one assignment.

An assignment begins with the row that gives a member its partitions. It ends when these partitions
are revoked or lost. During an assignment a consumer must do these steps in order:

1. It fetches the committed offset, and begins to read there.
2. It delivers the records to its application without a gap.
3. It commits before it gives the partition back.

A consumer that breaks this order has a bug, even if the group loses no record because of the bug.

Each test writes the trace of a consumer, C0, by hand. The first number of each row is its time in
seconds. The outcome of the check is PASS only if there was something to judge. For example, records
are due if the group has committed offsets beyond them. Otherwise the outcome is NOTHING_SEEN. Some
of the short traces here have nothing of this kind. So a test of a correct consumer only asserts
that the outcome is not VIOLATED.
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
            # A member that must revoke its partitions may first try to commit, for this time.
            commit_patience_us=5_000_000,
        )
    },
    in_virtual_time=True,
)


def check(rows: Rows, context: CheckContext = CONTEXT) -> CheckReport:
    """Return the check's report of the rows."""
    checker = Processing(context)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def only_finding(rows: Rows) -> str:
    """Return the summary of the only finding, without the group and the partition.

    For example, the result is "C0 began at 0" for the finding "g, t-0: C0 began at 0". The word
    "it" in a summary stands for the partition t-0.
    """
    report = check(rows)
    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert (finding.group, finding.partition) == ("g", "t-0")
    assert finding.evidence
    return finding.summary.removeprefix("g, t-0: ")


def begun(*, offset: int) -> Rows:
    """Return rows of C0, which gets t-0 in generation 1, and begins at the committed offset."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=offset)
    rows.position_reset(1.1, C0, offset=offset)
    return rows


# -- positions -----------------------------------------------------------------------------------


def test_member_that_reads_on_from_its_committed_offset_passes() -> None:
    """C0 has two assignments, and begins both at the committed offset.

    In the second assignment, at 6 s, its position is out of the range of the leader's log. So C0
    goes back to the earliest offset, which is right.
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
    """The coordinator answers -1, because nothing is committed. So `auto.offset.reset` decides."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=-1)
    rows.position_reset(1.2, C0, offset=7, cause="latest")
    rows.consumed(2, C0, first=7, last=9)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_offset_fetched_in_an_earlier_assignment_is_found() -> None:
    """C0 sends an OffsetFetch in generation 1, and uses the answer in generation 2.

    This is a bug, because another member may have committed another offset since generation 1.
    Kafka's consumer compares the generations in PendingCommittedOffsetRequest.sameRequest.
    """
    rows = begun(offset=10)
    rows.revoked(1.2, C0)
    rows.fetched(1.3, C0, offset=10)
    rows.assigned(2, C0, generation=2)
    rows.position_reset(2.1, C0, offset=10)

    assert only_finding(rows) == (
        f"{C0} began at the committed offset 10, but it fetched none in this assignment"
    )


def test_position_that_is_not_the_fetched_offset_is_found() -> None:
    """C0 fetches 10 and begins at 12. Perhaps 12 is the committed offset of another partition."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=10)
    rows.position_reset(1.1, C0, offset=12)

    assert only_finding(rows) == (
        f"{C0} began at the committed offset 12, but it fetched 10 in this assignment"
    )


def test_reset_although_an_offset_is_committed_is_found() -> None:
    """C0 begins at the earliest offset although 10 is committed.

    No record is lost, but C0 processes the records 0 to 9 again.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=10)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")

    assert only_finding(rows) == (
        f"{C0} began at 0 (earliest), although it had fetched the committed offset 10"
    )


def test_reset_before_the_committed_offset_is_known_is_found() -> None:
    """C0 has no answer to an OffsetFetch, so it cannot know that nothing is committed."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.position_reset(1.1, C0, offset=0, cause="earliest")

    assert only_finding(rows) == (
        f"{C0} began at 0 (earliest), and had not fetched the committed offset in this assignment"
    )


def test_committed_offset_in_the_middle_of_an_assignment_is_found() -> None:
    """C0 has the position 20, and goes back to the committed offset 10.

    A member may use the committed offset only while it has no position.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.fetched(3, C0, offset=10)
    rows.position_reset(3, C0, offset=10)

    assert only_finding(rows) == f"{C0} went from 20 to a committed offset, 10"


# -- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [(15, 24), (25, 29)])
def test_records_that_do_not_follow_the_last_ones_are_found(first: int, last: int) -> None:
    """C0 reads the records 10 to 19. Then it repeats 15 to 19, or leaves out 20 to 24.

    In both cases C1 processes all records, so that there are no unprocessed records, which would be
    another finding.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.assigned(2.1, C1)
    rows.fetched(2.2, C1, offset=10)
    rows.position_reset(2.2, C1, offset=10)
    rows.consumed(2.3, C1, first=10, last=29)
    rows.consumed(3, C0, first=first, last=last)

    assert only_finding(rows) == f"{C0} got records {first} to {last} while its position was 20"


def test_records_of_a_fetch_from_before_the_rebalance_are_found() -> None:
    """C0 delivers records that it fetched in its first assignment.

    In its second assignment C0 begins at 0 again, because it has never committed. Then it delivers
    the records 20 to 29, which it had fetched at its old position.
    """
    rows = begun(offset=0)
    rows.consumed(2, C0, first=0, last=19)
    # C0 tries to commit, as it must before a revocation.
    rows.commit_failed(2.1, C0, offset=20, error="TIMED_OUT")
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2)
    rows.fetched(3.2, C0, offset=0)
    rows.position_reset(3.2, C0, offset=0)
    rows.consumed(3.3, C0, first=20, last=29)

    assert only_finding(rows) == f"{C0} got records 20 to 29 while its position was 0"


@pytest.mark.parametrize("lost", [False, True])
def test_records_of_a_partition_that_is_gone_are_found(lost: bool) -> None:
    """C0 delivers records of t-0 after it has given t-0 back."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(2.5, C0, offset=20)
    rows.revoked(3, C0, lost=lost)
    rows.consumed(4, C0, first=20, last=29)

    assert only_finding(rows) == f"{C0} got records 20 to 29 of it, which was not assigned to it"


def test_position_of_a_partition_that_is_gone_is_found() -> None:
    """C0 sets a position in t-0 after it has given t-0 back.

    A late answer to a ListOffsets request may cause this.
    """
    rows = begun(offset=10)
    rows.revoked(3, C0)
    rows.position_reset(4, C0, offset=0, cause="earliest")

    assert only_finding(rows) == f"{C0} set a position, 0, in it, which was not assigned to it"


def test_records_from_before_a_reset_may_be_processed_after_it() -> None:
    """C0's application already has the records 20 to 24 when C0 resets its position to 0.

    So C0 may process these records first, and then the records from 0 on.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.position_reset(3, C0, offset=0, cause="earliest")
    rows.consumed(3.1, C0, first=20, last=24)
    rows.consumed(4, C0, first=0, last=9)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_new_process_of_a_member_begins_anew() -> None:
    """C0 is killed and starts again, which is incarnation 1 of this node.

    The first process never revokes its partition. The second process begins at 10 again, although
    the first process had the position 20. Both processes are right.
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
    """The records 15 to 19 are delivered twice, but the check judges this in virtual time only.

    In real time rows may be missing. Real producers also write markers, which end transactions. A
    marker has an offset, but is never delivered.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.consumed(3, C0, first=15, last=24)

    in_real_time = replace(CONTEXT, in_virtual_time=False)
    assert check(rows, in_real_time).outcome is not CheckOutcome.VIOLATED


# -- commits -------------------------------------------------------------------------------------


def test_commit_of_records_that_were_not_delivered_is_found() -> None:
    """C0 commits 25 when it has delivered only the records up to 19.

    If C0 died now, no member would process the records 20 to 24.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(3, C0, offset=25)
    rows.consumed(4, C0, first=20, last=29)

    assert only_finding(rows) == (
        f"{C0} committed 25 in generation 1, in which its positions were 10 to 20"
    )


def test_commit_of_an_older_assignment_in_a_new_generation_is_found() -> None:
    """C0 commits 20 for t-0 in generation 2, in which t-0 belongs to another member.

    The commit would overwrite the commits of the other member.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.committed(2.1, C0, offset=20)
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    rows.committed(4, C0, offset=20, generation=2)

    assert only_finding(rows) == f"{C0} committed 20 in generation 2, in which it had no position"


def test_commit_that_waited_for_the_coordinator_is_excused() -> None:
    """As with Kafka's client, a commit may begin in one generation, and name a newer one.

    1. C0 loses its coordinator at 2.1 s. C0 calls commitAsync for offset 20. This commit waits
       until C0 has found the coordinator.
    2. The group rebalances, which begins generation 2.
    3. At 4 s C0 sends the waiting commit. Only now the commit gets its generation, which is 2.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.add(2.1, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", peer="broker-0")
    # Another commit of 20, which C0 makes because of the revocation.
    rows.committed(2.5, C0, offset=20)
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    # The waiting commit.
    rows.committed(4, C0, offset=20, generation=2)

    report = check(rows)

    assert report.outcome is not CheckOutcome.VIOLATED
    assert report.excused == {STALE_COMMIT: 1}


def test_answer_to_a_commit_may_come_after_the_rebalance() -> None:
    """C0 sends a commit in generation 1, and gets the answer in generation 2.

    The row of the answer names generation 1, which the commit has named.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    # C0 tries to commit, as it must before a revocation.
    rows.commit_failed(2.1, C0, offset=20, error="REQUEST_TIMED_OUT")
    rows.revoked(3, C0)
    rows.assigned(3.1, C0, generation=2, names=["t-1"])
    rows.committed(4, C0, offset=20)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


# -- the commit before a revocation --------------------------------------------------------------


def test_revocation_without_a_commit_is_found() -> None:
    """C0 revokes t-0 without a commit, so the next owner processes the records 10 to 19 again."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.revoked(3, C0)

    assert only_finding(rows) == f"{C0} revoked it at position 20 without a commit"


@pytest.mark.parametrize(
    ("isr", "is_loss_allowed", "excused"), [([0], True, {LOST_POSITION: 1}), ([0, 1], False, {})]
)
def test_position_behind_the_end_of_a_log_that_lost_data_is_not_committed(
    isr: list[int], is_loss_allowed: bool, excused: dict[str, int]
) -> None:
    """broker-0 leads t-0 again after a power loss, with a log that ends before C0's position.

    Until C0's position is reset, C0 has no valid position that it could commit. So the missing
    commit is excused if Kafka allows the loss of data. Kafka allows it only if broker-0 was alone
    in the ISR.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    elected = TraceKind.LEADER_ELECTED
    detail: dict[str, object] = {"isr": isr, "reason": "broker unfenced"}
    rows.add(2.1, "controller", elected, partition="t-0", peer="broker-0", detail=detail)
    rows.add(2.2, "driver", TraceKind.NODE_KILLED, peer="broker-0", cause="power loss")
    rows.add(2.8, "controller", elected, partition="t-0", peer="broker-0", detail=detail)
    rows.revoked(3, C0)

    report = check(rows)

    assert (report.outcome is CheckOutcome.VIOLATED) == (not is_loss_allowed)
    assert report.excused == excused


def test_revocation_after_an_older_commit_is_found() -> None:
    """C0 has processed the records up to 19, but commits only 15 before the revocation."""
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=14)
    rows.consumed(2.1, C0, first=15, last=19)
    rows.committed(2.2, C0, offset=15)
    rows.revoked(3, C0)

    assert only_finding(rows) == f"{C0} revoked it at position 20 after a commit of 15"


def test_older_commit_may_be_answered_behind_the_last_one() -> None:
    """The answers to two commits may come in another order than the commits began, as with Kafka.

    1. C0 begins to commit 15 while it does not know its coordinator. This commit waits.
    2. C0 finds the coordinator, and commits 20, because of the revocation.
    3. C0 sends the waiting commit of 15.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=14)
    rows.consumed(2.1, C0, first=15, last=19)
    rows.committed(2.2, C0, offset=20)
    rows.committed(2.3, C0, offset=15)
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_revocation_after_a_failed_commit_passes() -> None:
    """C0 tries to commit before it revokes t-0. This is enough, although the commit fails.

    The next owner processes the records again. Kafka allows this, because it promises only that
    each record is delivered at least once.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.commit_failed(2.2, C0, offset=20, error="COMMIT_FAILED")
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_revocation_after_a_long_wait_passes() -> None:
    """C0 revokes t-0 without a commit, but 5 s (`commit_patience_us`) after its last records.

    C0 may have tried to commit all this time. An attempt leaves no row if C0 finds no coordinator,
    or gets no answer.
    """
    rows = begun(offset=10)
    rows.consumed(2, C0, first=10, last=19)
    rows.revoked(7, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_lost_partitions_and_groups_that_never_commit_need_no_commit() -> None:
    """Two kinds of consumers give up a partition without a commit, and are right.

    - A member that has lost its partitions cannot commit any more.
    - The experiment file may say that the members of a group never commit.
    """
    lost = begun(offset=10)
    lost.consumed(2, C0, first=10, last=19)
    lost.revoked(3, C0, lost=True)
    assert check(lost).outcome is not CheckOutcome.VIOLATED

    revoked = begun(offset=10)
    revoked.consumed(2, C0, first=10, last=19)
    revoked.revoked(3, C0)
    never_commits = {"g": replace(CONTEXT.groups["g"], commits=False)}
    report = check(revoked, replace(CONTEXT, groups=never_commits))
    assert report.outcome is not CheckOutcome.VIOLATED


def test_position_without_records_needs_no_commit() -> None:
    """C0 processes no record. Its position is still the committed offset, so it need not commit."""
    rows = begun(offset=10)
    rows.revoked(3, C0)

    assert check(rows).outcome is not CheckOutcome.VIOLATED
