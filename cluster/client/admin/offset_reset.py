"""Plans of offset resets: the new committed offsets that `reset-offsets` shows before it acts.

The functions only compute. The caller first reads the present offsets from the brokers, and at the
end commits the planned offsets. As in Kafka's tool, an offset outside the log is replaced by the
nearer end of the log. For example, if a log has the offsets 10 to 20 and the user asks for offset
5, the plan is to commit 10. Then `PlannedOffset.asked_for` is 5, for a remark to the user.

Source: Kafka ConsumerGroupCommand.prepareOffsetsToReset, checkOffsetsRange.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEarliest:
    """Reset to the first offset of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLatest:
    """Reset to the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCurrent:
    """Reset to the committed offset; if nothing is committed, to the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOffset:
    """Reset to a given offset."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftBy:
    """Reset to the committed offset plus `records`, which may be negative."""

    records: int


# The kinds of targets that a reset can have.
ResetTarget = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """First offset of a partition's log, and its end as consumers see it."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """The planned offset of one partition.

    `current` is the committed offset; None if nothing is committed. `new` is the planned offset. If
    the user has asked for an offset outside the log, `asked_for` is this offset; otherwise None.
    """

    partition: TopicPartition
    current: int | None
    new: int
    asked_for: int | None = None


class CannotShift(Exception):
    """A shift is impossible, because some partitions have no committed offset to count from."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(", ".join(map(str, partitions)))
        self.partitions = tuple(partitions)


def plan_reset(
    target: ResetTarget,
    bounds: Mapping[TopicPartition, LogBounds],
    committed: Mapping[TopicPartition, int],
) -> tuple[PlannedOffset, ...]:
    """Return the planned offset of each partition in `bounds`, in the order of `bounds`.

    `committed` has no entry for a partition without a committed offset.
    Raises: CannotShift with all partitions without a committed offset, if `target` is a ShiftBy.
    """
    if isinstance(target, ShiftBy):
        missing = [partition for partition in bounds if partition not in committed]
        if missing:
            raise CannotShift(missing)
    return tuple(
        _plan_offset(
            partition,
            _target_offset(target, log_bounds, committed.get(partition)),
            log_bounds,
            committed,
        )
        for partition, log_bounds in bounds.items()
    )


def _target_offset(target: ResetTarget, log_bounds: LogBounds, current: int | None) -> int:
    """Return the offset that `target` names, which may be outside the log."""
    match target:
        case ToEarliest():
            return log_bounds.earliest
        case ToLatest():
            return log_bounds.latest
        case ToCurrent():
            return log_bounds.latest if current is None else current
        case ToOffset(offset=offset):
            return offset
        case ShiftBy(records=records):
            return (current or 0) + records  # `plan_reset` has refused partitions without offset


def _plan_offset(
    partition: TopicPartition,
    wanted: int,
    log_bounds: LogBounds,
    committed: Mapping[TopicPartition, int],
) -> PlannedOffset:
    """Return the plan for one partition: `wanted`, or the nearer end of the log."""
    new = min(max(wanted, log_bounds.earliest), log_bounds.latest)  # the nearest offset in the log
    return PlannedOffset(
        partition=partition,
        current=committed.get(partition),
        new=new,
        asked_for=None if new == wanted else wanted,
    )
