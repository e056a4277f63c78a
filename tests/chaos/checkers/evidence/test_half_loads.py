"""Coordinators that answer from a partial load of their log."""

import pytest

from chaos.checkers.evidence.half_loads import HALF_LOAD_KINDS, HalfLoads
from protocol.trace import TraceKind
from tests.support.builders.rows import OFFSETS_0, Rows


@pytest.mark.parametrize(
    ("read_to", "elected_epoch", "is_half"), [(10, 2, True), (12, 2, False), (10, 1, False)]
)
def test_partial_load_ended_before_the_log_and_was_replaced(
    read_to: int, elected_epoch: int, is_half: bool
) -> None:
    """A load that ends early under a leader that stays has another reason: no excuse."""
    rows = Rows()
    rows.leads(1, "broker-0", 1, 12)
    rows.add(
        2,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        leader_epoch=elected_epoch,
        peer="broker-1",
        detail={"isr": [1], "reason": "test"},
    )
    rows.add(
        3,
        "broker-0",
        TraceKind.LOAD_COMPLETED,
        partition=OFFSETS_0,
        leader_epoch=1,
        offset=read_to,
        detail={"records": 1, "bytes": 1, "groups": 1},
    )
    loads = HalfLoads()
    for row in rows.rows:
        assert row.kind in HALF_LOAD_KINDS
        loads.observe(row)

    assert loads.answers_from_half("broker-0", OFFSETS_0) == is_half
    assert not loads.answers_from_half("broker-1", OFFSETS_0)


def test_second_load_of_an_epoch_does_not_continue_the_first() -> None:
    """A broker that receives its leadership again, too late, loads a log that it has lost."""
    rows = Rows()
    rows.leads(1, "broker-0", 1, 12)
    loads = HalfLoads()
    for time_s, read_to in ((2, 12), (5, 0)):
        rows.add(
            time_s,
            "broker-0",
            TraceKind.LOAD_COMPLETED,
            partition=OFFSETS_0,
            leader_epoch=1,
            offset=read_to,
            detail={"records": 1, "bytes": 1, "groups": 1},
        )
    rows.add(
        3,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        leader_epoch=2,
        peer="broker-1",
        detail={"isr": [1], "reason": "test"},
    )
    for row in rows.rows:
        loads.observe(row)

    assert not loads.answers_from_half("broker-0", OFFSETS_0)
