"""The producer of the test lab: its rate, its partitions, and its failed batches.

The producer makes records at a constant rate. The value of the first record is "0", the value of
the next record is "1", and so on. In these tests the producer talks to scripted brokers. They
acknowledge every batch, except if the test has prepared another answer. The clock is simulated.

    lab = make_lab(2, partitions=1)           # two brokers, and a topic "t" with one partition
    lab.leader = 1                            # broker 1 leads "t"; at first broker 0 does
    lab.brokers[0].answer(ProduceRequest, x)  # broker 0 answers its next Produce request with x
    lab.producer(10.0)                        # start a producer of 10 records a second
    lab.run_for(SECOND)                       # let a second pass
    lab.brokers[0].of_type(ProduceRequest)    # the Produce requests that broker 0 has received
    lab.of_kind("produce_failed")             # the recorded events of this kind
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
    """Return the partition and the records of each batch that a broker has received, in order.

    A batch of records 5 and 6 for partition 1 is (1, [5, 6]).
    """
    return [
        (data.index, [int(record.value or b"") for record in decode_records(data.records.records)])
        for request in lab.brokers[broker].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def error_answer(partition: int, code: ErrorCode) -> ProduceResponse:
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
    """In 10 s the producer sends about 100 records, each to the next of three partitions.

    An experiment finds lost and repeated records by the numbers in them.
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
    """A batch waits 10 ms (linger.ms) for further records. In this time 10 or 11 records come."""
    lab = make_lab(1, partitions=1)
    lab.producer(1_000.0, ProducerConfig(linger_ms=10))
    lab.run_for(SECOND)
    # The last batch is left out, because it may still be filling.
    sizes = [len(numbers) for _partition, numbers in sent(lab)[:-1]]
    assert set(sizes) <= {10, 11}


def test_producer_waits_for_the_topic_before_its_first_record(make_lab: LabMaker) -> None:
    """Like Kafka's `send`, the producer waits until it knows the partitions of the topic.

    It makes no records while it waits. Without the wait it would make 200 records in 2 s.
    """
    lab = make_lab(1)
    # Three answers do not have the topic. After each of them the producer waits for its backoff.
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

    The first batch is refused twice and accepted the third time. Only then is the second batch
    sent.
    """
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error_answer(0, code), error_answer(0, code))
    lab.producer(20.0)
    lab.run_for(3 * SECOND)
    batches = [numbers for _partition, numbers in sent(lab)]
    assert batches[:3] == [[0], [0], [0]]
    # From the third batch on, each record came once and in order.
    accepted = [number for numbers in batches[2:] for number in numbers]
    assert accepted == [*range(len(accepted))]
    assert lab.of_kind("produce_failed") == []


def test_producer_follows_a_leader_that_moved(make_lab: LabMaker) -> None:
    """After a retriable error the producer gets new metadata, and sends to the new leader.

    The old leader refuses a batch. The same batch is the first that the new leader gets.
    """
    lab = make_lab(2, partitions=1)
    lab.producer(10.0)
    lab.run_for(SECOND)
    lab.brokers[0].answer(ProduceRequest, *[error_answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 5)
    lab.leader = 1
    lab.leader_epoch = 1
    lab.run_for(2 * SECOND)

    to_old_leader = [numbers for _partition, numbers in sent(lab, broker=0)]
    to_new_leader = [numbers for _partition, numbers in sent(lab, broker=1)]
    first_to_new_leader = to_new_leader[0][0]
    refused_by_old_leader = to_old_leader[-1][0]
    assert first_to_new_leader == refused_by_old_leader
    # In 3 s there are 30 records, of which a few may still wait for the retries.
    last_to_new_leader = to_new_leader[-1][-1]
    assert last_to_new_leader > 20


def test_producer_gives_up_after_the_delivery_timeout(make_lab: LabMaker) -> None:
    """If a batch is not delivered within delivery.timeout.ms, it has failed for good.

    The time counts from the first record of the batch. The event `produce_failed` has the partition
    and the reason.
    """
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, *[error_answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 100)
    lab.producer(1.0, ProducerConfig(delivery_timeout_ms=2_000))
    lab.run_for(4_500 * MS)
    failed = lab.of_kind("produce_failed")[0]
    assert failed.error == "TIMED_OUT"
    assert failed.partition == "t-0"
    # The first record is made within the first second, and the timeout is 2 s. The last attempt
    # may take 200 ms more.
    assert 2 * SECOND <= failed.time_us <= 3_200 * MS


def test_producer_does_not_retry_a_definite_error(make_lab: LabMaker) -> None:
    """A batch that is too large fails at once, and the next batch is sent."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error_answer(0, ErrorCode.MESSAGE_TOO_LARGE))
    lab.producer(10.0)
    lab.run_for(SECOND)
    (failed,) = lab.of_kind("produce_failed")
    assert failed.error == "MESSAGE_TOO_LARGE"
    assert failed.detail == '{"count":1}'  # the batch had one record
    assert [numbers for _partition, numbers in sent(lab)][:2] == [[0], [1]]


@pytest.mark.parametrize(
    ("config", "acks_in_request"),
    [(ProducerConfig(), -1), (ProducerConfig(acks="1"), 1), (ProducerConfig(acks="0"), 0)],
    ids=["all", "1", "0"],
)
def test_producer_sends_the_configured_acks(
    make_lab: LabMaker, config: ProducerConfig, acks_in_request: int
) -> None:
    """In a request, the number -1 stands for acks=all, which is the default."""
    lab = make_lab(1)
    lab.producer(10.0, config)
    lab.run_for(SECOND)
    request = lab.brokers[0].of_type(ProduceRequest)[0]
    assert isinstance(request, ProduceRequest)
    assert request.acks == acks_in_request
