"""The check of the controller's answers to CreateTopics finds wrong answers.

In a run `check_created` looks at each answer of the controller to a CreateTopics request, and at
the controller's metadata after this answer. If the topic was created, it must have what the request
asks for. If the request was refused, there must be a reason.

The tests call the check with metadata, a request and an answer, which are sound or wrong in one
point. The metadata have four brokers, of which broker 3 is fenced (counted as dead). With
`image_of((0, 1), (1, 2))` they also have the topic `archive`: its partition 0 has replicas on the
brokers 0 and 1, and its partition 1 on the brokers 1 and 2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from msgspec import structs

from chaos.exploration.play import PlayResult, play
from cluster.controller import topic_creation
from cluster.controller.metadata_image import MetadataImage
from cluster.virtual.checks.created_topics import check_created
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode, InvariantViolation
from protocol.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.support.builders.quick_experiment import quick_experiment

CONFIG = BrokerConfig(num_partitions=2, default_replication_factor=2)
FENCED = 3
SOUND = ((0, 1), (1, 2))
"""Good replicas for the two partitions of `archive`. The first replica is the preferred leader."""
MIN_ISR = CreatableTopicConfig(name="min.insync.replicas", value="2")
"""A setting that a request can give the topic."""


def request(
    partitions: int = -1, replication_factor: int = -1, *settings: CreatableTopicConfig
) -> CreateTopicsRequest:
    """Return a request to create `archive`; -1 stands for the numbers of CONFIG, 2 and 2."""
    topic = CreatableTopic(
        name="archive",
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=settings,
    )
    return CreateTopicsRequest(topics=(topic,))


def answer(error: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    """Return the controller's answer for the topic `archive`."""
    return CreateTopicsResponse(topics=(CreatableTopicResult(name="archive", error_code=error),))


def brokers(*, stopping: int | None = None) -> MetadataImage:
    """Return metadata without topics; the broker `stopping` is in its controlled shutdown."""
    image = MetadataImage()
    for broker_id in range(4):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=0,
                broker_epoch=broker_id,
                host="",
                port=0,
                fenced=broker_id == FENCED,
            )
        )
    if stopping is not None:
        image.replay(
            BrokerRegistrationChangeRecord(
                broker_id=stopping, broker_epoch=stopping, in_controlled_shutdown=True
            )
        )
    return image


def image_of(
    *replicas: tuple[int, ...],
    settings: Sequence[str] = (),
    leaders: Sequence[int] | None = None,
    stopping: int | None = None,
) -> MetadataImage:
    """Return metadata with the topic `archive`.

    replicas: the replicas of each partition; those on unfenced brokers are in sync.
    settings: values of min.insync.replicas, set one after the other, so the last value counts.
    leaders: the leader of each partition; by default it is the first replica.
    stopping: the broker that is in its controlled shutdown.
    """
    image = brokers(stopping=stopping)
    image.replay(TopicRecord(name="archive"))
    for value in settings:
        image.replay(ConfigRecord(resource_name="archive", name="min.insync.replicas", value=value))
    for index, assigned in enumerate(replicas):
        image.replay(
            PartitionRecord(
                topic="archive",
                partition_id=index,
                replicas=assigned,
                isr=tuple(broker for broker in assigned if broker != FENCED),
                leader=assigned[0] if leaders is None else leaders[index],
            )
        )
    return image


def test_topic_must_have_its_partitions_and_settings() -> None:
    """If the request leaves numbers out, the numbers of CONFIG count, which are 2 and 2.

    So the three requests ask for the same topic of two partitions.
    """
    one_partition = image_of((0, 1))
    no_topic = brokers()
    for asked in (request(), request(2), request(2, 2)):
        check_created(image_of(*SOUND), CONFIG, asked, answer())
        with pytest.raises(InvariantViolation, match="archive: expected 2, got 1"):
            check_created(one_partition, CONFIG, asked, answer())
        with pytest.raises(InvariantViolation, match="archive: expected 2, got None"):
            check_created(no_topic, CONFIG, asked, answer())
    with_setting = request(2, 2, MIN_ISR)
    check_created(image_of(*SOUND, settings=["2"]), CONFIG, with_setting, answer())
    with pytest.raises(InvariantViolation, match="a created topic has its settings"):
        check_created(image_of(*SOUND, settings=["3"]), CONFIG, with_setting, answer())


