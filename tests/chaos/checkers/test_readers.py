"""The readers checker finds partitions without a reader although a member could read.

A partition has a reader while a member with a running process owns it. The reader makes progress
while it processes records that wait. The checker has a bound for each: BOUND_S without a reader,
and READING_S without progress.

The group g has the members C0 and C1 and the partitions t-0 and t-1. `rows.revoked(31, C0)` takes
all partitions from C0; `rows.consumed(35, C0, first=0, last=0)` lets C0 process record 0 of t-0.
"Planted bug" in a docstring names a bug that the test would find. A fault is healed when it is
undone.
"""

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.readers import Readers
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
# Longest allowed time without a reader: two sessions, a request, two times a heartbeat (3 s) and a
# poll (1 s), and the checker's SLACK_US (10 s).
BOUND_S = 2 * 10 + 5 + 2 * (3 + 1) + 10
# Longest allowed time without progress: two requests, a poll, and SLACK_US.
READING_S = 2 * 5 + 1 + 10


def checker(*, transaction_partitions: tuple[str, ...] = ()) -> Readers:
    """Return a checker of group g; partitions of transactions make its members transactional."""
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
    """Return rows of two members, with a partition each, in a steady state from 10 s on."""
    rows = Rows()
    rows.assigned(5, C0, names=["t-0"])
    rows.assigned(5, C1, names=["t-1"])
    rows.stage(10, "steady")
    return rows


def killed(rows: Rows, time_s: float, node: str) -> None:
    """Let a fault kill `node`, which does not start again by itself."""
    rows.fault(time_s, node, nodes=[node])
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=node, cause="crash")


def produced(rows: Rows, time_s: float, offset: int) -> None:
    """Add the acknowledgement of the record of t-0 at `offset`."""
    rows.add(
        time_s,
        "producer-0",
        TraceKind.RECORDS_PRODUCED,
        partition="t-0",
        offset=offset,
        detail={"count": 1},
    )


def end(rows: Rows, time_s: float) -> Rows:
    """Add the end of the run, and return the rows."""
    rows.stage(time_s, "stopping")
    return rows


def test_partitions_of_a_dead_member_get_another_reader() -> None:
    """The dead member's session ends, and a rebalance gives its partition to the other member."""
    rows = group()
    killed(rows, 20, C1)
    rows.revoked(31, C0)
    rows.assigned(32, C0, names=["t-0", "t-1"], generation=2)

    report = check(end(rows, 300))

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["longest_undisturbed_us"] == 12_000_000  # t-1, from 20 to 32 s


def test_partitions_that_stay_with_a_dead_member_are_found() -> None:
    """Planted bug: the partitions of a dead member stay with it, or are assigned to no member."""
    rows = group()
    killed(rows, 20, C1)
    rows.revoked(31, C0)
    rows.assigned(32, C0, names=["t-0"], generation=2)

    report = check(end(rows, 20 + BOUND_S + 1))

    assert report.outcome is CheckOutcome.VIOLATED
    # 44 s is BOUND_S + 1.
    assert "t-1 of g has had no reader for 44 s" in report.findings[0].summary
    assert (report.findings[0].group, report.findings[0].partition) == ("g", "t-1")


def test_time_within_the_bound_is_not_judged() -> None:
    """A partition may be without a reader as long as sessions and rebalances may take."""
    rows = group()
    killed(rows, 20, C1)

    assert not check(end(rows, 20 + BOUND_S - 1)).findings


def test_gap_that_ended_too_late_is_found_at_the_next_change() -> None:
    """The dead member starts again after the bound, which does not excuse the gap before."""
    rows = group()
    killed(rows, 20, C1)
    rows.add(20 + BOUND_S + 5, C1, TraceKind.NODE_STARTED, incarnation=1, detail={})

    assert check(end(rows, 300)).outcome is CheckOutcome.VIOLATED


def test_fault_of_the_cluster_restarts_the_bound() -> None:
    """While a broker is cut off, the group is excused. With the healing the bound begins anew."""
    rows = group()
    killed(rows, 20, C1)
    rows.fault(40, "broker-0", fault="cut", nodes=["broker-0"])
    rows.healed(120, "broker-0", fault="cut")

    assert not check(end(rows, 120 + BOUND_S - 1)).findings


