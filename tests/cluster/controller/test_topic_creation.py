"""CreateTopics: the controller creates topics, or refuses them with an error.

`lab` passes requests to a controller, without brokers and network. The controller writes its
decisions into the metadata log, and `lab.image` is the state after all records of this log. A
fenced broker counts as dead, because its session of 9 s has ended.
"""

import pytest

from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

CONFIG = BrokerConfig(
    auto_leader_rebalance_enable=False, num_partitions=4, default_replication_factor=2
)
"""A topic has four partitions with two replicas each, unless the request gives other numbers."""


def running_lab() -> ControllerLab:
    """Return a controller with three brokers and the topic `orders.eu`."""
    lab = ControllerLab(cluster_of(topic("orders.eu"), config=CONFIG))
    lab.start_brokers(0, 1, 2)
    return lab


def create(
    lab: ControllerLab, *topics: CreatableTopic, validate_only: bool = False
) -> tuple[CreatableTopicResult, ...]:
    """Send a CreateTopics request; return the result of each topic."""
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    response = lab.replies[lab.send(request)]
    assert isinstance(response, CreateTopicsResponse)
    return response.topics


def with_replicas(*replicas: tuple[int, ...], first_index: int = 0) -> CreatableTopic:
    """Return the request for a topic `t` whose partitions have the given replicas.

    For instance, `with_replicas((2, 0), (0, 1))` puts the partition t-0 on the brokers 2 and 0, and
    t-1 on the brokers 0 and 1. With `first_index=1` these partitions are t-1 and t-2.
    """
    return CreatableTopic(
        name="t",
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=first_index + index, broker_ids=broker_ids)
            for index, broker_ids in enumerate(replicas)
        ),
    )


def with_config(name: str, value: str | None) -> CreatableTopic:
    """Return the request for a topic `t` with one setting."""
    return CreatableTopic(name="t", configs=(CreatableTopicConfig(name=name, value=value),))


def test_topic_gets_the_brokers_defaults_and_its_own_settings() -> None:
    """The request for topic `t` has only the setting min.insync.replicas.

    So the topic gets the brokers' num.partitions, here 4, and default.replication.factor, here 2.
    """
    lab = running_lab()
    assert create(lab, with_config("min.insync.replicas", "2")) == (CreatableTopicResult(name="t"),)
    partitions = lab.image.topics["t"]
    # One topic exists already, so the replicas of partition p begin at broker 1 + p.
    assert [p.replicas for p in partitions] == [(1, 2), (2, 0), (0, 1), (1, 2)]
    assert all(p.isr == p.replicas for p in partitions)
    assert all(p.leader == p.isr[0] for p in partitions)
    assert lab.image.topic_config("t") == TopicConfig(min_insync_replicas=2)
    elected = [event.partition for event in lab.events(TraceKind.LEADER_ELECTED)]
    assert [name for name in elected if name and name.startswith("t-")] == [
        f"t-{index}" for index in range(4)
    ]


def test_fenced_broker_is_a_replica_only_if_needed_and_never_in_the_isr() -> None:
    """As in Kafka, a fenced broker gets a replica only if there are too few other brokers.

    Here broker 2 is fenced. The topic `two` does not need it. The topic `three` has three replicas,
    so broker 2 must have one of them, but this replica is not in the ISR.
    """
    lab = running_lab()
    lab.advance_ms(8_000)
    for broker_id in (0, 1):
        lab.heartbeat(broker_id)
    lab.advance_ms(2_000)  # it is 10 s now, and broker 2 was fenced at 9 s
    assert lab.broker(2).fenced

    create(lab, CreatableTopic(name="two", num_partitions=2, replication_factor=2))
    assert {p.replicas for p in lab.image.topics["two"]} == {(0, 1), (1, 0)}

    create(lab, CreatableTopic(name="three", num_partitions=1, replication_factor=3))
    (partition,) = lab.image.topics["three"]
    assert sorted(partition.replicas) == [0, 1, 2]
    assert sorted(partition.isr) == [0, 1]


