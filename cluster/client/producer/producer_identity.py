"""ProducerIdentity: the id, epoch and sequence numbers of an idempotent producer.

A broker recognises a duplicate by the producer's id, its epoch and the sequence number of the
batch. A batch gets its sequence number when it is first sent, and keeps it in every retry. If the
producer gives up a batch, the log may have the batch or not, so the broker may expect either of two
numbers next. The producer then raises its epoch, and numbers later batches from 0 (KIP-360).

This class only counts: ProducerNode requests the id and sends the batches.

Source: Kafka `TransactionManager`, `TxnPartitionMap`.
"""

from typing import NamedTuple

from protocol.ids import NO_PRODUCER_ID, TopicPartition

_SEQUENCES = 1 << 31
"""Number of different sequence numbers, which are 0 to 2^31 - 1. After the last, 0 comes again."""
_EPOCH_MAX = (1 << 15) - 1  # largest value of a signed 16-bit field


class BatchIdentity(NamedTuple):
    """The numbers by which a partition's leader recognises a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProducerIdentity:
    """The producer's present id and epoch, and the next sequence number of each partition."""

    __slots__ = ("_epoch", "_next", "producer_id")

    def __init__(self) -> None:
        self.producer_id: int = NO_PRODUCER_ID
        """-1 until a broker has assigned an id, and again once the epochs of an id are used up."""
        self._epoch = 0
        # The identity of each partition's next batch, unless the epoch is raised before.
        self._next: dict[TopicPartition, BatchIdentity] = {}

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Set the id and epoch that a broker has assigned; each partition is numbered from 0."""
        self.producer_id = producer_id
        self._epoch = producer_epoch
        self._next.clear()

    def identify(self, partition: TopicPartition, record_count: int) -> BatchIdentity:
        """Return the identity of the next new batch of a partition.

        If the epoch was raised, the partition changes to the new epoch here. That is safe, because
        a partition has at most one batch in flight: all earlier batches are answered by now.
        """
        identity = self._next.get(partition)
        if identity is None or identity.producer_epoch != self._epoch:
            identity = BatchIdentity(self.producer_id, self._epoch, 0)
        following = (identity.base_sequence + record_count) % _SEQUENCES
        self._next[partition] = identity._replace(base_sequence=following)
        return identity

    def raise_epoch(self) -> None:
        """Number new batches from 0 in the next epoch; after the last epoch, discard the id."""
        if self._epoch == _EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
        else:
            self._epoch += 1
