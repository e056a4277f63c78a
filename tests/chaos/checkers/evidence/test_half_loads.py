"""Coordinators that answer from a partial load of their log.

A coordinator loads (reads) its groups from the log of an offsets partition, which is a partition of
`__consumer_offsets`. A load is partial if another broker becomes leader during the load, and the
load therefore ends before the end of the log. In Kafka the replaced broker answers from the loaded
part until it unloads the partition, so checkers excuse its outdated answers.

The trace has a LOAD_COMPLETED row for each load that ends. Its `offset` is the end of the part that
was read. Each election of a new leader increases the leader epoch of the partition.
"""

import pytest

from chaos.checkers.evidence.half_loads import HALF_LOAD_KINDS, HalfLoads
from protocol.trace import TraceKind
from tests.support.builders.rows import OFFSETS_0, Rows


def elect(rows: Rows, time_s: float, broker: str, *, leader_epoch: int) -> None:
    """Let the controller elect a leader of the partition."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        leader_epoch=leader_epoch,
        peer=broker,
        detail={"isr": [1], "reason": "test"},  # the ISR and the reason do not matter
    )


def load(rows: Rows, time_s: float, *, leader_epoch: int, read_to: int) -> None:
    """Let broker-0 complete a load that has read the log up to `read_to`."""
    rows.add(
        time_s,
        "broker-0",
        TraceKind.LOAD_COMPLETED,
        partition=OFFSETS_0,
        leader_epoch=leader_epoch,
        offset=read_to,
        detail={"records": 1, "bytes": 1, "groups": 1},  # the counts do not matter
    )


@pytest.mark.parametrize(
    ("read_to", "elected", "elected_epoch", "is_partial"),
    [
        pytest.param(10, "broker-1", 2, True, id="ends at 10 of 12, and a new leader"),
        pytest.param(12, "broker-1", 2, False, id="reads the whole log"),
        pytest.param(10, "broker-0", 1, False, id="ends early under the same leader"),
    ],
)
def test_load_is_partial_if_it_ends_before_the_log_and_its_leader_is_replaced(
    read_to: int, elected: str, elected_epoch: int, is_partial: bool
) -> None:
    """broker-0 leads epoch 1 with a log that ends at 12, and its load ends at `read_to`.

    In the last case the row of the election names broker-0 and epoch 1 again, so broker-0 is not
    replaced. Then the change of the leader is not why the load ends early, and checkers do not
    excuse the answers of broker-0.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    elect(rows, 2, elected, leader_epoch=elected_epoch)
    load(rows, 3, leader_epoch=1, read_to=read_to)
    loads = HalfLoads()
    for row in rows.rows:
        assert row.kind in HALF_LOAD_KINDS  # otherwise checkers would not pass the row on
        loads.observe(row)

    assert loads.answers_from_half("broker-0", OFFSETS_0) == is_partial
    # broker-1 has completed no load.
    assert not loads.answers_from_half("broker-1", OFFSETS_0)


def test_second_load_of_an_epoch_does_not_continue_the_first() -> None:
    """Only the first load of an epoch counts, and here it read the whole log.

    A second load of an epoch occurs if a broker has lost its log, and then hears of its old
    leadership again.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    loads = HalfLoads()
    # The first load of epoch 1 reads the whole log, to 12. The second one ends at 0.
    for time_s, read_to in ((2, 12), (5, 0)):
        load(rows, time_s, leader_epoch=1, read_to=read_to)
    elect(rows, 3, "broker-1", leader_epoch=2)
    for row in rows.rows:
        loads.observe(row)

    assert not loads.answers_from_half("broker-0", OFFSETS_0)


def test_broker_that_leads_again_answers_from_the_partial_load_until_the_next_one() -> None:
    """broker-0 leads epochs 1 and 3. Its load of epoch 1 ends at 0 after epoch 3 has begun.

    The load of epoch 3 then reads the whole log.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    elect(rows, 2, "broker-0", leader_epoch=3)
    rows.leads(2, "broker-0", leader_epoch=3, log_end=12)
    loads = HalfLoads()
    answers = []
    for time_s, leader_epoch, read_to in ((3, 1, 0), (4, 3, 12)):
        load(rows, time_s, leader_epoch=leader_epoch, read_to=read_to)
    for row in rows.rows:
        loads.observe(row)
        answers.append(loads.answers_from_half("broker-0", OFFSETS_0))
    assert answers[-2:] == [True, False]
