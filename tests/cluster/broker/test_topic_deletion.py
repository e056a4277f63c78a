"""Deletion of topics by an administrator, and by a Kafka client through any broker.

`lab` is a cluster of three brokers in virtual time. It has the topic `orders` (ORDERS).
"""

import pytest

from cluster.client.admin.orders import TopicDeletionFailed, delete_topics
from coordinator.coordinator import GroupCoordinator
from protocol.effects import Result
from protocol.errors import ErrorCode, InvariantViolation
from protocol.messages.admin import DeleteTopicsRequest, DeleteTopicsResponse
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster


def test_deletion_of_an_unknown_topic_fails_with_kafkas_error() -> None:
    """`delete_topics` raises an error that names the topic and Kafka's error."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(TopicDeletionFailed, match="unknown: UNKNOWN_TOPIC_OR_PARTITION"):
            await lab.runtime.ask_as_admin(delete_topics, [ORDERS, "unknown"])

    BrokerLab(broker_cluster()).run(story)


def test_broker_forwards_a_deletion_to_the_controller() -> None:
    """A Kafka client sends the request to any broker, because it does not know the controller."""

    async def story(lab: BrokerLab) -> None:
        request = DeleteTopicsRequest(topic_names=(ORDERS, "unknown"))
        answer = await lab.client.call(broker_id=0, request=request)
        assert isinstance(answer, DeleteTopicsResponse)
        assert [(result.name, result.error_code) for result in answer.responses] == [
            (ORDERS, ErrorCode.NONE),
            ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    BrokerLab(broker_cluster()).run(story)


def test_invariant_finds_offsets_of_a_deleted_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test plants a bug: the group coordinator ignores deletions.

    So the coordinator keeps the offset that a group has committed for the deleted topic.
    """
    # An empty Result: the coordinator does nothing.
    monkeypatch.setattr(GroupCoordinator, "partitions_deleted", lambda *_: Result())

    async def story(lab: BrokerLab) -> None:
        coordinator = await lab.client.find_coordinator(broker_id=0, group_id="g")
        await lab.client.commit(coordinator.node_id, "g", offset=5)
        await lab.runtime.ask_as_admin(delete_topics, [ORDERS])
        await lab.seconds(1)
        with pytest.raises(InvariantViolation, match="g still has offsets of orders-0"):
            lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)
