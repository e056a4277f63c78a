"""Messages of an administrator to the controller, under Kafka's names.

In KRaft an administrator may send requests to the controllers directly (KIP-919,
`bootstrap.controllers`).

A number after the name of a request is its API key. `array_like` and `tag` say how this project's
processes send messages to each other: a struct is sent as an array of its fields. A request or an
answer has the name of its struct in front.

Source: Kafka's message schemas.
"""

from enum import IntEnum

import msgspec

from protocol.errors import ErrorCode


class ElectionType(IntEnum):
    """Which replica an election chooses: the preferred leader, or a replica that is not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersTopic(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, by index."""

    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """ElectLeaders (43). The value None of `topic_partitions` means every partition."""

    election_type: int = ElectionType.PREFERRED
    topic_partitions: tuple[ElectLeadersTopic, ...] | None = None
    timeout_ms: int = 60_000


class CreatableReplicaAssignment(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The replicas of one new partition, the preferred leader first."""

    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A setting of a new topic, by Kafka's name and as text."""

    name: str
    value: str | None


BROKER_DEFAULT = -1
"""Means that the broker's setting applies: num.partitions, or default.replication.factor."""


class CreatableTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A topic to create.

    If `assignments` gives the replicas of each partition, `num_partitions` and `replication_factor`
    must be -1. Otherwise the controller chooses the replicas, and -1 is BROKER_DEFAULT.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """CreateTopics (19). With `validate_only` the request is checked, but no topic is created."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatableTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one topic. `error_message` is None without an error."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class CreateTopicsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to CreateTopics."""

    topics: tuple[CreatableTopicResult, ...] = ()


def refused_creation(request: CreateTopicsRequest, error: ErrorCode) -> CreateTopicsResponse:
    """Return the answer that refuses the whole request: `error` for every topic.

    The answer has no field for an error of the whole request.
    """
    # `dict.fromkeys`: a topic that the request names twice is answered once.
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(name=name, error_code=error)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        )
    )


class DeleteTopicsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """DeleteTopics (20), as in version 5: topics by name."""

    topic_names: tuple[str, ...]
    timeout_ms: int = 60_000


class DeletableTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE


class DeleteTopicsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to DeleteTopics."""

    responses: tuple[DeletableTopicResult, ...] = ()


def refused_deletion(request: DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse:
    """Return the answer that refuses the whole request: `error` for every topic.

    The answer has no field for an error of the whole request.
    """
    # `dict.fromkeys`: a topic that the request names twice is answered once.
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(name=name, error_code=error)
            for name in dict.fromkeys(request.topic_names)
        )
    )


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition. `error_message` is None if the code is clear enough."""

    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReplicaElectionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    topic: str
    partition_result: tuple[PartitionResult, ...]


class ElectLeadersResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ElectLeaders.

    If the request was about every partition, partitions that needed no election are left out.
    """

    error_code: ErrorCode = ErrorCode.NONE
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


class ReassignablePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The wanted replicas of a partition, preferred leader first. None cancels a reassignment."""

    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic that get other replicas."""

    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """AlterPartitionReassignments (45): partitions get other replicas, or another order."""

    timeout_ms: int = 60_000
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition. `error_message` is None without an error."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReassignableTopicResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to AlterPartitionReassignments."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()


class ConfigResourceType(IntEnum):
    """Owner of a setting: the `resource_type` of the structs below."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Origin of a setting's value: `source` and `config_source` of the structs below."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class DescribeConfigsResource(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A topic or broker whose settings are requested. None for `configuration_keys` means all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """DescribeConfigs (32). With `include_synonyms`, answers list all origins of each value."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False


class DescribeConfigsSynonym(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A setting that may decide the value of another setting.

    The value comes from the first synonym in the list.
    """

    name: str
    value: str | None
    source: int


class DescribeConfigsResourceResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One setting and its value.

    `config_type` is Kafka's number for the type of the value. 0 means that the type is unknown.
    """

    name: str
    value: str | None
    read_only: bool = False
    is_default: bool = False
    config_source: int = ConfigSource.DEFAULT_CONFIG
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0
    documentation: str | None = None


class DescribeConfigsResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The settings of one topic or broker, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to DescribeConfigs."""

    results: tuple[DescribeConfigsResult, ...] = ()
