"""Where a group's committed offsets shall go: the plan that `reset-offsets` shows before it acts.

Pure: who asks for the offsets, and commits what is planned, is `group_admin`'s caller. An offset
outside of the log is moved to its nearer end, as Kafka's tool does and says.
Source: Kafka ConsumerGroupCommand.prepareOffsetsToReset, checkOffsetsRange.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEarliest:
    """To where the log begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLatest:
    """To where the log ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCurrent:
    """To what is committed; a partition without an offset gets the log's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOffset:
    """To one offset."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftBy:
    """So many records on from what is committed; back, if negative."""

    records: int


ResetTarget = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Where a partition's log begins, and ends as consumers see it."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """What one partition gets.

    `current` None: nothing is committed. `asked_for` is what lay outside of the log; None where the
    new offset is the one that was asked for.
    """

    partition: TopicPartition
    current: int | None
    new: int
    asked_for: int | None = None


class CannotShift(Exception):
    """Partitions without a committed offset, from which nothing can be counted."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(", ".join(map(str, partitions)))
        self.partitions = tuple(partitions)


def plan_reset(
    target: ResetTarget,
    bounds: Mapping[TopicPartition, LogBounds],
    committed: Mapping[TopicPartition, int],
) -> tuple[PlannedOffset, ...]:
    """Return what each partition of `bounds` gets, in their order.

    Raises: CannotShift.
    """
    if isinstance(target, ShiftBy):
        missing = [partition for partition in bounds if partition not in committed]
        if missing:
            raise CannotShift(missing)
    return tuple(
        _planned(partition, _wanted(target, within, committed.get(partition)), within, committed)
        for partition, within in bounds.items()
    )


def _wanted(target: ResetTarget, within: LogBounds, current: int | None) -> int:
    match target:
        case ToEarliest():
            return within.earliest
        case ToLatest():
            return within.latest
        case ToCurrent():
            return within.latest if current is None else current
        case ToOffset(offset=offset):
            return offset
        case ShiftBy(records=records):
            return (current or 0) + records


def _planned(
    partition: TopicPartition,
    wanted: int,
    within: LogBounds,
    committed: Mapping[TopicPartition, int],
) -> PlannedOffset:
    new = min(max(wanted, within.earliest), within.latest)
    return PlannedOffset(
        partition=partition,
        current=committed.get(partition),
        new=new,
        asked_for=None if new == wanted else wanted,
    )
