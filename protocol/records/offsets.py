"""The persisted records of `__consumer_offsets`: keys and values, each with its version.

A key, and a value, is a two-byte big-endian version and a body. The version of a key says what
kind of record it is; a record without value is a tombstone.

DEVIATION: the body is a MessagePack array of Kafka's fields in Kafka's order, instead of Kafka's
own schema encoding. Fields, versions and which version is written are Kafka's.

Source: Kafka `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataKey.json`,
`GroupMetadataValue.json`; BEHAVIOUR 5.1.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.errors import SimulationError
from protocol.ids import TopicPartition

OFFSET_COMMIT_KEY_VERSION = 1
"""Written for offsets; version 0 has the same fields and is read too."""
GROUP_METADATA_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
"""Written for offsets, unless inter.broker.protocol.version asks for an older one."""
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""Written where a commit carries an explicit expiry: newer versions have no field for it."""
GROUP_VALUE_VERSION = 3
"""Written for groups, unless inter.broker.protocol.version asks for an older one."""

_Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class CorruptOffsetsRecord(ValueError):
    """A key or value that cannot be read: an unknown value version, or no body of its kind."""


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
    """A key of a version that this coordinator does not know; its record is ignored."""

    version: int


OffsetsKey = OffsetCommitKey | GroupMetadataKey | UnknownKey


class OffsetCommitValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A committed offset, whatever version it was stored in.

    Units: timestamps in ms since the epoch; -1 where a version has no such field, or none was set.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


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
    """A stored group, whatever version it was stored in.

    Shape: `protocol` and `leader` are None, and `members` empty, for a group that became Empty.
    Units: `current_state_timestamp_ms` since the epoch, -1 below version 2.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = -1
    members: tuple[MemberMetadataValue, ...] = ()


# Bodies as they are stored, one class for each layout. Unknown elements behind the last field are
# skipped when read, as Kafka skips the tagged fields of a version 4 that is newer than the reader.


class _OffsetV0(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: _Int64
    metadata: str
    commit_timestamp: _Int64


class _OffsetV1(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: _Int64
    metadata: str
    commit_timestamp: _Int64
    expire_timestamp: _Int64


class _OffsetV3(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: _Int64
    leader_epoch: _Int32
    metadata: str
    commit_timestamp: _Int64


class _MemberV0(msgspec.Struct, frozen=True, array_like=True):
    member_id: str
    client_id: str
    client_host: str
    session_timeout: _Int32
    subscription: bytes
    assignment: bytes


class _MemberV1(msgspec.Struct, frozen=True, array_like=True):
    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout: _Int32
    session_timeout: _Int32
    subscription: bytes
    assignment: bytes


class _MemberV3(msgspec.Struct, frozen=True, array_like=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: _Int32
    session_timeout: _Int32
    subscription: bytes
    assignment: bytes


class _GroupV0(msgspec.Struct, frozen=True, array_like=True):
    protocol_type: str
    generation: _Int32
    protocol: str | None
    leader: str | None
    members: tuple[_MemberV0, ...]


class _GroupV1(msgspec.Struct, frozen=True, array_like=True):
    protocol_type: str
    generation: _Int32
    protocol: str | None
    leader: str | None
    members: tuple[_MemberV1, ...]


class _GroupV2(msgspec.Struct, frozen=True, array_like=True):
    protocol_type: str
    generation: _Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: _Int64
    members: tuple[_MemberV1, ...]


class _GroupV3(msgspec.Struct, frozen=True, array_like=True):
    protocol_type: str
    generation: _Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: _Int64
    members: tuple[_MemberV3, ...]


_encode = msgspec.msgpack.Encoder().encode
_offset_key_decoder = msgspec.msgpack.Decoder(OffsetCommitKey)
_group_key_decoder = msgspec.msgpack.Decoder(GroupMetadataKey)
_offset_v0_decoder = msgspec.msgpack.Decoder(_OffsetV0)
_offset_v1_decoder = msgspec.msgpack.Decoder(_OffsetV1)
_offset_v3_decoder = msgspec.msgpack.Decoder(_OffsetV3)
_group_v0_decoder = msgspec.msgpack.Decoder(_GroupV0)
_group_v1_decoder = msgspec.msgpack.Decoder(_GroupV1)
_group_v2_decoder = msgspec.msgpack.Decoder(_GroupV2)
_group_v3_decoder = msgspec.msgpack.Decoder(_GroupV3)


def record_version(data: bytes) -> int:
    """Return the version that `data`, a key or a value, begins with.

    Raises: CorruptOffsetsRecord if it has no two bytes.
    """
    if len(data) < 2:
        raise CorruptOffsetsRecord(f"{len(data)} bytes hold no version")
    return int.from_bytes(data[:2], "big", signed=True)


def encode_offset_commit_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of the offset that `group` committed for a partition."""
    return _versioned(
        OFFSET_COMMIT_KEY_VERSION,
        OffsetCommitKey(group, topic_partition.topic, topic_partition.partition),
    )


