"""A consumer's assigned partitions, and its position in each.

The module `positions` finds the first position of a partition, and `fetcher` advances it. Each
assignment creates new AssignedPartition objects. So if an answer arrives after a rebalance, its
handler has an old object, and can see by `is_current` that the answer is of no use.

Source: Kafka SubscriptionState.
"""

from dataclasses import dataclass

from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read.

    `leader_epoch` is the epoch of the leader that wrote the record before `offset`; -1 if not
    known.
    """

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One partition while it is assigned.

    `position` is None until it is known. If `needs_reset` is True, there is no committed offset to
    begin with, and the position must be found as `auto.offset.reset` says. After a failed request,
    no request is sent for this partition before the time `retry_at_us`.
    """

    partition: TopicPartition
    position: Position | None = None
    needs_reset: bool = False
    retry_at_us: int = 0


class Subscription:
    """The topics that one consumer reads, and its assigned partitions."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.assigned: dict[TopicPartition, AssignedPartition] = {}

    def assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Replace the assignment by `partitions`, whose positions are not known yet."""
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
