"""A consumer's assigned partitions, and its position in each.

The module `positions` sets the first position of a partition; `fetcher` advances the position. Each
assignment creates new partition objects. The answer to a request from before a rebalance refers to
an old object, and is dropped.
Source: Kafka SubscriptionState.
"""

from dataclasses import dataclass

from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, and the leader epoch of the record before it (-1: not known).

    The leader epoch is the number of a partition's leadership; each election increases it.
    """

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One partition while it is assigned.

    `position` is None until it is known. The first position is the committed offset. If
    `needs_reset` is True, the beginning or the end of the log is used instead, as
    `auto.offset.reset` says. Before the time `retry_at_us` the partition is neither fetched nor
    reset.
    """

    partition: TopicPartition
    position: Position | None = None
    needs_reset: bool = False
    retry_at_us: int = 0


class Subscription:
    """Topics of one consumer and its current assignment."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.assigned: dict[TopicPartition, AssignedPartition] = {}

    def assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Replace the assignment; all positions are unknown."""
        self.assigned = {partition: AssignedPartition(partition) for partition in partitions}

    def is_current(self, state: AssignedPartition) -> bool:
        """Return True if `state` belongs to the current assignment."""
        return self.assigned.get(state.partition) is state

    def consumed(self) -> dict[TopicPartition, Position]:
        """Return every known position. Kafka's commit without arguments commits these."""
        return {
            partition: state.position
            for partition, state in self.assigned.items()
            if state.position is not None
        }

    def initializing(self) -> tuple[AssignedPartition, ...]:
        """Return the partitions whose committed offset must be fetched."""
        return tuple(
            state
            for state in self.assigned.values()
            if state.position is None and not state.needs_reset
        )

    def awaiting_reset(self) -> tuple[AssignedPartition, ...]:
        """Return the partitions whose position is set by `auto.offset.reset`."""
        return tuple(state for state in self.assigned.values() if state.needs_reset)

    def has_all_positions(self) -> bool:
        """Return True if every assigned partition has a position."""
        for state in self.assigned.values():  # noqa: SIM110  # hot: a generator costs more
            if state.position is None:
                return False
        return True
