"""Creation of topics by an administrator. `lab` is a cluster of three brokers in virtual time."""

import pytest

from cluster.client.admin.orders import TopicCreationFailed, create_topic, delete_topics
from protocol.ids import BrokerId, TopicPartition
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster


async def create(
    lab: BrokerLab, name: str, *, partitions: int = -1, replication_factor: int = -1
) -> None:
    """Create a topic as an administrator. -1 stands for the default that the brokers have."""
    await lab.runtime.ask_as_admin(
        create_topic, name=name, partitions=partitions, replication_factor=replication_factor
    )


@pytest.mark.parametrize(
    ("name", "partitions", "replication_factor", "error"),
    [
        (ORDERS, 1, 1, "TOPIC_ALREADY_EXISTS"),
        ("new", 0, 1, "INVALID_PARTITIONS"),
        ("new", 1, 4, "INVALID_REPLICATION_FACTOR"),  # there are only three brokers
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
    """Each of the three brokers leads one of the partitions, and has replicas of the others."""

    async def story(lab: BrokerLab) -> None:
        await create(lab, "new", partitions=3, replication_factor=3)
        await lab.seconds(2)
        status = await lab.runtime.status()
        partitions = [status.partitions[TopicPartition("new", index)] for index in range(3)]
        assert sorted(partition.leader for partition in partitions) == [0, 1, 2]
        assert all(len(partition.isr) == 3 for partition in partitions)
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_topic_that_is_deleted_and_created_again_at_once_begins_anew() -> None:
    """A broker that learns of both changes at once must not keep the replicas of the first topic.

    The deletion and the creation take less time than the publication of a change. So the brokers
    learn of both at the same time. The first topic has had an election, so its leader epoch is
    above 0. The leader epoch of the second topic must begin at 0 again.
    """

    async def story(lab: BrokerLab) -> None:
        await create(lab, "new", partitions=2, replication_factor=3)
        await lab.seconds(1)
        leader = (await lab.runtime.status()).partitions[TopicPartition("new", 0)].leader
        await lab.kill(leader)
        await lab.seconds(10)  # the broker's session of 9 s ends, and another leader is elected
        await lab.restart(leader)
        await lab.seconds(10)  # the restarted broker registers again
        first_topic = (await lab.runtime.status()).partitions[TopicPartition("new", 0)]
        assert first_topic.leader_epoch > 0

        await lab.runtime.ask_as_admin(delete_topics, ["new"])
        await create(lab, "new", partitions=1, replication_factor=2)
        await lab.seconds(5)

        status = await lab.runtime.status()
        second_topic = status.partitions[TopicPartition("new", 0)]
        assert second_topic.leader_epoch == 0
        assert len(second_topic.isr) == 2
        assert BrokerId(second_topic.leader) in second_topic.replicas
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)
