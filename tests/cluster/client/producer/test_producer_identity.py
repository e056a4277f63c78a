"""A producer with enable.idempotence: sequence numbers, retries, epochs.

A producer with enable.idempotence numbers the records of each partition. By these sequence numbers
a leader recognises a record that arrives twice, and writes it only once. A batch has the producer's
id and epoch, and the sequence number of its first record. In a new epoch the numbers begin at 0
again.

The first tests use only the object that makes these numbers, a ProducerIdentity. `begin(5, 0)`
gives it the id 5 and the epoch 0. `identify(P0, 3)` returns the identity of a batch of three
records for P0, such as `BatchIdentity(5, 0, 0)`: id, epoch and sequence number.

In most other tests a real producer talks to a scripted broker, which gives the answers that the
test has prepared. `make_lab(1)` makes a `lab` with one such broker, which gives the producer the
id 7 and the epoch 0. The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the recorded events of this kind.
- `lab.run_for(SECOND)` lets a second of virtual time pass.
"""

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
from tests.cluster.client.producer.test_producer import error_answer
from tests.support.builders.experiments import experiment
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.scripted_broker import MS, SECOND, ClientLab, LabMaker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDEMPOTENT = ProducerConfig(enable_idempotence=True)


def batches_sent(lab: ClientLab) -> list[tuple[int, int, int, int]]:
    """Return id, epoch, sequence number and record count of each batch that broker 0 has got."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
        for request in lab.brokers[0].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for batch in [data.records for data in topic.partition_data]
    ]


def test_each_partition_has_its_own_sequences() -> None:
    """Sequence numbers count records: after a batch with the numbers 0 to 2, the next begins at 3.

    The largest number is 2**31 - 1. After it the numbers begin at 0 again.
    """
    identity = ProducerIdentity()
    assert identity.producer_id == NO_PRODUCER_ID
    identity.begin(5, 0)
    assert identity.identify(P0, 3) == BatchIdentity(5, 0, 0)
    assert identity.identify(P1, 1) == BatchIdentity(5, 0, 0)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 3)
    # This batch has the numbers 4 to 2**31 - 1.
    assert identity.identify(P0, 2**31 - 4) == BatchIdentity(5, 0, 4)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 0)


def test_new_epoch_resets_all_sequences_and_the_last_epoch_needs_a_new_id() -> None:
    """The last epoch of a producer id is 32,767. After this epoch the producer needs a new id."""
    identity = ProducerIdentity()
    identity.begin(5, 32_766)
    identity.identify(P0, 3)
    identity.raise_epoch()
    assert identity.identify(P0, 1) == BatchIdentity(5, 32_767, 0)
    assert identity.identify(P0, 1) == BatchIdentity(5, 32_767, 1)
    identity.raise_epoch()
    assert identity.producer_id == NO_PRODUCER_ID  # the producer must ask for a new id
    identity.begin(6, 0)
    assert identity.identify(P0, 1) == BatchIdentity(6, 0, 0)


def test_resent_batch_keeps_its_sequence(make_lab: LabMaker) -> None:
    """The leader recognises a batch that is sent again by its sequence number.

    Here the first batch fails twice, so it is sent three times, always with sequence number 0.
    """
    lab = make_lab(1, partitions=1)
    lab.brokers[0].answer(ProduceRequest, *[error_answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 2)
    lab.producer(20.0, IDEMPOTENT)
    lab.run_for(2 * SECOND)
    batches = batches_sent(lab)
    assert batches[:3] == [(7, 0, 0, 1)] * 3
    # The first batch had one record, so the second batch begins at 1, and so on without gaps.
    next_sequence = 1
    for producer_id, epoch, sequence, count in batches[3:]:
        assert producer_id == 7
        assert epoch == 0
        assert sequence == next_sequence
        next_sequence += count
    # 2 s at 20 records a second are 40 records. The retries at the start cost some of this time.
    assert next_sequence > 20


def test_nothing_is_sent_before_a_broker_has_assigned_an_id(make_lab: LabMaker) -> None:
    """The producer asks for an id again and again, and sends no batch until it has the id.

    A broker that has no free ids answers COORDINATOR_LOAD_IN_PROGRESS, here three times.
    """
    lab = make_lab(1, partitions=1)
    no_id_yet = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[0].answer(InitProducerIdRequest, no_id_yet, no_id_yet, no_id_yet)
    lab.producer(20.0, IDEMPOTENT)
    lab.run_for(200 * MS)
    assert batches_sent(lab) == []
    lab.run_for(2 * SECOND)
    assert len(lab.brokers[0].of_type(InitProducerIdRequest)) == 4
    assert batches_sent(lab)[0][:3] == (7, 0, 0)


def test_batch_that_is_given_up_raises_the_epoch(make_lab: LabMaker) -> None:
    """When the producer gives up a batch, it cannot know whether the broker has written the batch.

    If it has, the batch's sequence number must not be used again. If it has not, the number must
    not be left out. So the producer begins a new epoch, in which the numbers begin at 0.
    """
    lab = make_lab(1, partitions=1)
    lab.producer(10.0, IDEMPOTENT)
    lab.run_for(SECOND)
    batches_before = len(batches_sent(lab))

    lab.brokers[0].answer(ProduceRequest, error_answer(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    lab.run_for(SECOND)

    (failed,) = lab.of_kind("produce_failed")
    assert failed.error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    _given_up, first_of_new_epoch, second_of_new_epoch, *_ = batches_sent(lab)[batches_before:]
    assert first_of_new_epoch == (7, 1, 0, 1)
    assert second_of_new_epoch[:3] == (7, 1, 1)


def test_idempotence_without_all_acks_is_an_error() -> None:
    """A Kafka producer throws a ConfigException for these settings.

    In this project an experiment whose producer has these settings is refused.
    """
    (problem,) = errors(
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
    assert problem.path == "producers[0].config.acks"
    assert problem.expected == "all"


class ProducerLab(BrokerLab):
    """Three brokers, and a real producer, which writes 50 records a second to the topic orders."""

    def __init__(self, *, is_idempotent: bool) -> None:
        cluster = broker_cluster()
        (spec,) = cluster.producers
        config = ProducerConfig(enable_idempotence=is_idempotent, request_timeout_ms=1_000)
        spec = replace(spec, records_per_second=50, config=config)
        super().__init__(replace(cluster, producers=(spec,)))

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        # BrokerLab would build a test client in place of the producer.
        self.storages[host.name] = host.storage
        return build_node(spec, cluster, host)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_records_are_written_once_although_answers_are_lost(is_idempotent: bool) -> None:
    """A producer repeats a batch that gets no answer. With idempotence no record is written twice.

    1. The leader of orders-0 is paused for 3 s. It receives a batch and does not answer.
    2. After its request timeout of 1 s the producer sends the batch again.
    3. The resumed leader handles both copies of the batch. Without idempotence it writes both.

    The test pauses the leader three times.
    """

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
    # 17 s = 3 * (1 s + 3 s) + 5 s. At 50 records a second, of which a third go to orders-0, this
    # makes up to 280 records.
    assert len(written) > 100
    has_duplicates = len(set(written)) < len(written)
    assert has_duplicates is not is_idempotent
    # The first copies of the records are in the order of their numbers.
    without_duplicates = list(dict.fromkeys(written))
    assert without_duplicates == sorted(without_duplicates, key=int)
