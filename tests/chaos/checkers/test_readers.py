"""The readers checker finds partitions without a reader although a member could read.

A partition has a reader while a member owns the partition, and the process of this member runs.
After a member has died, its session must end, and a rebalance must give its partitions to other
members. This takes a while, so the checker allows a partition to be without a reader for BOUND_S. A
reader must also make progress: if records wait, the reader must process one within READING_S.

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
# Times in seconds, from which the checker computes its bounds. These four are settings of the
# group. The function `checker` below sets them, except for the heartbeat interval, which has its
# default.
SESSION_S, REQUEST_S, HEARTBEAT_S, POLL_S = 10, 5, 3, 1
SLACK_S = 10
"""Allows for all other delays. This is a constant of the checker (SLACK_US)."""
BOUND_S = 2 * SESSION_S + REQUEST_S + 2 * (HEARTBEAT_S + POLL_S) + SLACK_S
"""The longest time that a partition may be without a reader: 43 s."""
READING_S = 2 * REQUEST_S + POLL_S + SLACK_S
"""The longest time that a reader may be without progress while records wait: 21 s."""


def checker(*, transaction_partitions: tuple[str, ...] = ()) -> Readers:
    """Return a checker of group g.

    `transaction_partitions` are the partitions of the topic `__transaction_state` in which the
    transactions of the members are stored. By default the members use no transactions.
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
    """Return the checker's report of a group without transactions."""
    readers = checker()
    for row in rows.rows:
        readers.observe(row)
    return readers.finish()


def group() -> Rows:
    """Return rows of the group, in which C0 owns t-0 and C1 owns t-1.

    At 10 s the stage "steady" of the run begins. The checker judges nothing before it.
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
    """Add the row of a producer that learns that its record is stored in t-0 at `offset`."""
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
    """C1 dies at 20 s. Its session ends, and a rebalance gives its partition t-1 to C0 at 32 s."""
    rows = group()
    kill(rows, 20, C1)
    rows.revoked(31, C0)
    rows.assigned(32, C0, names=["t-0", "t-1"], generation=2)

    report = check(ended(rows, 300))

    assert report.outcome is CheckOutcome.PASS
    # The longest time without a reader is that of t-1, from 20 to 32 s.
    assert report.seen["longest_undisturbed_us"] == 12_000_000


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
    """C1 starts again, but 5 s too late. Until then t-1 had no reader, which is a violation."""
    rows = group()
    kill(rows, 20, C1)
    rows.add(20 + BOUND_S + 5, C1, TraceKind.NODE_STARTED, incarnation=1, detail={})

    assert check(ended(rows, 300)).outcome is CheckOutcome.VIOLATED


def test_fault_of_the_cluster_restarts_the_bound() -> None:
    """A broker is cut off from 40 s to 120 s, which excuses the group until 120 s.

    After this fault, t-1 may be without a reader for the whole BOUND_S again.
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

    A pause stops the process of the member (SIGSTOP), so the member sends no heartbeats.
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

    # 22 s is READING_S + 1. "From 0" is the offset of the record that waits.
    assert "t-0: no member of g has read on from 0 for 22 s" in report.findings[0].summary


def check_transactional(rows: Rows) -> CheckReport:
    """Judge a group whose members commit in transactions."""
    readers = checker(transaction_partitions=("__transaction_state-0",))
    for row in rows.rows:
        readers.observe(row)
    return readers.finish()


def lost_offsets() -> Rows:
    """Return rows in which the offsets partition loses data.

    broker-0 is alone in the ISR. The disk of broker-0 is emptied, and then broker-0 is elected
    again. No other broker has the data, so the data is lost.
    """
    rows = Rows()
    rows.elected(1, "broker-0", isr=[0])
    rows.fault(2, "broker-0", disk="empty", nodes=["broker-0"])
    rows.elected(3, "broker-0", isr=[0])
    rows.healed(4, "broker-0")
    return rows


def then_without_progress(rows: Rows, *, fetched_at_s: int | None = None) -> Rows:
    """Add a steady group in which no member reads the record that is produced at 20 s.

    C0 gets the committed offset of t-0 at `fetched_at_s`, or never if this is None.
    """
    rows.assigned(5, C0, names=["t-0"])
    rows.assigned(5, C1, names=["t-1"])
    rows.stage(10, "steady")
    if fetched_at_s is not None:
        rows.fetched(fetched_at_s, C0, offset=0)
    produce(rows, 20, offset=0)
    # A reader may have to wait for an open transaction. The transaction times out after 10 s. The
    # coordinator looks for such transactions every 5 s, and may need two of these intervals.
    longest_transaction_s = 10 + 2 * 5
    return ended(rows, 20 + READING_S + longest_transaction_s + 1)


def test_reader_that_waits_for_a_lost_transaction_is_excused() -> None:
    """A reader must know its committed offset before it can read.

    The coordinator does not tell the reader its offset while an open transaction may still change
    this offset. Here the record that ended the transaction is lost, so the transaction stays open,
    and the reader waits for ever.
    """
    report = check_transactional(then_without_progress(lost_offsets()))

    assert report.findings == ()
    assert report.excused == {"lost transaction": 1}


def test_excuse_needs_lost_data_and_a_missing_offset() -> None:
    """The excuse of the test above needs two things: lost data, and a reader without its offset.

    - A reader that got its committed offset can read, so it must read.
    - Without lost data no transaction stays open for ever, so every reader must read.
    """
    got_its_offset = check_transactional(then_without_progress(lost_offsets(), fetched_at_s=11))
    nothing_lost = check_transactional(then_without_progress(Rows()))

    for report in (got_its_offset, nothing_lost):
        assert "no member of g has read on from 0" in report.findings[0].summary
        assert report.excused == {}


def test_reader_with_progress_passes() -> None:
    """A reader must make progress only while records wait.

    The time without progress counts from the last processed record. After 50 s no record waits, so
    C0 may do nothing until the end of the run.
    """
    rows = group()
    produce(rows, 20, offset=0)
    produce(rows, 21, offset=1)
    rows.consumed(35, C0, first=0, last=0)
    # The second record is processed 29 s after it was produced, but only 15 s after the first one.
    rows.consumed(50, C0, first=1, last=1)

    assert check(ended(rows, 200)).outcome is CheckOutcome.PASS


def test_run_waits_for_a_reader_and_its_first_step() -> None:
    """After all faults are healed, a run goes on while `unsettled` says what it has to wait for.

    `unsettled` has a sentence for each partition that has no reader, or that has not been read
    since the faults were healed. When the bound of a partition is over, the run need not wait for
    this partition any longer, because the checker has a finding by then.
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
