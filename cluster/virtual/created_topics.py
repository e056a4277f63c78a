"""Checks of created topics: they have the partitions and settings that were asked for.

Controller and brokers replay the same records, so a comparison of the two does not show a setting
that the replay loses. Here the controller's image is compared with the request, or with the
cluster's spec.
"""

import msgspec

from cluster.controller.metadata_image import MetadataImage
from protocol.config import TopicConfig
from protocol.errors import ErrorCode, InvariantViolation
from protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse

_BROKER_DEFAULT = -1
"""Number of partitions in a request that leaves the number to the broker."""


def check_created(
    image: MetadataImage, request: CreateTopicsRequest, response: CreateTopicsResponse
) -> None:
    """Check each topic that is answered with NONE, just before the controller's answer leaves.

    Raises: InvariantViolation.
    """
    if request.validate_only:  # such a request creates nothing
        return
    created = {each.name for each in response.topics if each.error_code is ErrorCode.NONE}
    for topic in request.topics:
        if topic.name in created:
            config = msgspec.convert(
                {setting.name: setting.value for setting in topic.configs},
                TopicConfig,
                strict=False,  # in a request every value is a text
            )
            # A request with assignments has -1 as its number of partitions.
            partitions = len(topic.assignments) or topic.num_partitions
            check_topic(image, topic.name, partitions, config)


def check_topic(image: MetadataImage, name: str, partitions: int, config: TopicConfig) -> None:
    """Check that a topic has this number of partitions (-1: any) and these settings.

    Raises: InvariantViolation.
    """
    registered = image.topics.get(name)  # the partitions; None if there is no such topic
    if registered is None or partitions not in (_BROKER_DEFAULT, len(registered)):
        raise InvariantViolation(
            "a created topic has its partitions",
            f"{name}: expected {partitions}, got {registered and len(registered)}",
        )
    settings = image.topic_config(name)
    if settings != config:
        raise InvariantViolation(
            "a created topic has its settings", f"{name}: expected {config}, got {settings}"
        )
