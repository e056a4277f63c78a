"""Effects that only the transaction coordinator requests: markers, and blocks of producer ids.

The broker sends each marker to the leaders of its partitions, and reports the outcome of every
partition back exactly once.
"""

from dataclasses import dataclass, field

from protocol.effects import Result
from protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Request for a marker in each of `partitions`, of which there is at least one.

    coordinator_epoch: the leader epoch of this coordinator; partitions refuse an older one.
    is_retry: an earlier attempt failed, so the broker waits a little before it sends.
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

    wants_producer_ids: the broker must get a block of producer ids from the controller, and then
        call the coordinator's `producer_ids_allocated` or `producer_ids_refused` once.
    """

    markers: list[SendMarkers] = field(default_factory=list)
    wants_producer_ids: bool = False
