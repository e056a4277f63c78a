"""Brokers store each batch of a Produce request once, and byte for byte.

A batch is stored once even if the producer sends it twice, or if a broker crashes meanwhile. A
producer that wants this protection is called idempotent: it has an id, and numbers its records.
The numbers are its sequence.

`lab` is a cluster of three brokers in virtual time. Nearly all tests write to orders-0, which
broker 0 leads. The first argument of `lab.client`'s methods is the broker that gets the request.
"""

from collections.abc import Awaitable

import pytest
from msgspec.structs import replace

from cluster.broker.replication.delayed_appends import DelayedAppends
from cluster.broker.replication.produce import INTERNAL_TOPICS
from cluster.spec import ClusterSpec, TopicSpec
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import ReplicaConfig
from partition_log.replica import Partition
from protocol.config import BrokerConfig, TopicConfig
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.messages.log import (
    FetchPartition,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.transaction import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import Record, RecordBatch
from protocol.records.kafka_format import decode_batches, encode_batch
from tests.support.builders.client_batches import client_batch
from tests.support.harness.brokers import ORDERS, BrokerLab, TestClient, broker_cluster, values_of
from tests.support.harness.controllers import NO_BALANCING
from tests.support.recorded_batches import recorded_batches

P0 = TopicPartition(ORDERS, 0)
PRODUCER = 7
"""The id of an idempotent producer."""
CHANGED_BY_BROKER_BYTES = 16
"""The broker may change the first 16 bytes of a batch.

These bytes have the base offset (8 bytes), the length (4) and the leader epoch (4).
"""


def numbered_batch(*values: str, sequence: int = 0) -> RecordBatch:
    """Return a batch of the idempotent producer; its first record has the number `sequence`."""
    return client_batch(*values, producer_id=PRODUCER, base_sequence=sequence)


def single_replica_cluster(
    *, config: BrokerConfig = NO_BALANCING, topic_config: TopicConfig | None = None
) -> ClusterSpec:
    """Return a cluster in which each partition of orders has one replica: partition n on broker n.

    With `config` or `topic_config` the brokers or the topic have other settings.
    """
    orders = TopicSpec(
        name=ORDERS,
        partitions=3,
        replication_factor=1,
        config=topic_config or TopicConfig(),
    )
    return replace(broker_cluster(config=config), topics=(orders,))


def test_only_the_last_batch_is_stored_if_a_request_names_a_partition_twice() -> None:
    """As in Kafka, such a request leads to one append to the partition, and to one answer."""

    async def story(lab: BrokerLab) -> None:
        named_twice = TopicProduceData(
            name=ORDERS,
            partition_data=tuple(
                PartitionProduceData(index=0, records=client_batch(value))
                for value in ("first", "last")
            ),
        )
        answer = await lab.client.call(
            0, ProduceRequest(acks=ACKS_ALL, timeout_ms=10_000, topic_data=(named_twice,))
        )
        assert isinstance(answer, ProduceResponse)
        (topic,) = answer.responses
        (partition,) = topic.partition_responses
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 0)
        assert values_of(await lab.client.fetch(0)) == [b"last"]

    BrokerLab(broker_cluster()).run(story)


def test_batches_of_a_real_client_are_fetched_byte_for_byte() -> None:
    """Whatever a broker does with a batch, a consumer must get the bytes that the producer sent.

    The batches were recorded from real clients. Here they pass through the leader, its followers,
    and a restart of all brokers. With `copy_messages`, every message is encoded and decoded on its
    way.
    """

    async def story(lab: BrokerLab) -> None:
        # Without an open transaction a broker refuses transactional batches, so they are left out.
        sent = [recorded for recorded in recorded_batches() if not recorded.is_transactional]
        for recorded in sent:
            (batch,) = decode_batches(recorded.data)
            answer = await lab.client.produce_batch(0, batch)
            assert answer.error_code is ErrorCode.NONE

        for broker_id in range(3):
            await lab.kill(broker_id)
        for broker_id in range(3):
            await lab.restart(broker_id)
        await lab.seconds(15)  # the old sessions of 9 s end, and the brokers register again

        leader = (await lab.runtime.status()).partitions[P0].leader
        fetched = await lab.client.fetch(leader)
        assert [encode_batch(batch)[CHANGED_BY_BROKER_BYTES:] for batch in fetched.records] == [
            recorded.data[CHANGED_BY_BROKER_BYTES:] for recorded in sent
        ]
        # The base offset of a batch is the number of records before it.
        record_counts = [len(recorded.records) for recorded in sent]
        base_offsets = [sum(record_counts[:index]) for index in range(len(sent))]
        assert [batch.base_offset for batch in fetched.records] == base_offsets
        assert values_of(fetched) == [
            value for recorded in sent for _, value, _ in recorded.records
        ]

    BrokerLab(broker_cluster(), copy_messages=True).run(story)


