"""The durable-commits checker finds planted losses and excuses what Kafka allows.

In most tests the consumer C0 commits 100 and then 200 for partition t-0, acknowledged at 2 s and
3 s. Later a consumer, or the verification at the end of the run, fetches the committed offset. The
checker judges whether the fetch may return the offset that it returns. "Planted bug" in a docstring
names a bug that the test would find. Citations name a file of docs/kafka and a section.

Terms:

- The coordinator of a group is the broker that leads its offsets partition (a partition of
  `__consumer_offsets`). The leader epoch is the number of this leadership. When another broker
  takes over, it loads (reads) the group from the log.
- The high watermark is the offset below which every in-sync replica (the ISR) has the records.
- A tombstone is a record without a value, which deletes its key.
- A marker is the record that ends a transaction. It makes the transaction's pending offsets
  committed ones.
- The generation is the number of a group's rebalance.
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
C0, C1 = "consumer-g-0", "consumer-g-1"


def check(rows: Rows, clock_error_us: int = 0) -> CheckReport:
    """Return the report of a trace, whose rows the checker observes in the order of time."""
    checker = DurableCommits(replace(CONTEXT, clock_error_us=clock_error_us))
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def two_commits() -> Rows:
    """Return rows of C0, which is assigned t-0 and commits 100, then 200, at broker-0 (epoch 0)."""
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    rows.committed(2, C0, offset=100)
    rows.committed(3, C0, offset=200)
    return rows


def verify(rows: Rows, time_s: float, offset: int, peer: str = "broker-1") -> None:
    """Let the run's last stage fetch the committed offset; `peer` answers with `offset`.

    By default broker-1 answers, because answers of a replaced coordinator may be excused, and no
    broker replaces broker-1.
    """
    rows.stage(time_s, "verifying")
    rows.fetched(time_s + 0.1, "admin-0", offset=offset, peer=peer, cause="verification")


def test_return_of_the_last_acknowledged_commit_passes() -> None:
    """broker-1 takes over at 4 s and has both commits."""
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    verify(rows, 10, offset=200)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_acknowledged"] == 2
    assert report.seen["fetches_judged"] == 1


def test_return_of_an_older_commit_after_a_failover_is_found_with_its_evidence() -> None:
    """Planted bug: broker-0 acknowledged 200 before broker-1 had it; broker-1 has only 100."""
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
    assert [row.time_us for row in finding.evidence] == sorted(
        row.time_us for row in finding.evidence
    )


def test_offset_without_a_commit_is_found_also_before_the_first_commit() -> None:
    """Planted bug: a load that drops tombstones restores offsets deleted before the run."""
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=17)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "a fetch returned offset 17, which nobody is known" in report.findings[0].summary


def test_offset_whose_commit_becomes_known_later_passes() -> None:
    """C1 fetches 17 before C0's commit of 17 has an answer.

    This is legal, because a new coordinator also loads records above the high watermark, such as
    the record of a commit that is not acknowledged yet.
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
    """Planted bug: a load fails, ignores its error, and leaves the group without offsets."""
    rows = two_commits()
    verify(rows, 10, offset=-1)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "returned no offset" in report.findings[0].summary


@pytest.mark.parametrize("cause", ["deleted by an administrator", "its topic was deleted"])
def test_offset_that_was_deleted_may_be_missing_or_come_back(cause: str) -> None:
    """The log may lack the tombstone of the deletion, so a load may restore the commit."""
    for returned in (-1, 200):
        rows = two_commits()
        rows.offset_removed(4, cause=cause)
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is CheckOutcome.PASS, returned


def test_commit_of_an_administrator_counts_like_any_other() -> None:
    """The fetch must return the administrator's last commit, 50.

    The administrator sent 50 after the answers to the commits of 200 and 0, so 50 replaces them.
    """
    for returned, outcome in ((50, CheckOutcome.PASS), (200, CheckOutcome.VIOLATED)):
        rows = two_commits()
        rows.admin_commit(4, offset=0, error="NONE")
        rows.admin_commit(5, offset=50, error="NONE")
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is outcome, returned


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED", "REQUEST_TIMED_OUT"])
def test_unanswered_commit_of_an_administrator_may_count(error: str) -> None:
    """The coordinator may or may not have carried out the commit."""
    for returned in (50, 200):
        rows = two_commits()
        rows.admin_commit(4, offset=50, error=error)
        verify(rows, 10, offset=returned)
        assert check(rows).outcome is CheckOutcome.PASS, returned


