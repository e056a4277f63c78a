"""An administrator elects and moves leaders, as with Kafka's command line tools.

The controller and the brokers are the real ones, but they run in virtual time: a simulated clock.
`lab` is a running cluster of one controller and the brokers 0, 1 and 2. Its topic `orders` has
three partitions with three replicas each. The preferred leader of a partition is its first replica:
broker 0 for orders-0, broker 1 for orders-1, broker 2 for orders-2. At first each partition has its
preferred leader, in leader epoch 0. `ask_as_admin(function, ...)` lets an administrator call the
function.
"""

import pytest

from cluster.client.admin.orders import ElectionFailed, elect_preferred_leaders, move_leader
from cluster.links.rules import LinkRule, Selector, Slow
from cluster.runtime import ClusterStatus
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name, offsets_partition
from protocol.messages.admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

P0 = TopicPartition(ORDERS, 0)
TWO = BrokerId(2)


def leader(status: ClusterStatus, name: TopicPartition) -> int:
    """Return the leader of a partition, or -1 if it has none."""
    return status.partitions[name].leader


def test_moved_leader_is_the_first_replica_and_leads_when_the_call_returns() -> None:
    """A move makes the broker the first replica, and then asks for an election.

    With Kafka's tools this takes two commands, kafka-reassign-partitions and kafka-leader-election.
    """

    async def story(lab: BrokerLab) -> ClusterStatus:
        await lab.runtime.ask_as_admin(move_leader, P0, TWO)
        return await lab.runtime.status()

    partition = BrokerLab(broker_cluster()).run(story).partitions[P0]
    assert partition.leader == 2
    assert partition.leader_epoch == 1
    assert partition.replicas == (2, 0, 1)
    assert sorted(partition.isr) == [0, 1, 2]


def test_leader_move_fences_no_broker_and_loses_no_record() -> None:
    """The old leader becomes a follower. The records that it had acknowledged remain."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"before the move")
        await lab.runtime.ask_as_admin(move_leader, P0, TWO)
        await lab.seconds(2)  # broker 0 learns that it no longer leads
        answer_of_old_leader = await lab.client.produce(0, b"after the move")
        assert answer_of_old_leader.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer_of_new_leader = await lab.client.produce(2, b"after the move")
        assert answer_of_new_leader.error_code is ErrorCode.NONE
        assert answer_of_new_leader.base_offset == 1  # the record before the move has offset 0
        assert lab.events(TraceKind.BROKER_FENCED) == []

    BrokerLab(broker_cluster()).run(story)


def test_second_leader_move_before_the_first_is_known_succeeds() -> None:
    """Two moves follow each other: the leadership goes to broker 2, and back to broker 0.

    A slow link lets metadata reach the brokers 1 s late. So during the second move the brokers
    still say that broker 0 leads. This must not keep the administrator from the second move.
    """

    async def story(lab: BrokerLab) -> tuple[int, tuple[BrokerId, ...]]:
        cluster = broker_cluster()
        metadata_comes_late = LinkRule(
            rule_id="slow",
            selector=Selector(
                sources=tuple(controller.name for controller in cluster.controllers),
                destinations=tuple(broker.name for broker in cluster.brokers),
            ),
            effect=Slow(delay_us=1_000_000),
        )
        await lab.runtime.set_link_rules([metadata_comes_late])
        await lab.runtime.ask_as_admin(move_leader, P0, TWO)
        await lab.runtime.ask_as_admin(move_leader, P0, BrokerId(0))
        partition = (await lab.runtime.status()).partitions[P0]
        return partition.leader, partition.replicas

    assert BrokerLab(broker_cluster()).run(story) == (0, (0, 1, 2))


def test_move_to_the_present_leader_succeeds_and_changes_nothing() -> None:
    """The controller answers ELECTION_NOT_NEEDED, which is no failure. The leader epoch stays 0."""

    async def story(lab: BrokerLab) -> int:
        await lab.runtime.ask_as_admin(move_leader, P0, BrokerId(0))
        # The preferred leaders of these two partitions lead already.
        await lab.runtime.ask_as_admin(elect_preferred_leaders, [P0, offsets_partition(1)])
        return (await lab.runtime.status()).partitions[P0].leader_epoch

    assert BrokerLab(broker_cluster()).run(story) == 0


def test_preferred_leaders_of_all_partitions_are_elected_on_request() -> None:
    """After a restart a broker leads nothing until an automatic check, which runs every 300 s.

    So in a rolling restart an administrator asks for an election after each broker's restart. With
    None as its argument, `elect_preferred_leaders` elects the leaders of all partitions.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.runtime.shut_down(broker_name(0))
        await lab.seconds(6)  # the shutdown ends
        await lab.restart(0)
        await lab.until(lambda status: len(status.partitions[P0].isr) == 3)
        assert leader(await lab.runtime.status(), P0) == 1
        await lab.runtime.ask_as_admin(elect_preferred_leaders, None)
        status = await lab.runtime.status()
        for partition in status.partitions.values():
            assert partition.leader == partition.replicas[0]

    BrokerLab(broker_cluster()).run(story)


