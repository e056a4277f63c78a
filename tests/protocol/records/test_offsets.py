"""Records of the topic `__consumer_offsets`: versions that are written, and read.

There are two kinds of records: committed offsets, and the metadata of groups with their members.
The key and the value of a record have the same form: two bytes with a version, then the fields as
an array in MessagePack, a compact binary JSON. The version says which fields there are.

A broker writes one version, and also reads the versions that older and newer brokers write. A
function `encode_...` writes a key or value. `versioned(3, 9, 4, "m", 77)` of this module builds the
bytes of any version: version 3, then the fields.

Ids such as MM-62 are cases of Kafka's GroupMetadataManagerTest, listed in docs/kafka/BEHAVIOUR.md
10.3.
"""

import msgspec
import pytest

from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from protocol.records.versioned import CorruptRecord, record_version

MEMBER = MemberMetadataValue(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"sub",
    assignment=b"asg",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=5,
    protocol="range",
    leader="m-1",
    current_state_timestamp_ms=1_234,
    members=(MEMBER,),
)


def versioned(version: int, *body: object) -> bytes:
    """Return the bytes of a key or value, also in a version that our own brokers never write."""
    return version.to_bytes(2, "big", signed=True) + msgspec.msgpack.encode(body)


def test_offset_key_is_written_as_version_1_and_read_back() -> None:
    """Versions 0 and 1 have the same fields. Kafka writes 1."""
    data = encode_offset_commit_key("g", TopicPartition("t", 3))
    assert record_version(data) == 1
    assert decode_key(data) == OffsetCommitKey("g", "t", 3)
    assert decode_key(versioned(0, "g", "t", 3)) == OffsetCommitKey("g", "t", 3)


def test_group_key_is_version_2() -> None:
    """The version of a key also says what kind of record it is."""
    data = encode_group_metadata_key("g")
    assert record_version(data) == 2
    assert data == versioned(2, "g")
    assert decode_key(data) == GroupMetadataKey("g")


@pytest.mark.parametrize("version", [3, 14, 99, -1])
def test_key_of_an_unknown_version_is_recognised_and_no_error(version: int) -> None:
    """A coordinator of an older Kafka ignores records that only a newer Kafka knows."""
    assert decode_key(versioned(version, "whatever")) == UnknownKey(version)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00", id="half a version"),
        # In MessagePack no value begins with the byte C1.
        pytest.param(b"\x00\x01" + b"\xc1", id="version 1, a byte that MessagePack never has"),
        # The byte 93 begins an array of three elements.
        pytest.param(b"\x00\x02" + b"\x93", id="version 2, an array of 3 without its elements"),
    ],
)
def test_key_that_cannot_be_read_is_corrupt(data: bytes) -> None:
    """The version is incomplete, or its fields cannot be decoded."""
    with pytest.raises(CorruptRecord):
        decode_key(data)


@pytest.mark.parametrize("partition", [2**31, -(2**31) - 1])
def test_key_of_a_partition_that_is_no_int32_is_corrupt(partition: int) -> None:
    """Partition numbers are 32-bit integers, so Kafka never writes such a key."""
    with pytest.raises(CorruptRecord, match="key of version 1"):
        decode_key(versioned(1, "g", "t", partition))


def test_offset_value_without_expiry_is_written_as_version_3() -> None:
    """Version 3 has a field for the leader epoch, so the leader epoch is read back."""
    value = OffsetCommitValue(offset=9, leader_epoch=4, metadata="m", commit_timestamp_ms=77)
    data = encode_offset_commit_value(value)
    assert record_version(data) == 3
    assert decode_offset_commit_value(data) == value


def test_offset_value_with_expiry_is_written_as_version_1_without_epoch() -> None:
    """Only version 1 has a field for the expiry. It has no field for the leader epoch."""
    value = OffsetCommitValue(
        offset=9, leader_epoch=4, metadata="m", commit_timestamp_ms=77, expire_timestamp_ms=99
    )
    data = encode_offset_commit_value(value)
    assert record_version(data) == 1
    read = decode_offset_commit_value(data)
    assert read.offset == 9
    assert read.leader_epoch == -1  # unknown
    assert read.expire_timestamp_ms == 99