def encode_group_metadata_key(group: str) -> bytes:
    """Return the key of `group`'s own record."""
    return _versioned(GROUP_METADATA_KEY_VERSION, GroupMetadataKey(group))


def decode_key(data: bytes) -> OffsetsKey:
    """Return what kind of record `data` is the key of; an unknown version is an UnknownKey.

    Raises: CorruptOffsetsRecord if the body does not fit the version.
    """
    version = record_version(data)
    try:
        if version in {0, OFFSET_COMMIT_KEY_VERSION}:
            return _offset_key_decoder.decode(data[2:])
        if version == GROUP_METADATA_KEY_VERSION:
            return _group_key_decoder.decode(data[2:])
    except msgspec.MsgspecError as error:
        raise CorruptOffsetsRecord(f"key of version {version}: {error}") from error
    return UnknownKey(version)


def encode_offset_commit_value(
    value: OffsetCommitValue, version: int = OFFSET_VALUE_VERSION
) -> bytes:
    """Return `value` in this version, 1 to 3, or in version 1 if it has an expiry.

    Below version 3 there is no leader epoch. Version 4 is never written.
    Raises: SimulationError for any other version.
    """
    if value.expire_timestamp_ms != -1:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
    if version == OFFSET_VALUE_VERSION:
        return _versioned(
            OFFSET_VALUE_VERSION,
            _OffsetV3(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms),
        )
    if version == 2:
        return _versioned(2, _OffsetV0(value.offset, value.metadata, value.commit_timestamp_ms))
    if version == OFFSET_VALUE_VERSION_WITH_EXPIRY:
        return _versioned(
            version,
            _OffsetV1(
                value.offset, value.metadata, value.commit_timestamp_ms, value.expire_timestamp_ms
            ),
        )
    raise SimulationError(f"offsets are not written in version {version}")


def decode_offset_commit_value(data: bytes) -> OffsetCommitValue:
    """Return the committed offset in `data`, versions 0 to 4.

    Raises: CorruptOffsetsRecord for another version, or if the body does not fit.
    """
    version = record_version(data)
    try:
        if version in {3, 4}:
            v3 = _offset_v3_decoder.decode(data[2:])
            return OffsetCommitValue(
                offset=v3.offset,
                leader_epoch=v3.leader_epoch,
                metadata=v3.metadata,
                commit_timestamp_ms=v3.commit_timestamp,
            )
        if version == 1:
            v1 = _offset_v1_decoder.decode(data[2:])
            return OffsetCommitValue(
                offset=v1.offset,
                metadata=v1.metadata,
                commit_timestamp_ms=v1.commit_timestamp,
                expire_timestamp_ms=v1.expire_timestamp,
            )
        if version in {0, 2}:
            v0 = _offset_v0_decoder.decode(data[2:])
            return OffsetCommitValue(
                offset=v0.offset, metadata=v0.metadata, commit_timestamp_ms=v0.commit_timestamp
            )
    except msgspec.MsgspecError as error:
        raise CorruptOffsetsRecord(f"offset value of version {version}: {error}") from error
    raise CorruptOffsetsRecord(f"unknown offset value version {version}")