def test_answer_has_the_offset_of_the_batch_or_the_errors_of_its_records() -> None:
    """A compacted topic refuses a batch if a record has no key. The answer lists these records."""

    async def story(lab: BrokerLab) -> None:
        accepted = await lab.client.produce_batch(0, client_batch("a", "b"))
        assert accepted == PartitionProduceResponse(index=0, base_offset=0, log_start_offset=0)
        refused = await lab.client.produce_batch(0, client_batch("a", has_keys=False))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert refused.error_message == "1 of 1 records have no key, and the topic is compacted"
        assert [error.batch_index for error in refused.record_errors] == [0]

    BrokerLab(single_replica_cluster(topic_config=TopicConfig(cleanup_policy="compact"))).run(story)


@pytest.mark.parametrize("is_set_by_topic", [True, False], ids=["by-topic", "by-broker"])
def test_message_size_and_timestamp_type_are_set_by_the_topic_or_the_broker(
    is_set_by_topic: bool,
) -> None:
    """A topic can have the settings max.message.bytes and message.timestamp.type.

    If a topic does not have them, the broker's settings apply, which are called message.max.bytes
    and log.message.timestamp.type.
    """
    if is_set_by_topic:
        cluster = single_replica_cluster(
            topic_config=TopicConfig(message_timestamp_type="LogAppendTime", max_message_bytes=100)
        )
    else:
        cluster = single_replica_cluster(
            config=BrokerConfig(
                auto_leader_rebalance_enable=False,
                log_message_timestamp_type="LogAppendTime",
                message_max_bytes=100,
            )
        )

    async def story(lab: BrokerLab) -> None:
        accepted = await lab.client.produce_batch(0, client_batch("a"))
        # LogAppendTime: the records have the time of the broker's clock, less than a second ago.
        now_ms = lab.client.host.wall_us() // 1_000
        assert now_ms - 1_000 < accepted.log_append_time_ms <= now_ms
        (stored,) = (await lab.client.fetch(0)).records
        assert stored.max_timestamp_ms == accepted.log_append_time_ms
        # The value has 100 bytes, so the batch with its header is larger than the limit of 100.
        large = await lab.client.produce_batch(0, client_batch("a" * 100))
        assert large.error_code is ErrorCode.MESSAGE_TOO_LARGE

    BrokerLab(cluster).run(story)


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_only_coordinators_write_to_internal_topics(topic: str) -> None:
    """A client that could write to an internal topic could invent groups and offsets.

    Source: ReplicaManager.appendToLocalLog.
    """

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.produce(0, b"a", topic=topic)
        assert answer.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
        written = lab.storages[broker_name(BrokerId(0))].log(TopicPartition(topic, 0))
        assert len(written) == 0

    BrokerLab(broker_cluster()).run(story)


def test_duplicate_is_not_acknowledged_before_the_first_append() -> None:
    """A batch that is sent again waits until the followers have it, like the original batch.

    1. The followers are paused. The producer sends the batch "a", "b", then another batch, and then
       the batch "a", "b" again.
    2. Nothing is acknowledged until the followers resume.
    3. The followers have resumed. The producer sends "a", "b" for the third time, and gets an
       answer at once.
    """

    async def story(lab: BrokerLab) -> None:
        for broker_id in (1, 2):
            await lab.runtime.pause(broker_name(BrokerId(broker_id)))
        answers: list[tuple[str, PartitionProduceResponse]] = []

        async def keep_answer(name: str, answer: Awaitable[PartitionProduceResponse]) -> None:
            answers.append((name, await answer))

        host = lab.client.host
        sent = (
            ("first", numbered_batch("a", "b")),
            ("next", numbered_batch("c", sequence=2)),
            ("again", numbered_batch("a", "b")),
        )
        for name, batch in sent:
            # Each request has its own connection, because a connection keeps its answers in order.
            client = TestClient(host)
            host.spawn(keep_answer(name, client.produce_batch(0, batch)), name=name)
            await lab.seconds(0.1)
        assert answers == []

        for broker_id in (1, 2):
            await lab.runtime.resume(broker_name(BrokerId(broker_id)))
        await lab.seconds(1)
        assert {name: answer.base_offset for name, answer in answers} == {
            "first": 0,
            "next": 2,
            "again": 0,
        }

        late_duplicate = await lab.client.produce_batch(0, numbered_batch("a", "b"))
        assert (late_duplicate.error_code, late_duplicate.base_offset) == (ErrorCode.NONE, 0)
        assert values_of(await lab.client.fetch(0)) == [b"a", b"b", b"c"]

    BrokerLab(broker_cluster()).run(story)


