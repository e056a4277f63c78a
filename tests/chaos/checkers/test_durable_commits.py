"""The durable-commits checker judges whether acknowledged commits of a group are kept.

In most tests the consumer C0 commits 100 and then 200 for partition t-0. The commits are
acknowledged at 2 s and 3 s. Later the committed offset is fetched, by a consumer or by the run
itself at its end (the verification). The checker judges whether this fetch may return the offset
that it returns. Here it must return 200, unless a later commit, a deletion or an allowed loss of
data explains another offset.

Each test writes a trace by hand. The first number of a row is its time in seconds. Where a
docstring says "Planted bug", it describes a bug that would leave such a trace. References such as
BEHAVIOUR 6.1 name a file of docs/kafka and a section.
"""

from dataclasses import replace

import msgspec
import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.durable_commits import DurableCommits
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=("consumer-g-0", "consumer-g-1"), offsets_partition=OFFSETS_0, commits=True
        )
    }
)
# The two consumers of the group. The member id of C0 is f"{C0}-id".
C0, C1 = "consumer-g-0", "consumer-g-1"


def check(rows: Rows, clock_error_us: int = 0) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    `seen` of the report counts the cases that the checker had to judge.
    """
    checker = DurableCommits(replace(CONTEXT, clock_error_us=clock_error_us))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def two_commits() -> Rows:
    """Return rows of C0, which gets t-0, and commits 100 and then 200 at broker-0."""
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=100)
    rows.committed(3, C0, offset=200)
    return rows


def verify(rows: Rows, time_s: float, offset: int, peer: str = "broker-1") -> None:
    """Let the run fetch the committed offset at its end. The broker `peer` answers with `offset`.

    An offset of -1 means that the group has no committed offset. By default broker-1 answers,
    because no test replaces broker-1 as the coordinator. The answer of a replaced coordinator would
    be excused.
    """
    rows.stage(time_s, "verifying")
    rows.fetched(time_s + 0.1, "admin-0", offset=offset, peer=peer, cause="verification")


def test_return_of_the_last_acknowledged_commit_passes() -> None:
    """broker-1 takes over at 4 s.

    The log of broker-1 has both commits, so broker-1 returns 200.
    """
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    verify(rows, 10, offset=200)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_acknowledged"] == 2
    assert report.seen["fetches_judged"] == 1


def test_return_of_an_older_commit_after_a_failover_is_found_with_its_evidence() -> None:
    """Planted bug: broker-0 acknowledges 200 before broker-1 has this commit.

    So broker-1 takes over with the commit of 100 only.
    """
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=1)
    verify(rows, 10, offset=100)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "offset 200 was acknowledged by broker-0 to consumer-g-0" in finding.summary
    assert "a later fetch returned offset 100" in finding.summary
    assert [row.kind for row in finding.evidence] == [
        TraceKind.OFFSETS_COMMITTED,
        TraceKind.OFFSETS_COMMITTED,
        TraceKind.BECAME_LEADER,
        TraceKind.OFFSETS_FETCHED,
    ]
    times_us = [row.time_us for row in finding.evidence]
    assert times_us == sorted(times_us)


def test_offset_without_a_commit_is_found_also_before_the_first_commit() -> None:
    """Planted bug: a coordinator that loads its log ignores the records of deletions.

    So the coordinator returns an offset that was deleted before the run.
    """
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=17)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "a fetch returned offset 17, which nobody is known" in report.findings[0].summary


def test_offset_whose_commit_becomes_known_later_passes() -> None:
    """C1 fetches 17, and only later C0 reports that it has tried to commit 17.

    This is right. A new coordinator also loads records that are not on all replicas yet. So it
    knows a commit that was never acknowledged.
    """
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    rows.assigned(1.1, C1)
    rows.fetched(1.2, C1, offset=17)
    rows.commit_failed(2, C0, offset=17, error="REQUEST_TIMED_OUT")

    # Without an acknowledged commit nothing is judged, so the outcome is not PASS either.
    assert check(rows).outcome is not CheckOutcome.VIOLATED


def test_commit_that_vanished_altogether_is_found() -> None:
    """Planted bug: a coordinator fails to load the group, and goes on without its offsets."""
    rows = two_commits()
    verify(rows, 10, offset=-1)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "returned no offset" in report.findings[0].summary


@pytest.mark.parametrize("cause", ["deleted by an administrator", "its topic was deleted"])
def test_offset_that_was_deleted_may_be_missing_or_come_back(cause: str) -> None:
    """The offset is deleted at 4 s. So the fetch may return no offset (-1).

    But the record of the deletion may be lost. Then the next coordinator still has the commit of
    200, and the fetch returns 200.
    """
    for returned in (-1, 200):
        rows = two_commits()
        rows.offset_removed(4, cause=cause)
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is CheckOutcome.PASS, returned


def test_commit_of_an_administrator_counts_like_any_other() -> None:
    """After C0's commits an administrator commits 0 and then 50. The fetch must return 50."""
    for returned, outcome in ((50, CheckOutcome.PASS), (200, CheckOutcome.VIOLATED)):
        rows = two_commits()
        rows.admin_commit(4, offset=0, error="NONE")
        rows.admin_commit(5, offset=50, error="NONE")
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is outcome, returned


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED", "REQUEST_TIMED_OUT"])
def test_unanswered_commit_of_an_administrator_may_count(error: str) -> None:
    """The commit of 50 may or may not have been carried out, so the fetch may return 50 or 200."""
    for returned in (50, 200):
        rows = two_commits()
        rows.admin_commit(4, offset=50, error=error)
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is CheckOutcome.PASS, returned