def encode_group_metadata_value(
    value: GroupMetadataValue, version: int = GROUP_VALUE_VERSION
) -> bytes:
    """Return `value` in this version, 0 to 3; what the version has no field for is left out.

    Version 4 is never written. Raises: SimulationError for any other version.
    """
    body: msgspec.Struct
    if version == GROUP_VALUE_VERSION:
        body = _GroupV3(
            value.protocol_type,
            value.generation,
            value.protocol,
            value.leader,
            value.current_state_timestamp_ms,
            tuple(_member_v3(member) for member in value.members),
        )
    elif version == 2:
        body = _GroupV2(
            value.protocol_type,
            value.generation,
            value.protocol,
            value.leader,
            value.current_state_timestamp_ms,
            tuple(_member_v1(member) for member in value.members),
        )
    elif version == 1:
        body = _GroupV1(
            value.protocol_type,
            value.generation,
            value.protocol,
            value.leader,
            tuple(_member_v1(member) for member in value.members),
        )
    elif version == 0:
        body = _GroupV0(
            value.protocol_type,
            value.generation,
            value.protocol,
            value.leader,
            tuple(_member_v0(member) for member in value.members),
        )
    else:
        raise SimulationError(f"groups are not written in version {version}")
    return _versioned(version, body)


def _member_v3(member: MemberMetadataValue) -> _MemberV3:
    return _MemberV3(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.subscription,
        member.assignment,
    )


def _member_v1(member: MemberMetadataValue) -> _MemberV1:
    return _MemberV1(
        member.member_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.subscription,
        member.assignment,
    )


def _member_v0(member: MemberMetadataValue) -> _MemberV0:
    return _MemberV0(
        member.member_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.subscription,
        member.assignment,
    )


def decode_group_metadata_value(data: bytes) -> GroupMetadataValue:
    """Return the group in `data`, versions 0 to 4.

    Raises: CorruptOffsetsRecord naming the version if it is another, or if the body does not fit.
    """
    version = record_version(data)
    try:
        if version in {3, 4}:
            return _from_body(_group_v3_decoder.decode(data[2:]))
        if version == 2:
            return _from_body(_group_v2_decoder.decode(data[2:]))
        if version == 1:
            return _from_body(_group_v1_decoder.decode(data[2:]))
        if version == 0:
            return _from_body(_group_v0_decoder.decode(data[2:]))
    except msgspec.MsgspecError as error:
        raise CorruptOffsetsRecord(f"group value of version {version}: {error}") from error
    raise CorruptOffsetsRecord(f"unknown group value version {version}")


def _from_body(body: _GroupV0 | _GroupV1 | _GroupV2 | _GroupV3) -> GroupMetadataValue:
    timestamp = body.current_state_timestamp if isinstance(body, _GroupV2 | _GroupV3) else -1
    return GroupMetadataValue(
        protocol_type=body.protocol_type,
        generation=body.generation,
        protocol=body.protocol,
        leader=body.leader,
        current_state_timestamp_ms=timestamp,
        members=tuple(_member_from_body(member) for member in body.members),
    )


def _member_from_body(body: _MemberV0 | _MemberV1 | _MemberV3) -> MemberMetadataValue:
    return MemberMetadataValue(
        member_id=body.member_id,
        group_instance_id=body.group_instance_id if isinstance(body, _MemberV3) else None,
        client_id=body.client_id,
        client_host=body.client_host,
        rebalance_timeout_ms=-1 if isinstance(body, _MemberV0) else body.rebalance_timeout,
        session_timeout_ms=body.session_timeout,
        subscription=body.subscription,
        assignment=body.assignment,
    )


def _versioned(version: int, body: msgspec.Struct) -> bytes:
    return version.to_bytes(2, "big", signed=True) + _encode(body)
