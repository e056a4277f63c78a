"""Replication between brokers: produce, fetch, high watermark, and the restart of a broker.

`lab` is a cluster of three brokers in virtual time. Broker 0 leads orders-0.
`lab.client.produce(0, b"a")` sends broker 0 a record with acks=all.
"""

from partition_log.checkpoints import REPLICATION_OFFSET_CHECKPOINT, decode_offset_checkpoint
from protocol.ids import TopicPartition, broker_name
from protocol.records.batch import RecordBatch
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, BrokerLab, TestClient, broker_cluster, values_of

P0 = TopicPartition(ORDERS, 0)
SOME_ROUND_TRIPS_US = 30_000
"""More than the time of a few round trips between two nodes."""


def test_produce_is_acknowledged_within_a_fetch_round_trip() -> None:
    """An append at the leader ends the long poll of each follower.

    Otherwise a follower's Fetch would wait up to 500 ms, and so would the acknowledgement of the
    append.
    """

    async def story(lab: BrokerLab) -> None:
        begun_us = lab.runtime.now_us()
        await lab.client.produce(0, b"a")
        assert lab.runtime.now_us() - begun_us < SOME_ROUND_TRIPS_US

    BrokerLab(broker_cluster()).run(story)


def test_waiting_consumer_fetch_is_answered_when_the_high_watermark_advances() -> None:
    """A Fetch that may wait 20 s for records is answered as soon as a record is committed."""

    async def story(lab: BrokerLab) -> None:
        host = lab.client.host
        fetched: list[tuple[int, list[bytes | None]]] = []

        async def consume() -> None:
            data = await lab.client.fetch(0, max_wait_ms=20_000)
            fetched.append((lab.runtime.now_us(), values_of(data)))

        async def produce() -> None:
            # A second client has its own connection. On the first client's connection the Produce
            # would wait behind the Fetch.
            second_client = TestClient(host)
            await second_client.produce(0, b"a")

        host.spawn(consume(), name="consume")
        await lab.seconds(2)  # enough for the Fetch to arrive and wait
        begun_us = lab.runtime.now_us()
        host.spawn(produce(), name="produce")
        await lab.seconds(1)
        ((fetched_us, values),) = fetched
        assert values == [b"a"]
        assert fetched_us - begun_us < SOME_ROUND_TRIPS_US

    BrokerLab(broker_cluster()).run(story)


def test_replicas_have_byte_identical_logs() -> None:
    """Followers append the leader's batches without a change."""

    async def story(lab: BrokerLab) -> list[tuple[RecordBatch, ...]]:
        for number in range(20):
            await lab.client.produce(0, str(number).encode())
        await lab.seconds(1)
        logs = []
        for broker_id in range(3):
            log = lab.storages[broker_name(broker_id)].log(P0)
            logs.append(tuple(log.batch(index) for index in range(len(log))))
        return logs

    logs = BrokerLab(broker_cluster()).run(story)
    assert len(logs[0]) == 20
    assert logs[0] == logs[1] == logs[2]


def test_high_watermark_checkpoint_survives_a_restart_before_the_broker_registers() -> None:
    """A restarted broker has no metadata at first, and so knows no high watermark to write.

    So it must not write the checkpoint yet. This file still has the high watermarks from before the
    restart, and the broker needs them if it dies again.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a")
        await lab.seconds(6)  # longer than the interval of the checkpoint, 5 s
        before_kill = lab.storages[broker_name(0)].read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        assert decode_offset_checkpoint(before_kill or b"")[P0] == 1
        await lab.kill(0)
        await lab.restart(0)
        await lab.seconds(6)  # again longer than the interval of the checkpoint
        # The broker's old session of 9 s has not ended yet, so the broker is not registered again.
        assert lab.events(TraceKind.BROKER_FENCED) == []
        after_restart = lab.storages[broker_name(0)].read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        assert decode_offset_checkpoint(after_restart or b"")[P0] == 1

    BrokerLab(broker_cluster()).run(story)