def test_refused_commit_of_an_administrator_does_not_count() -> None:
    """The coordinator refuses the commit of 50, because the group has members.

    So the fetch must not return 50.
    """
    rows = two_commits()
    rows.admin_commit(4, offset=50, error="UNKNOWN_MEMBER_ID")
    verify(rows, 10, offset=50)
    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_offset_after_the_deletion_is_not_excused_by_it() -> None:
    """A deletion excuses neither the loss of a later commit nor the return of an older commit.

    - In the first trace C0 commits 300 and 400 after the deletion, and both are missing.
    - In the second trace the fetch returns 100, which 200 had replaced before the deletion.
    """
    later_commit_lost = two_commits()
    later_commit_lost.offset_removed(4)
    later_commit_lost.committed(5, C0, offset=300)
    later_commit_lost.committed(6, C0, offset=400)
    verify(later_commit_lost, 10, offset=-1)
    assert check(later_commit_lost).outcome is CheckOutcome.VIOLATED

    older_commit_returned = two_commits()
    older_commit_returned.offset_removed(4)
    verify(older_commit_returned, 10, offset=100)
    assert check(older_commit_returned).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize(
    ("is_transactional", "is_stored", "is_found"),
    [(True, False, False), (True, True, True), (False, False, True)],
)
def test_deletion_removes_acknowledged_offsets_that_wait_for_their_marker(
    is_transactional: bool, is_stored: bool, is_found: bool
) -> None:
    """An administrator deletes the offsets of a group, and the offset of t-0 is missing.

    There is a row for the deletion of the offset of t-1, but none for that of t-0. A deletion
    leaves no row of an offset that waits for a marker: the offset is in a transaction, and is
    stored only when the marker ends the transaction. So the missing offset is excused only in a
    group with transactions (`is_transactional`), and only if no row shows that 200 was stored
    (`is_stored` is False).
    """
    rows = two_commits()
    if is_stored:
        rows.commit_stored(3.5, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=200)
        # This offset was stored by a marker, and not by an append of its own. So the row has no
        # append id.
        rows.rows[-1] = msgspec.structs.replace(rows.rows[-1], correlation_id=None)
    rows.offset_removed(4, partition="t-1")
    verify(rows, 10, offset=-1, peer="broker-0")

    transaction_partitions = ("__transaction_state-0",) if is_transactional else ()
    group = replace(CONTEXT.groups["g"], transaction_partitions=transaction_partitions)
    checker = DurableCommits(replace(CONTEXT, groups={"g": group}))
    for row in rows.rows:
        checker.observe(row)
    report = checker.finish()
    assert (report.outcome is CheckOutcome.VIOLATED) is is_found


