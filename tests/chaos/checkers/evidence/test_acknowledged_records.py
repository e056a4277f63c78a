"""A record acknowledged with acks=all is in the log of every later leader.

In these tests producer-0 writes to the partition t-0 with acks=all, and producer-1 with acks=1. So
only the records of producer-0 must survive when another broker becomes leader.

The tests write the rows of a trace by hand:

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
    """Let the checker `processing` observe the rows in the order of time, and return its report.

    This checker looks for lost records. With `unclean` the cluster allows unclean elections.
    """
    checker = Processing(
        CheckContext(
            groups={},
            # The period must be given, but has no effect on these tests.
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
    """Acknowledge `count` records of t-0 to the producer, from `offset` on."""
    rows.add(
        time_s,
        producer,
        TraceKind.RECORDS_PRODUCED,
        partition=T0,
        offset=offset,
        detail={"count": count},
    )


def rows_of_a_takeover(
    *, log_end: int, acknowledged_s: float = 5, producer: str = "producer-0"
) -> Rows:
    """Return rows in which the records 10 and 11 are acknowledged, and broker-1 becomes leader.

    The records are acknowledged at `acknowledged_s`. broker-1 takes over at 6 s, with a log that
    ends at `log_end`. For example, with a `log_end` of 11 the log lacks the record 11.
    """
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)  # no test loses the records 8 and 9
    acknowledge(rows, acknowledged_s, offset=10, count=2, producer=producer)
    rows.leads(6, "broker-1", leader_epoch=1, log_end=log_end, partition=T0)
    return rows


def loss_of_the_last_replica() -> Rows:
    """Return rows in which broker-1 loses power while it is the only replica in sync.

    broker-1 acknowledges the records 8 and 9 at 4 s, loses power at 5 s, and is elected again at
    6 s. A broker that loses power may lose the end of its log.
    """
    rows = Rows()
    elected: dict[str, object] = {"isr": [1], "reason": "test"}  # broker-1 alone is in sync
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
    """The record 11 is lost: the log of the new leader ends at 11.

    For example, the old leader may have acknowledged the record before the followers had it. A
    leader with a bug would do so if it answered the retry of a batch at once.
    """
    (finding,) = check(rows_of_a_takeover(log_end=11)).findings

    assert finding.summary == (
        "t-0: record 11 was acknowledged to producer-0, and the log with which broker-1 leads "
        "epoch 1 ends at 11"
    )
    assert finding.partition == T0


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(rows_of_a_takeover(log_end=12), id="the new log has all records"),
        pytest.param(
            rows_of_a_takeover(log_end=10, producer="producer-1"), id="lost records had acks=1"
        ),
        pytest.param(
            rows_of_a_takeover(log_end=10, acknowledged_s=7),
            id="the new leader acknowledged them itself",
        ),
    ],
)
def test_log_that_has_all_records_acknowledged_before_with_acks_all_passes(rows: Rows) -> None:
    """A new leader must have the records that were acknowledged before 6 s with acks=all.

    In the last case the records 10 and 11 are acknowledged at 7 s. So broker-1 appended them when
    it was leader, and they need not be in the log with which it began.
    """
    assert not check(rows).findings


def test_acknowledgement_that_only_another_clock_puts_before_the_leader_is_not_judged() -> None:
    """The acknowledgement is at 5 s, and broker-1 leads from 6 s on. The clocks may differ by 2 s.

    So perhaps the acknowledgement came after the change of the leader, and broker-1 itself appended
    the records.
    """
    assert not check(rows_of_a_takeover(log_end=10), clock_error_us=2_000_000).findings


def test_leader_of_an_ended_epoch_that_takes_over_late_is_not_judged() -> None:
    """broker-0 takes over in an epoch that has already ended, so its log no longer counts.

    1. broker-0 is elected in epoch 2, and is paused at once.
    2. At 5 s broker-2 takes over in epoch 3. At 6 s it acknowledges the records 10 and 11.
    3. At 7 s broker-0 resumes, and takes over in epoch 2 without these records.
    """
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)
    rows.leads(5, "broker-2", leader_epoch=3, log_end=10, partition=T0)
    acknowledge(rows, 6, offset=10, count=2)
    rows.leads(7, "broker-0", leader_epoch=2, log_end=10, partition=T0)

    assert not check(rows).findings


def test_records_may_be_lost_with_the_last_replica_in_sync() -> None:
    """broker-1 has lost its whole log. No other replica was in sync, so the records may be lost."""
    rows = loss_of_the_last_replica()
    rows.leads(6.1, "broker-1", leader_epoch=2, log_end=0, partition=T0)

    assert not check(rows).findings


def test_topic_that_is_made_again_begins_at_offset_0() -> None:
    """A topic is deleted and created again. Its new log need not have the old records."""
    rows = rows_of_a_takeover(log_end=12)
    rows.add(7, "controller-0", TraceKind.TOPIC_DELETED, detail={"topic": "t"})
    rows.leads(8, "broker-1", leader_epoch=0, log_end=0, partition=T0)

    assert not check(rows).findings


def rows_acknowledged_twice(producer: str = "producer-0") -> Rows:
    """Return rows in which records 8 and 9 are acknowledged at 4 s, and 9 and 10 at 5 s."""
    rows = Rows()
    acknowledge(rows, 4, offset=8, count=2)
    acknowledge(rows, 5, offset=9, count=2, producer=producer)
    return rows


def test_offset_that_is_acknowledged_twice_is_found() -> None:
    """The offset 9 was given to two records, so at least one of these records is not in the log.

    For example, a leader may by mistake answer a batch of new records with the offsets of an older
    batch.
    """
    (finding,) = check(rows_acknowledged_twice()).findings
    assert finding.summary == (
        "t-0: records 9 to 10 were acknowledged to producer-0, and at the same offsets others "
        "before"
    )
    # The evidence has the rows of both acknowledgements. The offset of a row is the offset of its
    # first record.
    assert [row.offset for row in finding.evidence] == [8, 9]


def test_offset_may_be_given_again_after_a_loss_with_the_last_replica() -> None:
    """The old records 8 and 9 are lost, and broker-1 gives the offsets to new records."""
    rows = loss_of_the_last_replica()
    acknowledge(rows, 7, offset=8, count=2)
    assert not check(rows).findings


def test_offset_of_a_record_with_acks_1_may_be_given_again() -> None:
    """A leader acknowledges a record with acks=1 before the followers have it.

    So the next leader may lack the record, and may give its offset to another record.
    """
    assert not check(rows_acknowledged_twice("producer-1")).findings


def test_offsets_of_a_topic_that_was_deleted_are_given_again() -> None:
    """The new topic of this name begins at offset 0, so the offsets 0 and 1 are given again."""
    rows = Rows()
    acknowledge(rows, 4, offset=0, count=2)
    rows.add(5, "controller-0", TraceKind.TOPIC_DELETED, detail={"topic": "t"})
    acknowledge(rows, 6, offset=0, count=2)
    assert not check(rows).findings


def test_nothing_is_judged_with_unclean_elections() -> None:
    """An unclean election makes a replica leader that is not in sync.

    Such a leader may lack acknowledged records, and give their offsets to other records.
    """
    for rows in (rows_of_a_takeover(log_end=11), rows_acknowledged_twice()):
        assert not check(rows, unclean=True).findings
