"""ProducerIdentity: the id, epoch and sequence numbers of an idempotent producer.

Knows no network: who asks for the id, and what is sent, is the node's business. A batch gets its
number once, when it is first sent, and keeps it however often it is repeated, so that a leader
recognises it. After a batch was given up nobody knows whether it stands in the log: the producer
raises its epoch and numbers the batches behind it from 0 (KIP-360).
Source: Kafka `TransactionManager`, `TxnPartitionMap`.
"""

from typing import NamedTuple

from protocol.ids import NO_PRODUCER_ID, TopicPartition

_SEQUENCES = 1 << 31
"""Sequence numbers begin at 0 again behind this one."""
_EPOCH_MAX = (1 << 15) - 1


class BatchIdentity(NamedTuple):
    """What identifies a batch of a partition to its leader."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProducerIdentity:
    """The present id and epoch, and the next sequence of each partition."""

    __slots__ = ("_epoch", "_next", "producer_id")

    def __init__(self) -> None:
        self.producer_id: int = NO_PRODUCER_ID
        """-1 until a broker has given one, and when the epochs of one are used up."""
        self._epoch = 0
        self._next: dict[TopicPartition, BatchIdentity] = {}

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Take what a broker has given; every partition is numbered from 0."""
        self.producer_id = producer_id
        self._epoch = producer_epoch
        self._next.clear()

    def identify(self, partition: TopicPartition, record_count: int) -> BatchIdentity:
        """Return the identity of the next new batch of a partition.

        One batch of a partition is in flight at a time, so that all earlier ones are answered: a
        partition may go over to a new epoch here.
        """
        identity = self._next.get(partition)
        if identity is None or identity.producer_epoch != self._epoch:
            identity = BatchIdentity(self.producer_id, self._epoch, 0)
        following = (identity.base_sequence + record_count) % _SEQUENCES
        self._next[partition] = identity._replace(base_sequence=following)
        return identity

    def raise_epoch(self) -> None:
        """Number new batches from 0 in the next epoch; without one, ask for another id."""
        if self._epoch == _EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
        else:
            self._epoch += 1