@pytest.mark.parametrize(
    ("removed_s", "outcome"),
    [
        (2.5, CheckOutcome.PASS),  # between the answers to the two commits
        (1.5, CheckOutcome.VIOLATED),  # before the second commit can have been sent
        (None, CheckOutcome.VIOLATED),
    ],
)
def test_deletion_removes_a_commit_in_flight_that_is_acknowledged_later(
    removed_s: float | None, outcome: CheckOutcome
) -> None:
    """An administrator deletes the group's offsets at `removed_s`, and a later fetch returns none.

    C0's commit of 200 is acknowledged at 3 s. C0 has sent this commit after the answer to its
    commit of 100, at 2 s. So a deletion at 2.5 s may have removed the commit of 200 before it was
    stored, although it was acknowledged all the same. A deletion at 1.5 s cannot have removed it.
    """
    rows = two_commits()
    if removed_s is not None:
        rows.pending_commit_removed(removed_s)
    verify(rows, 10, offset=-1, peer="broker-0")
    assert check(rows).outcome is outcome


def test_expired_offset_of_a_live_group_is_found() -> None:
    """Offsets expire only in an empty group.

    This group has a member, so its offset must not expire.
    """
    rows = two_commits()
    rows.offset_removed(4, cause="expired")
    verify(rows, 10, offset=-1)
    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize(
    ("empty_s", "outcome"), [(60.0, CheckOutcome.PASS), (58.0, CheckOutcome.VIOLATED)]
)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_offset_may_expire_once_its_group_was_empty_for_long(
    empty_s: float, outcome: CheckOutcome, is_loaded: bool
) -> None:
    """Offsets expire here when their group has been empty for 60 s (`offsets.retention.minutes`).

    The group is empty from 4 s on, and its offset is removed `empty_s` later. With `is_loaded`,
    broker-1 takes over in between. The 60 s do not begin anew because of this.
    """
    rows = two_commits()
    rows.group_state(4, "broker-0", "PreparingRebalance", "Empty")
    remover = "broker-0"
    if is_loaded:
        remover = "broker-1"
        rows.leads(20, remover, leader_epoch=1, log_end=2)
        rows.group_loaded(20, remover, state="Empty")
    rows.offset_removed(4 + empty_s, cause="expired", node=remover)
    verify(rows, 100, offset=-1)

    checker = DurableCommits(replace(CONTEXT, offsets_retention_us=60_000_000))
    for row in rows.rows:
        checker.observe(row)
    assert checker.finish().outcome is outcome


@pytest.mark.parametrize(
    ("loaded_generation", "outcome"), [(2, CheckOutcome.PASS), (4, CheckOutcome.VIOLATED)]
)
def test_age_of_an_empty_group_is_that_of_the_loaded_generation(
    loaded_generation: int, outcome: CheckOutcome
) -> None:
    """The group becomes empty twice: in generation 2 at 4 s, and in generation 4 at 20 s.

    The coordinator loads the group again, and removes its offset at 64 s.

    - If generation 4 could not be stored, the coordinator has loaded generation 2. Then the group
      has been empty for 60 s, and the removal is right.
    - If the coordinator has loaded generation 4, the removal is too early.
    """
    rows = two_commits()
    rows.group_state(4, "broker-0", "PreparingRebalance", "Empty", generation=2)
    rows.group_state(5, "broker-0", "Empty", "PreparingRebalance", generation=2)
    rows.group_state(20, "broker-0", "PreparingRebalance", "Empty", generation=4)
    rows.leads(30, "broker-0", leader_epoch=1, log_end=2)
    rows.group_loaded(30, "broker-0", state="Empty", generation=loaded_generation)
    rows.offset_removed(64, cause="expired", node="broker-0")
    verify(rows, 100, offset=-1)

    checker = DurableCommits(replace(CONTEXT, offsets_retention_us=60_000_000))
    for row in rows.rows:
        checker.observe(row)
    assert checker.finish().outcome is outcome


