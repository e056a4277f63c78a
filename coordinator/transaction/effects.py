"""Requests that only the transaction coordinator has for its broker: markers and producer ids.

A marker is a record that ends a producer's transaction in one partition. The broker sends a marker
to the leader of each partition of the transaction. Then it reports the outcome of each partition to
the coordinator, exactly once.
"""

from dataclasses import dataclass, field

from protocol.effects import Result
from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Request to write the marker of a producer's transaction to each of `partitions`.

    coordinator_epoch: the leader epoch of the coordinator's partition of `__transaction_state`. A
        partition that already has a marker of a later epoch refuses this marker.
    is_retry: True if an earlier attempt failed. The broker then waits a little before it sends.
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

    wants_producer_ids: True if the broker must ask the controller for a block of producer ids. Then
        it calls `producer_ids_allocated` or `producer_ids_refused` of the coordinator, once.
    """

    markers: list[SendMarkers] = field(default_factory=list)
    wants_producer_ids: bool = False
