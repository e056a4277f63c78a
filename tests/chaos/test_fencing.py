"""The fencing checker finds planted bugs and stays silent over correct failovers."""

from chaos.checkers.base import CheckContext, CheckOutcome, CheckReport, Finding
from chaos.checkers.fencing import Fencing
from protocol.trace import TraceKind
from tests.support.rows import OFFSETS_0, Rows


def check(rows: Rows, context: CheckContext | None = None) -> CheckReport:
    checker = Fencing(context or CheckContext())
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def failover(rows: Rows, log_end: int) -> None:
    """Broker 0 acknowledges [0, 12) in epoch 0; broker 1 takes over with `log_end` records."""
    rows.leads(1, "broker-0", 0, 0)
    rows.appended(2, "broker-0", 0, 0, records=10)
    rows.appended(3, "broker-0", 0, 10, records=2)
    rows.leads(9, "broker-1", 1, log_end)


def test_failover_whose_log_holds_every_acknowledged_append_passes() -> None:
    """The ordinary failover: the new leader was in the ISR."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", 1, 12)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["acknowledged_before_a_later_epoch"] == 2


def test_acknowledged_append_missing_from_the_later_log_is_found() -> None:
    """Planted bug: acknowledged before the high watermark passed, and never replicated."""
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
    """Planted bug: no high watermark gate, so the old leader goes on acknowledging alone."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.appended(10, "broker-1", 1, 12)
    rows.appended(11, "broker-0", 0, 12)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "missing from the log of epoch 1" in report.findings[0].summary


def test_append_begun_after_the_later_epochs_first_acknowledged_one_is_found() -> None:
    """Planted bug: two leaders share one log; offsets agree, the order of epochs does not."""
    rows = Rows()
    rows.leads(1, "broker-0", 0, 0)
    rows.leads(2, "broker-1", 1, 20)
    rows.appended(3, "broker-1", 1, 20)
    rows.appended(4, "broker-0", 0, 12)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "begun after epoch 1 had acknowledged its first" in report.findings[0].summary


def test_late_append_within_the_clock_error_is_not_accused() -> None:
    """Between machines, 1 ms of "after" means nothing when clocks are 5 ms apart."""
    rows = Rows()
    rows.leads(1, "broker-0", 0, 0)
    rows.leads(2, "broker-1", 1, 20)
    rows.appended(3, "broker-1", 1, 20)
    rows.appended(3.003, "broker-0", 0, 12)

    assert check(rows, CheckContext(clock_error_us=5_000)).outcome is CheckOutcome.PASS


def test_two_leaders_of_one_epoch_are_found() -> None:
    """Planted bug: the controller elects twice without a new epoch."""
    rows = Rows()
    rows.leads(1, "broker-0", 3, 5)
    rows.leads(2, "broker-1", 3, 5)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "two leaders in epoch 3" in report.findings[0].summary


def test_failed_append_truncated_by_the_later_epoch_passes() -> None:
    """A zombie's append that timed out was never promised, and may vanish (MEASURED_FAILOVER)."""
    rows = Rows()
    failover(rows, log_end=12)
    lost = rows.append_started(10, "broker-0", 0, 12)
    rows.append_completed(15, "broker-0", 0, 12, lost, error="REQUEST_TIMED_OUT")
    rows.appended(16, "broker-1", 1, 12)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["appends_failed"] == 1


def test_same_leader_again_after_a_restart_passes() -> None:
    """A restarted broker numbers its appends anew: ids of two lives must not be mixed."""
    rows = Rows()
    failover(rows, log_end=12)
    rows.leads(20, "broker-0", 2, 12)
    rows.appended(21, "broker-0", 2, 12)

    assert check(rows).outcome is CheckOutcome.PASS


def test_run_without_a_later_epoch_says_that_nothing_was_judged() -> None:
    """A green check that saw no failover proves nothing, and must not look as if it did."""
    rows = Rows()
    rows.leads(1, "broker-0", 0, 0)
    rows.appended(2, "broker-0", 0, 0)

    report = check(rows)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.seen["appends_acknowledged"] == 1


def test_data_partitions_are_none_of_its_business() -> None:
    """A topic written with acks=1 may lose records: its owner chose so."""
    rows = Rows()
    rows.add(1, "broker-0", TraceKind.BECAME_LEADER, partition="t-0", leader_epoch=0, offset=5)
    rows.add(2, "broker-1", TraceKind.BECAME_LEADER, partition="t-0", leader_epoch=0, offset=3)

    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_violation_is_told_once_while_the_run_goes_on_and_whole_at_its_end() -> None:
    """Nobody should wait for the end to hear of it; how much was lost only the end can tell."""
    told: list[Finding] = []
    checker = Fencing(CheckContext())
    checker.on_finding = told.append
    rows = Rows(checker.observe)

    failover(rows, log_end=10)
    assert [finding.summary.partition(" is ")[0] for finding in told] == [
        f"{OFFSETS_0}: 1 append acknowledged in epoch 0 from offset 10"
    ]
    rows.appended(10, "broker-0", 0, 12)
    report = checker.finish()

    assert len(told) == 1
    (finding,) = report.findings
    assert "2 appends acknowledged in epoch 0 from offset 10 are missing" in finding.summary
