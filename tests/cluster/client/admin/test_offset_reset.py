"""Resetting the committed offsets of a group, like `--reset-offsets` of Kafka's command-line tool.

The user gives a target, such as the earliest offset of each partition. `plan_reset` computes the
new offsets, which the tool shows before it changes anything. For example, the log of partition P0
has records from 3 to 9, the log of P1 has records from 0 to 3, and the group has committed offset 7
of P0:

    plan_reset(ToOffset(offset=99), BOUNDS, {P0: 7})

The plan has a row for each partition. In the row of P0, `current` is 7, the committed offset. The
offset 99 is outside of the log, so `new` is 10, the end of the log, and `asked_for` is 99. In this
case the tool prints a warning. For an offset within the log, `asked_for` is None.
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
    ("target", "new_offsets"),
    [
        (ToEarliest(), [3, 0]),
        (ToLatest(), [10, 4]),
        (ToCurrent(), [7, 4]),
        (ToOffset(offset=4), [4, 4]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plan_has_each_partition_within_its_own_log(
    target: ResetTarget, new_offsets: list[int]
) -> None:
    """A target such as the end of the log is a different offset in each partition.

    P1 has no committed offset. For such a partition `ToCurrent` plans the log end, as in Kafka.
    """
    plan = plan_reset(target, BOUNDS, {P0: 7})
    assert [row.partition for row in plan] == [P0, P1]
    assert [row.current for row in plan] == [7, None]
    assert [row.new for row in plan] == new_offsets
    assert [row.asked_for for row in plan] == [None, None]


@pytest.mark.parametrize(
    ("target", "new_offsets", "asked_for"),
    [
        (ToOffset(offset=0), [3, 0], [0, None]),  # the log of P1 begins at 0, so P1 has no warning
        (ToOffset(offset=99), [10, 4], [99, 99]),
        (ShiftBy(records=-5), [3, 0], [2, -3]),
        (ShiftBy(records=4), [10, 4], [11, 6]),
        (ShiftBy(records=2), [9, 4], [None, None]),
    ],
)
def test_offset_outside_of_the_log_is_moved_to_the_nearer_end_with_a_warning(
    target: ResetTarget, new_offsets: list[int], asked_for: list[int | None]
) -> None:
    """The committed offsets of P0 and P1 are 7 and 2. So a shift by -5 asks for 2 and -3.

    The log of P0 begins at offset 3, and the log of P1 at 0. So the plan for this shift has the
    offsets 3 and 0, as in Kafka.
    """
    plan = plan_reset(target, BOUNDS, {P0: 7, P1: 2})
    assert [row.new for row in plan] == new_offsets
    assert [row.asked_for for row in plan] == asked_for


def test_shift_without_a_committed_offset_cannot_be_planned() -> None:
    """A shift starts from the committed offset. P1 has no such offset. The error names P1."""
    with pytest.raises(CannotShift, match="t-1") as refused:
        plan_reset(ShiftBy(records=1), BOUNDS, {P0: 7})
    assert refused.value.partitions == (P1,)
