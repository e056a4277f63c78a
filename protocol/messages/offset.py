"""Messages of committed offsets: OffsetCommit and OffsetFetch.

The structs have the fields of the newest version, even if a request is sent in an older version.
For example, an OffsetFetch below v8 has exactly one group. In docstrings, "(8) v2-v9" is the API
key and the versions in use. `array_like` and `tag` say how this project's processes send messages
to each other: a struct is sent as an array of its fields. A request or an answer has the name of
its struct in front.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode


class OffsetCommitRequestPartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The offset to commit for one partition: the next record to process."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic in a commit."""

    name: str
    partitions: tuple[OffsetCommitRequestPartition, ...]


class OffsetCommitRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """OffsetCommit (8) v2-v9: stores offsets of a group.

    A client that is no member, such as an admin tool, sends generation -1 and member "".

    With `retention_time_ms`, old clients say how long the offsets are kept. -1 leaves this to the
    broker's setting.
    """

    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition of a commit."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class OffsetCommitResponseTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic of a commit."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


class OffsetCommitResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to OffsetCommit. As in Kafka, there is no error for the whole request."""

    topics: tuple[OffsetCommitResponseTopic, ...] = ()


class OffsetFetchRequestTopics(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic whose offsets are requested."""

    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequestGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One group. If `topics` is None, all partitions with an offset are requested."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None = None


class OffsetFetchRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """OffsetFetch (9) v1-v9: asks for the committed offsets of groups.

    With `require_stable`, a partition with an unfinished commit is answered with an error.
    """

    groups: tuple[OffsetFetchRequestGroup, ...]
    require_stable: bool = False


class OffsetFetchResponsePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One committed offset. -1 if the group has no offset of the partition."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchResponseTopics(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The committed offsets of one topic."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponseGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The committed offsets of one group, or an error."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to OffsetFetch, with one entry for each group of the request."""

    groups: tuple[OffsetFetchResponseGroup, ...] = ()