def test_refused_commit_of_an_administrator_does_not_count() -> None:
    """The coordinator refuses the commit, because the group has members."""
    rows = two_commits()
    rows.admin_commit(4, offset=50, error="UNKNOWN_MEMBER_ID")
    verify(rows, 10, offset=50)
    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_offset_after_the_deletion_is_not_excused_by_it() -> None:
    """A deletion excuses neither the loss of a later commit nor the return of an older one.

    In the first trace 400, committed after the deletion, is missing. In the second trace the fetch
    returns 100, which the deleted 200 had replaced.
    """
    rows = two_commits()
    rows.offset_removed(4)
    rows.committed(5, C0, offset=300)
    rows.committed(6, C0, offset=400)
    verify(rows, 10, offset=-1)
    assert check(rows).outcome is CheckOutcome.VIOLATED

    rows = two_commits()
    rows.offset_removed(4)
    verify(rows, 10, offset=100)
    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize(
    ("is_transactional", "is_stored", "is_found"),
    [(True, False, False), (True, True, True), (False, False, True)],
)
def test_deletion_removes_acknowledged_offsets_that_wait_for_their_marker(
    is_transactional: bool, is_stored: bool, is_found: bool
) -> None:
    """A deletion removes offsets that wait for their transaction's marker, but writes no row of it.

    The only row of the deletion is about t-1. This row excuses the loss of t-0's offset only if
    that offset was pending, which needs a transactional group. The removal of a stored offset would
    have a row of its own.
    """
    rows = two_commits()
    if is_stored:
        rows.commit_stored(3.5, "broker-0", f"{C0}-id", generation=1, append_id=1, offset=200)
        # The marker stores this offset, and is no append of a commit. So the row has no append id.
        rows.rows[-1] = msgspec.structs.replace(rows.rows[-1], correlation_id=None)
    cause = "deleted by an administrator"
    removed = TraceKind.OFFSET_REMOVED
    rows.add(4, "broker-0", removed, group="g", partition="t-1", cause=cause)
    verify(rows, 10, offset=-1, peer="broker-0")

    transaction_partitions = ("__transaction_state-0",) if is_transactional else ()
    expected = replace(CONTEXT.groups["g"], transaction_partitions=transaction_partitions)
    checker = DurableCommits(replace(CONTEXT, groups={"g": expected}))
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
    """An administrator deletes the group's offsets while C0's commit of 200 is in flight.

    The commit is acknowledged at 3 s all the same, and a later fetch returns no offset. C0 sends
    this commit only after the answer to its first one, at 2 s.
    """
    rows = Rows()
    rows.leads(0.1, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, C0)
    if removed_s == 1.5:
        rows.pending_commit_removed(removed_s)
    rows.committed(2, C0, offset=100)
    if removed_s == 2.5:
        rows.pending_commit_removed(removed_s)
    rows.committed(3, C0, offset=200)
    verify(rows, 10, offset=-1, peer="broker-0")
    assert check(rows).outcome is outcome


def test_expired_offset_of_a_live_group_is_found() -> None:
    """The cleanup must not remove offsets of a live group, so an expiry is no excuse."""
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
    """`offsets.retention.minutes` is 1, so offsets may expire once their group was Empty for 60 s.

    A failover to broker-1 does not begin the minute anew.
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
    """The log may lack the group's last generations, which could not be stored.

    The group is Empty in generation 2 at 4 s, and in generation 4 at 20 s. Its offsets are removed
    at 64 s: 60 s after the first moment, but 44 s after the second.
    """
    rows = two_commits()
    rows.group_state(4, "broker-0", "PreparingRebalance", "Empty", 2)
    rows.group_state(5, "broker-0", "Empty", "PreparingRebalance", 2)
    rows.group_state(20, "broker-0", "PreparingRebalance", "Empty", 4)
    rows.leads(30, "broker-0", leader_epoch=1, log_end=2)
    rows.group_loaded(30, "broker-0", state="Empty", generation=loaded_generation)
    rows.offset_removed(64, cause="expired", node="broker-0")
    verify(rows, 100, offset=-1)

    checker = DurableCommits(replace(CONTEXT, offsets_retention_us=60_000_000))
    for row in rows.rows:
        checker.observe(row)
    assert checker.finish().outcome is outcome


def test_value_without_a_commit_is_found() -> None:
    """Planted bug: a coordinator stores one partition's offset under another partition."""
    rows = two_commits()
    verify(rows, 10, offset=777)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nobody is known to have committed" in report.findings[0].summary


