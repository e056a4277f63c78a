"""The fencing checker judges whether a replaced leader still acknowledges appends.

A leader may have been replaced without knowing it yet. Such a leader still takes appends, but it
must not acknowledge an append that is missing from the new leader's log. Kafka prevents such an
acknowledgement, which is called fencing. The checker judges only the partitions of
`__consumer_offsets`. Almost all rows here are about one of these partitions, OFFSETS_0.

Each test writes a trace by hand. For example:

- `rows.leads(1, "broker-0", leader_epoch=4, log_end=138)`: at 1 s broker-0 becomes leader in epoch
  4, with a log that ends at offset 138.
- `rows.appended(3, "broker-0", leader_epoch=4, base_offset=196)`: at 3 s broker-0 appends at offset
  196 in epoch 4, and acknowledges the append 2 ms later.

Where a docstring says "Planted bug", it describes a bug that would leave such a trace.
"""

import pytest

from chaos.checkers.context import CheckContext
from chaos.checkers.fencing import NOT_TESTED, Fencing
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceKind
from results_schema.results import OLD_EPOCH_ATTEMPTS, CheckOutcome, CheckReport, Finding
from tests.support.builders.rows import OFFSETS_0, Rows


def check(rows: Rows, context: CheckContext | None = None) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    `seen` of the report counts the cases that the checker had to judge.
    """
    checker = Fencing(context or CheckContext())
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def failover(rows: Rows, log_end: int) -> None:
    """Add a failover from broker-0 to broker-1.

    broker-0 acknowledges two appends in epoch 0, one with the offsets 0 to 9, and one with 10 and
    11. Then broker-1 leads in epoch 1. The log of broker-1 ends at `log_end`, which is 12 if
    nothing is lost.
    """
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.appended(2, "broker-0", leader_epoch=0, base_offset=0, records=10)
    rows.appended(3, "broker-0", leader_epoch=0, base_offset=10, records=2)
    rows.leads(9, "broker-1", leader_epoch=1, log_end=log_end)


def test_failover_whose_log_holds_every_acknowledged_append_passes() -> None:
    """In an ordinary failover the new leader was in the ISR.

    So its log has all appends that the old leader has acknowledged, up to offset 11.
    """
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)

    report = check(rows)

    assert report.findings == ()
    assert report.seen["acknowledged_before_a_later_epoch"] == 2


def test_append_acknowledged_in_a_later_epoch_of_its_leader_belongs_to_that_epoch() -> None:
    """An append may wait for its acknowledgement until its leader leads again.

    1. broker-0 appends at offset 196 in epoch 4. It does not know that broker-1 leads in epoch 5.
    2. broker-0 leads again, in epoch 8. Its log still has the append, and now all replicas fetch
       the append. So broker-0 acknowledges the append, as Kafka does.
    3. The checker counts the append as one of epoch 8, the epoch of its acknowledgement. So the log
       of epoch 5 need not have the append.
    4. The logs of later epochs must have the append. The log of epoch 9 ends at 190, so the append
       is missing there.

    The file tests/corpus/append_that_waited_through_two_elections.yaml is such an experiment.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=4, log_end=138)
    rows.leads(2, "broker-1", leader_epoch=5, log_end=189)
    waiting = rows.append_started(3, "broker-0", leader_epoch=4, base_offset=196)
    rows.leads(4, "broker-0", leader_epoch=8, log_end=199)
    rows.append_completed(4.1, "broker-0", leader_epoch=4, base_offset=196, append_id=waiting)

    assert check(rows).findings_total == 0

    rows.leads(9, "broker-1", leader_epoch=9, log_end=190)
    (finding,) = check(rows).findings
    assert "acknowledged in epoch 8 from offset 196 is missing from the log of epoch 9" in (
        finding.summary
    )


def test_old_leader_that_never_leads_again_must_not_acknowledge() -> None:
    """broker-0 appends in epoch 4, and does not know that broker-1 leads in epoch 5.

    broker-0 never leads again, so it must not acknowledge the append.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=4, log_end=138)
    rows.leads(2, "broker-1", leader_epoch=5, log_end=189)
    rows.appended(3, "broker-0", leader_epoch=4, base_offset=196)

    assert check(rows).findings_total == 1


def elected(rows: Rows, time_s: float, broker: str, epoch: int) -> None:
    """Let the controller elect `broker` as the leader of OFFSETS_0. "" means no leader."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        peer=broker,
        leader_epoch=epoch,
    )


