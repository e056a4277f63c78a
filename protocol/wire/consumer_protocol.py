"""Encoding of the subscriptions and assignments of consumers.

In its JoinGroup a member sends its subscription: the topics that it wants to read. The group's
leader gets all subscriptions, computes an assignment for each member, and sends the assignments in
its SyncGroup. The coordinator passes subscriptions and assignments on as bytes. It reads only the
topics of a subscription.

Numbers are big-endian. A string begins with an int16 length. Arrays and bytes begin with an int32
length. A length of -1 means null. Each version has all fields of the previous version, and after
them its new fields. So a reader that knows only an older version can ignore the bytes that follow.

Source: Kafka `ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json`,
`ConsumerProtocol`; the two kinds of errors: docs/kafka/BEHAVIOUR.md 0.1.
"""

import struct

import msgspec

from protocol.ids import TopicPartition

LATEST_VERSION = 3
"""Newest version of both structures that Kafka defines."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT16_MAX = 32_767


class ConsumerProtocolError(ValueError):
    """A version is unknown or negative, or a length is negative or too large."""


class TruncatedConsumerProtocol(ConsumerProtocolError):
    """The bytes end in the middle of a number. Kafka's coordinator tolerates only this error."""


class TopicPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """Some partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


class ConsumerProtocolSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that a member wants, and what the assignment algorithm must know about the member.

    v1 adds `owned_partitions`, v2 adds `generation_id` (-1 for none), and v3 adds `rack_id`.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartitions, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class ConsumerProtocolAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that the leader assigns to one member. All versions have the same fields."""

    assigned_partitions: tuple[TopicPartitions, ...]
    user_data: bytes | None = None

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions one by one, in the order of the assignment."""
        return tuple(
            TopicPartition(entry.topic, partition)
            for entry in self.assigned_partitions
            for partition in entry.partitions
        )


def encode_subscription(
    subscription: ConsumerProtocolSubscription, version: int = LATEST_VERSION
) -> bytes:
    """Return the bytes of `subscription`, without the fields that `version` does not have.

    Raises: ConsumerProtocolError for an unknown version or a string over 32,767 bytes.
    """
    out = bytearray(_version_header(version))
    out += _INT32.pack(len(subscription.topics))
    for topic in subscription.topics:
        _write_string(out, topic)
    _write_nullable_bytes(out, subscription.user_data)
    if version >= 1:
        _write_topic_partitions(out, subscription.owned_partitions)
    if version >= 2:
        out += _INT32.pack(subscription.generation_id)
    if version >= 3:
        _write_nullable_string(out, subscription.rack_id)
    return bytes(out)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription in `data`, as an assignor reads it.

    A newer version is read as the newest known version. Bytes after the known fields are ignored.

    Raises: ConsumerProtocolError, TruncatedConsumerProtocol.
    Source: Kafka `ConsumerProtocol.deserializeSubscription`.
    """
    reader = _Reader(data)
    version = _checked_version(reader)
    topics = reader.strings()
    user_data = reader.nullable_bytes()
    # Each argument reads the next bytes, so the arguments must be in the order of the bytes.
    return ConsumerProtocolSubscription(
        topics=topics,
        user_data=user_data,
        owned_partitions=reader.topic_partitions() if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else -1,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def decode_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Return the topics of the subscription in `data`, as the coordinator reads them.

    Raises: TruncatedConsumerProtocol. Then the coordinator treats the topics as unknown. Any other
        ConsumerProtocolError makes the join phase fail.
    Source: Kafka `GroupMetadata.computeSubscribedTopics`; docs/kafka/BEHAVIOUR.md 4.7, and 0.1 on
    the errors.
    """
    reader = _Reader(data)
    # As in Kafka, the version does not matter, because every version begins with the fields of v0.
    reader.int16()
    topics = reader.strings()
    # The user data is not needed. But Kafka reads the user data, which may raise an error.
    reader.nullable_bytes()
    return topics


def encode_assignment(
    assignment: ConsumerProtocolAssignment, version: int = LATEST_VERSION
) -> bytes:
    """Return the bytes of `assignment`.

    Raises: ConsumerProtocolError for an unknown version or a string over 32,767 bytes.
    """
    out = bytearray(_version_header(version))
    _write_topic_partitions(out, assignment.assigned_partitions)
    _write_nullable_bytes(out, assignment.user_data)
    return bytes(out)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return the assignment in `data`.

    A member without an assignment has empty bytes, which the caller must not pass.
    Raises: ConsumerProtocolError, TruncatedConsumerProtocol.
    """
    reader = _Reader(data)
    _checked_version(reader)
    assigned = reader.topic_partitions()
    return ConsumerProtocolAssignment(
        assigned_partitions=assigned, user_data=reader.nullable_bytes()
    )


def _version_header(version: int) -> bytes:
    if not 0 <= version <= LATEST_VERSION:
        raise ConsumerProtocolError(f"expected a version from 0 to {LATEST_VERSION}, got {version}")
    return _INT16.pack(version)


def _checked_version(reader: "_Reader") -> int:
    """Read a version and return it. In place of a newer version, return the newest known one."""
    version = reader.int16()
    if version < 0:
        raise ConsumerProtocolError(f"unsupported version {version}")
    return min(version, LATEST_VERSION)


def _write_string(out: bytearray, text: str) -> None:
    data = text.encode()
    if len(data) > _INT16_MAX:
        raise ConsumerProtocolError(f"string of {len(data)} bytes, at most {_INT16_MAX} fit")
    out += _INT16.pack(len(data))
    out += data


def _write_nullable_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _INT16.pack(-1)
    else:
        _write_string(out, text)


def _write_nullable_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _INT32.pack(-1)
    else:
        out += _INT32.pack(len(data))
        out += data


def _write_topic_partitions(out: bytearray, entries: tuple[TopicPartitions, ...]) -> None:
    out += _INT32.pack(len(entries))
    for entry in entries:
        _write_string(out, entry.topic)
        # First an int32 with the number of partitions, then an int32 for each partition.
        out += struct.pack(f">i{len(entry.partitions)}i", len(entry.partitions), *entry.partitions)


class _Reader:
    """Reads Kafka's primitive types from bytes one by one, and checks every length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        value: int = _INT16.unpack(self._fixed(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._fixed(4))[0]
        return value

    def strings(self) -> tuple[str, ...]:
        return tuple(self._string() for _ in range(self._array_length()))

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._text(length)

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def topic_partitions(self) -> tuple[TopicPartitions, ...]:
        # Python evaluates the `range` of a generator expression first. So the bytes are read in
        # this order: the number of topics (in the last line), and for each topic its name, the
        # number of its partitions, and the partitions.
        return tuple(
            TopicPartitions(
                topic=self._string(),
                partitions=tuple(self.int32() for _ in range(self._array_length())),
            )
            for _ in range(self._array_length())
        )

    def _string(self) -> str:
        length = self.int16()
        if length < 0:
            raise ConsumerProtocolError("null where a string must be")
        return self._text(length)

    def _text(self, length: int) -> str:
        # As in Java, malformed UTF-8 is replaced and raises no error.
        return self._take(length).decode(errors="replace")

    def _array_length(self) -> int:
        length = self.int32()
        if length < 0:
            raise ConsumerProtocolError("null where an array must be")
        # Every element takes at least one byte, so a larger length must be wrong. The length in
        # corrupt bytes may be huge, and the caller would loop for very long.
        if length > len(self._data) - self._at:
            raise ConsumerProtocolError(
                f"array of {length} elements in {len(self._data) - self._at} bytes"
            )
        return length

    def _fixed(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise TruncatedConsumerProtocol(f"{len(self._data)} bytes end inside a number")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ConsumerProtocolError(
                f"{size} bytes announced, {len(self._data) - self._at} are left"
            )
        data = self._data[self._at : end]
        self._at = end
        return data
