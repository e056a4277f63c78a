"""What a consumer is assigned, and where it stands in each partition.

Owns positions; who moves them is `positions` (where to begin) and `fetcher` (what was read). An
answer that was asked for before a rebalance finds its partition object gone and is dropped.
Source: Kafka SubscriptionState.
"""

from dataclasses import dataclass

from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The next record to read, and the leader epoch of the one before it (-1: not known)."""

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One partition while it is assigned.

    `position` is None until it is known; then the committed offset is asked for, unless
    `needs_reset` says that there is none. Before `retry_at_us` it is neither fetched nor reset.
    """

    partition: TopicPartition
    position: Position | None = None
    needs_reset: bool = False
    retry_at_us: int = 0


class Subscription:
    """The topics of one consumer and its present assignment."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.assigned: dict[TopicPartition, AssignedPartition] = {}

    def assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Take a new assignment; every position is unknown."""
        self.assigned = {partition: AssignedPartition(partition) for partition in partitions}

    def is_current(self, state: AssignedPartition) -> bool:
        """Whether `state` belongs to the present assignment."""
        return self.assigned.get(state.partition) is state

    def consumed(self) -> dict[TopicPartition, Position]:
        """Return every known position: what a commit without arguments commits."""
        return {
            partition: state.position
            for partition, state in self.assigned.items()
            if state.position is not None
        }

    def initializing(self) -> tuple[AssignedPartition, ...]:
        """Return the partitions whose committed offset must be asked for."""
        return tuple(
            state
            for state in self.assigned.values()
            if state.position is None and not state.needs_reset
        )

    def awaiting_reset(self) -> tuple[AssignedPartition, ...]:
        """Return the partitions whose position `auto.offset.reset` must give."""
        return tuple(state for state in self.assigned.values() if state.needs_reset)

    def has_all_positions(self) -> bool:
        """Whether every assigned partition can be fetched."""
        for state in self.assigned.values():  # noqa: SIM110  # every poll asks: no generator
            if state.position is None:
                return False
        return True
