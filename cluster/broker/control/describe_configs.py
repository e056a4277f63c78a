"""DescribeConfigs: the settings of topics and of this broker, with the source of each value.

A setting of a topic may have a value in several places: at the topic, in the broker's
configuration, and by default. Kafka calls each of these values a *synonym*. The answer lists all
synonyms of a setting, and the first of them is in force. The settings are fields of TopicConfig and
BrokerConfig, such as `min_insync_replicas`; `kafka_name` returns their names in Kafka, such as
"min.insync.replicas".

Source: Kafka `ConfigHelper.describeConfigs`.
DEVIATION: only settings that exist here are described; integers are LONG, whatever their width in
Kafka.
"""

from collections.abc import Iterator

import msgspec

from cluster.controller.metadata_image import MetadataImage, config_text
from protocol.config import BrokerConfig, TopicConfig, kafka_name
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.topic_names import topic_name_problem

BOOLEAN, STRING, LONG, DOUBLE = 1, 2, 5, 6
"""Numbers of Kafka's ConfigType."""

BROKER_SETTING_OF: dict[str, str] = {
    "min_insync_replicas": "min_insync_replicas",
    "unclean_leader_election_enable": "unclean_leader_election_enable",
    "max_message_bytes": "message_max_bytes",
    "message_timestamp_type": "log_message_timestamp_type",
    "flush_messages": "log_flush_interval_messages",
    "flush_ms": "log_flush_interval_ms",
}
"""Field of TopicConfig -> the field of BrokerConfig that counts if the topic has no value.

Other settings of a topic have only a default."""


def describe_configs(
    image: MetadataImage, broker_id: int, config: BrokerConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Answer DescribeConfigs, resource by resource."""
    return DescribeConfigsResponse(
        results=tuple(
            _describe(image, broker_id, config, resource, with_synonyms=request.include_synonyms)
            for resource in request.resources
        )
    )


def _describe(
    image: MetadataImage,
    broker_id: int,
    config: BrokerConfig,
    resource: DescribeConfigsResource,
    *,
    with_synonyms: bool,
) -> DescribeConfigsResult:
    """Return the settings of one topic or broker that the request wants, or the error."""
    error, message = _problem(image, broker_id, resource)
    settings: tuple[DescribeConfigsResourceResult, ...] = ()
    if error is ErrorCode.NONE:
        is_topic = resource.resource_type == ConfigResourceType.TOPIC
        all_settings = (
            _topic_settings(image.topic_config(resource.resource_name), config)
            if is_topic
            else _broker_settings(config)
        )
        keys = resource.configuration_keys
        settings = tuple(
            setting if with_synonyms else msgspec.structs.replace(setting, synonyms=())
            for setting in all_settings
            if keys is None or setting.name in keys  # None: the request wants all settings
        )
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=settings,
    )


def _problem(
    image: MetadataImage, broker_id: int, resource: DescribeConfigsResource
) -> tuple[ErrorCode, str | None]:
    """Return the error if the resource cannot be described, and Kafka's message; otherwise NONE."""
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        problem = topic_name_problem(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        if name not in image.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        return ErrorCode.NONE, None
    if resource.resource_type == ConfigResourceType.BROKER:
        # In Kafka "" stands for the defaults of all brokers.
        if name in ("", str(broker_id)):
            return ErrorCode.NONE, None
        return (
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker_id} or empty string, but received {name}",
        )
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"


def _topic_settings(
    topic_config: TopicConfig, config: BrokerConfig
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield each setting of a topic, with its synonyms.

    The topic's own value comes first, then the values that count for topics without one.
    """
    defaults = TopicConfig()
    for field in TopicConfig.__struct_fields__:
        value = getattr(topic_config, field)
        synonyms = []
        # A TopicConfig does not record which values were set. A value that differs from the default
        # counts as set for this topic.
        if value != getattr(defaults, field):
            synonyms.append(_synonym(field, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        inherited = BROKER_SETTING_OF.get(field)  # a field of BrokerConfig
        if inherited is None:
            synonyms.append(_synonym(field, getattr(defaults, field), ConfigSource.DEFAULT_CONFIG))
        else:
            synonyms += _broker_synonyms(inherited, config)
        yield _setting(field, synonyms)


def _broker_settings(config: BrokerConfig) -> Iterator[DescribeConfigsResourceResult]:
    """Yield each setting of the broker, all read-only: they are fixed when the broker starts."""
    for field in BrokerConfig.__struct_fields__:
        yield _setting(field, _broker_synonyms(field, config), read_only=True)


def _broker_synonyms(field: str, config: BrokerConfig) -> list[DescribeConfigsSynonym]:
    """Return the synonyms of a broker's setting; the first of them is in force."""
    value, default = getattr(config, field), getattr(BrokerConfig(), field)
    synonyms = [_synonym(field, default, ConfigSource.DEFAULT_CONFIG)]
    if value != default:
        synonyms.insert(0, _synonym(field, value, ConfigSource.STATIC_BROKER_CONFIG))
    return synonyms


def _synonym(field: str, value: object, source: ConfigSource) -> DescribeConfigsSynonym:
    """Return the value that a setting has in one place."""
    text = None if value is None else config_text(value)
    return DescribeConfigsSynonym(name=kafka_name(field), value=text, source=source)


def _setting(
    field: str, synonyms: list[DescribeConfigsSynonym], *, read_only: bool = False
) -> DescribeConfigsResourceResult:
    """Return a setting; the first of its synonyms is in force."""
    in_force = synonyms[0]
    return DescribeConfigsResourceResult(
        name=kafka_name(field),
        value=in_force.value,
        read_only=read_only,
        is_default=in_force.source == ConfigSource.DEFAULT_CONFIG,
        config_source=in_force.source,
        synonyms=tuple(synonyms),
        config_type=_type_of(in_force.value),
    )


def _type_of(text: str | None) -> int:
    """Return the ConfigType of a value, judged by its text.

    None is the value of an unset setting. All settings that may be unset are integers.
    """
    if text is None or text.lstrip("-").isdecimal():
        return LONG
    if text in ("true", "false"):
        return BOOLEAN
    try:
        float(text)
    except ValueError:
        return STRING
    return DOUBLE
