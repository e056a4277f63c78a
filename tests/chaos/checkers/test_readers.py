"""The readers checker finds partitions without a reader although a member could read.

A partition has a reader while a member owns it whose process runs. After a member has died it takes
a while until its session ends and a rebalance gives its partitions to others, so the checker allows
a partition to be without a reader for BOUND_S. A reader must also make progress: if records wait,
it must process one within READING_S.

Each test writes the trace of a small group by hand. The members are C0 and C1, the partitions are
t-0 and t-1. Where a docstring says "Planted bug", it describes a bug of a coordinator or a consumer
that would leave such a trace.
"""

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.readers import Readers
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
# The times are those of the group in `checker`; the slack is SLACK_US of the checker.
SESSION_S, REQUEST_S, HEARTBEAT_S, POLL_S, SLACK_S = 10, 5, 3, 1, 10
BOUND_S = 2 * SESSION_S + REQUEST_S + 2 * (HEARTBEAT_S + POLL_S) + SLACK_S
"""Longest allowed time without a reader: 43 s."""
READING_S = 2 * REQUEST_S + POLL_S + SLACK_S
"""Longest allowed time without progress: 21 s."""


def checker(*, transaction_partitions: tuple[str, ...] = ()) -> Readers:
    """Return a checker of group g.

    `transaction_partitions` are the partitions of `__transaction_state` with the transactions of
    the members. By default the members use no transactions.
    """
    return Readers(
        CheckContext(
            transaction_timeout_us=10_000_000,
            transaction_cleanup_us=5_000_000,
            groups={
                "g": GroupExpectation(
                    transaction_partitions=transaction_partitions,
                    consumers=(C0, C1),
                    offsets_partition=OFFSETS_0,
                    commits=True,
                    partitions=("t-0", "t-1"),
                    session_timeout_us=10_000_000,
                    request_timeout_us=5_000_000,
                    rebalance_timeout_us=20_000_000,
                    max_poll_interval_us=20_000_000,
                    application_us=1_000_000,
                )
            },
        )
    )


def check(rows: Rows) -> CheckReport:
    readers = checker()
    for row in rows.rows:
        readers.observe(row)
    return readers.finish()


def group() -> Rows:
    """Return rows of the group, in which C0 owns t-0 and C1 owns t-1.

    The run is in its stage "steady" from 10 s on, and the checker judges from there on.
    """
    rows = Rows()
    rows.assigned(5, C0, names=["t-0"])
    rows.assigned(5, C1, names=["t-1"])
    rows.stage(10, "steady")
    return rows


def kill(rows: Rows, time_s: float, node: str) -> None:
    """Let a fault kill `node`, which does not start again by itself."""
    rows.fault(time_s, node, nodes=[node])
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=node, cause="crash")


def produce(rows: Rows, time_s: float, offset: int) -> None:
    """Let a producer learn that its record is in t-0 at `offset`."""
    rows.add(
        time_s,
        "producer-0",
        TraceKind.RECORDS_PRODUCED,
        partition="t-0",
        offset=offset,
        detail={"count": 1},
    )


def ended(rows: Rows, time_s: float) -> Rows:
    """Add the end of the run at `time_s`, and return the rows."""
    rows.stage(time_s, "stopping")
    return rows


def test_partitions_of_a_dead_member_get_another_reader() -> None:
    """C1 dies. At the end of its session a rebalance gives its partition to C0."""
    rows = group()
    kill(rows, 20, C1)
    rows.revoked(31, C0)
    rows.assigned(32, C0, names=["t-0", "t-1"], generation=2)

    report = check(ended(rows, 300))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["longest_undisturbed_us"] == 12_000_000  # t-1, from 20 to 32 s


def test_partitions_that_stay_with_a_dead_member_are_found() -> None:
    """Planted bug: a rebalance does not give the partition of the dead member to another member."""
    rows = group()
    kill(rows, 20, C1)
    rows.revoked(31, C0)
    rows.assigned(32, C0, names=["t-0"], generation=2)

    report = check(ended(rows, 20 + BOUND_S + 1))

    assert report.outcome is CheckOutcome.VIOLATED
    # 44 s is BOUND_S + 1.
    assert "t-1 of g has had no reader for 44 s" in report.findings[0].summary
    assert (report.findings[0].group, report.findings[0].partition) == ("g", "t-1")


def test_time_within_the_bound_is_not_judged() -> None:
    """t-1 is without a reader for one second less than the checker allows."""
    rows = group()
    kill(rows, 20, C1)

    assert not check(ended(rows, 20 + BOUND_S - 1)).findings


def test_gap_that_ended_too_late_is_found_at_the_next_change() -> None:
    """C1 starts again 5 s after the end of the bound. This does not excuse the time before."""
    rows = group()
    kill(rows, 20, C1)
    rows.add(20 + BOUND_S + 5, C1, TraceKind.NODE_STARTED, incarnation=1, detail={})

    assert check(ended(rows, 300)).outcome is CheckOutcome.VIOLATED


def test_fault_of_the_cluster_restarts_the_bound() -> None:
    """A broker is cut off from 40 s to 120 s.

    The group is excused until 120 s, and then has the whole BOUND_S again.
    """
    rows = group()
    kill(rows, 20, C1)
    rows.fault(40, "broker-0", fault="cut", nodes=["broker-0"])
    rows.healed(120, "broker-0", fault="cut")

    assert not check(ended(rows, 120 + BOUND_S - 1)).findings


