"""The check that finds producers which give one sequence number to two records.

An idempotent producer numbers its records, so that a broker recognises a batch that is sent again
and stores it only once. If the producer gave one number to two records, the broker would drop the
second of them. The numbers begin anew for each partition, producer id and producer epoch.
"""

import pytest

from cluster.virtual.checks.sent_batches import SentBatches
from protocol.errors import InvariantViolation
from protocol.messages.log import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import RecordBatch
from tests.support.builders.client_batches import client_batch


def check_sent(*batches: RecordBatch) -> None:
    """Check a Produce request for each of these batches, all for orders-0.

    Raises: InvariantViolation.
    """
    checker = SentBatches()
    for records in batches:
        data = PartitionProduceData(index=0, records=records)
        topics = (TopicProduceData(name="orders", partition_data=(data,)),)
        # An idempotent producer uses acks=all, which is -1 in a request.
        checker.check(ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics))


def batch(*values: str, sequence: int = 0, epoch: int = 0, producer: int = 7) -> RecordBatch:
    """Return a batch of records with these values. The first of them has the number `sequence`."""
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
    """The check does not raise. The last case has no producer id, and so no sequence numbers."""
    check_sent(*batches)


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
        check_sent(*batches)