def test_failover_without_an_attempt_of_the_old_leader_reports_fencing_as_untested() -> None:
    """All appends of the old leader end before the election, so there is nothing to prevent.

    So the run does not prove that fencing works, and the note of the report is NOT_TESTED.

    The report counts attempts (OLD_EPOCH_ATTEMPTS). An attempt is an append of an old leader that
    begins after the election, or still waits for its replicas at the time of the election.
    """
    rows = Rows()
    elected(rows, 0.5, "broker-0", epoch=0)
    failover(rows, log_end=12)
    elected(rows, 8.9, "broker-1", epoch=1)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)

    report = check(rows)

    assert (report.outcome, report.seen[OLD_EPOCH_ATTEMPTS]) == (CheckOutcome.NOTHING_SEEN, 0)
    assert report.note == NOT_TESTED


@pytest.mark.parametrize("begun_s", [8, 11], ids=["waited for its replicas", "begun afterwards"])
def test_append_of_a_replaced_leader_is_an_attempt(begun_s: float) -> None:
    """The election is at 9 s. The old leader's append begins at 8 s and still waits, or at 11 s.

    At 11 s the old leader does not know of the election yet. In both cases the append is an
    attempt. Fencing prevents its success: the append fails at 14 s.
    """
    rows = Rows()
    failover(rows, log_end=12)
    if begun_s < 9:
        append = rows.append_started(begun_s, "broker-0", leader_epoch=0, base_offset=12)
        elected(rows, 9, "broker-1", epoch=1)
    else:
        elected(rows, 9, "broker-1", epoch=1)
        append = rows.append_started(begun_s, "broker-0", leader_epoch=0, base_offset=12)
    rows.append_completed(
        14, "broker-0", leader_epoch=0, base_offset=12, append_id=append, error="REQUEST_TIMED_OUT"
    )

    report = check(rows)

    assert (report.outcome, report.seen[OLD_EPOCH_ATTEMPTS]) == (CheckOutcome.PASS, 1)
    assert report.note == ""


def test_append_of_a_leader_that_was_not_replaced_is_no_attempt() -> None:
    """There are two elections, but neither of them makes another broker the leader.

    broker-0 itself is elected in epoch 1, and no broker in epoch 2. So the append of broker-0 is no
    attempt.
    """
    rows = Rows()
    failover(rows, log_end=12)
    elected(rows, 9, "broker-0", epoch=1)
    elected(rows, 9.1, "", epoch=2)
    rows.append_started(10, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows).seen[OLD_EPOCH_ATTEMPTS] == 0


def test_attempt_within_the_clocks_error_is_not_counted() -> None:
    """The append begins 4 ms after the election, which makes it an attempt.

    But if the clocks of two machines may differ by 5 ms, the append may have begun before the
    election.
    """
    rows = Rows()
    failover(rows, log_end=12)
    elected(rows, 9, "broker-1", epoch=1)
    rows.append_started(9.004, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows).seen[OLD_EPOCH_ATTEMPTS] == 1
    assert check(rows, CheckContext(clock_error_us=5_000)).seen[OLD_EPOCH_ATTEMPTS] == 0


def truncate(
    rows: Rows, time_s: float, node: str, *, epoch: int, old_end: int, new_end: int
) -> None:
    """Let `node` truncate its log of OFFSETS_0 from `old_end` to `new_end`.

    A follower does this if the leader, in `epoch`, has other records there.
    """
    rows.add(
        time_s,
        node,
        TraceKind.LOG_TRUNCATED,
        partition=OFFSETS_0,
        leader_epoch=epoch,
        offset=new_end,
        detail={"from_offset": old_end},
    )


def append_overtaken_by_another_leader(new_end: int) -> tuple[Rows, int]:
    """Return rows with an append that waits for its acknowledgement, and the id of the append.

    broker-0 begins to append the records 12 and 13 in epoch 0. Then it follows broker-1, and
    truncates its log to `new_end`. If `new_end` is 12, both records are gone. If it is 14, both are
    still there.
    """
    rows = Rows()
    failover(rows, log_end=12)
    waiting = rows.append_started(8.5, "broker-0", leader_epoch=0, base_offset=12, records=2)
    elected(rows, 8.9, "broker-1", epoch=1)
    truncate(rows, 9.5, "broker-0", epoch=1, old_end=14, new_end=new_end)
    return rows, waiting