def test_group_without_a_live_member_is_not_judged() -> None:
    """Both members are dead, so no member could read."""
    rows = group()
    kill(rows, 20, C1)
    rows.add(20, "driver", TraceKind.NODE_KILLED, peer=C0, cause="crash")

    assert not check(ended(rows, 400)).findings


def test_paused_member_is_no_reader() -> None:
    """Planted bug: a paused member keeps its partitions after the end of its session.

    A pause stops the process (SIGSTOP), so that it sends no heartbeats.
    """
    rows = group()
    rows.add(20, "driver", TraceKind.NODE_PAUSED, peer=C1)

    report = check(ended(rows, 20 + BOUND_S + 1))

    assert "t-1 of g has had no reader" in report.findings[0].summary


def test_reader_without_progress_is_found() -> None:
    """Planted bug: a consumer leaves one of its partitions out of its fetches."""
    rows = group()
    produce(rows, 20, offset=0)

    report = check(ended(rows, 20 + READING_S + 1))

    # 22 s is READING_S + 1.
    assert "t-0: no member of g has read on from 0 for 22 s" in report.findings[0].summary


def check_transactional(rows: Rows) -> CheckReport:
    """Judge a group whose members commit in transactions."""
    readers = checker(transaction_partitions=("__transaction_state-0",))
    for row in rows.rows:
        readers.observe(row)
    return readers.finish()


def lost_offsets() -> Rows:
    """Return rows in which the offsets partition loses data.

    broker-0 is alone in the ISR. Its disk is emptied, and then broker-0 is elected again.
    """
    rows = Rows()
    rows.elected(1, "broker-0", isr=[0])
    rows.fault(2, "broker-0", disk="empty", nodes=["broker-0"])
    rows.elected(3, "broker-0", isr=[0])
    rows.healed(4, "broker-0")
    return rows


def then_without_progress(rows: Rows, *, fetched_at_s: int | None = None) -> Rows:
    """Add a steady group in which no member reads the record that is produced at 20 s.

    C0 gets the committed offset of t-0 at `fetched_at_s`. None: it never gets it.
    """
    rows.assigned(5, C0, names=["t-0"])
    rows.assigned(5, C1, names=["t-1"])
    rows.stage(10, "steady")
    if fetched_at_s is not None:
        rows.fetched(fetched_at_s, C0, offset=0)
    produce(rows, 20, offset=0)
    # A reader may wait for an open transaction, which first has to time out (10 s). The coordinator
    # notices this in a cleanup, within two intervals of 5 s.
    longest_transaction_s = 10 + 2 * 5
    return ended(rows, 20 + READING_S + longest_transaction_s + 1)


def test_reader_that_waits_for_a_lost_transaction_is_excused() -> None:
    """A reader must know its committed offset before it can read.

    The coordinator does not tell the offset while a transaction may still change it. Here the
    record that ends this transaction is lost, so the reader waits for ever.
    """
    report = check_transactional(then_without_progress(lost_offsets()))

    assert report.findings == ()
    assert report.excused == {"lost transaction": 1}


def test_excuse_needs_lost_data_and_a_missing_offset() -> None:
    """The excuse of the test above needs both: lost data, and a reader without its offset.

    A reader that got its committed offset can read, so it must. Without lost data no transaction
    stays open, so every reader must read.
    """
    got_its_offset = check_transactional(then_without_progress(lost_offsets(), fetched_at_s=11))
    nothing_lost = check_transactional(then_without_progress(Rows()))

    for report in (got_its_offset, nothing_lost):
        assert "no member of g has read on from 0" in report.findings[0].summary
        assert report.excused == {}


def test_reader_with_progress_passes() -> None:
    """The time without progress counts from the last processed record, and only if records wait.

    After 50 s no record waits, so the reader may do nothing until the end of the run.
    """
    rows = group()
    produce(rows, 20, offset=0)
    produce(rows, 21, offset=1)
    rows.consumed(35, C0, first=0, last=0)
    # This is 29 s after the record was produced, but only 15 s after the last progress.
    rows.consumed(50, C0, first=1, last=1)

    assert check(ended(rows, 200)).outcome is CheckOutcome.PASS


def test_run_waits_for_a_reader_and_its_first_step() -> None:
    """A run with a `recovery_timeout` goes on after the faults while `unsettled` names partitions.

    Such a partition has no reader, or has not been read since the faults were healed. Once its
    bound is over the run need not wait any longer, because the checker has its finding.
    """
    rows = group()
    rows.revoked(30, C1)
    rows.stage(40, "liveness")
    produce(rows, 41, offset=0)
    readers = checker()
    for row in rows.rows:
        readers.observe(row)
    assert readers.unsettled(42_000_000) == (
        "g has not read t-0 since healing",
        "t-1 of g has no reader",
    )
    assert readers.unsettled(300_000_000) == ()  # both bounds are over

    # C0 reads the record of t-0, and t-1 gets a reader.
    later_rows = Rows()
    later_rows.consumed(43, C0, first=0, last=0)
    later_rows.assigned(44, C1, names=["t-1"], generation=2)
    for row in later_rows.rows:
        readers.observe(row)
    assert readers.unsettled(45_000_000) == ()
