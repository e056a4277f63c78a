"""The producer: its rate, its partitions, and failed batches.

- The value of a record is its number.
- `make_lab(n)` makes `lab`, with `n` scripted brokers.
- `lab.leader`, broker 0 at first, leads the partitions of `t`, two by default.
- `broker.answer(Request, a, b)` scripts its next answers.
- `lab.producer(10.0)` starts a producer of 10 records a second.
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
    """Return partition and record numbers of every batch that a broker received, in order."""
    return [
        (data.index, [int(record.value or b"") for record in decode_records(data.records.records)])
        for request in lab.brokers[broker].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def error(partition: int, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=(
            TopicProduceResponse(
                name=TOPIC,
                partition_responses=(PartitionProduceResponse(index=partition, error_code=code),),
            ),
        )
    )


def acknowledged(node: ProducerNode) -> int:
    status = ClusterStatus()
    node.report(status)
    return status.records_produced


def test_producer_numbers_its_records_and_uses_the_partitions_in_turn(make_lab: LabMaker) -> None:
    """Numbered records at a fixed rate allow a run to count duplicates and gaps."""
    lab = make_lab(1, partitions=3)
    node = lab.producer(10.0)
    lab.run_for(10 * SECOND)
    batches = sent(lab)
    assert 99 <= len(batches) <= 101
    assert [numbers for _partition, numbers in batches[:4]] == [[0], [1], [2], [3]]
    assert [partition for partition, _numbers in batches[:4]] == [0, 1, 2, 0]
    # Each batch has one record and one trace row.
    assert acknowledged(node) == len(lab.of_kind("records_produced"))


def test_producer_lingers_to_fill_a_batch(make_lab: LabMaker) -> None:
    """At 1,000 records a second, 10 or 11 records come while a batch waits for 10 ms."""
    lab = make_lab(1, partitions=1)
    lab.producer(1_000.0, ProducerConfig(linger_ms=10))
    lab.run_for(SECOND)
    # Without the last batch, which may still be filling.
    sizes = [len(numbers) for _partition, numbers in sent(lab)[:-1]]
    assert set(sizes) <= {10, 11}


def test_producer_waits_for_the_topic_before_its_first_record(make_lab: LabMaker) -> None:
    """Kafka's send blocks until the partitions are known, so no record precedes that.

    100 records a second for 2 s less the wait for metadata are fewer than 190.
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
    """One batch of a partition is in flight, so the order survives retries."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error(0, code), error(0, code))
    lab.producer(20.0)
    lab.run_for(3 * SECOND)
    batches = [numbers for _partition, numbers in sent(lab)]
    assert batches[0] == batches[1] == batches[2] == [0]
    accepted = [number for numbers in batches[2:] for number in numbers]
    assert accepted == [*range(len(accepted))]
    assert lab.of_kind("produce_failed") == []


def test_producer_follows_a_leader_that_moved(make_lab: LabMaker) -> None:
    """A retriable error refreshes the metadata, and the batch is sent to the new leader."""
    lab = make_lab(2, partitions=1)
    lab.producer(10.0)
    lab.run_for(SECOND)
    lab.brokers[0].answer(ProduceRequest, *[error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 5)
    lab.leader, lab.leader_epoch = 1, 1
    lab.run_for(2 * SECOND)
    before = [numbers for _partition, numbers in sent(lab)]
    after = [numbers for _partition, numbers in sent(lab, 1)]
    assert after[0][0] == before[-1][0]  # the refused batch comes first
    assert after[-1][-1] > 20  # 10 records a second for 3 s, less the time of the retries


def test_producer_gives_up_after_the_delivery_timeout(make_lab: LabMaker) -> None:
    """delivery.timeout.ms counts from the batch's first record; PRODUCE_FAILED has the reason."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, *[error(0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 100)
    lab.producer(1.0, ProducerConfig(delivery_timeout_ms=2_000))
    lab.run_for(4_500 * MS)
    failed = lab.of_kind("produce_failed")
    assert [row.error for row in failed[:1]] == ["TIMED_OUT"]
    assert failed[0].partition == "t-0"
    # The first record is produced within the first second; the last retry takes some time more.
    assert 2 * SECOND <= failed[0].time_us <= 3_200 * MS


def test_producer_does_not_retry_a_definite_error(make_lab: LabMaker) -> None:
    """After MESSAGE_TOO_LARGE the batch is dropped, and the next one is sent."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, error(0, ErrorCode.MESSAGE_TOO_LARGE))
    lab.producer(10.0)
    lab.run_for(SECOND)
    (failed,) = lab.of_kind("produce_failed")
    assert (failed.error, failed.detail) == ("MESSAGE_TOO_LARGE", '{"count":1}')
    assert [numbers for _partition, numbers in sent(lab)][:2] == [[0], [1]]


@pytest.mark.parametrize(("acks", "wire"), [("all", -1), ("1", 1), ("0", 0)])
def test_producer_sends_the_configured_acks(make_lab: LabMaker, acks: str, wire: int) -> None:
    """acks=all is -1 on the wire."""
    lab = make_lab(1)
    configs = {
        "all": ProducerConfig(),
        "1": ProducerConfig(acks="1"),
        "0": ProducerConfig(acks="0"),
    }
    lab.producer(10.0, configs[acks])
    lab.run_for(SECOND)
    request = lab.brokers[0].of_type(ProduceRequest)[0]
    assert isinstance(request, ProduceRequest)
    assert request.acks == wire