@pytest.mark.parametrize(
    ("data", "epoch", "expiry"),
    [
        # Fields of versions 0 and 2: offset, metadata, commit time.
        (versioned(0, 9, "m", 77), -1, -1),
        (versioned(2, 9, "m", 77), -1, -1),
        # Version 1 also has the time at which the offset expires.
        (versioned(1, 9, "m", 77, 99), -1, 99),
        # Versions 3 and 4 have the leader epoch after the offset. Version 4 also has tagged fields:
        # a map from numbers to values.
        (versioned(3, 9, 4, "m", 77), 4, -1),
        (versioned(4, 9, 4, "m", 77), 4, -1),
        (versioned(4, 9, 4, "m", 77, {5: b"a tagged field"}), 4, -1),
        (versioned(4, 9, 4, "m", 77, {5: b"a tagged field", 9: b""}, "a newer field"), 4, -1),
    ],
)
def test_offset_value_of_every_version_is_read(data: bytes, epoch: int, expiry: int) -> None:
    """All values have offset 9, metadata "m" and commit time 77.

    The leader epoch and the expiry are -1 if the version has no such field. Unknown fields at the
    end are skipped.

    MM-62: commit record of version 4 is read.
    MM-63: commit record with unknown tagged fields.
    """
    assert decode_offset_commit_value(data) == OffsetCommitValue(
        offset=9,
        leader_epoch=epoch,
        metadata="m",
        commit_timestamp_ms=77,
        expire_timestamp_ms=expiry,
    )


@pytest.mark.parametrize(("version", "epoch_read"), [(1, -1), (2, -1), (3, 4)])
def test_offset_value_is_written_in_the_given_version(version: int, epoch_read: int) -> None:
    """Versions below 3 have no field for the leader epoch, so the leader epoch is lost."""
    value = OffsetCommitValue(offset=9, leader_epoch=4, metadata="m", commit_timestamp_ms=77)
    data = encode_offset_commit_value(value, version)
    assert record_version(data) == version
    read = decode_offset_commit_value(data)
    assert read == msgspec.structs.replace(value, leader_epoch=epoch_read)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_offset_value_with_expiry_is_version_1_whatever_version_is_given(version: int) -> None:
    """Only version 1 has a field for the expiry."""
    value = OffsetCommitValue(offset=9, commit_timestamp_ms=77, expire_timestamp_ms=99)
    data = encode_offset_commit_value(value, version)
    assert record_version(data) == 1
    assert decode_offset_commit_value(data) == value


INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
OFFSET_FIELDS = (7, "", 1_000, 2_000)
"""Fields of an offset's value, version 1: offset, metadata, commit time, expiry time."""
GROUP_FIELDS = ("consumer", 5, None, None, 1_234, ())
"""Fields of a group's value, version 2.

The fields are protocol type, generation, protocol, leader, time of the last change of state, and
members.
"""


def with_integer(fields: tuple[object, ...], index: int, value: int) -> tuple[object, ...]:
    """Return the fields with `value` at this index."""
    return (*fields[:index], value, *fields[index + 1 :])


@pytest.mark.parametrize("index", [0, 2, 3], ids=["offset", "commit timestamp", "expire timestamp"])
def test_integer_of_an_offset_value_is_an_int64(index: int) -> None:
    """Each of these fields is a 64-bit integer in Kafka.

    The largest such integer is read. A value with a larger number in the field is corrupt.
    """
    largest = with_integer(OFFSET_FIELDS, index, INT64_MAX)
    read = decode_offset_commit_value(versioned(1, *largest))
    assert INT64_MAX in (read.offset, read.commit_timestamp_ms, read.expire_timestamp_ms)

    too_large = with_integer(OFFSET_FIELDS, index, INT64_MAX + 1)
    with pytest.raises(CorruptRecord):
        decode_offset_commit_value(versioned(1, *too_large))


@pytest.mark.parametrize(
    ("index", "maximum"), [(1, INT32_MAX), (4, INT64_MAX)], ids=["generation", "state timestamp"]
)
def test_integer_of_a_group_value_has_kafkas_width(index: int, maximum: int) -> None:
    """A generation has 32 bits, and the time of the last change of state has 64 bits."""
    largest = with_integer(GROUP_FIELDS, index, maximum)
    read = decode_group_metadata_value(versioned(2, *largest))
    assert maximum in (read.generation, read.current_state_timestamp_ms)

    too_large = with_integer(GROUP_FIELDS, index, maximum + 1)
    with pytest.raises(CorruptRecord):
        decode_group_metadata_value(versioned(2, *too_large))


@pytest.mark.parametrize("version", [-1, 0, 4])
def test_offset_value_is_refused_in_any_other_version(version: int) -> None:
    """Only versions 1 to 3 can be written.

    Version 0 is a format of old brokers, which is only read. Version 4 is only read, too, because
    older brokers could not read it.
    """
    with pytest.raises(SimulationError, match="version"):
        encode_offset_commit_value(OffsetCommitValue(offset=9, commit_timestamp_ms=7), version)