def test_value_without_a_commit_is_found() -> None:
    """Planted bug: the coordinator stores the offset of another partition as that of t-0."""
    rows = two_commits()
    verify(rows, 10, offset=777)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nobody is known to have committed" in report.findings[0].summary


@pytest.mark.parametrize(("previous_answer_s", "findings"), [(3, 0), (6, 1)])
def test_commit_sent_before_a_loss_of_data_may_be_acknowledged_after_it(
    previous_answer_s: float, findings: int
) -> None:
    """broker-0 has the last replica in sync when it loses power.

    At 5 s it leads again, without data. At 7 s broker-1, an earlier leader that was paused,
    acknowledges C0's commit of 200. This commit may have been in the lost log. But C0 sends a
    commit only after the answer to its previous commit. If that answer came at 6 s, C0 has sent the
    commit of 200 after the loss, and it must not be missing.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=100)
    rows.elected(2.5, "broker-0", isr=[0])
    rows.add(4, "driver", TraceKind.NODE_KILLED, peer="broker-0", cause="power loss")
    rows.elected(5, "broker-0", isr=[0])
    if previous_answer_s > 5:
        rows.committed(previous_answer_s, C0, offset=150)
    rows.committed(7, C0, offset=200, peer="broker-1")
    verify(rows, 10, offset=-1, peer="broker-0")

    assert check(rows).findings_total == findings


@pytest.mark.parametrize(("sent_in_generation", "findings"), [(1, 0), (2, 1)])
def test_transaction_older_than_a_loss_of_data_may_end_in_the_next_generation(
    sent_in_generation: int, findings: int
) -> None:
    """broker-0 has the last replica in sync when it loses power.

    At 5 s it leads again, without data. C0 gets its assignment of generation 2 at 6 s. At 7 s it
    learns that its transaction with offset 200 is committed.

    - If the transaction is of generation 1, the offset may have been in the lost log.
    - If the transaction is of generation 2, it began after the loss. So the offset must not be
      missing.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=100)
    rows.elected(2.5, "broker-0", isr=[0])
    rows.add(4, "driver", TraceKind.NODE_KILLED, peer="broker-0", cause="power loss")
    rows.elected(5, "broker-0", isr=[0])
    rows.assigned(6, C0, generation=2)
    rows.committed(7, C0, offset=200, generation=sent_in_generation)
    verify(rows, 10, offset=-1, peer="broker-0")

    group = replace(CONTEXT.groups["g"], transaction_partitions=("__transaction_state-0",))
    checker = DurableCommits(replace(CONTEXT, groups={"g": group}))
    for row in rows.rows:
        checker.observe(row)
    assert checker.finish().findings_total == findings


def test_loss_seen_by_the_next_owner_is_found_without_a_verification() -> None:
    """C1 gets t-0 during the run, and fetches 100 although 200 was acknowledged."""
    rows = two_commits()
    rows.assigned(5, C1)
    rows.fetched(5.1, C1, offset=100)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_clients_own_rewind_passes() -> None:
    """C0 commits 50 after 200, so the fetch must return 50."""
    rows = two_commits()
    rows.committed(4, C0, offset=50)
    verify(rows, 10, offset=50)

    assert check(rows).outcome is CheckOutcome.PASS


def test_return_of_the_value_before_a_rewind_is_found() -> None:
    """C0 commits 50 after 200, and the fetch returns 200."""
    rows = two_commits()
    rows.committed(4, C0, offset=50)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize("returned", [200, 300])
def test_timed_out_commit_may_or_may_not_be_returned(returned: int) -> None:
    """The commit of 300 times out, so it may or may not be stored.

    The fetch may return 200 or 300.
    """
    rows = two_commits()
    rows.commit_failed(9, C0, offset=300, error="REQUEST_TIMED_OUT")
    verify(rows, 10, offset=returned)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_of_unknown_outcome"] == 1


