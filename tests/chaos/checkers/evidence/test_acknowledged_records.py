"""A record acknowledged with acks=all is in the log of every later leader.

With acks=all a record is acknowledged when all replicas in sync have it, with acks=1 when the
leader has it. producer-0 writes to t-0 with acks=all, producer-1 with acks=1. The leader epoch is
the number of a partition's leadership; each election increases it.

- `acknowledge(rows, 5, offset=10, count=2)` acknowledges the records 10 and 11 at 5 s.
- `rows.leads(6, "broker-1", leader_epoch=1, log_end=12, partition="t-0")` lets broker-1 lead in
  epoch 1 from 6 s on, with a log that ends at offset 12.
"""

import pytest

from chaos.checkers.context import CheckContext, ProducerExpectation
from chaos.checkers.processing import Processing
from protocol.trace import TraceKind
from results_schema.results import CheckReport
from tests.support.builders.rows import Rows

T0 = "t-0"


def check(rows: Rows, *, clock_error_us: int = 0, unclean: bool = False) -> CheckReport:
    """Return the report of the checker `processing`, to which this check belongs.

    The checker observes the rows in the order of time.
    """
    checker = Processing(
        CheckContext(
            groups={},
            # This check does not use the producers' period.
            producers=(
                ProducerExpectation(name="producer-0", topic="t", period_us=1, acks_all=True),
                ProducerExpectation(name="producer-1", topic="t", period_us=1),
            ),
            clock_error_us=clock_error_us,
            unclean_elections=unclean,
        )
    )
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def acknowledge(
    rows: Rows, time_s: float, offset: int, count: int, producer: str = "producer-0"
) -> None:
    """Acknowledge `count` records of t-0, from `offset` on."""
    rows.add(
        time_s,
        producer,
        TraceKind.RECORDS_PRODUCED,
        partition=T0,
        offset=offset,
        detail={"count": count},
    )


def takeover(*, log_end: int, acknowledged_s: float = 5, producer: str = "producer-0") -> Rows:
    """Return rows of records 10 and 11, acknowledged at `acknowledged_s`, and of a new leader.

    broker-1 takes over at 6 s, with a log that ends at `log_end`.
    """
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)  # records that each log of the tests has
    acknowledge(rows, acknowledged_s, offset=10, count=2, producer=producer)
    rows.leads(6, "broker-1", leader_epoch=1, log_end=log_end, partition=T0)
    return rows


def loss_of_the_last_replica() -> Rows:
    """Return rows of broker-1, the only replica in sync, which acknowledges records 8 and 9.

    broker-1 loses power at 5 s, and is elected again at 6 s.
    """
    rows = Rows()
    elected: dict[str, object] = {"isr": [1], "reason": "test"}
    rows.add(
        1, "controller-0", TraceKind.LEADER_ELECTED, partition=T0, peer="broker-1", detail=elected
    )
    acknowledge(rows, 4, offset=8, count=2)
    rows.add(5, "driver", TraceKind.NODE_KILLED, peer="broker-1", cause="power loss")
    rows.add(
        6, "controller-0", TraceKind.LEADER_ELECTED, partition=T0, peer="broker-1", detail=elected
    )
    return rows


def test_leader_that_lacks_an_acknowledged_record_is_found() -> None:
    """For example a leader may acknowledge a retried batch before the batch is replicated."""
    (finding,) = check(takeover(log_end=11)).findings

    assert finding.summary == (
        "t-0: record 11 was acknowledged to producer-0, and the log with which broker-1 leads "
        "epoch 1 ends at 11"
    )
    assert finding.partition == T0


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(takeover(log_end=12), id="the log has all records"),
        pytest.param(takeover(log_end=10, producer="producer-1"), id="acks=1"),
        pytest.param(
            takeover(log_end=10, acknowledged_s=7), id="the new leader gives the same offsets"
        ),
    ],
)
def test_log_that_has_all_records_acknowledged_before_with_acks_all_passes(rows: Rows) -> None:
    """Records with acks=1 may be lost.

    Records that are acknowledged after 6 s were written to the new leader, at the same offsets.
    """
    assert not check(rows).findings


def test_acknowledgement_that_only_another_clock_puts_before_the_leader_is_not_judged() -> None:
    """Clocks differ by up to 2 s, so the acknowledgement may be later than the new leader.

    Then the new leader itself has acknowledged records 10 and 11.
    """
    assert not check(takeover(log_end=10), clock_error_us=2_000_000).findings


def test_leader_of_an_ended_epoch_that_takes_over_late_is_not_judged() -> None:
    """broker-0 is elected in epoch 2, but is paused, and takes over only at 7 s.

    By then broker-2 leads in epoch 3, and has acknowledged records 10 and 11.
    """
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)
    rows.leads(5, "broker-2", leader_epoch=3, log_end=10, partition=T0)
    acknowledge(rows, 6, offset=10, count=2)
    rows.leads(7, "broker-0", leader_epoch=2, log_end=10, partition=T0)

    assert not check(rows).findings


def test_records_may_be_lost_with_the_last_replica_in_sync() -> None:
    """broker-1 leads again with an empty log."""
    rows = loss_of_the_last_replica()
    rows.leads(6.1, "broker-1", leader_epoch=2, log_end=0, partition=T0)

    assert not check(rows).findings


def test_topic_that_is_made_again_begins_at_offset_0() -> None:
    """The records of the deleted topic need not be in the log of the new one."""
    rows = takeover(log_end=12)
    rows.add(7, "controller-0", TraceKind.TOPIC_DELETED, detail={"topic": "t"})
    rows.leads(8, "broker-1", leader_epoch=0, log_end=0, partition=T0)

    assert not check(rows).findings


def acknowledged_twice(producer: str = "producer-0") -> Rows:
    """Return rows in which records 8 and 9 are acknowledged at 4 s, and 9 and 10 at 5 s."""
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)
    acknowledge(rows, 5, offset=9, count=2, producer=producer)
    return rows


def test_offset_that_is_acknowledged_twice_is_found() -> None:
    """For example a leader may answer a batch of new records with the offsets of an older batch."""
    (finding,) = check(acknowledged_twice()).findings
    assert finding.summary == (
        "t-0: records 9 to 10 were acknowledged to producer-0, and at the same offsets others "
        "before"
    )
    # The first offset of each acknowledgement.
    assert [row.offset for row in finding.evidence] == [8, 9]


def test_offset_may_be_given_again_after_a_loss_with_the_last_replica() -> None:
    """broker-1 leads again, and acknowledges other records 8 and 9."""
    rows = loss_of_the_last_replica()
    acknowledge(rows, 7, offset=8, count=2)
    assert not check(rows).findings


def test_offset_of_a_record_with_acks_1_may_be_given_again() -> None:
    """A leader may acknowledge such a record alone, and then lose it."""
    assert not check(acknowledged_twice("producer-1")).findings


def test_offsets_of_a_topic_that_was_deleted_are_given_again() -> None:
    """The acknowledgement at 6 s, after the deletion, has the same offsets as the one at 4 s."""
    rows = Rows()
    acknowledge(rows, 4, offset=0, count=2)
    rows.add(5, "controller-0", TraceKind.TOPIC_DELETED, detail={"topic": "t"})
    acknowledge(rows, 6, offset=0, count=2)
    assert not check(rows).findings


def test_nothing_is_judged_with_unclean_elections() -> None:
    """An unclean election makes a replica leader that is not in sync.

    Such a leader lacks records, and gives the offsets of these records to other records.
    """
    for rows in (takeover(log_end=11), acknowledged_twice()):
        assert not check(rows, unclean=True).findings
