"""A check of idempotent producers: a batch that is sent again has the same records.

A leader recognises a repeated batch by its sequence number. So a producer must never use a sequence
number for two different records. The leader cannot check this, because the first attempt may have
gone to another broker.

Source: KIP-98, Kafka RecordAccumulator and TransactionManager.
"""

from collections import deque
from typing import NamedTuple

from protocol.errors import InvariantViolation
from protocol.ids import NO_PRODUCER_ID, NO_SEQUENCE
from protocol.messages.log import ProduceRequest
from protocol.records.batch import RecordBatch

MAX_KEPT = 8
"""Number of batches that are kept of each producer in each partition.

A producer may send a batch again until the batch is acknowledged. In Kafka, an idempotent producer
has at most 5 unacknowledged batches in a partition, so 8 are enough."""


class _Sent(NamedTuple):
    """A batch that a producer has sent, with a checksum of its records."""

    first: int  # sequence of the first record
    last: int  # sequence of the last record
    crc: int


class SentBatches:
    """The last batches of each producer in each partition, as brokers received them."""

    def __init__(self) -> None:
        # (producer id, producer epoch, topic, partition) -> the last batches
        self._sent: dict[tuple[int, int, str, int], deque[_Sent]] = {}

    def check(self, request: ProduceRequest) -> None:
        """Compare the batches of a request with earlier batches. Raises: InvariantViolation."""
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = data.records
                if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence != NO_SEQUENCE:
                    self._check(topic.name, data.index, batch)

    def _check(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Compare one batch with the kept batches of its producer, and keep it if it is new."""
        first = batch.base_sequence
        sent = _Sent(first, first + batch.last_offset_delta, batch.crc)
        key = (batch.producer_id, batch.producer_epoch, topic, partition)
        known = self._sent.get(key)
        if known is None:
            known = self._sent[key] = deque(maxlen=MAX_KEPT)
        for other in known:
            if other == sent:  # the same batch, sent again
                return
            # The two batches share a sequence number.
            if other.first <= sent.last and sent.first <= other.last:
                raise InvariantViolation(
                    "a sequence number belongs to one record",
                    f"{topic}-{partition}: producer {batch.producer_id} in epoch "
                    f"{batch.producer_epoch} has sent the batch of sequences {other.first} to "
                    f"{other.last} with CRC {other.crc}, and {sent.first} to {sent.last} with CRC "
                    f"{sent.crc}",
                )
        known.append(sent)
