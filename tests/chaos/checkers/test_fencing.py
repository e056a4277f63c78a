"""The fencing checker finds planted bugs and reports nothing about correct failovers.

Fencing: once a new leader has taken over, the old leader acknowledges only appends that the new
leader's log has. All rows are about one partition of `__consumer_offsets`, OFFSETS_0.

- `rows.leads(1, "broker-0", leader_epoch=4, log_end=138)`: at 1 s broker-0 becomes leader in epoch
  4, with a log that ends at offset 138.
- `rows.appended(3, "broker-0", leader_epoch=4, base_offset=196)`: at 3 s broker-0 appends at offset
  196 in epoch 4, and acknowledges the append 2 ms later.

Terms:

- The leader epoch ("epoch") is the number of a leadership; each election increases it.
- The ISR are the in-sync replicas. The high watermark is the offset below which all of them have
  the records.
- An attempt is an append in an older epoch that begins, or still waits, after another leader was
  elected. Without an attempt fencing has nothing to prevent.
- A zombie is a replaced leader that does not know this yet.
- A load reads the groups of the partition into memory, an unload drops them.
- "Planted bug" in a docstring names a bug that the test would find.
"""

import pytest

from chaos.checkers.context import CheckContext
from chaos.checkers.fencing import NOT_TESTED, Fencing
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceKind
from results_schema.results import OLD_EPOCH_ATTEMPTS, CheckOutcome, CheckReport, Finding
from tests.support.builders.rows import OFFSETS_0, Rows


def check(rows: Rows, context: CheckContext | None = None) -> CheckReport:
    """Return the report of a trace, whose rows the checker observes in the order of time."""
    checker = Fencing(context or CheckContext())
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def failover(rows: Rows, log_end: int) -> None:
    """Add rows: broker-0 acknowledges the offsets 0 to 11 in epoch 0, then broker-1 takes over.

    The log of broker-1 ends at `log_end`.
    """
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.appended(2, "broker-0", leader_epoch=0, base_offset=0, records=10)
    rows.appended(3, "broker-0", leader_epoch=0, base_offset=10, records=2)
    rows.leads(9, "broker-1", leader_epoch=1, log_end=log_end)


def test_failover_whose_log_holds_every_acknowledged_append_passes() -> None:
    """In an ordinary failover the new leader was in the ISR, so its log has all such appends."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)

    report = check(rows)

    assert report.findings == ()
    assert report.seen["acknowledged_before_a_later_epoch"] == 2


def test_append_acknowledged_in_a_later_epoch_of_its_leader_belongs_to_that_epoch() -> None:
    """Kafka acknowledges a waiting append by the high watermark alone, also in a later epoch.

    broker-0 appends in epoch 4, and acknowledges in its next epoch, 8. So the append must be in the
    logs of the epochs after 8. Epoch 9 begins at 190, so it lacks the append at 196. The file
    tests/corpus/append_that_waited_through_two_elections.yaml plays such a run.
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


def test_zombie_that_never_leads_again_must_not_acknowledge() -> None:
    """Unlike in the test above, broker-0 does not lead again; only a leader may acknowledge."""
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=4, log_end=138)
    rows.leads(2, "broker-1", leader_epoch=5, log_end=189)
    rows.appended(3, "broker-0", leader_epoch=4, base_offset=196)

    assert check(rows).findings_total == 1


def elected(rows: Rows, time_s: float, broker: str, epoch: int) -> None:
    """Let the controller elect `broker`; "" for none."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        peer=broker,
        leader_epoch=epoch,
    )


def test_failover_without_an_attempt_of_the_old_leader_reports_fencing_as_untested() -> None:
    """All appends of the old leader ended before the election: fencing had nothing to prevent."""
    rows = Rows()
    elected(rows, 0.5, "broker-0", epoch=0)
    failover(rows, log_end=12)
    elected(rows, 8.9, "broker-1", epoch=1)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)

    report = check(rows)

    assert (report.outcome, report.seen[OLD_EPOCH_ATTEMPTS]) == (CheckOutcome.NOTHING_SEEN, 0)
    assert report.note == NOT_TESTED


@pytest.mark.parametrize("begun_s", [8, 11], ids=["waited for its replicas", "begun afterwards"])
def test_append_of_a_deposed_leader_is_an_attempt(begun_s: float) -> None:
    """The append is under way during the election, or begins after the election.

    The old leader does not know of the election yet, so it may still begin an append.
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
    """Neither an own newer epoch of broker-0 nor an epoch without a leader replaces broker-0."""
    rows = Rows()
    failover(rows, log_end=12)
    elected(rows, 9, "broker-0", epoch=1)
    elected(rows, 9.1, "", epoch=2)
    rows.append_started(10, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows).seen[OLD_EPOCH_ATTEMPTS] == 0