@pytest.mark.parametrize("has_power_loss", [False, True], ids=["crash", "power-loss"])
def test_next_leader_recognises_batches_sent_to_the_former_one(has_power_loss: bool) -> None:
    """A batch that is sent again after a failover or a restart is not written twice.

    1. Broker 0 writes the batch "a", "b", and dies by a crash or a power loss.
    2. The next leader recognises "a", "b". It refuses "x", whose number leaves a gap in the
       sequence, and writes "c".
    3. Broker 0 restarts, and copies "c".
    4. The other brokers die. Broker 0 leads again, and recognises "c".
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce_batch(0, numbered_batch("a", "b"))
        if has_power_loss:
            await lab.runtime.power_loss(broker_name(BrokerId(0)))
        else:
            await lab.kill(0)
        status = await lab.until(lambda status: status.partitions[P0].leader not in (-1, 0))
        leader = status.partitions[P0].leader
        await lab.seconds(1)  # the leader learns of its election

        again = await lab.client.produce_batch(leader, numbered_batch("a", "b"))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        # "a" and "b" have the sequence numbers 0 and 1, so the next number is 2.
        gap = await lab.client.produce_batch(leader, numbered_batch("x", sequence=3))
        assert gap.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await lab.client.produce_batch(leader, numbered_batch("c", sequence=2))

        await lab.restart(0)
        await lab.until(lambda status: len(status.partitions[P0].isr) == 3)
        for broker_id in (1, 2):
            await lab.kill(broker_id)
        await lab.until(lambda status: status.partitions[P0].leader == 0)
        await lab.seconds(1)  # broker 0 learns of its election

        # acks=1, because acks=all is refused while only one replica is in sync.
        again = await lab.client.produce_batch(0, numbered_batch("c", sequence=2), acks=1)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 2)
        assert values_of(await lab.client.fetch(0)) == [b"a", b"b", b"c"]

    BrokerLab(broker_cluster()).run(story)


def test_expired_producer_may_continue_with_any_sequence() -> None:
    """A broker forgets the sequence of a producer that is silent for producer.id.expiration.ms.

    Here this is 2 s. Every second the broker looks for producers to forget.
    """
    config = BrokerConfig(
        auto_leader_rebalance_enable=False,
        producer_id_expiration_ms=2_000,
        producer_id_expiration_check_interval_ms=1_000,
    )

    async def story(lab: BrokerLab) -> None:
        now_ms = lab.client.host.wall_us() // 1_000
        # The expiry counts from the timestamp of the producer's last record.
        first = client_batch("a", producer_id=PRODUCER, timestamp_ms=now_ms)
        assert (await lab.client.produce_batch(0, first)).error_code is ErrorCode.NONE
        gap = numbered_batch("b", sequence=9)  # the next number would be 1
        refused = await lab.client.produce_batch(0, gap)
        assert refused.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await lab.seconds(4)  # longer than the expiry and the interval of the check
        assert (await lab.client.produce_batch(0, gap)).base_offset == 1

    BrokerLab(single_replica_cluster(config=config)).run(story)


def test_every_broker_assigns_producer_ids_and_none_twice() -> None:
    """No id is given to two producers, even after restarts of a broker and of the controller.

    The producers have no transactional id, so any broker can give them an id.
    """

    async def story(lab: BrokerLab) -> None:
        ids: list[int] = []

        async def ask(broker_id: int) -> None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            for _ in range(50):  # for 5 s at most
                answer = await lab.client.call(broker_id, request)
                assert isinstance(answer, InitProducerIdResponse)
                if answer.error_code is ErrorCode.NONE:
                    assert answer.producer_epoch == 0
                    ids.append(answer.producer_id)
                    return
                # The broker still waits for a block of ids from the controller. As in Kafka, it
                # answers with this error in the meantime.
                assert answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
                await lab.seconds(0.1)
            raise TimeoutError(f"broker {broker_id} gives no producer id")

        for broker_id in (0, 1, 2, 0, 1, 2):
            await ask(broker_id)

        await lab.kill(1)
        await lab.restart(1)
        await lab.runtime.crash(lab.controller)
        await lab.runtime.restart(lab.controller)
        await lab.seconds(12)  # broker 1's old session of 9 s ends, and it registers again
        for broker_id in (1, 0, 1):
            await ask(broker_id)
        # Six requests before the restarts and three after them got different ids.
        assert len(ids) == 9
        assert len(set(ids)) == 9

    BrokerLab(broker_cluster()).run(story)


def test_repeated_append_completes_with_the_first_one() -> None:
    """A duplicate waits for the first append of its batch, and not for later appends.

    Two records are appended, "first" and "second". Then the producer repeats the first. The
    follower fetches from offset 1, so it has the first record and not the second. So "first" and
    "first again" complete, and "second" still waits.
    """
    log = PartitionLog(P0, MemoryLogStorage())
    partition = Partition(P0, BrokerId(0), log, ReplicaConfig())
    replicas = (BrokerId(0), BrokerId(1))
    partition.make_leader(
        leader_epoch=0, partition_epoch=0, replicas=replicas, isr=replicas, now_us=0
    )
    appends = DelayedAppends()
    done: list[tuple[str, ErrorCode]] = []

    def wait(name: str, required_offset: int) -> None:
        appends.park(partition, required_offset, lambda error: done.append((name, error)))

    for _ in range(2):
        partition.append_records((Record(None, b"a"),), required_acks=-1, now_us=0)
    # An append completes when the high watermark reaches its required offset.
    wait("first", 1)
    wait("second", 2)
    wait("first again", 1)

    partition.fetch(
        FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=1),
        replica_id=1,
        replica_epoch=-1,  # unknown: the leader does not check the epoch
        max_bytes=1_000,
        now_us=0,
    )
    appends.check(partition)
    assert done == [("first", ErrorCode.NONE), ("first again", ErrorCode.NONE)]
    appends.check_invariants()
