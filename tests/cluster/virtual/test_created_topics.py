"""The check of the controller's answers to CreateTopics finds wrong answers.

In a run `check_created` looks at each answer of the controller to a CreateTopics request, together
with the controller's metadata after it: the topic must have what the request asks for, and a
refusal must have a reason.

The tests give the check metadata, a request and an answer that are sound or wrong in one point. The
metadata come from `image_of`: four brokers, of which broker 3 is fenced (counted as dead), and the
topic `archive` with these replicas.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from msgspec import structs

from chaos.exploration.play import PlayResult, play
from cluster.controller import topic_creation
from cluster.controller.metadata_image import MetadataImage
from cluster.virtual.created_topics import check_created
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

    replicas: those of each partition; the unfenced ones are in sync.
    settings: values of min.insync.replicas, one after the other.
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
    """If the request leaves numbers out, those of the brokers' settings count."""
    for asked in (request(), request(2), request(2, 2)):
        check_created(image_of(*SOUND), CONFIG, asked, answer())
        one_partition, no_topic = image_of((0, 1)), brokers()
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
        (image_of((0, 1), (1,)), r"different replicas: archive-1: expected 2, got \(1,\)"),
        (image_of((0, 1), (1, 1)), r"different replicas: archive-1: expected 2, got \(1, 1\)"),
        (image_of((0, 1), (1, 7)), r"registered brokers .*: archive-1: \[7\] of \(1, 7\)"),
        (image_of((0, 1), (1, 2), stopping=2), r"shutting down: archive-1: \[2\] of \(1, 2\)"),
        (image_of((0, 1), (1, FENCED)), "unfenced brokers get the replicas"),
        (image_of(*SOUND, leaders=(0, 2)), "the first one leads: archive-1"),
        (image_of((0, 1), (1, 2), leaders=(0, -1)), "the first one leads: archive-1"),
    ],
    ids=["too few", "twice", "unknown", "stopping", "fenced", "second", "none"],
)
def test_wrong_placement_is_found(image: MetadataImage, message: str) -> None:
    """The topic has one wrong replica or leader."""
    with pytest.raises(InvariantViolation, match=message):
        check_created(image, CONFIG, request(), answer())


def test_fenced_broker_has_the_last_replica_if_too_few_others_are_there() -> None:
    """Four replicas need all four brokers. The three unfenced ones must come first."""
    check_created(image_of((1, 0, 2, FENCED)), CONFIG, request(1, 4), answer())
    with pytest.raises(InvariantViolation, match="unfenced brokers get the replicas"):
        check_created(image_of((0, FENCED, 1, 2)), CONFIG, request(1, 4), answer())


def test_leaders_that_are_not_spread_are_found() -> None:
    """Among three brokers no one may lead two partitions more than another.

    In the wrong answer broker 0 leads two partitions, and broker 2 leads none.
    """
    check_created(image_of((1,), (0,), (2,), (1,)), CONFIG, request(4, 1), answer())
    with pytest.raises(InvariantViolation, match="leaders of a new topic are spread"):
        check_created(image_of((0,), (1,), (0,)), CONFIG, request(3, 1), answer())


def test_replicas_that_the_request_names_are_kept() -> None:
    """Such replicas need not be spread, and may be on a fenced broker."""
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
    """What the controller had in its metadata when it decided about a request."""

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
    """Each error has its reason in the metadata or in the request."""
    check_created(with_reason.image, CONFIG, with_reason.asked, answer(error))
    with pytest.raises(InvariantViolation, match="a topic is refused for a reason"):
        check_created(without_reason.image, CONFIG, without_reason.asked, answer(error))


def test_request_that_only_validates_creates_nothing() -> None:
    """With `validate_only` the answer NONE says that the topic could be created.

    So the metadata need not have it.
    """
    asked = structs.replace(request(), validate_only=True)
    check_created(brokers(), CONFIG, asked, answer())


def test_wrong_replicas_are_found_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: both replicas of the partition are on the same broker."""

    def same_broker_twice(*_: object, start: int) -> list[tuple[int, ...]]:
        broker = start % 3
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