def test_attempt_within_the_clocks_error_is_not_counted() -> None:
    """The append begins 4 ms after the election.

    If clocks differ by 5 ms, the append may have begun before the election.
    """
    rows = Rows()
    failover(rows, log_end=12)
    elected(rows, 9, "broker-1", epoch=1)
    rows.append_started(9.004, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows).seen[OLD_EPOCH_ATTEMPTS] == 1
    assert check(rows, CheckContext(clock_error_us=5_000)).seen[OLD_EPOCH_ATTEMPTS] == 0


def truncated(rows: Rows, time_s: float, node: str, epoch: int, to: int, end: int) -> None:
    """Let `node` truncate its log from `end` to `to`, as the leader of `epoch` demands."""
    rows.add(
        time_s,
        node,
        TraceKind.LOG_TRUNCATED,
        partition=OFFSETS_0,
        leader_epoch=epoch,
        offset=to,
        detail={"from_offset": end},
    )


def append_overtaken_by_another_leader(cut_to: int) -> tuple[Rows, int]:
    """Return rows with an append that waits for its acknowledgement, and the id of the append.

    broker-0 begins to append at the offsets 12 and 13 in epoch 0. Then it follows broker-1, and
    truncates its log to `cut_to`.
    """
    rows = Rows()
    failover(rows, log_end=12)
    waiting = rows.append_started(8.5, "broker-0", leader_epoch=0, base_offset=12, records=2)
    elected(rows, 8.9, "broker-1", epoch=1)
    truncated(rows, 9.5, "broker-0", epoch=1, to=cut_to, end=14)
    return rows, waiting


def test_append_acknowledged_after_its_own_broker_truncated_it_is_found() -> None:
    """broker-0 leads again when it acknowledges, but other records have the append's offsets."""
    rows, waiting = append_overtaken_by_another_leader(cut_to=12)
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
    """The records of the append have the offsets 12 and 13.

    In the first trace the log is truncated to 14, so the records are kept. In the second trace the
    records are truncated, and the append fails with an error, as it must.
    """
    kept, waiting = append_overtaken_by_another_leader(cut_to=14)
    kept.leads(11, "broker-0", leader_epoch=2, log_end=15)
    kept.append_completed(11.1, "broker-0", leader_epoch=0, base_offset=12, append_id=waiting)
    failed, waiting = append_overtaken_by_another_leader(cut_to=12)
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
    """The append of epoch 2 has the offset of the truncated one, but is another append."""
    rows, _ = append_overtaken_by_another_leader(cut_to=12)
    rows.leads(11, "broker-0", leader_epoch=2, log_end=12)
    rows.appended(11.5, "broker-0", leader_epoch=2, base_offset=12, records=2)

    assert check(rows).findings_total == 0


def test_lost_append_is_reported_with_the_truncation_that_lost_it() -> None:
    """`led_to` has the rows that led to the loss: the ISR at that time, and the truncation."""
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
    truncated(rows, 9.5, "broker-0", epoch=1, to=10, end=12)
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
    """Planted bug: an append is acknowledged before it is replicated, and then never replicated."""
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
    assert "offset 10" in finding.story[0]


