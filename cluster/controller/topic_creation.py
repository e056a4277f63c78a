"""Creation of the topics in the cluster's spec, and of topics that clients ask for.

An experiment describes its cluster by a spec, which names topics. These topics are created when all
brokers of the spec are active. Other topics are created by CreateTopics.

Source: Kafka `ReplicationControlManager.createTopic`, `StripedReplicaPlacer` (without racks).
DEVIATION: Kafka creates `__consumer_offsets` at its first use, and chooses at random the broker
from which it spreads the replicas of a topic. Here the topics of the spec are created together, and
nothing is drawn. All numbers below count from 0:
- For a topic of the spec, the replicas of partition p begin at the p-th broker.
- For a topic of CreateTopics, they begin at the (t + p)-th active broker. Here t is the number of
  topics that exist, plus the number of topics that precede this topic in the request, refused
  topics included.
After the last broker, the counting continues at the first.
"""

from collections.abc import Sequence

import msgspec

from cluster.controller.decision import Decision
from cluster.controller.metadata_image import MetadataImage, topic_config_records
from cluster.spec import BrokerSpec, TopicSpec
from protocol.causes import TOPIC_CREATED
from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from protocol.messages.admin import (
    BROKER_DEFAULT,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.records.metadata import MetadataRecord, PartitionRecord, TopicRecord
from protocol.topic_names import collides, topic_name_problem


def replica_assignment(
    topic: TopicSpec, partition: int, brokers: tuple[BrokerSpec, ...]
) -> tuple[int, ...]:
    """Return the replicas of a new partition, preferred leader first.

    Without an explicit assignment, replica k is on broker (partition + k) mod n, where n is the
    number of brokers.
    """
    if topic.assignments:
        return topic.assignments[partition]
    return tuple(
        brokers[(partition + k) % len(brokers)].broker_id for k in range(topic.replication_factor)
    )


def create_missing_topics(
    image: MetadataImage, topics: tuple[TopicSpec, ...], brokers: tuple[BrokerSpec, ...]
) -> list[MetadataRecord]:
    """Return the records that create the topics of the spec which have never existed.

    `topics` and `brokers` are those of the spec. While one of the brokers is not active, no records
    are returned, because a new partition begins with all its replicas in the ISR. A topic that was
    deleted is not created again.
    """
    missing = [
        topic
        for topic in topics
        if topic.name not in image.topics and topic.name not in image.deleted_topics
    ]
    if not missing or not all(image.is_active(BrokerId(b.broker_id)) for b in brokers):
        return []
    records: list[MetadataRecord] = []
    for topic in missing:
        records.append(TopicRecord(name=topic.name))
        records.extend(topic_config_records(topic.name, topic.config))
        for partition in range(topic.partitions):
            replicas = replica_assignment(topic, partition, brokers)
            records.append(
                PartitionRecord(
                    topic=topic.name,
                    partition_id=partition,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                )
            )
    return records


class _Refusal(Exception):
    """Refusal to create a topic, with the error code and Kafka's message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def handle_create_topics(
    image: MetadataImage, config: BrokerConfig, request: CreateTopicsRequest
) -> Decision[CreateTopicsResponse]:
    """Create each topic that `request` names; if `request.validate_only`, only check them.

    Errors, by topic: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
    INVALID_CONFIG, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
    DEVIATION: a setting of Kafka that TopicConfig does not have is refused with INVALID_CONFIG.
    Source: Kafka ControllerApis.createTopics, ReplicationControlManager.createTopics.
    """
    # The response is set at the end, when all results are known.
    decision = Decision(CreateTopicsResponse(), reason=TOPIC_CREATED)
    names = [topic.name for topic in request.topics]
    results: list[CreatableTopicResult] = []
    # The dict has each name once, so a name that occurs twice gets one answer (INVALID_REQUEST).
    for topic in {each.name: each for each in request.topics}.values():
        try:
            _check_name(image, topic.name, occurrences=names.count(topic.name))
            records = _creation(image, config, topic, created_before=len(results))
        except _Refusal as refusal:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=refusal.error, error_message=refusal.message
                )
            )
            continue
        results.append(CreatableTopicResult(name=topic.name))
        if not request.validate_only:
            decision.records.extend(records)
    decision.response = CreateTopicsResponse(topics=tuple(results))
    return decision


def _creation(
    image: MetadataImage, config: BrokerConfig, topic: CreatableTopic, *, created_before: int
) -> list[MetadataRecord]:
    """Return the records that create one topic. Raises: _Refusal.

    `created_before` is the number of topics before this topic in the request. Refused topics count,
    too.
    """
    settings = _settings_of(topic)
    # A request either names all replicas, or leaves them to the controller.
    partitions = (
        _assigned_by_hand(image, topic)
        if topic.assignments
        else _spread(image, config, topic, start=len(image.topics) + created_before)
    )
    records: list[MetadataRecord] = [TopicRecord(name=topic.name)]
    records.extend(topic_config_records(topic.name, settings))
    for index, replicas in enumerate(partitions):
        # At least one replica is active; both functions above have made sure of this.
        isr = tuple(each for each in replicas if image.is_active(BrokerId(each)))
        records.append(
            PartitionRecord(
                topic=topic.name, partition_id=index, replicas=replicas, isr=isr, leader=isr[0]
            )
        )
    return records


def _check_name(image: MetadataImage, name: str, *, occurrences: int) -> None:
    """Check the name of a new topic, which the request has `occurrences` times.

    Raises: _Refusal.
    """
    if occurrences > 1:
        raise _Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise _Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics:
        raise _Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = next((other for other in image.topics if collides(name, other)), None)
    if other is not None:
        raise _Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _settings_of(topic: CreatableTopic) -> TopicConfig:
    """Return the settings that the request names. Raises: _Refusal for an illegal setting.

    TopicConfig forbids unknown fields, so the conversion refuses settings that TopicConfig lacks.
    """
    settings: dict[str, str] = {}
    for setting in topic.configs:
        if setting.value is None:
            raise _Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {setting.name}",
            )
        settings[setting.name] = setting.value
    try:
        # The request has all values as text; `strict=False` turns them into numbers and booleans.
        return msgspec.convert(settings, TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise _Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error


def _assigned_by_hand(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, ...]]:
    """Return the replicas that the request names, by partition. Raises: _Refusal."""
    for number, name in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "partition count"),
    ):
        if number != BROKER_DEFAULT:
            raise _Refusal(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    by_index: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, assignment.broker_ids
        if index in by_index:
            raise _invalid_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        # All partitions must have as many replicas as the first partition in the request.
        _check_replicas(image, index, replicas, next(iter(by_index.values()), None))
        by_index[index] = replicas
    if sorted(by_index) != list(range(len(by_index))):
        raise _invalid_assignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _check_replicas(
    image: MetadataImage, index: int, replicas: Sequence[int], first: Sequence[int] | None
) -> None:
    """Check the replicas of one partition.

    `first` has the replicas of the first partition in the request; None for that partition itself.
    Raises: _Refusal. The messages are Kafka's.
    """
    if not replicas:
        raise _invalid_assignment("The manual partition assignment includes an empty replica list.")
    for broker_id in replicas:
        if BrokerId(broker_id) not in image.brokers:
            raise _invalid_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such "
                "broker is registered."
            )
        if replicas.count(broker_id) > 1:
            raise _invalid_assignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if first is not None and len(first) != len(replicas):
        raise _invalid_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            f"replica(s), but this is not consistent with previous partitions, which have "
            f"{len(first)} replica(s)."
        )
    if not any(image.is_active(BrokerId(broker_id)) for broker_id in replicas):
        raise _invalid_assignment(
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown."
        )


def _invalid_assignment(message: str) -> _Refusal:
    """Return the refusal of replicas that a request names."""
    return _Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _spread(
    image: MetadataImage, config: BrokerConfig, topic: CreatableTopic, *, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, spread over the brokers. Raises: _Refusal.

    The replicas of partition 0 begin at the active broker with the index `start`, modulo the number
    of active brokers.
    """
    replication_factor, num_partitions = topic.replication_factor, topic.num_partitions
    if replication_factor < BROKER_DEFAULT or replication_factor == 0:
        raise _Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if num_partitions < BROKER_DEFAULT or num_partitions == 0:
        raise _Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor == BROKER_DEFAULT:
        replication_factor = config.default_replication_factor
    if num_partitions == BROKER_DEFAULT:
        num_partitions = config.num_partitions

    # The brokers are sorted by id, because the order of registrations depends on the timing of the
    # start. A broker in its controlled shutdown is neither active nor fenced, and gets no replica.
    # Source: Kafka BrokerHeartbeatManager.UsableBrokerIterator.
    active = [each for each in sorted(image.brokers) if image.is_active(each)]
    fenced = [each for each in sorted(image.brokers) if image.brokers[each].fenced]
    if not active:
        raise _unreachable(replication_factor, "All brokers are currently fenced.")
    usable = len(active) + len(fenced)
    if replication_factor > usable:
        raise _unreachable(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {usable} broker(s) are registered.",
        )

    partitions: list[tuple[int, ...]] = []
    for index in range(num_partitions):
        # The list of active brokers is rotated, so that leaderships are spread over them. Fenced
        # brokers come last, so that they get replicas only if there are too few active brokers.
        shift = (start + index) % len(active)
        partitions.append((*active[shift:], *active[:shift], *fenced)[:replication_factor])
    return partitions


def _unreachable(replication_factor: int, why: str) -> _Refusal:
    """Return the refusal of a replication factor that the brokers cannot reach."""
    return _Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {why}",
    )