@pytest.mark.parametrize(
    ("version", "defaults"),
    [
        (0, {"rebalance_timeout_ms": -1, "group_instance_id": None}),
        (1, {"group_instance_id": None}),
        (2, {"group_instance_id": None}),
        (3, {}),
    ],
)
def test_group_value_is_written_in_the_given_version(
    version: int, defaults: dict[str, int | None]
) -> None:
    """Fields that an old version lacks are read back with their default values."""
    data = encode_group_metadata_value(GROUP, version)
    assert record_version(data) == version
    # Versions below 2 lack the time of the last change of state.
    timestamp_ms = -1 if version < 2 else 1_234
    member_read = msgspec.structs.replace(MEMBER, **defaults)
    assert decode_group_metadata_value(data) == msgspec.structs.replace(
        GROUP, members=(member_read,), current_state_timestamp_ms=timestamp_ms
    )


@pytest.mark.parametrize("version", [-1, 4])
def test_group_value_is_refused_in_any_other_version(version: int) -> None:
    """Version 4 is read but not written, as for the value of an offset."""
    with pytest.raises(SimulationError, match="version"):
        encode_group_metadata_value(GROUP, version)


def test_group_value_is_written_as_version_3_and_read_back() -> None:
    """Version 3 has all fields of GROUP, so nothing is lost."""
    data = encode_group_metadata_value(GROUP)
    assert record_version(data) == 3
    assert decode_group_metadata_value(data) == GROUP


def test_group_value_of_an_empty_group_has_neither_protocol_nor_leader() -> None:
    """The coordinator writes such a value when the last member leaves."""
    value = GroupMetadataValue(protocol_type="consumer", generation=6, protocol=None, leader=None)
    assert decode_group_metadata_value(encode_group_metadata_value(value)) == value


@pytest.mark.parametrize(
    ("data", "rebalance_timeout_ms", "timestamp_ms", "instance_id"),
    [
        # The fields of the group are protocol type, generation, protocol, leader and members. The
        # fields of a member are member id, client id, host, session timeout, subscription and
        # assignment.
        (
            versioned(0, "consumer", 5, "range", "m-1", [["m-1", "c", "/h", 45_000, b"s", b"a"]]),
            -1,
            -1,
            None,
        ),
        # New in version 1: the member's rebalance timeout, 3 ms, before its session timeout.
        (
            versioned(
                1, "consumer", 5, "range", "m-1", [["m-1", "c", "/h", 3, 45_000, b"s", b"a"]]
            ),
            3,
            -1,
            None,
        ),
        # New in version 2: the time of the group's last change of state, 8 ms, before the members.
        (
            versioned(
                2, "consumer", 5, "range", "m-1", 8, [["m-1", "c", "/h", 3, 45_000, b"s", b"a"]]
            ),
            3,
            8,
            None,
        ),
        # New in version 3: the instance id of a static member, "i". New in version 4: the tagged
        # fields of the member and of the group, each a map from numbers to values.
        (
            versioned(
                4,
                "consumer",
                5,
                "range",
                "m-1",
                8,
                [["m-1", "i", "c", "/h", 3, 45_000, b"s", b"a", {0: b"tagged"}]],
                {7: b"tagged"},
            ),
            3,
            8,
            "i",
        ),
    ],
)
def test_group_value_of_every_version_is_read(
    data: bytes, rebalance_timeout_ms: int, timestamp_ms: int, instance_id: str | None
) -> None:
    """A field that a version lacks is read as -1 or None.

    Version 3 is missing here, because a test above writes and reads it.
    MM-61: group record of version 4 is read.
    MM-64: group record with unknown tagged fields.
    """
    value = decode_group_metadata_value(data)
    member = value.members[0]
    assert value.generation == 5
    assert value.current_state_timestamp_ms == timestamp_ms
    assert member.rebalance_timeout_ms == rebalance_timeout_ms
    assert member.session_timeout_ms == 45_000
    assert member.group_instance_id == instance_id


def test_group_value_of_an_unknown_version_is_an_error_that_names_it() -> None:
    """The fields of a later version are unknown, so the value cannot be read."""
    with pytest.raises(CorruptRecord, match="group value version 5"):
        decode_group_metadata_value(versioned(5, "x"))


def test_offset_value_of_an_unknown_version_is_an_error_that_names_it() -> None:
    """The fields of a later version are unknown, so the value cannot be read."""
    with pytest.raises(CorruptRecord, match="offset value version 5"):
        decode_offset_commit_value(versioned(5, 1))


def test_values_with_fields_of_wrong_types_are_corrupt() -> None:
    """The first field of an offset must be a number, and the first field of a group must be a text.

    Here it is the other way round. The version is known.
    """
    with pytest.raises(CorruptRecord, match="version 3"):
        decode_offset_commit_value(versioned(3, "no offset"))
    with pytest.raises(CorruptRecord, match="version 3"):
        decode_group_metadata_value(versioned(3, 1))