def test_broker_in_its_controlled_shutdown_gets_no_replica() -> None:
    """Kafka gives no replica of a new topic to a broker that is about to stop.

    Source: Kafka BrokerHeartbeatManager.UsableBrokerIterator.
    """
    lab = running_lab()
    lab.heartbeat(2, offset=0, want_shut_down=True)
    assert lab.broker(2).in_controlled_shutdown
    assert not lab.broker(2).fenced  # it may not stop yet, because it has not read the whole log

    refused, created = create(
        lab,
        CreatableTopic(name="three", replication_factor=3),
        CreatableTopic(name="two", num_partitions=2, replication_factor=2),
    )

    assert refused.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s) are registered" in (refused.error_message or "")
    assert created.error_code is ErrorCode.NONE
    assert {p.replicas for p in lab.image.topics["two"]} == {(0, 1), (1, 0)}


def test_replicas_in_the_request_keep_their_order() -> None:
    """The order matters, because the first replica is the preferred leader."""
    lab = running_lab()
    assert create(lab, with_replicas((2, 0), (0, 1))) == (CreatableTopicResult(name="t"),)
    assert [p.replicas for p in lab.image.topics["t"]] == [(2, 0), (0, 1)]


def test_validate_only_gives_the_same_answers_and_changes_nothing() -> None:
    """With `validate_only` the answers say whether the topics could be created.

    The topic `t` is valid, and `u` is not, because it has no partitions.
    """
    lab = running_lab()
    end_before = lab.image.end_offset
    answers = create(
        lab,
        CreatableTopic(name="t"),
        CreatableTopic(name="u", num_partitions=0),
        validate_only=True,
    )
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
    ]
    assert lab.image.end_offset == end_before


@pytest.mark.parametrize(
    ("invalid_topic", "error", "message"),
    [
        (CreatableTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        (CreatableTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        (CreatableTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "length 249"),
        (CreatableTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty string"),
        (CreatableTopic(name="orders_eu"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with"),
        (CreatableTopic(name="orders.eu"), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        (CreatableTopic(name="t", num_partitions=0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (
            CreatableTopic(name="t", replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "larger than 0",
        ),
        (
            CreatableTopic(name="t", replication_factor=4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "only 3 broker(s) are registered",
        ),
        (with_replicas(()), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        (with_replicas((0, 7)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such"),
        (with_replicas((0, 0)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0 more than once"),
        (with_replicas((0, 1), (2,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not consistent"),
        (with_replicas((0,), first_index=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (with_config("retention.ms", "1"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (with_config("min.insync.replicas", "x"), ErrorCode.INVALID_CONFIG, "min.insync.replicas"),
        (with_config("cleanup.policy", None), ErrorCode.INVALID_CONFIG, "Null value"),
    ],
    # The id of a test case has the topic's name and the error.
    ids=lambda value: value.name if isinstance(value, ErrorCode | CreatableTopic) else "",
)
def test_refused_topic_has_kafkas_error_and_changes_nothing(
    invalid_topic: CreatableTopic, error: ErrorCode, message: str
) -> None:
    """One request has an invalid topic and a valid topic. Only the valid topic is created."""
    lab = running_lab()
    refused, created = create(lab, invalid_topic, CreatableTopic(name="valid"))
    assert refused.error_code is error
    assert message in (refused.error_message or "")
    assert created.error_code is ErrorCode.NONE
    assert list(lab.image.topics) == ["orders.eu", "valid"]


def test_request_with_replicas_and_numbers_is_invalid() -> None:
    """A request with replicas must leave `num_partitions` and `replication_factor` at -1."""
    lab = running_lab()
    assignments = with_replicas((0,)).assignments
    for contradictory in (
        CreatableTopic(name="t", num_partitions=1, assignments=assignments),
        CreatableTopic(name="t", replication_factor=1, assignments=assignments),
    ):
        (answer,) = create(lab, contradictory)
        assert answer.error_code is ErrorCode.INVALID_REQUEST


def test_topic_that_occurs_twice_in_a_request_is_refused() -> None:
    """As in Kafka, the answer has only one result for the topic, and the topic is not created."""
    lab = running_lab()
    (answer,) = create(lab, CreatableTopic(name="t"), CreatableTopic(name="t"))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )
    assert "t" not in lab.image.topics


def test_no_topic_is_created_while_all_brokers_are_fenced() -> None:
    """No broker could lead the partitions of the topic."""
    lab = ControllerLab(cluster_of(config=CONFIG))
    lab.register(0)  # a new broker is fenced until its first heartbeat, which it does not send
    (answer,) = create(lab, CreatableTopic(name="t", replication_factor=1))
    assert answer.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced." in (answer.error_message or "")
