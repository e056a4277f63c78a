"""The plan of an offset reset: the new offset of each partition, and resets that are impossible.

`plan_reset(target, bounds, committed)` returns a row for each partition. In a row, `current` is the
committed offset, and `new` the planned one. If the target asks for an offset outside of the log,
`new` is the nearer end of the log, and `asked_for` is that offset. Otherwise `asked_for` is None.
"""

import pytest

from cluster.client.admin.offset_reset import (
    CannotShift,
    LogBounds,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    plan_reset,
)
from protocol.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = {P0: LogBounds(earliest=3, latest=10), P1: LogBounds(earliest=0, latest=4)}


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (ToEarliest(), [3, 0]),
        (ToLatest(), [10, 4]),
        (ToCurrent(), [7, 4]),
        (ToOffset(offset=4), [4, 4]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plan_has_each_partition_within_its_own_log(target: ResetTarget, new: list[int]) -> None:
    """A target such as the log end is a different offset in each partition.

    P1 has no committed offset. For such a partition `ToCurrent` plans the log end, as in Kafka.
    """
    plan = plan_reset(target, BOUNDS, {P0: 7})
    assert [(row.partition, row.current, row.new) for row in plan] == [
        (P0, 7, new[0]),
        (P1, None, new[1]),
    ]
    assert [row.asked_for for row in plan] == [None, None]


@pytest.mark.parametrize(
    ("target", "new", "asked_for"),
    [
        (ToOffset(offset=0), [3, 0], [0, None]),
        (ToOffset(offset=99), [10, 4], [99, 99]),
        (ShiftBy(records=-5), [3, 0], [2, -3]),
        (ShiftBy(records=4), [10, 4], [11, 6]),
        (ShiftBy(records=2), [9, 4], [None, None]),
    ],
)
def test_offset_outside_of_the_log_is_moved_to_the_nearer_end_with_a_warning(
    target: ResetTarget, new: list[int], asked_for: list[int | None]
) -> None:
    """The plan moves the offset, as Kafka's tool does. A value of `asked_for` is the warning.

    The lists have the values of P0 and P1, whose committed offsets are 7 and 2.
    """
    plan = plan_reset(target, BOUNDS, {P0: 7, P1: 2})
    assert [row.new for row in plan] == new
    assert [row.asked_for for row in plan] == asked_for


def test_shift_without_a_committed_offset_cannot_be_planned() -> None:
    """A shift starts from the committed offset. The error names the partitions without one."""
    with pytest.raises(CannotShift, match="t-1") as refused:
        plan_reset(ShiftBy(records=1), BOUNDS, {P0: 7})
    assert refused.value.partitions == (P1,)