def test_append_acknowledged_after_its_own_broker_truncated_it_is_found() -> None:
    """broker-0 has truncated the append, and other records are now at the append's offsets.

    broker-0 leads again at 11 s, but must not acknowledge the append then.
    """
    rows, waiting = append_overtaken_by_another_leader(new_end=12)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12, records=3)
    rows.leads(11, "broker-0", leader_epoch=2, log_end=15)
    rows.append_completed(11.1, "broker-0", leader_epoch=0, base_offset=12, append_id=waiting)
    rows.appended(12, "broker-0", leader_epoch=2, base_offset=15)

    (finding,) = check(rows).findings

    assert finding.summary == (
        "__consumer_offsets-0: broker-0 acknowledged an append of epoch 0 at offset 12 after it "
        "had truncated its log to 12 in epoch 1"
    )
    assert [row.kind for row in finding.evidence] == [
        TraceKind.APPEND_STARTED,
        TraceKind.LOG_TRUNCATED,
        TraceKind.APPEND_COMPLETED,
    ]
    led_to_rows = {(row.kind, row.leader_epoch) for row in finding.led_to}
    assert {(TraceKind.LEADER_ELECTED, 1), (TraceKind.BECAME_LEADER, 1)} <= led_to_rows


def test_truncation_above_an_append_or_of_a_failed_one_passes() -> None:
    """The append has the records 12 and 13.

    In the first trace the truncation keeps both records, so the append may be acknowledged. In the
    second trace the truncation removes both records, and the append fails, as it must.
    """
    kept, waiting = append_overtaken_by_another_leader(new_end=14)
    kept.leads(11, "broker-0", leader_epoch=2, log_end=15)
    kept.append_completed(11.1, "broker-0", leader_epoch=0, base_offset=12, append_id=waiting)

    failed, waiting = append_overtaken_by_another_leader(new_end=12)
    failed.append_completed(
        9.6,
        "broker-0",
        leader_epoch=0,
        base_offset=12,
        append_id=waiting,
        error="NOT_LEADER_OR_FOLLOWER",
    )

    assert check(kept).findings_total == 0
    assert check(failed).findings_total == 0


def test_offsets_that_are_used_again_after_a_truncation_may_be_acknowledged() -> None:
    """In epoch 2 broker-0 appends other records at the offsets of the truncated append."""
    rows, _ = append_overtaken_by_another_leader(new_end=12)
    rows.leads(11, "broker-0", leader_epoch=2, log_end=12)
    rows.appended(11.5, "broker-0", leader_epoch=2, base_offset=12, records=2)

    assert check(rows).findings_total == 0


def test_lost_append_is_reported_with_the_truncation_that_lost_it() -> None:
    """A finding has its evidence, and in `led_to` earlier rows that explain how it came about.

    Here `led_to` has the change of the ISR before the failover, and the truncation of the append.
    """
    rows = Rows()
    failover(rows, log_end=10)
    rows.add(
        8.9,
        "controller-100",
        TraceKind.ISR_CHANGED,
        partition=OFFSETS_0,
        leader_epoch=1,
        detail={"isr": [1, 2]},
    )
    truncate(rows, 9.5, "broker-0", epoch=1, old_end=12, new_end=10)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=10)

    (finding,) = check(rows).findings

    assert [row.kind for row in finding.evidence] == [
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
        TraceKind.BECAME_LEADER,
    ]
    assert [(row.node, row.kind) for row in finding.led_to] == [
        ("controller-100", TraceKind.ISR_CHANGED),
        ("broker-0", TraceKind.LOG_TRUNCATED),
    ]


def test_acknowledged_append_missing_from_the_later_log_is_found() -> None:
    """Planted bug: the old leader acknowledges 10 and 11 before another replica has them."""
    rows = Rows()
    failover(rows, log_end=10)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "from offset 10 is missing from the log of epoch 1, which begins at 10" in (
        finding.summary
    )
    assert [row.kind for row in finding.evidence] == [
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
        TraceKind.BECAME_LEADER,
    ]
    assert "offset 10" in finding.story[0]  # the text of the first row of the evidence