def test_election_of_a_replica_that_is_down_names_the_partition_and_kafkas_error() -> None:
    """Broker 0 is down, so two partitions cannot have their preferred leader.

    These are orders-0 and __consumer_offsets-0. The error names these two partitions. It does not
    name orders-1, whose preferred leader is up.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.runtime.shut_down(broker_name(0))
        await lab.seconds(6)  # the shutdown ends
        with pytest.raises(ElectionFailed) as failed:
            await lab.runtime.ask_as_admin(elect_preferred_leaders, None)
        message = str(failed.value)
        assert "orders-0: PREFERRED_LEADER_NOT_AVAILABLE" in message
        assert "__consumer_offsets-0: PREFERRED_LEADER_NOT_AVAILABLE" in message
        assert "orders-1" not in message

        with pytest.raises(ElectionFailed, match="orders-0: PREFERRED_LEADER_NOT_AVAILABLE"):
            await lab.runtime.ask_as_admin(move_leader, P0, BrokerId(0))

    BrokerLab(broker_cluster()).run(story)


@pytest.mark.parametrize(
    ("name", "broker", "message"),
    [
        (P0, BrokerId(9), "orders-0: broker 9 has no replica"),
        (TopicPartition(ORDERS, 7), TWO, "orders-7: UNKNOWN_TOPIC_OR_PARTITION"),
        (TopicPartition("no such topic", 0), TWO, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=["broker", "partition", "topic"],
)
def test_move_to_an_unknown_partition_or_broker_is_refused(
    name: TopicPartition, broker: BrokerId, message: str
) -> None:
    """The error says what is missing: the partition, or the partition's replica on the broker."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(ElectionFailed, match=message):
            await lab.runtime.ask_as_admin(move_leader, name, broker)

    BrokerLab(broker_cluster()).run(story)


def test_election_is_repeated_until_the_controller_has_restarted() -> None:
    """The controller is dead when the administrator asks, and starts again 5 s later."""

    async def story(lab: BrokerLab) -> int:
        await lab.runtime.crash(lab.controller)
        lab.client.host.spawn(restart_later(lab), name="restart-later")
        await lab.runtime.ask_as_admin(move_leader, P0, TWO)
        return leader(await lab.runtime.status(), P0)

    async def restart_later(lab: BrokerLab) -> None:
        await lab.client.host.sleep(5_000_000)
        await lab.runtime.restart(lab.controller)

    assert BrokerLab(broker_cluster()).run(story) == 2


def test_election_without_a_controller_times_out_after_a_minute() -> None:
    """After 60 s (default.api.timeout.ms) the administrator gives up, and raises TimeoutError."""

    async def story(lab: BrokerLab) -> int:
        await lab.runtime.crash(lab.controller)
        began_us = lab.runtime.now_us()
        with pytest.raises(TimeoutError, match="the controller in 60000 ms"):
            await lab.runtime.ask_as_admin(elect_preferred_leaders, None)
        return lab.runtime.now_us() - began_us

    assert 60_000_000 <= BrokerLab(broker_cluster()).run(story) < 61_000_000


def test_election_asked_of_a_broker_is_refused_as_not_controller() -> None:
    """DEVIATION: Kafka's brokers would forward the request to the controller."""

    async def story(lab: BrokerLab) -> ErrorCode:
        response = await lab.client.call(1, ElectLeadersRequest())
        assert isinstance(response, ElectLeadersResponse)
        return response.error_code

    assert BrokerLab(broker_cluster()).run(story) is ErrorCode.NOT_CONTROLLER


def test_messages_of_an_administrator_pass_through_the_codec() -> None:
    """With `copy_messages` every message is encoded and decoded, as between real processes."""

    async def story(lab: BrokerLab) -> int:
        await lab.runtime.ask_as_admin(move_leader, P0, TWO)
        return leader(await lab.runtime.status(), P0)

    assert BrokerLab(broker_cluster(), copy_messages=True).run(story) == 2