@pytest.mark.parametrize("error", ["REQUEST_TIMED_OUT", "NOT_COORDINATOR"])
def test_failed_commit_is_replaced_by_a_later_acknowledged_commit(
    error: str,
) -> None:
    """The coordinator answers the commit of 300 with an error, and then acknowledges 400.

    So the commit of 300 is in the log before that of 400, or not at all. The fetch must not return
    300.
    """
    rows = two_commits()
    rows.commit_failed(4, C0, offset=300, error=error)
    rows.committed(5, C0, offset=400)
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED"])
def test_commit_that_its_client_gave_up_may_take_effect_behind_a_newer_one(error: str) -> None:
    """The client has given up waiting for the answer to its commit of 300, and then commits 400.

    The request for 300 may still be on its way. A broker that was paused may read this request from
    its socket after the request for 400. So the fetch may return 300.
    """
    rows = two_commits()
    rows.commit_failed(4, C0, offset=300, error=error)
    rows.committed(5, C0, offset=400)
    verify(rows, 10, offset=300)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["fetches_of_a_value_that_timed_out"] == 1


@pytest.mark.parametrize("killed_s", [3.99, 4.2])
def test_commit_that_died_with_its_broker_is_no_excuse(killed_s: float) -> None:
    """As in the test above, but here broker-0 is killed at about 4 s.

    The request for 300 dies with broker-0, and cannot take effect after 400. The row of the kill
    may come before or after the row of the failed commit.
    """
    rows = two_commits()
    rows.add(killed_s, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    rows.commit_failed(4, C0, offset=300, error="DISCONNECTED")
    rows.committed(5, C0, offset=400, peer="broker-1")
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_sent_after_a_kill_of_its_broker_may_take_effect_later() -> None:
    """broker-0 was killed at 1.5 s, which was before the request for 300.

    The request went to the next process of broker-0, which still runs. So the request may take
    effect after 400.
    """
    rows = two_commits()
    rows.add(1.5, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    rows.commit_failed(4, C0, offset=300, error="DISCONNECTED")
    rows.committed(5, C0, offset=400)
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.PASS


def test_value_whose_committer_gives_up_later_is_no_loss() -> None:
    """C1 fetches 300 at 10.1 s, when the trace has no commit of 300 yet.

    At 33 s C0 reports that it got no answer to its commit of 300. So the fetch of 300 was right.
    """
    rows = two_commits()
    rows.leads(8, "broker-1", leader_epoch=1, log_end=3)
    rows.assigned(10, C1)
    rows.fetched(10.1, C1, offset=300, peer="broker-1")
    rows.commit_failed(33, C0, offset=300, error="TIMED_OUT")
    rows.stage(50, "stopping")

    assert check(rows).outcome is CheckOutcome.PASS


def test_value_without_a_committer_in_time_is_reported_during_the_run() -> None:
    """C1 fetches 300 at 10.1 s, and the trace has no commit of 300.

    As in the test above, a client may still wait for the answer to its commit of 300. But the
    client waits for 30 s at most (its request timeout). So the checker reports the finding when it
    observes the first row after 40.1 s.
    """
    rows = two_commits()
    rows.assigned(10, C1)
    rows.fetched(10.1, C1, offset=300)
    checker = DurableCommits(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    assert checker.findings_total == 0

    # At 40 s it is too early. Besides, rows of messages do not count, because a run may write none.
    checker.observe(rows.add(40, C1, TraceKind.REQUEST_SENT, api="Heartbeat", group="g"))
    assert checker.findings_total == 0
    checker.observe(rows.add(41, "driver", TraceKind.RUN_STAGE, detail={"stage": "healing"}))

    assert checker.findings_total == 1


def split_with_a_commit_on_each_side(*, acknowledged: bool) -> Rows:
    """Return rows of a network split with a coordinator on each side.

    - C0 stays with broker-0, the old coordinator, and commits 300 and 500 there. `acknowledged`
      says whether broker-0 acknowledges these commits.
    - broker-1 leads from 11 s on, and gives t-0 to C1. C1 fetches 200 and commits 250.
    """
    rows = two_commits()
    rows.leads(11, "broker-1", leader_epoch=1, log_end=2)
    if acknowledged:
        rows.committed(12, C0, offset=300, peer="broker-0")
        rows.committed(40, C0, offset=500, peer="broker-0")
    else:
        rows.commit_failed(17, C0, offset=300, error="REQUEST_TIMED_OUT", peer="broker-0")
        rows.commit_failed(45, C0, offset=500, error="REQUEST_TIMED_OUT", peer="broker-0")
    rows.assigned(56, C1)
    rows.fetched(56.1, C1, offset=200, peer="broker-1")
    rows.committed(58, C1, offset=250, peer="broker-1")
    verify(rows, 100, offset=250)
    return rows


def test_split_network_whose_old_side_times_out_passes() -> None:
    """No replica fetches from the old coordinator, so the commits there time out, as in Kafka."""
    report = check(split_with_a_commit_on_each_side(acknowledged=False))

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["offsets_of_unknown_outcome"] == 2


def test_split_network_in_which_both_sides_acknowledge_is_found() -> None:
    """Planted bug: broker-0 acknowledges commits that no other replica has.

    Kafka waits until all replicas in sync have a commit. A user of the lab can switch this waiting
    off with the guard `high_watermark_gate`.
    """
    report = check(split_with_a_commit_on_each_side(acknowledged=True))

    assert report.outcome is CheckOutcome.VIOLATED
    finding = report.findings[0]
    assert "offset 500 was acknowledged by broker-0 to consumer-g-0" in finding.summary
    assert "a later fetch returned offset 200" in finding.summary


def test_definite_failure_does_not_count_as_written() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS means that nothing was stored. So the fetch of 300 is wrong."""
    rows = two_commits()
    rows.commit_failed(4, C0, offset=300, error="COORDINATOR_LOAD_IN_PROGRESS")
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_acknowledged_while_the_fetch_was_in_flight_may_be_missing() -> None:
    """The fetch takes from 10 s to 10.1 s, and the commit of 300 is acknowledged in between.

    The broker may have answered the fetch before it stored 300, so the fetch may return 200.
    """
    rows = two_commits()
    rows.stage(10, "verifying")
    rows.committed(10.05, C0, offset=300)
    rows.fetched(10.1, "admin-0", offset=200, cause="verification")

    assert check(rows).outcome is CheckOutcome.PASS


def test_fetch_begins_at_its_request_and_not_at_the_assignment() -> None:
    """C1 gets t-0 at 1 s, but sends its fetch only at 4 s, after the commit of 200.

    So C1 must get 200. If there were no row of the request, the fetch might have begun at 1 s.
    """
    rows = Rows()
    rows.assigned(1, C1)
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=100)
    rows.committed(3, C0, offset=200)
    rows.add(4, C1, TraceKind.REQUEST_SENT, api="OffsetFetch", group="g", peer="broker-0")
    rows.fetched(4.1, C1, offset=100)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_either_of_two_owners_overlapping_commits_may_be_returned() -> None:
    """C0 and C1 both own t-0, and may send their commits of 200 and 150 at the same time.

    So each of them may be the last commit in the log, although 150 is acknowledged last. The fetch
    may return 200.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.assigned(1, C1)
    rows.committed(2, C0, offset=200)
    rows.committed(2.1, C1, offset=150)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.PASS


def test_next_owners_commit_replaces_the_previous_owners() -> None:
    """C1 gets t-0 after C0's last commit, so C1's commit of 250 is certainly later than 200."""
    rows = two_commits()
    rows.assigned(4, C1)
    rows.committed(5, C1, offset=250)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_stale_answer_of_a_replaced_coordinator_is_counted_and_excused() -> None:
    """broker-0 answers C1 with 200, although 300 was committed at its successor, broker-1.

    Kafka behaves like this, too: a replaced coordinator answers from its memory until it learns of
    its successor (BEHAVIOUR 6.5).
    """
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    rows.committed(5, C0, offset=300, peer="broker-1")
    rows.assigned(6, C1)
    rows.fetched(6.1, C1, offset=200, peer="broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["fetches_from_a_replaced_coordinator"] == 1


@pytest.mark.parametrize(
    ("reloaded_s", "outcome"), [(7, CheckOutcome.PASS), (5.8, CheckOutcome.VIOLATED)]
)
def test_coordinator_that_leads_again_answers_from_its_earlier_load_until_the_next_one(
    reloaded_s: float, outcome: CheckOutcome
) -> None:
    """broker-0 leads again at 5.5 s. It has loaded the group again at `reloaded_s`.

    At 6.1 s broker-0 answers C1 with 200, although 300 was committed at broker-1. Before the load,
    broker-0 may still give this answer from its memory. After the load the answer is a finding.
    """
    rows = two_commits()
    rows.load_completed(0.5, "broker-0", leader_epoch=0)
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    rows.committed(5, C0, offset=300, peer="broker-1")
    rows.leads(5.5, "broker-0", leader_epoch=2, log_end=3)
    rows.load_completed(reloaded_s, "broker-0", leader_epoch=2)
    rows.assigned(6, C1)
    rows.fetched(6.1, C1, offset=200, peer="broker-0")

    assert check(rows).outcome is outcome


@pytest.mark.parametrize(
    ("healed_s", "outcome"), [(59, CheckOutcome.PASS), (50, CheckOutcome.VIOLATED)]
)
def test_replaced_coordinator_may_answer_a_verification_shortly_after_healing(
    healed_s: float, outcome: CheckOutcome
) -> None:
    """After the healing of all faults broker-0 has 5 s to learn that it was replaced.

    The verification fetches from broker-0 at 60 s, and gets the old offset.
    """
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    rows.committed(5, C0, offset=300, peer="broker-1")
    rows.stage(healed_s, "liveness")  # all faults are healed
    verify(rows, 60, offset=200, peer="broker-0")

    assert check(rows).outcome is outcome


def abort_transaction(rows: Rows, time_s: float, offset: int) -> None:
    """Add the row of C0 that its transaction with `offset` was aborted."""
    rows.commit_failed(time_s, C0, offset=offset, error="TRANSACTION_ABORTED")


def test_return_of_the_offset_of_an_aborted_transaction_is_found() -> None:
    """Planted bug: the end of an aborted transaction commits the transaction's offset."""
    rows = two_commits()
    abort_transaction(rows, 4, offset=300)
    verify(rows, 10, offset=300)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nobody is known to have committed" in report.findings[0].summary


def test_aborted_transaction_leaves_the_earlier_commit() -> None:
    """The transaction with 300 is aborted, so the commit before this transaction counts, 200."""
    rows = two_commits()
    abort_transaction(rows, 4, offset=300)
    verify(rows, 10, offset=200)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_of_unknown_outcome"] == 0


def test_marker_stored_behind_its_answer_is_the_same_commit() -> None:
    """C0's commit of 200 is in a transaction, is acknowledged at 3 s, and is stored at 3.5 s.

    These two rows are about one commit. If the checker took them for two commits, the second commit
    might be later than the commit of 250. This would excuse the fetch of 200.
    """
    rows = two_commits()
    rows.add(
        3.5,
        "broker-0",
        TraceKind.COMMIT_STORED,
        group="g",
        partition="t-0",
        offset=200,
        member=f"{C0}-id",
        generation=1,
        cause="transaction of producer 0",
    )
    rows.committed(4, C0, offset=250)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_stored_while_its_member_died_may_be_returned() -> None:
    """The coordinator stores 300. The member dies before it can write a row about the answer."""
    rows = two_commits()
    rows.add(
        4, "broker-0", TraceKind.COMMIT_STORED, group="g", partition="t-0", offset=300, member="m"
    )
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.PASS


def test_unknown_value_after_the_kill_of_a_member_is_no_violation() -> None:
    """C0 may have committed 333 shortly before it was killed.

    The row of this commit may be lost.
    """
    rows = two_commits()
    rows.add(4, "driver", TraceKind.NODE_KILLED, peer=C0)
    verify(rows, 10, offset=333)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["fetches_of_a_value_nobody_is_known_to_have_committed"] == 1


def test_run_without_commits_reports_that_nothing_was_judged() -> None:
    """The only fetch returns no offset (-1), and there was no commit before this fetch."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=-1)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.note == "no commit was acknowledged"
    assert report.seen["fetches_judged"] == 0
    assert report.seen["fetches_with_no_commit_acknowledged_before"] == 1


def test_members_that_never_commit_are_named_as_the_reason() -> None:
    """The members of this experiment never commit, and the note gives this as the reason.

    The usual note, `no commit was acknowledged`, would read as if commits had been refused.
    """
    readers = replace(CONTEXT.groups["g"], commits=False)
    report = DurableCommits(CheckContext(groups={"g": readers})).finish()

    assert report.note == "no member commits offsets in this experiment"


@pytest.mark.parametrize("clock_error_us", [0, 500, 2_000])
def test_loss_of_the_last_commit_is_found_with_any_clocks(clock_error_us: int) -> None:
    """Each commit has two rows: one of the broker, and 0.3 ms later one of C0.

    The checker must not take the two rows for two commits, even if clocks may differ by more than
    0.3 ms. If it did, the second commit of 100 might be later than the commit of 200. This would
    excuse the fetch of 100.
    """
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    for stored_s, offset in ((2.0, 100), (2.2, 200)):
        rows.add(
            stored_s,
            "broker-0",
            TraceKind.COMMIT_STORED,
            group="g",
            partition="t-0",
            offset=offset,
            member=f"{C0}-id",
            generation=1,
        )
        rows.committed(stored_s + 0.0003, C0, offset=offset)
    rows.leads(4, "broker-1", leader_epoch=1, log_end=1)
    verify(rows, 10, offset=100)

    report = check(rows, clock_error_us)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert TraceKind.COMMIT_STORED in [row.kind for row in finding.evidence]


def check_append(error: str, in_sync: list[int], *, needed: int = 2) -> CheckReport:
    """Return the report of an append that broker-2, the leader, answers with `error`.

    According to the controller only broker-2 is in the ISR.

    - `in_sync` is the ISR that the leader knows, which may be older than that of the controller.
    - `needed` is min.insync.replicas.
    """
    rows = Rows()
    rows.add(1, "controller-100", TraceKind.ISR_CHANGED, partition=OFFSETS_0, detail={"isr": [2]})
    rows.add(
        2,
        "broker-2",
        TraceKind.APPEND_COMPLETED,
        partition=OFFSETS_0,
        leader_epoch=1,
        error=error,
        detail={"records": 1, "isr": in_sync},
    )
    checker = DurableCommits(replace(CONTEXT, min_insync_replicas=needed))
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def test_append_acknowledged_by_a_replica_alone_is_found_before_any_loss() -> None:
    """broker-2 should have answered NOT_ENOUGH_REPLICAS (BEHAVIOUR 6.1).

    The acknowledgement is a finding by itself, before any offset is lost.
    """
    report = check_append("NONE", in_sync=[2])

    (finding,) = report.findings
    assert finding.summary == (
        f"{OFFSETS_0}: broker-2 acknowledged an append with 1 replica(s) in sync, where "
        "min.insync.replicas asks for 2"
    )
    assert [row.kind for row in finding.evidence] == ["isr_changed", "append_completed"]


@pytest.mark.parametrize(
    ("error", "in_sync", "needed"),
    [
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", [2], 2),
        ("REQUEST_TIMED_OUT", [2], 2),
        ("NONE", [2], 1),  # one replica suffices
        ("NONE", [2, 1], 2),  # the leader does not know the controller's ISR yet
    ],
)
def test_append_with_enough_replicas_or_with_an_error_passes(
    error: str, in_sync: list[int], needed: int
) -> None:
    """A leader may answer with an error, and may acknowledge if it knows of enough replicas."""
    assert check_append(error, in_sync, needed=needed).findings_total == 0