def test_append_acknowledged_by_the_old_leader_after_the_later_epoch_began_is_found() -> None:
    """Planted bug: after the failover the old leader acknowledges an append without followers."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)
    rows.appended(11, "broker-0", leader_epoch=0, base_offset=12)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "missing from the log of epoch 1" in report.findings[0].summary


def test_append_that_begins_after_the_first_acknowledgement_of_a_later_epoch_is_found() -> None:
    """Planted bug: two leaders write to the same log.

    The append of epoch 0 is at offset 12, where the log of epoch 1 has a record. So the append does
    not seem to be missing. But the append begins after epoch 1 has acknowledged its first append,
    and is acknowledged nevertheless.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.leads(2, "broker-1", leader_epoch=1, log_end=20)
    rows.appended(3, "broker-1", leader_epoch=1, base_offset=20)
    rows.appended(4, "broker-0", leader_epoch=0, base_offset=12)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "begun after epoch 1 had acknowledged its first" in report.findings[0].summary


def test_late_append_within_the_clock_error_is_no_violation() -> None:
    """Epoch 1 acknowledges its first append at 3.002 s. An append of epoch 0 begins 1 ms later.

    The clocks of two machines may differ by 5 ms, so this order means nothing.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.leads(2, "broker-1", leader_epoch=1, log_end=20)
    rows.appended(3, "broker-1", leader_epoch=1, base_offset=20)
    rows.appended(3.003, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows, CheckContext(clock_error_us=5_000)).findings == ()


def test_two_leaders_of_one_epoch_are_found() -> None:
    """Planted bug: the controller elects another leader, but does not increase the epoch."""
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=3, log_end=5)
    rows.leads(2, "broker-1", leader_epoch=3, log_end=5)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "two leaders in epoch 3" in report.findings[0].summary


def test_failed_append_truncated_by_the_later_epoch_passes() -> None:
    """The old leader's append times out, and is missing from the new log.

    The append may vanish, because it was never acknowledged. Such appends vanished in a real
    cluster (section two-lineages of docs/kafka/MEASURED_FAILOVER.md).
    """
    rows = Rows()
    failover(rows, log_end=12)
    append_id = rows.append_started(10, "broker-0", leader_epoch=0, base_offset=12)
    rows.append_completed(
        15,
        "broker-0",
        leader_epoch=0,
        base_offset=12,
        append_id=append_id,
        error="REQUEST_TIMED_OUT",
    )
    rows.appended(16, "broker-1", leader_epoch=1, base_offset=12)

    report = check(rows)

    assert report.findings == ()
    assert report.seen["appends_failed"] == 1


def test_same_leader_again_in_a_later_epoch_passes() -> None:
    """broker-0 may lead again, because its log has all appends that were acknowledged."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.leads(20, "broker-0", leader_epoch=2, log_end=12)
    rows.appended(21, "broker-0", leader_epoch=2, base_offset=12)

    assert check(rows).findings == ()


def test_run_without_a_later_epoch_reports_that_nothing_was_judged() -> None:
    """A run without a failover proves nothing about fencing, so the outcome must not be PASS."""
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.appended(2, "broker-0", leader_epoch=0, base_offset=0)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.seen["appends_acknowledged"] == 1


def test_data_partitions_are_not_judged() -> None:
    """The checker judges only the partitions of `__consumer_offsets`.

    In other topics producers may use acks=1, and then records may be lost. So even two leaders in
    one epoch are no finding here.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=5, partition="t-0")
    rows.leads(2, "broker-1", leader_epoch=0, log_end=3, partition="t-0")

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_violation_is_reported_once_during_the_run_and_completely_at_its_end() -> None:
    """The checker reports a violation at once, and again in its final report.

    Later a second append is lost. The checker does not report this during the run, but the finding
    in the final report is about both appends.
    """
    reported: list[Finding] = []
    checker = Fencing(CheckContext())
    checker.on_finding = reported.append
    rows = Rows(checker.observe)  # the checker observes each row as soon as it is added

    failover(rows, log_end=10)
    assert [finding.summary.partition(" is ")[0] for finding in reported] == [
        f"{OFFSETS_0}: 1 append acknowledged in epoch 0 from offset 10"
    ]
    rows.appended(10, "broker-0", leader_epoch=0, base_offset=12)
    report = checker.finish()

    assert len(reported) == 1
    (finding,) = report.findings
    assert "2 appends acknowledged in epoch 0 from offset 10 are missing" in finding.summary


def test_unload_of_an_older_epoch_than_the_loaded_one_is_found() -> None:
    """A coordinator unloads a partition when it learns that it no longer leads the partition.

    This news may be about an older epoch than the one in which the coordinator has loaded the
    partition. Then the coordinator must not unload the partition. Kafka once had this bug
    (KAFKA-10614).
    """
    rows = Rows()
    rows.unloaded(1, "broker-0", leader_epoch=1)
    rows.load_completed(2, "broker-0", leader_epoch=2)
    rows.unloaded(3, "broker-0", leader_epoch=1)

    (finding,) = check(rows).findings

    assert finding.summary == (
        f"{OFFSETS_0}: broker-0 unloaded it as of epoch 1 after it had loaded it in epoch 2"
    )
    assert [row.kind for row in finding.evidence] == ["load_completed", "unload_completed"]


def test_load_of_an_older_epoch_than_the_unloaded_one_is_found() -> None:
    """broker-0 has unloaded the partition, because another broker leads it in epoch 3.

    If broker-0 then loads the partition as the leader of epoch 2, it serves groups that another
    broker coordinates.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=2)
    rows.unloaded(2, "broker-0", leader_epoch=3)
    rows.load_completed(3, "broker-0", leader_epoch=2)

    (finding,) = check(rows).findings
    assert "broker-0 loaded it as of epoch 2 after it had unloaded it in epoch 3" in finding.summary


