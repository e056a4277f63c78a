"""Checks of CreateTopics: created topics have what was requested, and refusals have their reason.

Brokers and the controller compute their metadata by a replay of the same records. If the replay
lost a setting, it would be missing everywhere. `replica_checks` compares the brokers' metadata with
the controller's, and would not notice. So here the controller's metadata is compared with the
request, or with the cluster's spec.

If a request does not say where the replicas are, the controller chooses. A broker that is shutting
down gets no replica. A fenced broker (one that the controller does not consider alive) gets a
replica only if there are too few unfenced brokers. Each unfenced broker leads about the same number
of partitions.

Source: Kafka StripedReplicaPlacer, ReplicationControlManager.createTopic,
BrokerHeartbeatManager.UsableBrokerIterator.
"""

from collections import Counter

import msgspec

from cluster.controller.metadata_image import MetadataImage, PartitionRegistration
from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import BrokerId
from protocol.messages.admin import (
    BROKER_DEFAULT,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def check_created(
    image: MetadataImage,
    config: BrokerConfig,
    request: CreateTopicsRequest,
    response: CreateTopicsResponse,
) -> None:
    """Check the answer for each topic, just before the controller's answer leaves.

    At this moment the image is still as the controller has left it.
    Raises: InvariantViolation.
    """
    errors = {each.name: each.error_code for each in response.topics}
    for topic in request.topics:
        error = errors.get(topic.name)
        # The answer lacks the topic. This violation is reported by `protocol.answer_contract`.
        if error is None:
            continue
        if error is not ErrorCode.NONE:
            _check_refusal(image, config, topic, error)
        elif not request.validate_only:  # such a request creates nothing
            _check_creation(image, config, topic)


def check_topic(image: MetadataImage, name: str, partitions: int, config: TopicConfig) -> None:
    """Check that a topic has this number of partitions and these settings.

    Raises: InvariantViolation.
    """
    registered = image.topics.get(name)  # the partitions; None if there is no such topic
    if registered is None or partitions != len(registered):
        raise InvariantViolation(
            "a created topic has its partitions",
            f"{name}: expected {partitions}, got {registered and len(registered)}",
        )
    settings = image.topic_config(name)
    if settings != config:
        raise InvariantViolation(
            "a created topic has its settings", f"{name}: expected {config}, got {settings}"
        )


def _check_creation(image: MetadataImage, config: BrokerConfig, topic: CreatableTopic) -> None:
    """Check a topic that was created."""
    settings = msgspec.convert(
        {setting.name: setting.value for setting in topic.configs},
        TopicConfig,
        strict=False,  # in a request every value is a text
    )
    # A request may name the replicas of each partition (`assignments`). Its number of partitions is
    # then -1, and the number of assignments counts.
    named = {each.partition_index: each.broker_ids for each in topic.assignments}
    count = len(named) or _or_default(topic.num_partitions, config.num_partitions)
    check_topic(image, topic.name, count, settings)

    partitions = image.topics[topic.name]
    for index, partition in enumerate(partitions):
        name = f"{topic.name}-{index}"
        if named:
            if partition.replicas != named[index]:
                raise InvariantViolation(
                    "a created topic has the replicas that its request names",
                    f"{name}: expected {named[index]}, got {partition.replicas}",
                )
        else:
            _check_replicas(image, name, partition, _replication_factor(topic, config))
        _check_leader(image, name, partition)
    if not named:
        _check_spread(image, topic.name, partitions)


def _check_replicas(
    image: MetadataImage, name: str, partition: PartitionRegistration, replication_factor: int
) -> None:
    """Check the replicas that the controller has chosen for one partition."""
    replicas = partition.replicas
    unfenced, fenced = _usable_brokers(image)
    if len(replicas) != replication_factor or len(set(replicas)) != replication_factor:
        raise InvariantViolation(
            "a new partition has its number of different replicas",
            f"{name}: expected {replication_factor}, got {replicas}",
        )
    unusable = [each for each in replicas if each not in unfenced and each not in fenced]
    if unusable:
        raise InvariantViolation(
            "replicas of a new partition are on registered brokers that are not shutting down",
            f"{name}: {unusable} of {replicas}",
        )
    # The first replicas must be on unfenced brokers, as long as there are unfenced brokers.
    first = replicas[: min(replication_factor, len(unfenced))]
    if not set(first) <= set(unfenced):
        raise InvariantViolation(
            "unfenced brokers get the replicas of a new partition before fenced ones",
            f"{name}: {replicas}, where {unfenced} are unfenced",
        )


def _check_leader(image: MetadataImage, name: str, partition: PartitionRegistration) -> None:
    """Check that the active replicas are in sync, and that the first of them leads."""
    unfenced, _fenced = _usable_brokers(image)
    active = tuple(each for each in partition.replicas if each in unfenced)
    # `active[:1]` has the first active replica. Without an active replica, no leader is right.
    if partition.isr != active or partition.leader not in active[:1]:
        raise InvariantViolation(
            "a new partition's active replicas are in sync, and the first one leads",
            f"{name}: replicas {partition.replicas}, active {active}, ISR {partition.isr}, leader "
            f"{partition.leader}",
        )


def _check_spread(image: MetadataImage, name: str, partitions: list[PartitionRegistration]) -> None:
    """Check that no unfenced broker leads two more of the topic's partitions than another."""
    leaders = Counter(partition.leader for partition in partitions)
    # `[0]` has the unfenced brokers.
    led = {broker: leaders[broker] for broker in _usable_brokers(image)[0]}
    if max(led.values()) > min(led.values()) + 1:
        raise InvariantViolation("leaders of a new topic are spread", f"{name}: {led}")


def _check_refusal(
    image: MetadataImage, config: BrokerConfig, topic: CreatableTopic, error: ErrorCode
) -> None:
    """Check that there is a reason for the error of a topic that was not created."""
    unfenced, fenced = _usable_brokers(image)
    match error:
        case ErrorCode.INVALID_REPLICATION_FACTOR:
            replication_factor = _replication_factor(topic, config)
            has_reason = (
                replication_factor < 1
                or replication_factor > len(unfenced) + len(fenced)
                or not unfenced
            )
        case ErrorCode.INVALID_PARTITIONS:
            has_reason = _or_default(topic.num_partitions, config.num_partitions) < 1
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            has_reason = topic.name in image.topics
        case _:
            return
    if not has_reason:
        raise InvariantViolation(
            "a topic is refused for a reason",
            f"{error.name} for {topic}, with the brokers {unfenced} unfenced and {fenced} fenced",
        )


def _usable_brokers(image: MetadataImage) -> tuple[list[BrokerId], list[BrokerId]]:
    """Return the brokers that may get replicas: the unfenced ones, and the fenced ones."""
    brokers = image.brokers.values()
    unfenced = [
        each.broker_id for each in brokers if not (each.fenced or each.in_controlled_shutdown)
    ]
    return unfenced, [each.broker_id for each in brokers if each.fenced]


def _replication_factor(topic: CreatableTopic, config: BrokerConfig) -> int:
    return _or_default(topic.replication_factor, config.default_replication_factor)


def _or_default(number: int, default: int) -> int:
    return default if number == BROKER_DEFAULT else number
