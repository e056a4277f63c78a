"""Coordinators that answer from a partial load of their log.

When a broker becomes leader of a partition of `__consumer_offsets`, it loads the groups: it reads
them from the partition's log. If another broker becomes leader during the load, the first broker
stops reading, and the load is partial. For example, the log ends at offset 12, and the load stopped
at offset 10. Kafka lets the replaced broker answer from these 10 records until it unloads the
partition. So the answers of the replaced broker may be outdated. The checkers ask HalfLoads whether
to excuse such answers.

A broker writes a row LOAD_COMPLETED at the end of a load. From the `offset` of this row HalfLoads
learns how far the load has read.

In the rows of these tests, the first argument of a function is `rows` or the time in seconds.
"""

import pytest

from chaos.checkers.evidence.half_loads import HALF_LOAD_KINDS, HalfLoads
from protocol.trace import TraceKind
from tests.support.builders.rows import OFFSETS_0, Rows


def elect(rows: Rows, time_s: float, broker: str, *, leader_epoch: int) -> None:
    """Let the controller elect `broker` as the leader of OFFSETS_0."""
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
    """Let broker-0 complete a load of OFFSETS_0 that has read the offsets before `read_to`."""
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
    ("read_to", "next_leader", "next_epoch", "is_partial"),
    [
        pytest.param(10, "broker-1", 2, True, id="stops at 10 of 12, because broker-1 leads next"),
        pytest.param(
            12, "broker-1", 2, False, id="reads the whole log before it learns of broker-1"
        ),
        pytest.param(10, "broker-0", 1, False, id="ends early, but broker-0 still leads"),
    ],
)
def test_load_is_partial_if_it_ends_before_the_log_and_its_leader_is_replaced(
    read_to: int, next_leader: str, next_epoch: int, is_partial: bool
) -> None:
    """broker-0 leads epoch 1, and its log ends at 12. The load of broker-0 ends at `read_to`.

    In the last case the election names broker-0 and epoch 1 again, so no broker replaces broker-0.
    A load that ends early without a new leader is a bug, which the checkers must not excuse.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    elect(rows, 2, next_leader, leader_epoch=next_epoch)
    load(rows, 3, leader_epoch=1, read_to=read_to)
    loads = HalfLoads()
    for row in rows.rows:
        assert row.kind in HALF_LOAD_KINDS  # the checkers pass on only these kinds of rows
        loads.observe(row)

    assert loads.answers_from_half("broker-0", OFFSETS_0) == is_partial
    # broker-1 has completed no load.
    assert not loads.answers_from_half("broker-1", OFFSETS_0)


def test_second_load_of_an_epoch_does_not_continue_the_first() -> None:
    """Only the first load of an epoch can be excused, and here it read the whole log.

    A broker loads twice in an epoch if it loses its log, and then becomes leader of the same epoch
    again. The second load finds an empty log, so this load ends at 0.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    load(rows, 2, leader_epoch=1, read_to=12)
    elect(rows, 3, "broker-1", leader_epoch=2)
    load(rows, 5, leader_epoch=1, read_to=0)
    loads = HalfLoads()
    for row in rows.rows:
        loads.observe(row)

    assert not loads.answers_from_half("broker-0", OFFSETS_0)


def test_broker_that_leads_again_answers_from_the_partial_load_until_the_next_one() -> None:
    """broker-0 leads in the epochs 1 and 3. Both of its loads end after epoch 3 has begun.

    The load of epoch 1 stops at 0, because broker-0 was replaced in epoch 2. broker-0 answers from
    this partial load until the load of epoch 3 has read the whole log.
    """
    rows = Rows()
    rows.leads(1, "broker-0", leader_epoch=1, log_end=12)
    # HalfLoads needs no row of epoch 2: the election of epoch 3 proves that epoch 1 is over.
    elect(rows, 2, "broker-0", leader_epoch=3)
    rows.leads(2, "broker-0", leader_epoch=3, log_end=12)
    load(rows, 3, leader_epoch=1, read_to=0)
    load(rows, 4, leader_epoch=3, read_to=12)

    loads = HalfLoads()
    *earlier_rows, last_load = rows.rows
    for row in earlier_rows:
        loads.observe(row)
    assert loads.answers_from_half("broker-0", OFFSETS_0)
    loads.observe(last_load)
    assert not loads.answers_from_half("broker-0", OFFSETS_0)