def test_append_acknowledged_by_a_zombie_after_the_later_epoch_began_is_found() -> None:
    """Planted bug: the old leader acknowledges an append that no other replica has."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", leader_epoch=1, base_offset=12)
    rows.appended(11, "broker-0", leader_epoch=0, base_offset=12)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "missing from the log of epoch 1" in report.findings[0].summary


def test_append_that_begins_after_the_first_acknowledgement_of_a_later_epoch_is_found() -> None:
    """Planted bug: two leaders share one log.

    The offsets of their appends fit, but after the first acknowledgement of epoch 1 no append of
    epoch 0 may begin and be acknowledged.
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
    """The append begins 1 ms after the first acknowledgement of epoch 1 (3.002 s).

    Between machines whose clocks are 5 ms apart this order means nothing.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.leads(2, "broker-1", leader_epoch=1, log_end=20)
    rows.appended(3, "broker-1", leader_epoch=1, base_offset=20)
    rows.appended(3.003, "broker-0", leader_epoch=0, base_offset=12)

    assert check(rows, CheckContext(clock_error_us=5_000)).findings == ()


def test_two_leaders_of_one_epoch_are_found() -> None:
    """Planted bug: the controller elects twice without a new epoch."""
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=3, log_end=5)
    rows.leads(2, "broker-1", leader_epoch=3, log_end=5)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "two leaders in epoch 3" in report.findings[0].summary


def test_failed_append_truncated_by_the_later_epoch_passes() -> None:
    """A zombie's append that timed out may vanish, because it was never acknowledged.

    Such appends vanished in a real cluster: section two-lineages of
    docs/kafka/MEASURED_FAILOVER.md.
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
    """A check that saw no failover proves nothing, so its outcome must not be a pass."""
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=0)
    rows.appended(2, "broker-0", leader_epoch=0, base_offset=0)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.seen["appends_acknowledged"] == 1


def test_data_partitions_are_not_judged() -> None:
    """A topic of records may be written with acks=1, and then may lose records.

    So even two leaders in one epoch are no finding here.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=0, log_end=5, partition="t-0")
    rows.leads(2, "broker-1", leader_epoch=0, log_end=3, partition="t-0")

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_violation_is_reported_once_during_the_run_and_completely_at_its_end() -> None:
    """A user must learn of a violation early, but all lost appends are known only at the end.

    The second append is lost after the first report. The finding at the end has both appends.
    """
    reported: list[Finding] = []
    checker = Fencing(CheckContext())
    checker.on_finding = reported.append
    rows = Rows(checker.observe)

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
    """An unload for an older epoch removes groups from their coordinator (KAFKA-10614)."""
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
    """Such a load lets broker-0 serve a partition that another broker leads."""
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=2)
    rows.unloaded(2, "broker-0", leader_epoch=3)
    rows.load_completed(3, "broker-0", leader_epoch=2)

    (finding,) = check(rows).findings
    assert "broker-0 loaded it as of epoch 2 after it had unloaded it in epoch 3" in finding.summary


def test_loads_and_unloads_in_the_order_of_epochs_pass() -> None:
    """A load or unload is a finding only if the same process knows a newer epoch."""
    rows = Rows()
    rows.load_completed(1, "broker-0", leader_epoch=2)
    rows.load_completed(1, "broker-1", leader_epoch=1)  # another broker
    rows.unloaded(2, "broker-0", leader_epoch=3)
    rows.unloaded(3, "broker-0", leader_epoch=3)  # a repetition
    rows.unloaded(3.5, "broker-0", leader_epoch=2)  # late, but there is nothing left to unload
    unloaded = TraceKind.UNLOAD_COMPLETED
    # An unload of another partition, one of a deleted partition (it has no epoch), and one by a new
    # process of the broker.
    rows.add(4, "broker-0", unloaded, partition=f"{CONSUMER_OFFSETS}-1", leader_epoch=0)
    rows.add(5, "broker-0", unloaded, partition=OFFSETS_0)
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
    """Planted bug: a broker that leads without an election.

    `leader` is the broker that the controller elected in `epoch`. In real time nothing is found,
    because a row of the election may be missing.
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
    """Planted bug: a controller that elects a fenced broker.

    A fenced broker is one that the controller considers dead, or not yet ready.
    """
    rows = Rows()
    rows.leads(2, "broker-1", leader_epoch=1, log_end=0)

    (finding,) = check(rows, CheckContext(in_virtual_time=True)).findings

    assert "broker-1 leads it, which the controller has never unfenced" in finding.summary
