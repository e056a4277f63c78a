"""The lab's producer with enable.idempotence: numbers, repetitions, epochs."""

import pytest
from msgspec.structs import replace

from chaos.experiment.rules.all_rules import errors
from cluster.client.producer.producer_identity import BatchIdentity, ProducerIdentity
from cluster.host.host import Host
from cluster.node_factory import Node, build_node
from cluster.spec import ClusterSpec, NodeSpec
from protocol.config import ProducerConfig
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID, BrokerId, TopicPartition, broker_name
from protocol.messages.log import ProduceRequest
from protocol.messages.transaction import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import records_of
from tests.cluster.client.producer.test_producer import error
from tests.support.builders.experiments import experiment
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.scripted_broker import MS, SECOND, ClientLab, LabMaker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDEMPOTENT = ProducerConfig(enable_idempotence=True)


def sent(lab: ClientLab) -> list[tuple[int, int, int, int]]:
    """Return id, epoch, sequence and number of records of each batch that broker 0 got."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
        for request in lab.brokers[0].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for batch in (data.records for data in topic.partition_data)
    ]


def test_each_partition_is_numbered_by_itself() -> None:
    identity = ProducerIdentity()
    assert identity.producer_id == NO_PRODUCER_ID
    identity.begin(5, 0)
    assert identity.identify(P0, 3) == BatchIdentity(5, 0, 0)
    assert identity.identify(P1, 1) == BatchIdentity(5, 0, 0)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 3)
    assert identity.identify(P0, 2**31 - 4) == BatchIdentity(5, 0, 4)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 0)


def test_raised_epoch_begins_every_partition_anew_and_ends_with_the_id() -> None:
    """32,767 is the last epoch of an id."""
    identity = ProducerIdentity()
    identity.begin(5, 32_766)
    identity.identify(P0, 3)
    identity.raise_epoch()
    assert identity.identify(P0, 1) == BatchIdentity(5, 32_767, 0)
    assert identity.identify(P0, 1) == BatchIdentity(5, 32_767, 1)
    identity.raise_epoch()
    assert identity.producer_id == NO_PRODUCER_ID
    identity.begin(6, 0)
    assert identity.identify(P0, 1) == BatchIdentity(6, 0, 0)


def test_batch_that_is_sent_again_keeps_its_numbers(make_lab: LabMaker) -> None:
    """So the leader recognises it."""
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, *[error(0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 2)
    lab.producer(20.0, IDEMPOTENT)
    lab.run_for(2 * SECOND)
    batches = sent(lab)
    assert batches[:3] == [(7, 0, 0, 1)] * 3
    following = 1
    for producer_id, epoch, sequence, count in batches[3:]:
        assert (producer_id, epoch, sequence) == (7, 0, following)
        following += count
    assert following > 20


def test_nothing_is_sent_before_a_broker_gave_an_id(make_lab: LabMaker) -> None:
    """It answers COORDINATOR_LOAD_IN_PROGRESS until it has a block of ids, or not at all."""
    lab = make_lab(1, partitions=1)
    loading = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[0].answer(InitProducerIdRequest, loading, loading, loading)
    lab.producer(20.0, IDEMPOTENT)
    lab.run_for(200 * MS)
    assert sent(lab) == []
    lab.run_for(2 * SECOND)
    assert len(lab.brokers[0].of_type(InitProducerIdRequest)) == 4
    assert sent(lab)[0][:3] == (7, 0, 0)


def test_batch_that_is_given_up_raises_the_epoch(make_lab: LabMaker) -> None:
    """Nobody knows whether it was written: what follows is numbered from 0 again."""
    lab = make_lab(1, partitions=1)
    lab.producer(10.0, IDEMPOTENT)
    lab.run_for(SECOND)
    before = len(sent(lab))
    lab.brokers[0].answer(ProduceRequest, error(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    lab.run_for(SECOND)
    (failed,) = lab.of_kind("produce_failed")
    assert failed.error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    after = sent(lab)[before + 1 :]
    assert after[0] == (7, 1, 0, 1)
    assert after[1][:3] == (7, 1, 1)


def test_idempotence_without_all_acks_is_an_error() -> None:
    """Kafka's ConfigException."""
    (found,) = errors(
        experiment(
            producers=[
                {
                    "topic": "orders",
                    "records_per_second": 1,
                    "config": {"acks": "1", "enable.idempotence": True},
                }
            ]
        )
    )
    assert found.path == "producers[0].config.acks"
    assert found.expected == "all"


class ProducerLab(BrokerLab):
    """Three brokers and the lab's producer, which writes to orders."""

    def __init__(self, *, is_idempotent: bool) -> None:
        cluster = broker_cluster()
        (spec,) = cluster.producers
        config = ProducerConfig(enable_idempotence=is_idempotent, request_timeout_ms=1_000)
        spec = replace(spec, records_per_second=50, config=config)
        super().__init__(replace(cluster, producers=(spec,)))

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        self.storages[host.name] = host.storage
        return build_node(spec, cluster, host)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_records_are_written_once_although_answers_are_lost(is_idempotent: bool) -> None:
    """A leader that stops for 3 s writes what waited for it, and the producer sends it again."""

    async def story(lab: BrokerLab) -> list[bytes]:
        leader = broker_name(BrokerId(0))
        for _ in range(3):
            await lab.seconds(1)
            await lab.runtime.pause(leader)
            await lab.seconds(3)
            await lab.runtime.resume(leader)
        await lab.seconds(5)
        log = lab.storages[leader].log(TopicPartition(ORDERS, 0))
        return [
            record.value or b""
            for index in range(len(log))
            for _, record in records_of(log.batch(index))
        ]

    written = ProducerLab(is_idempotent=is_idempotent).run(story)
    assert len(written) > 100
    assert (len(set(written)) == len(written)) is is_idempotent
    assert sorted(set(written), key=int) == list(dict.fromkeys(written))
