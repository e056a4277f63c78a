"""The producer: its rate, its partitions, and its failed batches.

- `make_lab(n)` makes `lab`, with `n` scripted brokers.
- `lab.leader`, at first broker 0, leads the partitions of `t`, which has two by default.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass.
- `lab.producer(10.0)` starts a producer of 10 records a second. The value of a record is its
  number.
"""

import pytest

from cluster.client.producer.node import ProducerNode
from cluster.runtime import ClusterStatus
from protocol.config import ProducerConfig
from protocol.errors import ErrorCode
from protocol.messages.discovery import MetadataRequest, MetadataResponse
from protocol.messages.log import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import decode_records
from tests.support.harness.scripted_broker import MS, SECOND, TOPIC, ClientLab, LabMaker


def sent(lab: ClientLab, broker: int = 0) -> list[tuple[int, list[int]]]:
    """Return partition and record numbers of each batch that a broker has received, in order."""
    return [
        (data.index, [int(record.value or b"") for record in decode_records(data.records.records)])
        for request in lab.brokers[broker].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def error(partition: int, code: ErrorCode) -> ProduceResponse:
    """Return an answer to a Produce request with an error for one partition."""
    return ProduceResponse(
        responses=(
            TopicProduceResponse(
                name=TOPIC,
                partition_responses=(PartitionProduceResponse(index=partition, error_code=code),),
            ),
        )
    )


def acknowledged(node: ProducerNode) -> int:
    """Return the number of the producer's records that were acknowledged."""
    status = ClusterStatus()
    node.report(status)
    return status.records_produced


def test_producer_numbers_its_records_and_uses_the_partitions_in_turn(make_lab: LabMaker) -> None:
    """Checkers find duplicates and gaps by the numbers in the records.

    In 10 s the producer sends about 100 records, each to the next of three partitions.
    """
    lab = make_lab(1, partitions=3)
    node = lab.producer(10.0)
    lab.run_for(10 * SECOND)
    batches = sent(lab)
    assert 99 <= len(batches) <= 101
    assert [numbers for _partition, numbers in batches[:4]] == [[0], [1], [2], [3]]
    assert [partition for partition, _numbers in batches[:4]] == [0, 1, 2, 0]
    # Each batch has one record here, and the trace has one row for each batch.
    assert acknowledged(node) == len(lab.of_kind("records_produced"))


def test_producer_lingers_to_fill_a_batch(make_lab: LabMaker) -> None:
    """A batch waits for 10 ms. At 1,000 records a second, 10 or 11 records come in this time."""
    lab = make_lab(1, partitions=1)
    lab.producer(1_000.0, ProducerConfig(linger_ms=10))
    lab.run_for(SECOND)
    # The last batch is left out, because it may still be filling.
    sizes = [len(numbers) for _partition, numbers in sent(lab)[:-1]]
    assert set(sizes) <= {10, 11}


def test_producer_waits_for_the_topic_before_its_first_record(make_lab: LabMaker) -> None:
    """Kafka's `send` waits until the partitions are known, so no record is made before.

    At 100 records a second, 200 records would be made in 2 s. Three metadata answers do not have
    the topic, and the producer waits for the backoff after each. So it makes fewer than 190.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(MetadataRequest, *[MetadataResponse()] * 3)
    lab.producer(100.0)
    lab.run_for(2 * SECOND)
    assert sent(lab)[0] == (0, [0])
    assert len(sent(lab)) < 190


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_producer_resends_a_failed_batch_before_later_ones(
    make_lab: LabMaker, code: ErrorCode
) -> None:
    """Only one batch of a partition is in flight, so the records stay in order.

    The first batch is refused twice, and is sent three times before the second batch.
    """
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error(0, code), error(0, code))
    lab.producer(20.0)
    lab.run_for(3 * SECOND)
    batches = [numbers for _partition, numbers in sent(lab)]
    assert batches[:3] == [[0], [0], [0]]
    accepted = [number for numbers in batches[2:] for number in numbers]
    assert accepted == [*range(len(accepted))]
    assert lab.of_kind("produce_failed") == []


def test_producer_follows_a_leader_that_moved(make_lab: LabMaker) -> None:
    """After a retriable error the producer gets new metadata, and sends to the new leader."""
    lab = make_lab(2, partitions=1)
    lab.producer(10.0)
    lab.run_for(SECOND)
    lab.brokers[0].answer(ProduceRequest, *[error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 5)
    lab.leader, lab.leader_epoch = 1, 1
    lab.run_for(2 * SECOND)
    to_old_leader = [numbers for _partition, numbers in sent(lab, broker=0)]
    to_new_leader = [numbers for _partition, numbers in sent(lab, broker=1)]
    assert to_new_leader[0][0] == to_old_leader[-1][0]  # the refused batch is sent first
    assert to_new_leader[-1][-1] > 20  # 3 s at 10 records a second, less the time of the retries


def test_producer_gives_up_after_the_delivery_timeout(make_lab: LabMaker) -> None:
    """delivery.timeout.ms counts from the first record of the batch. The trace has the reason."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, *[error(0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 100)
    lab.producer(1.0, ProducerConfig(delivery_timeout_ms=2_000))
    lab.run_for(4_500 * MS)
    failed = lab.of_kind("produce_failed")[0]
    assert (failed.error, failed.partition) == ("TIMED_OUT", "t-0")
    # The first record is made within the first second. The last retry takes some time, too.
    assert 2 * SECOND <= failed.time_us <= 3_200 * MS


def test_producer_does_not_retry_a_definite_error(make_lab: LabMaker) -> None:
    """A batch that is too large is dropped, and the next batch is sent."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error(0, ErrorCode.MESSAGE_TOO_LARGE))
    lab.producer(10.0)
    lab.run_for(SECOND)
    (failed,) = lab.of_kind("produce_failed")
    assert (failed.error, failed.detail) == ("MESSAGE_TOO_LARGE", '{"count":1}')
    assert [numbers for _partition, numbers in sent(lab)][:2] == [[0], [1]]


@pytest.mark.parametrize(
    ("config", "acks_in_request"),
    [(ProducerConfig(), -1), (ProducerConfig(acks="1"), 1), (ProducerConfig(acks="0"), 0)],
    ids=["all", "1", "0"],
)
def test_producer_sends_the_configured_acks(
    make_lab: LabMaker, config: ProducerConfig, acks_in_request: int
) -> None:
    """The default setting, acks=all, is -1 in a request."""
    lab = make_lab(1)
    lab.producer(10.0, config)
    lab.run_for(SECOND)
    request = lab.brokers[0].of_type(ProduceRequest)[0]
    assert isinstance(request, ProduceRequest)
    assert request.acks == acks_in_request
