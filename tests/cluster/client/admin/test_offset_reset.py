"""Resetting the committed offsets of a group, as Kafka's tool does by `--reset-offsets`.

The user gives a target, such as the earliest offset of each partition. `plan_reset` computes the
new offsets, which the tool shows before it does anything. For example, two partitions have records
from 3 to 9 and from 0 to 3, and the group has committed 7 for the first of them:

    plan_reset(ToOffset(offset=99), BOUNDS, {P0: 7})

The plan has a row for each partition. In the first one, `current` is 7, the committed offset. The
offset 99 is outside of the log, so `new` is the end of the log, 10, and `asked_for` is 99. The tool
then prints a warning. If the offset is within the log, `asked_for` is None.
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
    """A target such as the log end is a different offset in each partition.

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
        (ToOffset(offset=0), [3, 0], [0, None]),
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

    P0 begins at offset 3 and P1 at 0, so the plan has these offsets, as in Kafka.
    """
    plan = plan_reset(target, BOUNDS, {P0: 7, P1: 2})
    assert [row.new for row in plan] == new_offsets
    assert [row.asked_for for row in plan] == asked_for


def test_shift_without_a_committed_offset_cannot_be_planned() -> None:
    """A shift starts from the committed offset. P1 has none, and the error says so."""
    with pytest.raises(CannotShift, match="t-1") as refused:
        plan_reset(ShiftBy(records=1), BOUNDS, {P0: 7})
    assert refused.value.partitions == (P1,)
