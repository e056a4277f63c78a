"""The check that an idempotent producer gives each sequence number to one record only.

An idempotent producer numbers its records, so that a broker recognises a batch that is sent again.
A record must keep its number, however often it is sent. Numbers count within a partition, a
producer id and a producer epoch.
"""

import pytest

from cluster.virtual.sent_batches import SentBatches
from protocol.errors import InvariantViolation
from protocol.messages.log import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import RecordBatch
from tests.support.builders.client_batches import client_batch


def sent(*batches: RecordBatch, partition: int = 0) -> SentBatches:
    """Give the check one Produce request for each batch; the check raises at a violation."""
    checker = SentBatches()
    for records in batches:
        data = PartitionProduceData(index=partition, records=records)
        topics = (TopicProduceData(name="orders", partition_data=(data,)),)
        checker.check(ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics))
    return checker


def batch(*values: str, sequence: int = 0, epoch: int = 0, producer: int = 7) -> RecordBatch:
    """Return a batch of these values; `sequence` is the number of its first record."""
    return client_batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param((batch("a"), batch("a")), id="sent again"),
        pytest.param((batch("a"), batch("b", sequence=1)), id="the next one"),
        pytest.param((batch("a"), batch("b", epoch=1)), id="a new epoch"),
        pytest.param((batch("a"), batch("b", producer=8)), id="another producer"),
        pytest.param((client_batch("a"), client_batch("b")), id="not idempotent"),
    ],
)
def test_batches_of_a_sound_producer_pass(batches: tuple[RecordBatch, ...]) -> None:
    """The check raises nothing. A batch without a producer id has no sequence numbers."""
    sent(*batches)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param((batch("a"), batch("b")), id="other records"),
        pytest.param((batch("a"), batch("a", "b")), id="more records"),
        pytest.param((batch("a", "b"), batch("c", sequence=1)), id="overlapping"),
    ],
)
def test_sequence_number_of_two_records_is_found(batches: tuple[RecordBatch, ...]) -> None:
    """The second batch has a number that the first one gave to another record."""
    with pytest.raises(InvariantViolation, match="a sequence number belongs to one record"):
        sent(*batches)
