"""The bytes of the consumer protocol are the same as those of Kafka's own classes.

A consumer sends its subscription with JoinGroup: the topics that it wants to read. With the answer
to SyncGroup it gets its assignment: the partitions that it shall read. Subscription and assignment
are bytes, of which the first two bytes are a version. "BEHAVIOUR 4.7" is a section of
docs/kafka/BEHAVIOUR.md.
"""

import pytest

from protocol.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolError,
    ConsumerProtocolSubscription,
    TopicPartitions,
    TruncatedConsumerProtocol,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

FULL = ConsumerProtocolSubscription(
    topics=("t0", "t1"),
    user_data=b"1.0",
    owned_partitions=(TopicPartitions(topic="t0", partitions=(0, 2)),),
    generation_id=7,
    rack_id="rack-a",
)


def test_subscription_of_a_recording_is_read_and_written() -> None:
    """The bytes are from recording `fuzz-0106` of a real Kafka 3.9.1.

    The bytes have version 1 in two bytes, two topics, user data "1.0", and no owned partitions.
    """
    data = bytes.fromhex("000100000002000274300002743100000003312e3000000000")
    subscription = decode_subscription(data)
    assert subscription == ConsumerProtocolSubscription(topics=("t0", "t1"), user_data=b"1.0")
    assert encode_subscription(subscription, 1) == data


@pytest.mark.parametrize("version", range(4))
def test_subscription_of_each_version_keeps_the_fields_of_the_version(version: int) -> None:
    """v1 added the owned partitions, v2 the generation, and v3 the rack."""
    read = decode_subscription(encode_subscription(FULL, version))
    assert read == ConsumerProtocolSubscription(
        topics=FULL.topics,
        user_data=FULL.user_data,
        owned_partitions=FULL.owned_partitions if version >= 1 else (),
        generation_id=FULL.generation_id if version >= 2 else -1,  # -1: unknown
        rack_id=FULL.rack_id if version >= 3 else None,
    )


def test_subscription_without_user_data_has_length_minus_one() -> None:
    """The length -1 means that there is no user data, which differs from empty user data."""
    data = encode_subscription(ConsumerProtocolSubscription(topics=()), 0)
    assert data == bytes.fromhex("000000000000ffffffff")
    assert decode_subscription(data).user_data is None


def test_subscription_of_a_later_version_is_read_as_the_newest() -> None:
    """A client may be newer than the client that assigns the partitions.

    The fields of newer versions are at the end, and can be ignored.
    """
    version_9 = b"\x00\x09" + encode_subscription(FULL, 3)[2:] + b"fields of newer versions"
    assert decode_subscription(version_9) == FULL


def test_assignment_has_kafkas_bytes_and_is_read_back() -> None:
    """The bytes are the version, an array of topics with their partitions, and the user data."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=(TopicPartitions(topic="foo", partitions=(0, 1)),), user_data=b"u"
    )
    data = encode_assignment(assignment, 1)
    assert data == bytes.fromhex("0001000000010003666f6f0000000200000000000000010000000175")
    assert decode_assignment(data) == assignment
    assert [str(partition) for partition in assignment.partitions()] == ["foo-0", "foo-1"]


def test_subscribed_topics_are_read_with_the_fields_of_version_0() -> None:
    """The coordinator reads only the topics, which are the first field of every version.

    The coordinator does not look at the version, which is -1 here (BEHAVIOUR 4.7).
    """
    version_minus_1 = b"\xff\xff" + encode_subscription(FULL, 3)[2:]
    assert decode_subscribed_topics(version_minus_1) == ("t0", "t1")


@pytest.mark.parametrize("length", range(12))
def test_truncated_subscription_is_a_consumer_protocol_error(length: int) -> None:
    """The whole subscription has 14 bytes. Each of these prefixes ends inside a field."""
    data = encode_subscription(ConsumerProtocolSubscription(topics=("ab",)), 0)[:length]
    with pytest.raises(ConsumerProtocolError):
        decode_subscribed_topics(data)


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\x01", b"\x00\x01\x00\x00"])
def test_subscription_that_ends_inside_a_number_is_truncated(data: bytes) -> None:
    """Kafka's coordinator accepts such bytes. It treats the topics of the member as unknown."""
    with pytest.raises(TruncatedConsumerProtocol):
        decode_subscribed_topics(data)


@pytest.mark.parametrize(
    "data",
    [
        # Read as a subscription, "me" is the version, and "ta-c" is the length of an array,
        # 1,952,525,667.
        b"meta-c1",
        bytes.fromhex("0000ffffffff"),  # a null array
        bytes.fromhex("000000000001ffff"),  # a null string
        bytes.fromhex("00000000000100096162"),  # a string longer than the rest
        bytes.fromhex("00000000000000000009"),  # user data longer than the rest
    ],
)
def test_subscription_with_an_impossible_length_is_unreadable(data: bytes) -> None:
    """Kafka raises an exception here, and the join phase fails (BEHAVIOUR 0.1)."""
    with pytest.raises(ConsumerProtocolError) as raised:
        decode_subscribed_topics(data)
    assert not isinstance(raised.value, TruncatedConsumerProtocol)


def test_unknown_version_is_not_written() -> None:
    """No client could read the bytes."""
    with pytest.raises(ConsumerProtocolError, match="expected a version from 0 to 3, got 4"):
        encode_subscription(FULL, 4)


def test_string_over_the_limit_is_not_written() -> None:
    """The length of a string is a signed number of 16 bits, so it is at most 32,767."""
    with pytest.raises(ConsumerProtocolError, match="32768 bytes"):
        encode_subscription(ConsumerProtocolSubscription(topics=("x" * 32_768,)))