@pytest.mark.parametrize(
    ("image", "message"),
    [
        pytest.param(
            image_of((0, 1), (1,)),
            r"different replicas: archive-1: expected 2, got \(1,\)",
            id="too few replicas",
        ),
        pytest.param(
            image_of((0, 1), (1, 1)),
            r"different replicas: archive-1: expected 2, got \(1, 1\)",
            id="the same broker twice",
        ),
        pytest.param(
            image_of((0, 1), (1, 7)),
            r"registered brokers .*: archive-1: \[7\] of \(1, 7\)",
            id="unknown broker",
        ),
        pytest.param(
            image_of((0, 1), (1, 2), stopping=2),
            r"shutting down: archive-1: \[2\] of \(1, 2\)",
            id="stopping broker",
        ),
        pytest.param(
            image_of((0, 1), (1, FENCED)), "unfenced brokers get the replicas", id="fenced broker"
        ),
        pytest.param(
            image_of(*SOUND, leaders=(0, 2)),
            "the first one leads: archive-1",
            id="second replica leads",
        ),
        pytest.param(
            image_of(*SOUND, leaders=(0, -1)), "the first one leads: archive-1", id="no leader"
        ),
    ],
)
def test_wrong_placement_is_found(image: MetadataImage, message: str) -> None:
    """The topic has one wrong replica or leader."""
    with pytest.raises(InvariantViolation, match=message):
        check_created(image, CONFIG, request(), answer())


def test_fenced_broker_has_the_last_replica_if_too_few_others_are_there() -> None:
    """Four replicas need all four brokers. The three unfenced brokers must come first."""
    check_created(image_of((1, 0, 2, FENCED)), CONFIG, request(1, 4), answer())
    with pytest.raises(InvariantViolation, match="unfenced brokers get the replicas"):
        check_created(image_of((0, FENCED, 1, 2)), CONFIG, request(1, 4), answer())


def test_leaders_that_are_not_spread_are_found() -> None:
    """No broker may lead two partitions more than another. Each partition has one replica here.

    In the sound topic the three brokers lead 1, 2 and 1 partitions. In the wrong topic broker 0
    leads two partitions, and broker 2 leads none.
    """
    check_created(image_of((1,), (0,), (2,), (1,)), CONFIG, request(4, 1), answer())
    with pytest.raises(InvariantViolation, match="leaders of a new topic are spread"):
        check_created(image_of((0,), (1,), (0,)), CONFIG, request(3, 1), answer())


def test_replicas_that_the_request_names_are_kept() -> None:
    """A request may name the replicas of each partition.

    Such replicas need not be spread over the brokers, and may be on a fenced broker.
    """
    with_assignments = CreateTopicsRequest(
        topics=(
            CreatableTopic(
                name="archive",
                assignments=(
                    CreatableReplicaAssignment(partition_index=1, broker_ids=(0, FENCED)),
                    CreatableReplicaAssignment(partition_index=0, broker_ids=(0, 1)),
                ),
            ),
        )
    )
    check_created(image_of((0, 1), (0, FENCED)), CONFIG, with_assignments, answer())
    with pytest.raises(InvariantViolation, match="the replicas that its request names: archive-0"):
        check_created(image_of((1, 0), (0, FENCED)), CONFIG, with_assignments, answer())


class Case(NamedTuple):
    """A request, and the metadata that the controller had when it refused this request."""

    image: MetadataImage
    asked: CreateTopicsRequest


@pytest.mark.parametrize(
    ("error", "without_reason", "with_reason"),
    [
        # There are four brokers, so four replicas are possible, and five are not.
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            Case(brokers(), request(1, 4)),
            Case(brokers(), request(1, 5)),
        ),
        # The broker that stops does not count, so only three replicas are possible.
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            Case(brokers(stopping=0), request(1, 3)),
            Case(brokers(stopping=0), request(1, 4)),
        ),
        # Without brokers not even one replica is possible.
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            Case(brokers(), request(1, 1)),
            Case(MetadataImage(), request(1, 1)),
        ),
        # A topic with 0 partitions is not possible.
        (
            ErrorCode.INVALID_PARTITIONS,
            Case(brokers(), request(1)),
            Case(brokers(), request(0)),
        ),
        (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            Case(brokers(), request()),
            Case(image_of(*SOUND), request()),
        ),
    ],
)
def test_topic_that_is_refused_without_a_reason_is_found(
    error: ErrorCode, without_reason: Case, with_reason: Case
) -> None:
    """The check accepts a refusal only if the metadata or the request have a reason for it."""
    check_created(with_reason.image, CONFIG, with_reason.asked, answer(error))
    with pytest.raises(InvariantViolation, match="a topic is refused for a reason"):
        check_created(without_reason.image, CONFIG, without_reason.asked, answer(error))


def test_request_that_only_validates_creates_nothing() -> None:
    """With `validate_only` the answer NONE says that the topic could be created.

    The controller has not created the topic, so it need not be in the metadata.
    """
    asked = structs.replace(request(), validate_only=True)
    check_created(brokers(), CONFIG, asked, answer())


def test_wrong_replicas_are_found_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: both replicas of the partition are on the same broker."""

    def same_broker_twice(*_: object, start: int) -> list[tuple[int, ...]]:
        broker = start % 3  # one of the three brokers of the experiment
        return [(broker, broker)]

    monkeypatch.setattr(topic_creation, "_spread", same_broker_twice)
    order = {
        "at": "1s",
        "fault": "create_topic",
        "target": "controller",
        "args": {"topic": "archive", "partitions": 1, "replication_factor": 2},
    }

    played = play(quick_experiment(faults=[order]), seed=1)

    assert played.result is PlayResult.BROKEN
    assert "a new partition has its number of different replicas" in played.reasons[0]
