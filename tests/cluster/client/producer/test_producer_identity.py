"""A producer with enable.idempotence: sequence numbers, retries, epochs.

Such a producer numbers the records of each partition. A batch has the producer's id and epoch, and
the sequence number of its first record. A leader writes each sequence number once. A producer that
begins a new epoch numbers its records from 0 again.

- `make_lab(1)` makes a scripted broker, which gives a producer the id 7 and the epoch 0.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass.
- The arguments of `BatchIdentity` are id, epoch and sequence number. `identity.begin` gets id and
  epoch; `identity.identify` gets the partition and the number of records of a batch.
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
from tests.cluster.client.producer.test_producer import error
from tests.support.builders.experiments import experiment
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.scripted_broker import MS, SECOND, ClientLab, LabMaker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDEMPOTENT = ProducerConfig(enable_idempotence=True)


def sent(lab: ClientLab) -> list[tuple[int, int, int, int]]:
    """Return id, epoch, sequence number and record count of each batch that broker 0 received."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
        for request in lab.brokers[0].of_type(ProduceRequest)
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for batch in (data.records for data in topic.partition_data)
    ]


def test_each_partition_has_its_own_sequences() -> None:
    """Sequence numbers count records: a batch of 3 records at 0 is followed by a batch at 3.

    The number after 2**31 - 1 is 0.
    """
    identity = ProducerIdentity()
    assert identity.producer_id == NO_PRODUCER_ID
    identity.begin(5, 0)
    assert identity.identify(P0, 3) == BatchIdentity(5, 0, 0)
    assert identity.identify(P1, 1) == BatchIdentity(5, 0, 0)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 3)
    # The last record of this batch has the number 2**31 - 1.
    assert identity.identify(P0, 2**31 - 4) == BatchIdentity(5, 0, 4)
    assert identity.identify(P0, 1) == BatchIdentity(5, 0, 0)


def test_new_epoch_resets_all_sequences_and_the_last_epoch_needs_a_new_id() -> None:
    """The last epoch of an id is 32,767. After this epoch the producer must get another id."""
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


def test_resent_batch_keeps_its_sequence(make_lab: LabMaker) -> None:
    """By the sequence number the leader recognises a batch that is sent again.

    The first batch fails twice, so it is sent three times.
    """
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
    assert following > 20  # 2 s at 20 records a second, less the time of the retries


def test_nothing_is_sent_before_a_broker_has_assigned_an_id(make_lab: LabMaker) -> None:
    """A broker without free ids answers COORDINATOR_LOAD_IN_PROGRESS, here three times."""
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
    """The broker may have written the batch, so its sequence number cannot be used again.

    In a new epoch the numbers begin at 0.
    """
    lab = make_lab(1, partitions=1)
    lab.producer(10.0, IDEMPOTENT)
    lab.run_for(SECOND)
    batches_before = len(sent(lab))

    lab.brokers[0].answer(ProduceRequest, error(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    lab.run_for(SECOND)

    (failed,) = lab.of_kind("produce_failed")
    assert failed.error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    # The producer gives the batch with the error up, so this batch is left out here. The next batch
    # has the id 7, the epoch 1, the sequence number 0 and one record.
    after = sent(lab)[batches_before + 1 :]
    assert after[0] == (7, 1, 0, 1)
    assert after[1][:3] == (7, 1, 1)


def test_idempotence_without_all_acks_is_an_error() -> None:
    """Kafka throws ConfigException for this combination of settings.

    Here the loader of experiments reports it, before any producer starts.
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
    """Three brokers, and a real producer for topic orders in place of the lab's test client."""

    def __init__(self, *, is_idempotent: bool) -> None:
        cluster = broker_cluster()
        (spec,) = cluster.producers
        config = ProducerConfig(enable_idempotence=is_idempotent, request_timeout_ms=1_000)
        spec = replace(spec, records_per_second=50, config=config)
        super().__init__(replace(cluster, producers=(spec,)))

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        # BrokerLab itself would make its test client of the producer's spec.
        self.storages[host.name] = host.storage
        return build_node(spec, cluster, host)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_records_are_written_once_although_answers_are_lost(is_idempotent: bool) -> None:
    """A producer repeats batches without an answer; with idempotence no record is written twice.

    1. The leader of orders-0 is paused for 3 s, with batches that wait.
    2. The producer repeats these batches after its request timeout of 1 s.
    3. The resumed leader handles both copies. Without idempotence it writes both.
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
    assert len(written) > 100  # 17 s at 50 records a second, of which a third go to orders-0
    has_duplicates = len(set(written)) < len(written)
    assert has_duplicates is not is_idempotent
    # The first copies of the records are in the order of their numbers.
    assert sorted(set(written), key=int) == list(dict.fromkeys(written))