@pytest.mark.parametrize(("previous_answer_s", "findings"), [(3, 0), (6, 1)])
def test_commit_sent_before_a_loss_of_data_may_be_acknowledged_after_it(
    previous_answer_s: float, findings: int
) -> None:
    """broker-0 loses power as the last replica in sync, and leads again at 5 s.

    broker-1 led before, and was paused: at 7 s it acknowledges a commit that broker-0 had. If C0
    had the answer to its previous commit at 6 s, it sent this commit after the loss. Then the
    commit must not be missing.
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
    """broker-0 loses power as the last replica in sync, and leads again, empty, at 5 s.

    A transaction of generation 1 may have had its offset in the lost log. C0 gets an assignment of
    generation 2 at 6 s, and hears at 7 s that the transaction is committed. A transaction of
    generation 2 is newer than the loss, so its offset must not be missing.
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

    expected = replace(CONTEXT.groups["g"], transaction_partitions=("__transaction_state-0",))
    checker = DurableCommits(replace(CONTEXT, groups={"g": expected}))
    for row in rows.rows:
        checker.observe(row)
    assert checker.finish().findings_total == findings


def test_loss_seen_by_the_next_owner_is_found_without_a_verification() -> None:
    """C1 takes over t-0 and fetches 100, although 200 was acknowledged."""
    rows = two_commits()
    rows.assigned(5, C1)
    rows.fetched(5.1, C1, offset=100)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_clients_own_rewind_passes() -> None:
    """C0 commits 50 after 200. The newest commit is the last, not the largest."""
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
    """The coordinator may or may not have stored 300; the checker cannot know."""
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
    """The coordinator answered the commit of 300 with an error.

    So the record of 300 is in the log before that of 400, or not at all.
    """
    rows = two_commits()
    rows.commit_failed(4, C0, offset=300, error=error)
    rows.committed(5, C0, offset=400)
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


@pytest.mark.parametrize("error", ["TIMED_OUT", "DISCONNECTED"])
def test_commit_that_its_client_gave_up_may_take_effect_behind_a_newer_one(error: str) -> None:
    """The client stopped waiting for the answer to the commit of 300.

    A broker that was paused may read this request from its socket after the request for 400.
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
    """The process of broker-0 was killed, and with it the request, which cannot take effect later.

    The row of the kill may come before or after the row of the failed commit.
    """
    rows = two_commits()
    rows.add(killed_s, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    rows.commit_failed(4, C0, offset=300, error="DISCONNECTED")
    rows.committed(5, C0, offset=400, peer="broker-1")
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_sent_after_a_kill_of_its_broker_may_take_effect_later() -> None:
    """broker-0 was killed at 1.5 s, so the request went to its next process, which still lives."""
    rows = two_commits()
    rows.add(1.5, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    rows.commit_failed(4, C0, offset=300, error="DISCONNECTED")
    rows.committed(5, C0, offset=400)
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.PASS


def test_value_whose_committer_gives_up_later_is_no_loss() -> None:
    """broker-1 has the commit of 300 in its log at 8 s. C0 waits for the answer until 33 s.

    So at the fetch, at 10.1 s, the trace does not show yet who committed 300.
    """
    rows = two_commits()
    rows.leads(8, "broker-1", leader_epoch=1, log_end=3)
    rows.assigned(10, C1)
    rows.fetched(10.1, C1, offset=300, peer="broker-1")
    rows.commit_failed(33, C0, offset=300, error="TIMED_OUT")
    rows.stage(50, "stopping")

    assert check(rows).outcome is CheckOutcome.PASS


def test_value_without_a_committer_in_time_is_reported_during_the_run() -> None:
    """No client is known to have committed 300, which C1 fetches at 10.1 s.

    A client may still wait for the answer to such a commit, for its request timeout of 30 s. After
    40.1 s none can, so the first row after that reports the finding.
    """
    rows = two_commits()
    rows.assigned(10, C1)
    rows.fetched(10.1, C1, offset=300)
    checker = DurableCommits(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    assert checker.findings_total == 0

    # A row of a message reports nothing, because findings must not depend on message tracing.
    checker.observe(rows.add(40, C1, TraceKind.REQUEST_SENT, api="Heartbeat", group="g"))
    assert checker.findings_total == 0
    checker.observe(rows.add(41, "driver", TraceKind.RUN_STAGE, detail={"stage": "healing"}))

    assert checker.findings_total == 1


def split_with_a_commit_on_each_side(*, acknowledged: bool) -> Rows:
    """Return rows of a network split: C0 stays with broker-0, and broker-1 leads from 11 s on.

    C0 commits 300 and 500 at broker-0. `acknowledged` says whether broker-0 acknowledges them. C1
    is assigned t-0 by broker-1, fetches 200 and commits 250.
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
    """As in Kafka, the old leader cannot advance its high watermark, so its commits time out."""
    report = check(split_with_a_commit_on_each_side(acknowledged=False))

    assert report.outcome is CheckOutcome.PASS
    assert report.measured["offsets_of_unknown_outcome"] == 2


