"""What the transaction coordinator returns beside what every core does: markers to be sent.

Whoever hosts it sends each to the leaders of its partitions and feeds the outcome of each partition
back, exactly once.
"""

from dataclasses import dataclass, field

from protocol.effects import Result
from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Asks for a marker in each of `partitions`, which are at least one.

    `coordinator_epoch` is the leader epoch in which the end was decided. What is asked for again
    after a failure `is_retry`: it is worth waiting a little.
    """

    transactional_id: str
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    is_retry: bool = False


@dataclass(slots=True)
class TransactionResult(Result):
    """A Result of the transaction coordinator.

    `wants_producer_ids` asks for a block of producer ids from the controller; one
    `producer_ids_allocated` or `producer_ids_refused` follows.
    """

    markers: list[SendMarkers] = field(default_factory=list)
    wants_producer_ids: bool = False
