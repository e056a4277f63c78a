"""DeleteTopics: the controller deletes topics, reports on each, and never creates them again.

`lab` passes requests to a controller, without brokers and network. The controller writes its
decisions into the metadata log, whose records are `lab.records()`. `lab.image` is the state after
all these records.
"""

import pytest

from cluster.broker.control.metadata_cache import MetadataCache
from protocol.config import TopicConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import TopicPartition
from protocol.messages.admin import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.records.metadata import RemoveTopicRecord
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic


def running_lab() -> ControllerLab:
    """Return a controller with 3 brokers and the topics `orders` (3 partitions) and `bills` (2)."""
    config = TopicConfig(min_insync_replicas=2)
    lab = ControllerLab(cluster_of(topic("orders", config=config), topic("bills", partitions=2)))
    lab.start_brokers(0, 1, 2)
    return lab


def delete(lab: ControllerLab, *names: str) -> tuple[DeletableTopicResult, ...]:
    """Request the deletion of topics, and return the result of each."""
    response = lab.replies[lab.send(DeleteTopicsRequest(topic_names=names), host="admin-0")]
    assert isinstance(response, DeleteTopicsResponse)
    return response.responses


def test_deleted_topic_loses_its_partitions_and_settings() -> None:
    """One record deletes the topic. The other topic remains."""
    lab = running_lab()
    assert delete(lab, "orders") == (DeletableTopicResult(name="orders"),)
    assert list(lab.image.topics) == ["bills"]
    assert lab.image.partition(TopicPartition("orders", 0)) is None
    assert lab.image.topic_config("orders") == TopicConfig()
    assert lab.records()[-1] == RemoveTopicRecord(name="orders")
    (event,) = lab.events(TraceKind.TOPIC_DELETED)
    assert event.detail == {"topic": "orders", "partitions": 3}


def test_deleted_topic_of_the_plan_is_not_created_again() -> None:
    """The plan of the cluster has topics, which a controller creates when its brokers come.

    If such a topic is deleted, the controller must not create it again, neither when the brokers
    come back nor after its own restart.
    """
    lab = running_lab()
    delete(lab, "orders")
    lab.advance_ms(20_000)  # all brokers are fenced
    lab.start_brokers(0, 1, 2)
    assert list(lab.image.topics) == ["bills"]

    restarted = ControllerLab(cluster_of(topic("orders"), topic("bills")), lab.storage)
    restarted.broker_epochs = dict(lab.broker_epochs)  # the brokers are still registered
    restarted.start_brokers(0, 1, 2)
    assert list(restarted.image.topics) == ["bills"]


def test_deletion_of_an_unknown_topic_fails_alone() -> None:
    """The request also names an existing topic. This topic is deleted, and is then unknown, too."""
    lab = running_lab()
    unknown, orders = delete(lab, "unknown", "orders")
    assert unknown.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert orders.error_code is ErrorCode.NONE
    (orders_again,) = delete(lab, "orders")
    assert orders_again.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_that_occurs_twice_in_a_request_is_not_deleted() -> None:
    """The repeated topic gets an error. The other topic of the request is deleted.

    Source: ControllerApis.deleteTopics.
    """
    lab = running_lab()
    end_before = lab.log.log_end_offset
    results = delete(lab, "orders", "bills", "orders")
    assert results == (
        DeletableTopicResult(name="orders", error_code=ErrorCode.INVALID_REQUEST),
        DeletableTopicResult(name="bills"),
    )
    assert list(lab.image.topics) == ["orders"]
    assert lab.log.log_end_offset == end_before + 1  # one new record, which removes bills


def test_broker_learns_the_deleted_partitions() -> None:
    """`apply` takes records into a broker's metadata, and returns the partitions that changed."""
    lab = running_lab()
    cache = MetadataCache(num_offsets_partitions=1)
    records_before = lab.records()
    cache.apply(records_before)
    delete(lab, "bills")
    changed = cache.apply(lab.records()[len(records_before) :])
    assert changed == [TopicPartition("bills", 0), TopicPartition("bills", 1)]
    assert not cache.contains("bills", 0)
    assert cache.contains("orders", 0)


def test_replay_of_the_removal_of_an_unknown_topic_raises_an_exception() -> None:
    """A controller never removes a topic that does not exist, so only a bug writes this record."""
    with pytest.raises(SimulationError, match="does not exist"):
        running_lab().image.replay(RemoveTopicRecord(name="unknown"))