def test_split_network_in_which_both_sides_acknowledge_is_found() -> None:
    """Planted bug: the guard `high_watermark_gate` is off (a check that Kafka makes).

    So broker-0 acknowledges commits that no other replica has.
    """
    report = check(split_with_a_commit_on_each_side(acknowledged=True))

    assert report.outcome is CheckOutcome.VIOLATED
    finding = report.findings[0]
    assert "offset 500 was acknowledged by broker-0 to consumer-g-0" in finding.summary
    assert "a later fetch returned offset 200" in finding.summary


def test_definite_failure_does_not_count_as_written() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS means that nothing was appended."""
    rows = two_commits()
    rows.commit_failed(4, C0, offset=300, error="COORDINATOR_LOAD_IN_PROGRESS")
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_commit_acknowledged_while_the_fetch_was_in_flight_may_be_missing() -> None:
    """A fetch need not return a commit that was acknowledged after the fetch had begun.

    The fetch begins at 10 s. The commit of 300 is acknowledged at 10.05 s. The answer to the fetch
    comes at 10.1 s.
    """
    rows = two_commits()
    rows.stage(10, "verifying")
    rows.committed(10.05, C0, offset=300)
    rows.fetched(10.1, "admin-0", offset=200, cause="verification")

    assert check(rows).outcome is CheckOutcome.PASS


def test_fetch_begins_at_its_request_and_not_at_the_assignment() -> None:
    """Without a row of its request the fetch may have begun at the assignment, at 1 s.

    The request is at 4 s, after the commit of 200. So C1 must get 200.
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
    """Both commits may have been under way at the same time, so either may be the last in the log.

    Here 150 was acknowledged after 200, and 200 is returned.
    """
    rows = Rows()
    rows.assigned(1, C0)
    rows.assigned(1, C1)
    rows.committed(2, C0, offset=200)
    rows.committed(2.1, C1, offset=150)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.PASS


def test_next_owners_commit_replaces_the_previous_owners() -> None:
    """C1 was assigned t-0 after C0's last commit, so C1's commit is certainly later."""
    rows = two_commits()
    rows.assigned(4, C1)
    rows.committed(5, C1, offset=250)
    verify(rows, 10, offset=200)

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_stale_answer_of_a_replaced_coordinator_is_counted_and_excused() -> None:
    """A replaced coordinator answers from memory until it learns of its successor (BEHAVIOUR 6.5).

    broker-0 answers C1 with 200, although 300 was committed at its successor, broker-1.
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
    """broker-0 leads again at 5.5 s, after broker-1. broker-0's next load ends at `reloaded_s`.

    The fetch, at 6.1 s, gets 200 from broker-0, although 300 was committed at broker-1. After the
    next load this is a finding.
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
    """broker-0 has 5 s after the healing to learn of broker-1's election; the fetch is at 60 s."""
    rows = two_commits()
    rows.leads(4, "broker-1", leader_epoch=1, log_end=2)
    rows.committed(5, C0, offset=300, peer="broker-1")
    rows.stage(healed_s, "liveness")
    verify(rows, 60, offset=200, peer="broker-0")

    assert check(rows).outcome is outcome


