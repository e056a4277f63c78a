"""The checks of the controller's answers to CreateTopics find planted bugs.

`image_of` returns the controller's metadata after its decision: four brokers, of which broker 3 is
fenced (counted as dead), and the topic `archive`. "Planted bug" in a docstring names a bug that the
test would find.
"""

from collections.abc import Sequence

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
"""Replicas of each partition of `archive`, preferred leader first."""
MIN_ISR = CreatableTopicConfig(name="min.insync.replicas", value="2")


def request(
    partitions: int = -1, replication_factor: int = -1, *settings: CreatableTopicConfig
) -> CreateTopicsRequest:
    """Return a request to create `archive`; -1 stands for the brokers' numbers, 2 and 2."""
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
    leaders: the leader of each partition; None: its first replica.
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
                isr=tuple(each for each in assigned if each != FENCED),
                leader=assigned[0] if leaders is None else leaders[index],
            )
        )
    return image


def test_topic_must_have_its_partitions_and_settings() -> None:
    """Numbers that the request leaves out are the brokers'."""
    for asked in (request(), request(2), request(2, 2)):
        check_created(image_of(*SOUND), CONFIG, asked, answer())
        for wrong, count in ((image_of((0, 1)), "1"), (brokers(), "None")):
            with pytest.raises(InvariantViolation, match=f"archive: expected 2, got {count}"):
                check_created(wrong, CONFIG, asked, answer())
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
    """Each topic has one wrong replica or leader."""
    with pytest.raises(InvariantViolation, match=message):
        check_created(image, CONFIG, request(), answer())


def test_fenced_broker_has_the_last_replica_if_too_few_others_are_there() -> None:
    """Four replicas need all four brokers; the three unfenced ones come first."""
    check_created(image_of((1, 0, 2, FENCED)), CONFIG, request(1, 4), answer())
    with pytest.raises(InvariantViolation, match="unfenced brokers get the replicas"):
        check_created(image_of((0, FENCED, 1, 2)), CONFIG, request(1, 4), answer())


def test_leaders_that_are_not_spread_are_found() -> None:
    """Broker 0 leads two partitions, and broker 2 leads none."""
    check_created(image_of((1,), (0,), (2,), (1,)), CONFIG, request(4, 1), answer())
    with pytest.raises(InvariantViolation, match="leaders of a new topic are spread"):
        check_created(image_of((0,), (1,), (0,)), CONFIG, request(3, 1), answer())


def test_replicas_that_the_request_names_are_kept() -> None:
    """They need not be spread, and may be on a fenced broker."""
    named = CreateTopicsRequest(
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
    check_created(image_of((0, 1), (0, FENCED)), CONFIG, named, answer())
    with pytest.raises(InvariantViolation, match="the replicas that its request names: archive-0"):
        check_created(image_of((1, 0), (0, FENCED)), CONFIG, named, answer())


@pytest.mark.parametrize(
    ("error", "wrong", "right"),
    [
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (brokers(), request(1, 4)),
            (brokers(), request(1, 5)),
        ),
        # The broker that stops does not count.
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (brokers(stopping=0), request(1, 3)),
            (brokers(stopping=0), request(1, 4)),
        ),
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (brokers(), request(1, 1)),
            (MetadataImage(), request(1, 1)),
        ),
        (ErrorCode.INVALID_PARTITIONS, (brokers(), request(1)), (brokers(), request(0))),
        (ErrorCode.TOPIC_ALREADY_EXISTS, (brokers(), request()), (image_of(*SOUND), request())),
    ],
)
def test_topic_that_is_refused_without_a_reason_is_found(
    error: ErrorCode,
    wrong: tuple[MetadataImage, CreateTopicsRequest],
    right: tuple[MetadataImage, CreateTopicsRequest],
) -> None:
    """Each error has its reason in the metadata or in the request."""
    check_created(right[0], CONFIG, right[1], answer(error))
    with pytest.raises(InvariantViolation, match="a topic is refused for a reason"):
        check_created(wrong[0], CONFIG, wrong[1], answer(error))


def test_request_that_only_asks_creates_nothing() -> None:
    """With `validate_only` the answer NONE says that the topic could be created."""
    asked = structs.replace(request(), validate_only=True)
    check_created(brokers(), CONFIG, asked, answer())


def test_wrong_replicas_are_found_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: both replicas of the partition are on the same broker."""
    monkeypatch.setattr(topic_creation, "_spread", lambda *_, start: [(start % 3,) * 2])
    order = {
        "at": "1s",
        "fault": "create_topic",
        "target": "controller",
        "args": {"topic": "archive", "partitions": 1, "replication_factor": 2},
    }

    played = play(quick_experiment(faults=[order]), seed=1)

    assert played.result is PlayResult.BROKEN
    assert "a new partition has its number of different replicas" in played.reasons[0]
