"""Creation of topics by an administrator, on real brokers and a controller in virtual time."""

import pytest

from cluster.client.admin.orders import TopicCreationFailed, create_topic, delete_topics
from protocol.ids import BrokerId, TopicPartition
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster


async def create(
    lab: BrokerLab, name: str, *, partitions: int = -1, replication_factor: int = -1
) -> None:
    """Order the creation of a topic; -1 leaves a number to the brokers."""
    await lab.runtime.ask_as_admin(
        create_topic, name=name, partitions=partitions, replication_factor=replication_factor
    )


@pytest.mark.parametrize(
    ("name", "partitions", "replication_factor", "error"),
    [
        (ORDERS, 1, 1, "TOPIC_ALREADY_EXISTS"),
        ("new", 0, 1, "INVALID_PARTITIONS"),
        ("new", 1, 4, "INVALID_REPLICATION_FACTOR"),
        ("new", 1, 0, "INVALID_REPLICATION_FACTOR"),
        ("a b", 1, 1, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_refused_creation_fails_with_kafkas_error(
    name: str, partitions: int, replication_factor: int, error: str
) -> None:
    """`create_topic` raises an error that names the topic and Kafka's error."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(TopicCreationFailed, match=f"{name}: {error}") as raised:
            await create(lab, name, partitions=partitions, replication_factor=replication_factor)
        assert raised.value.error == error

    BrokerLab(broker_cluster()).run(story)


def test_brokers_take_up_the_replicas_of_a_new_topic() -> None:
    """Each of the three brokers leads one of the partitions and follows the others."""

    async def story(lab: BrokerLab) -> None:
        await create(lab, "new", partitions=3, replication_factor=3)
        await lab.seconds(2)
        status = await lab.runtime.status()
        known = [status.partitions[TopicPartition("new", index)] for index in range(3)]
        assert sorted(partition.leader for partition in known) == [0, 1, 2]
        assert all(len(partition.isr) == 3 for partition in known)
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_topic_that_is_deleted_and_created_again_at_once_begins_anew() -> None:
    """Brokers learn of both at the same time, and must not keep the replicas of the first topic.

    The first topic's epochs are higher: its leader was killed, so another one was elected. The
    publication of a change takes longer than the two orders.
    """

    async def story(lab: BrokerLab) -> None:
        await create(lab, "new", partitions=2, replication_factor=3)
        await lab.seconds(1)
        leader = (await lab.runtime.status()).partitions[TopicPartition("new", 0)].leader
        await lab.kill(leader)
        await lab.seconds(10)
        await lab.restart(leader)
        await lab.seconds(10)
        before = (await lab.runtime.status()).partitions[TopicPartition("new", 0)]
        assert before.leader_epoch > 0

        await lab.runtime.ask_as_admin(delete_topics, ["new"])
        await create(lab, "new", partitions=1, replication_factor=2)
        await lab.seconds(5)

        status = await lab.runtime.status()
        after = status.partitions[TopicPartition("new", 0)]
        assert after.leader_epoch == 0
        assert len(after.isr) == 2
        assert BrokerId(after.leader) in after.replicas
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)
