"""Messages by which clients find nodes and versions: FindCoordinator, Metadata, ApiVersions.

The structs have the fields of the newest version, even if a request is sent in an older version.
For example, a FindCoordinator below v4 has exactly one key. In docstrings, "(10) v0-v6" is the API
key and the versions in use. `array_like` and `tag` say how this project's processes send messages
to each other: a struct is sent as an array of its fields. A request or an answer has the name of
its struct in front.

Source: Kafka's message schemas.
"""

from enum import IntEnum

import msgspec

from protocol.errors import ErrorCode


class CoordinatorType(IntEnum):
    """Kind of coordinator to which a key belongs."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class FindCoordinatorRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """FindCoordinator (10) v0-v6: a client asks for the coordinators of some keys.

    `key_type` is a CoordinatorType, or a number that the broker does not know.
    """

    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()


class Coordinator(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The coordinator of one key. If there is an error, `node_id` is -1."""

    key: str
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class FindCoordinatorResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to FindCoordinator, from the answering broker's metadata, which may be stale."""

    coordinators: tuple[Coordinator, ...] = ()


class MetadataRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Metadata (3). If `topics` is None, all topics are requested.

    With `allow_auto_topic_creation`, the broker creates topics that do not exist, provided that its
    auto.create.topics.enable is true.
    """

    topics: tuple[str, ...] | None = None
    allow_auto_topic_creation: bool = False


class MetadataResponseBroker(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A live broker, according to the metadata of the answering broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataResponsePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Leader and replicas of a partition, according to the metadata of the answering broker."""

    error_code: ErrorCode = ErrorCode.NONE
    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class MetadataResponseTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One topic, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    name: str
    is_internal: bool = False
    partitions: tuple[MetadataResponsePartition, ...] = ()


class MetadataResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to Metadata."""

    brokers: tuple[MetadataResponseBroker, ...] = ()
    controller_id: int = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_id: str | None = None


class ApiVersionsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """ApiVersions (18): a Kafka client requests the versions that it may use."""


class ApiVersion(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The versions of one API."""

    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ApiVersions. With UNSUPPORTED_VERSION it has only the versions of ApiVersions."""

    error_code: ErrorCode = ErrorCode.NONE
    api_keys: tuple[ApiVersion, ...] = ()
