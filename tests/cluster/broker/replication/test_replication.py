"""Brokers replicate: produce, fetch, high watermark, ISR, and a broker that comes back."""

from cluster.client.admin.orders import move_leader
from partition_log.checkpoints import REPLICATION_OFFSET_CHECKPOINT, decode_offset_checkpoint
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.messages.log import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import RecordBatch
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster, values_of

P0 = TopicPartition(ORDERS, 0)


async def list_offset(
    lab: BrokerLab, broker_id: int, timestamp: int
) -> ListOffsetsPartitionResponse:
    """Ask a broker for an offset of orders-0."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    response = await lab.client.call(
        broker_id, ListOffsetsRequest(topics=(ListOffsetsTopic(name=ORDERS, partitions=(asked,)),))
    )
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


def test_produce_with_acks_all_is_answered_when_every_isr_member_has_the_records() -> None:
    """BEHAVIOUR 6.1: the high watermark is the minimum over the ISR; a consumer reads up to it."""

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.produce(0, b"a", b"b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        answer = await lab.client.produce(0, b"c")
        assert answer.base_offset == 2
        data = await lab.client.fetch(0)
        assert values_of(data) == [b"a", b"b", b"c"]
        assert (data.high_watermark, data.leader_id, data.leader_epoch) == (3, 0, 0)

    BrokerLab(broker_cluster()).run(story)


def test_produce_is_acknowledged_within_a_fetch_round_trip() -> None:
    """Followers wait in a long poll: an append must wake them, not their next poll."""

    async def story(lab: BrokerLab) -> None:
        begun_us = lab.runtime.now_us()
        await lab.client.produce(0, b"a")
        assert lab.runtime.now_us() - begun_us < 30_000

    BrokerLab(broker_cluster()).run(story)


def test_consumer_fetch_waits_for_the_high_watermark_not_for_the_log_end() -> None:
    """With two of three replicas gone nothing can be acknowledged, and nothing may be read."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a")
        await lab.kill(1)
        await lab.kill(2)
        answer = await lab.client.produce(0, b"b", timeout_ms=2_000)
        assert answer.error_code is ErrorCode.REQUEST_TIMED_OUT
        assert values_of(await lab.client.fetch(0)) == [b"a"]
        waited = await lab.client.fetch(0, 1, max_wait_ms=500)
        assert (waited.records, waited.high_watermark) == ((), 1)

    BrokerLab(broker_cluster()).run(story)


def test_parked_consumer_fetch_is_answered_when_the_high_watermark_advances() -> None:
    """Otherwise every record would reach consumers up to fetch.max.wait.ms late."""

    async def story(lab: BrokerLab) -> None:
        host = lab.client.host
        fetched: list[tuple[int, list[bytes | None]]] = []

        async def consume() -> None:
            data = await lab.client.fetch(0, max_wait_ms=20_000)
            fetched.append((lab.runtime.now_us(), values_of(data)))

        async def produce() -> None:
            # On the fetch's own connection it would wait behind it.
            other = type(lab.client)(host)
            await other.produce(0, b"a")

        host.spawn(consume(), name="consume")
        await lab.seconds(2)
        begun_us = lab.runtime.now_us()
        host.spawn(produce(), name="produce")
        await lab.seconds(1)
        ((fetched_us, values),) = fetched
        assert values == [b"a"]
        assert fetched_us - begun_us < 30_000

    BrokerLab(broker_cluster()).run(story)


def test_produce_below_min_insync_replicas_is_refused_up_front() -> None:
    """NOT_ENOUGH_REPLICAS, once the ISR is known to be too small; nothing is appended."""

    async def story(lab: BrokerLab) -> None:
        await lab.kill(1)
        await lab.kill(2)
        await lab.until(lambda status: status.partitions[P0].isr == (0,))
        await lab.seconds(1)
        answer = await lab.client.produce(0, b"a")
        assert answer.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
        answer = await lab.client.produce(0, b"a", acks=1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)

    BrokerLab(broker_cluster()).run(story)