def test_loads_and_unloads_in_the_order_of_epochs_pass() -> None:
    """A load or unload is a finding only if the same process has already dealt with a newer epoch.

    None of these rows is a finding. The comment before each row says why.
    """
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=2)
    # Another broker than broker-0 loads in an older epoch.
    rows.load_completed(1, "broker-1", leader_epoch=1)
    # An unload of a newer epoch than that of the load. Then the same unload once more.
    rows.unloaded(2, "broker-0", leader_epoch=3)
    rows.unloaded(3, "broker-0", leader_epoch=3)
    # The epoch is older, but nothing is left to be unloaded.
    rows.unloaded(3.5, "broker-0", leader_epoch=2)
    # The row is about another partition.
    unloaded = TraceKind.UNLOAD_COMPLETED
    rows.add(4, "broker-0", unloaded, partition=f"{CONSUMER_OFFSETS}-1", leader_epoch=0)
    # The partition was deleted, so there is no epoch.
    rows.add(5, "broker-0", unloaded, partition=OFFSETS_0)
    # This is a new process of the broker, which knows nothing of the newer epochs.
    rows.add(6, "broker-0", unloaded, incarnation=1, partition=OFFSETS_0, leader_epoch=1)

    assert check(rows).findings_total == 0


@pytest.mark.parametrize(
    ("leader", "epoch", "is_found"),
    [
        ("broker-1", 1, False),
        ("broker-2", 1, True),  # another broker was elected
        ("broker-1", 2, True),  # in another epoch
        (None, 0, True),  # there was no election
    ],
)
def test_leader_that_the_controller_did_not_elect_is_found(
    leader: str | None, epoch: int, is_found: bool
) -> None:
    """Planted bug: broker-1 leads in epoch 1, although the controller has not elected it.

    The controller elected `leader` in `epoch`. Only runs in virtual time are judged, because in
    real time the row of an election may be missing.
    """
    rows = Rows()
    rows.add(0.5, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    if leader is not None:
        rows.add(
            1,
            "controller-100",
            TraceKind.LEADER_ELECTED,
            partition=OFFSETS_0,
            leader_epoch=epoch,
            peer=leader,
            detail={"isr": [1, 2], "reason": "test"},
        )
    rows.leads(2, "broker-1", leader_epoch=1, log_end=0)

    assert not check(rows).findings
    findings = check(rows, CheckContext(in_virtual_time=True)).findings
    assert bool(findings) == is_found
    if is_found:
        assert "broker-1 leads it in epoch 1, which the controller did not give it" in (
            findings[0].summary
        )


def test_leader_that_was_never_unfenced_is_found() -> None:
    """Planted bug: the controller elects a broker that is fenced.

    The controller fences a broker that it considers dead. A new broker is fenced, too, until it is
    ready. So a broker must have been unfenced before it leads.
    """
    rows = Rows()
    rows.leads(2, "broker-1", leader_epoch=1, log_end=0)

    (finding,) = check(rows, CheckContext(in_virtual_time=True)).findings

    assert "broker-1 leads it, which the controller has never unfenced" in finding.summary