def abort_transaction(rows: Rows, time_s: float, offset: int) -> None:
    """Abort C0's transaction that commits `offset`, and answer C0."""
    rows.commit_failed(time_s, C0, offset=offset, error="TRANSACTION_ABORTED")


def test_return_of_the_offset_of_an_aborted_transaction_is_found() -> None:
    """Planted bug: an abort marker that commits the pending offset."""
    rows = two_commits()
    abort_transaction(rows, 4, offset=300)
    verify(rows, 10, offset=300)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "nobody is known to have committed" in report.findings[0].summary


def test_aborted_transaction_leaves_the_earlier_commit() -> None:
    """200, the commit before the transaction, is returned."""
    rows = two_commits()
    abort_transaction(rows, 4, offset=300)
    verify(rows, 10, offset=200)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_of_unknown_outcome"] == 0


def test_marker_stored_behind_its_answer_is_the_same_commit() -> None:
    """C0's commit of 200 is acknowledged at 3 s; its transaction's marker stores 200 at 3.5 s.

    The marker is no second commit of 200. A second commit could come after that of 250, and would
    excuse the loss of 250.
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
    """The coordinator stored 300, but member `m` died before it wrote a row about the answer."""
    rows = two_commits()
    rows.add(
        4, "broker-0", TraceKind.COMMIT_STORED, group="g", partition="t-0", offset=300, member="m"
    )
    verify(rows, 10, offset=300)

    assert check(rows).outcome is CheckOutcome.PASS


def test_unknown_value_after_the_kill_of_a_member_is_no_violation() -> None:
    """C0 may have committed 333 shortly before the kill, without a row in the trace."""
    rows = two_commits()
    rows.add(4, "driver", TraceKind.NODE_KILLED, peer=C0)
    verify(rows, 10, offset=333)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["fetches_of_a_value_nobody_is_known_to_have_committed"] == 1


def test_run_without_commits_reports_that_nothing_was_judged() -> None:
    """The only fetch returns no offset (-1), and no commit precedes it."""
    rows = Rows()
    rows.assigned(1, C0)
    rows.fetched(1.1, C0, offset=-1)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.note == "no commit was acknowledged"
    assert report.seen["fetches_judged"] == 0
    assert report.seen["fetches_with_no_commit_acknowledged_before"] == 1


def test_members_that_never_commit_are_named_as_the_reason() -> None:
    """The usual note, `no commit was acknowledged`, reads as if commits had been refused."""
    readers = replace(CONTEXT.groups["g"], commits=False)
    report = DurableCommits(CheckContext(groups={"g": readers})).finish()

    assert report.note == "no member commits offsets in this experiment"


@pytest.mark.parametrize("clock_error_us", [0, 500, 2_000])
def test_loss_of_the_last_commit_is_found_with_any_clocks(clock_error_us: int) -> None:
    """Each commit has a row of the broker, and 0.3 ms later a row of C0.

    If clocks differ, the order of the two rows means nothing. Then the broker's row of 100 must not
    count as a commit of its own, which could come after 200 and would excuse the loss of 200.
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
    """Return the report of an append that broker-2 answers with `error`.

    The controller's ISR is broker-2 alone; the leader's own view of the ISR is `in_sync`; `needed`
    is min.insync.replicas.
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
    """The answer had to be NOT_ENOUGH_REPLICAS (BEHAVIOUR 6.1).

    The finding comes at the acknowledgement, before any offset is lost.
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
    """Only an acknowledgement with too few replicas in the leader's own ISR is a finding."""
    assert check_append(error, in_sync, needed=needed).findings_total == 0