def test_records_that_wait_when_the_isr_shrinks_too_far_are_answered_after_append() -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND or a time-out: never acknowledged with one replica."""

    async def story(lab: BrokerLab) -> None:
        await lab.kill(1)
        await lab.kill(2)
        answer = await lab.client.produce(0, b"a", timeout_ms=20_000)
        assert answer.error_code in (
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
        )

    BrokerLab(broker_cluster()).run(story)


def test_follower_and_strangers_are_told_who_does_not_lead() -> None:
    """Clients look for the leader again; an unknown partition is another error."""

    async def story(lab: BrokerLab) -> None:
        assert (await lab.client.produce(1, b"a")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await lab.client.fetch(1)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        unknown = await lab.client.produce(0, b"a", topic="nothing")
        assert unknown.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown_data = await lab.client.fetch(0, partition=9)
        assert unknown_data.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        invalid = await lab.client.produce(0, b"a", acks=2)
        assert invalid.error_code is ErrorCode.INVALID_REQUIRED_ACKS

    BrokerLab(broker_cluster()).run(story)


def test_list_offsets_gives_the_start_and_the_high_watermark() -> None:
    """Where auto.offset.reset earliest and latest begin."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a", b"b")
        assert (await list_offset(lab, 0, -2)).offset == 0
        assert (await list_offset(lab, 0, -1)).offset == 2
        assert (await list_offset(lab, 0, 5)).error_code is ErrorCode.INVALID_REQUEST
        assert (await list_offset(lab, 1, -1)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    BrokerLab(broker_cluster()).run(story)


def test_acknowledged_records_survive_the_leader_and_it_rejoins_the_isr() -> None:
    """A restart on the same disk: recover, follow, truncate what nobody has, be in sync again."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a", b"b")
        await lab.kill(0)
        await lab.until(lambda status: status.partitions[P0].leader == 1)
        await lab.seconds(1)
        assert values_of(await lab.client.fetch(1)) == [b"a", b"b"]
        assert (await lab.client.produce(1, b"c")).base_offset == 2
        await lab.restart(0)
        status = await lab.until(lambda status: set(status.partitions[P0].isr) == {0, 1, 2})
        assert status.partitions[P0].leader == 1
        answer = await lab.client.produce(1, b"d")
        assert answer.error_code is ErrorCode.NONE
        await lab.kill(1)
        await lab.kill(2)
        # It is the last one; what it has is everything that was acknowledged.
        await lab.until(lambda status: status.partitions[P0].leader == 0)
        await lab.seconds(1)
        status = await lab.runtime.status()
        assert status.partitions[P0].leader_epoch >= 2
        assert (await list_offset(lab, 0, -2)).offset == 0

    BrokerLab(broker_cluster()).run(story)


def test_restart_within_the_session_waits_until_the_old_life_is_fenced() -> None:
    """DUPLICATE_BROKER_REGISTRATION until then; the new life never leads in the old one's epoch."""

    async def story(lab: BrokerLab) -> None:
        await lab.kill(0)
        await lab.seconds(2)
        await lab.restart(0)
        await lab.until(lambda status: status.partitions[P0].leader == 1)
        await lab.until(lambda status: set(status.partitions[P0].isr) == {0, 1, 2})
        registrations = lab.events(TraceKind.BROKER_REGISTERED)
        (fenced,) = lab.events(TraceKind.BROKER_FENCED)
        assert registrations[-1].peer == "broker-0"
        assert registrations[-1].time_us > fenced.time_us
        second_life = [row for row in lab.events(TraceKind.BECAME_LEADER) if row.incarnation == 1]
        assert second_life == []

    BrokerLab(broker_cluster()).run(story)


def test_replicas_hold_the_same_log_byte_for_byte() -> None:
    """Followers append the leader's batches as they are."""

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


def test_high_watermark_checkpoint_survives_a_restart_that_waits_for_the_fence() -> None:
    """A broker that dies again before it was let in must still know what was committed."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a")
        await lab.seconds(6)
        written = lab.storages[broker_name(0)].read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        assert decode_offset_checkpoint(written or b"")[P0] == 1
        await lab.kill(0)
        await lab.restart(0)
        await lab.seconds(6)
        assert lab.events(TraceKind.BROKER_FENCED) == []
        again = lab.storages[broker_name(0)].read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        assert decode_offset_checkpoint(again or b"")[P0] == 1

    BrokerLab(broker_cluster()).run(story)


def test_broker_that_led_for_an_epoch_and_appended_nothing_follows_again() -> None:
    """It asks by that epoch first; told that the new leader never had it, it must ask anew.

    Found by random fault plans: it repeated the first question for ever, stayed in the ISR, and no
    write was ever acknowledged again.
    """

    async def story(lab: BrokerLab) -> None:
        assert (await lab.client.produce(0, b"a")).error_code is ErrorCode.NONE
        await lab.runtime.ask_as_admin(move_leader, P0, BrokerId(1))
        await lab.until(lambda status: status.partitions[P0].leader == 1)
        await lab.seconds(1)
        await lab.runtime.ask_as_admin(move_leader, P0, BrokerId(2))
        await lab.until(lambda status: status.partitions[P0].leader == 2)
        await lab.seconds(1)
        begun_us = lab.runtime.now_us()
        assert (await lab.client.produce(2, b"b")).error_code is ErrorCode.NONE
        assert lab.runtime.now_us() - begun_us < 100_000

    BrokerLab(broker_cluster()).run(story)