def test_group_without_a_live_member_is_not_judged() -> None:
    """Both members are dead, so no member could read."""
    rows = group()
    killed(rows, 20, C1)
    rows.add(20, "driver", TraceKind.NODE_KILLED, peer=C0, cause="crash")

    assert not check(end(rows, 400)).findings


def test_stopped_member_is_no_reader() -> None:
    """Planted bug: a member under SIGSTOP keeps its partitions after its session has ended."""
    rows = group()
    rows.add(20, "driver", TraceKind.NODE_PAUSED, peer=C1)

    report = check(end(rows, 20 + BOUND_S + 1))

    assert "t-1 of g has had no reader" in report.findings[0].summary


def test_reader_without_progress_is_found() -> None:
    """Planted bug: a consumer whose fetches leave out one of its partitions."""
    rows = group()
    produced(rows, 20, offset=0)

    report = check(end(rows, 20 + READING_S + 1))

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

    Its last replica in sync, broker-0, is elected again after its disk was emptied.
    """
    rows = Rows()
    rows.elected(1, "broker-0", isr=[0])
    rows.fault(2, "broker-0", disk="empty", nodes=["broker-0"])
    rows.elected(3, "broker-0", isr=[0])
    rows.healed(4, "broker-0")
    return rows


def then_without_progress(rows: Rows, *, fetched_at_s: int | None = None) -> Rows:
    """Add a steady group in which no member reads the record that is produced at 20 s."""
    rows.assigned(5, C0, names=["t-0"])
    rows.assigned(5, C1, names=["t-1"])
    rows.stage(10, "steady")
    if fetched_at_s is not None:
        rows.fetched(fetched_at_s, C0, offset=0)
    produced(rows, 20, offset=0)
    # A transaction may also have to time out (10 s), and be cleaned up within two intervals of 5 s.
    return end(rows, 20 + READING_S + 10 + 2 * 5 + 1)


def test_reader_that_waits_for_a_lost_transaction_is_excused() -> None:
    """The reader waits for its committed offset, which is in a transaction.

    The end of this transaction is lost, so the reader gets no offset, and cannot read.
    """
    report = check_transactional(then_without_progress(lost_offsets()))

    assert report.findings == ()
    assert report.excused == {"lost transaction": 1}


def test_excuse_needs_lost_data_and_a_missing_offset() -> None:
    """A reader that got its committed offset must read on; without lost data every reader must."""
    got_its_offset = check_transactional(then_without_progress(lost_offsets(), fetched_at_s=11))
    nothing_lost = check_transactional(then_without_progress(Rows()))

    for report in (got_its_offset, nothing_lost):
        assert "no member of g has read on from 0" in report.findings[0].summary
        assert report.excused == {}


def test_reader_with_progress_passes() -> None:
    """Each processed record restarts the bound; without waiting records there is no bound."""
    rows = group()
    produced(rows, 20, offset=0)
    produced(rows, 21, offset=1)
    rows.consumed(35, C0, first=0, last=0)
    # 50 s is too late for the record produced at 21 s, but in time after the progress at 35 s.
    rows.consumed(50, C0, first=1, last=1)

    assert check(end(rows, 200)).outcome is CheckOutcome.PASS


def test_run_waits_for_a_reader_and_its_first_step() -> None:
    """With a `recovery_timeout` the run continues while `unsettled` names a partition.

    A partition is settled once it has a reader and was read since healing. It also counts as
    settled once its bound has ended, because the run need not wait any longer.
    """
    rows = group()
    rows.revoked(30, C1)
    rows.stage(40, "liveness")
    produced(rows, 41, offset=0)
    readers = checker()
    for row in rows.rows:
        readers.observe(row)
    assert readers.unsettled(42_000_000) == (
        "g has not read t-0 since healing",
        "t-1 of g has no reader",
    )
    assert readers.unsettled(300_000_000) == ()  # both bounds have ended

    # C0 reads the record of t-0, and t-1 gets a reader.
    later_rows = Rows()
    later_rows.consumed(43, C0, first=0, last=0)
    later_rows.assigned(44, C1, names=["t-1"], generation=2)
    for row in later_rows.rows:
        readers.observe(row)
    assert readers.unsettled(45_000_000) == ()
