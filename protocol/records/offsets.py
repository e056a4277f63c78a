"""Records of `__consumer_offsets`: keys and values of committed offsets and groups.

Keys and values consist of a version of two bytes and a body. The version of the key says whether
the record is about an offset or a group. A record without a value is a tombstone, which deletes the
offset or group. The body is MessagePack instead of Kafka's own encoding.

The two tables `_OFFSET_COMMIT_VALUE` and `_GROUP_METADATA_VALUE` list the fields of the values, by
version. `since` and `until` are the first and the last version that has the field. `bits` is the
width of the field in Kafka. A number that needs more bits is refused as corrupt when it is read.

Source: Kafka `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataKey.json`,
`GroupMetadataValue.json`; docs/kafka/BEHAVIOUR.md 5.1.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.ids import TopicPartition
from protocol.records.versioned import (
    VERSION_SIZE,
    CorruptRecord,
    ValueCodec,
    encode_body,
    record_version,
    version_prefix,
)
from protocol.wire.fields import bytes_field, int_field, str_field, struct_array

OFFSET_COMMIT_KEY_VERSION = 1
"""The key version of offsets. Version 0 has the same fields. Keys in version 0 are read, but not
written."""
GROUP_METADATA_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
"""The value version of offsets that is written by default. An old value of the setting
`inter.broker.protocol.version` makes brokers write an older version."""
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""The value version of an offset for which the client has said how long it is kept. Newer versions
have no field for this."""
GROUP_VALUE_VERSION = 3
"""The value version of groups that is written by default, see OFFSET_VALUE_VERSION."""
NO_EXPIRE_TIMESTAMP = -1
"""`expire_timestamp_ms` if the client has not said how long the offset is kept. Then the setting
`offsets.retention.minutes` applies."""

_Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class OffsetCommitKey(msgspec.Struct, frozen=True, array_like=True):
    """Key of a committed offset, versions 0 and 1."""

    group: str
    topic: str
    partition: _Int32

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose offset is committed."""
        return TopicPartition(self.topic, self.partition)


class GroupMetadataKey(msgspec.Struct, frozen=True, array_like=True):
    """Key of a group, version 2."""

    group: str


class UnknownKey(msgspec.Struct, frozen=True):
    """A key in a version that this project does not know. The coordinator ignores the record."""

    version: int


OffsetsKey = OffsetCommitKey | GroupMetadataKey | UnknownKey


class OffsetCommitValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A committed offset, with the fields of all versions.

    Timestamps are in milliseconds since the epoch. They are -1 if they were not set, or if the
    stored version does not have the field.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP


class MemberMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a stored group: its metadata for the selected protocol, and its assignment."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    """A stored group, with the fields of all versions.

    If the group had become Empty, `protocol` and `leader` are None, and `members` is empty.
    `current_state_timestamp_ms` is in milliseconds since the epoch, -1 below version 2.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = -1
    members: tuple[MemberMetadataValue, ...] = ()


_OFFSET_COMMIT_VALUE = ValueCodec(
    "offset",
    OffsetCommitValue,
    (
        int_field("offset", bits=64),
        int_field("leader_epoch", since=3, bits=32),
        str_field("metadata"),
        int_field("commit_timestamp_ms", bits=64),
        int_field("expire_timestamp_ms", since=1, until=1, bits=64),
    ),
    readable=range(5),
    # No value of inter.broker.protocol.version leads to version 0 of offsets, so version 0 is never
    # written. Groups are different: brokers write version 0 of a group if the setting is below
    # 0.10.1.
    writable=range(1, OFFSET_VALUE_VERSION + 1),
)
_GROUP_METADATA_VALUE = ValueCodec(
    "group",
    GroupMetadataValue,
    (
        str_field("protocol_type"),
        int_field("generation", bits=32),
        str_field("protocol", nullable=True),
        str_field("leader", nullable=True),
        int_field("current_state_timestamp_ms", since=2, bits=64),
        struct_array(
            "members",
            str_field("member_id"),
            str_field("group_instance_id", since=3, nullable=True),
            str_field("client_id"),
            str_field("client_host"),
            int_field("rebalance_timeout_ms", since=1, bits=32),
            int_field("session_timeout_ms", bits=32),
            bytes_field("subscription"),
            bytes_field("assignment"),
        ),
    ),
    readable=range(5),
    writable=range(GROUP_VALUE_VERSION + 1),
)
_decode_offset_commit_key = msgspec.msgpack.Decoder(OffsetCommitKey).decode
_KEY_DECODERS: dict[int, Callable[[bytes], OffsetCommitKey | GroupMetadataKey]] = {
    0: _decode_offset_commit_key,
    OFFSET_COMMIT_KEY_VERSION: _decode_offset_commit_key,
    GROUP_METADATA_KEY_VERSION: msgspec.msgpack.Decoder(GroupMetadataKey).decode,
}


def encode_offset_commit_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of the offset that `group` committed for a partition."""
    key = OffsetCommitKey(group, topic_partition.topic, topic_partition.partition)
    return version_prefix(OFFSET_COMMIT_KEY_VERSION) + encode_body(key)


def encode_group_metadata_key(group: str) -> bytes:
    """Return the key of `group`'s own record."""
    return version_prefix(GROUP_METADATA_KEY_VERSION) + encode_body(GroupMetadataKey(group))


def decode_key(data: bytes) -> OffsetsKey:
    """Return the decoded key, or an UnknownKey if the version is unknown.

    Raises: CorruptRecord if the key is too short for a version, or its body cannot be decoded.
    """
    version = record_version(data)
    decode = _KEY_DECODERS.get(version)
    if decode is None:
        return UnknownKey(version)
    try:
        return decode(data[VERSION_SIZE:])
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"key of version {version}: {error}") from error


def encode_offset_commit_value(
    value: OffsetCommitValue, version: int = OFFSET_VALUE_VERSION
) -> bytes:
    """Return the bytes of `value` in `version`, which is 1 to 3.

    If the client has said how long the offset is kept, `version` is ignored and version 1 is
    written, because only version 1 has a field for this. Versions below 3 do not have the leader
    epoch. Version 4 is read, but not written.

    Raises: SimulationError (a mistake of the caller) for any other version.
    """
    if value.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
    return _OFFSET_COMMIT_VALUE.encode(value, version)


decode_offset_commit_value = _OFFSET_COMMIT_VALUE.decode
"""Function that returns the committed offset in the bytes of a value, in the versions 0 to 4.
Raises: CorruptRecord."""


def encode_group_metadata_value(
    value: GroupMetadataValue, version: int = GROUP_VALUE_VERSION
) -> bytes:
    """Return the bytes of `value` in a version from 0 to 3.

    Fields that this version does not have are left out. Version 4 is read, but not written.

    Raises: SimulationError (a mistake of the caller) for any other version.
    """
    return _GROUP_METADATA_VALUE.encode(value, version)


decode_group_metadata_value = _GROUP_METADATA_VALUE.decode
"""Function that returns the group in the bytes of a value, in the versions 0 to 4. Raises:
CorruptRecord."""
