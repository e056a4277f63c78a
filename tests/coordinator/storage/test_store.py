"""Records that groups write to the log, and the versions of these records.

A coordinator stores a group and its committed offsets as records in the topic `__consumer_offsets`.
The value of a record has a version, which says what fields the value has. While a cluster is
upgraded, old brokers must still be able to read the records. So the setting
`inter_broker_protocol_version`, the oldest Kafka version among the brokers, decides in which
version a record is written.

In these tests `h` is a CoordinatorHarness: a coordinator with its log and timers. `h.log[0]` is the
list of batches in its only partition. `h.stable_group(n)` gives the coordinator a Stable group of
`n` members, whose assignments are stored. `h.failover()` returns another coordinator, which has
loaded a copy of the log.

Kafka's records are in docs/kafka/BEHAVIOUR.md 5.1 and 5.2. Ids such as MM-33 are cases of Kafka's
tests, in section 10.3 of that page.
"""

import pytest

from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.store import group_record
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.metadata_version import ValueVersions
from protocol.records.batch import Record, decode_records
from protocol.records.offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)
from protocol.records.versioned import record_version
from tests.support.builders.requests import GROUP, offset_commit
from tests.support.harness.coordinator_harness import EPOCH_US, CoordinatorHarness


def harness(version: str = "3.9") -> CoordinatorHarness:
    """Return a coordinator with this `inter_broker_protocol_version`."""
    return CoordinatorHarness(
        config=BrokerConfig(
            group_initial_rebalance_delay_ms=0, inter_broker_protocol_version=version
        )
    )


def records_in_log(h: CoordinatorHarness) -> list[Record]:
    """Return the records in the log."""
    return [record for batch in h.log[0] for record in decode_records(batch.records)]


def value_of(record: Record) -> bytes:
    """Return the value of a record that is no tombstone."""
    assert record.value is not None
    return record.value


def test_group_of_an_old_record_has_no_state_timestamp() -> None:
    """A record of an old version does not have the time at which the group entered its state.

    When such a group is stored again, in a newer version, Kafka writes this time as -1.
    """
    group = Group("g", partition=0, state=GroupState.EMPTY, now_us=1)
    group.current_state_timestamp_ms = None
    no_assignments: dict[str, bytes] = {}
    now_ms = 7
    record = group_record(group, no_assignments, now_ms, ValueVersions(group=3, offset=3))
    value = decode_group_metadata_value(value_of(record))
    assert value.current_state_timestamp_ms == -1
    assert record.timestamp_ms == now_ms


def test_simple_group_is_stored_as_its_offsets_alone() -> None:
    """A group that only commits offsets, without members, has no record of its own.

    MM-33: record of a simple group
    """
    h = harness()
    h.commit(offset_commit({("foo", 0): 5, ("bar", 1): 6}, metadata="m", leader_epoch=2))
    of_foo, of_bar = records_in_log(h)
    assert decode_key(of_foo.key or b"") == OffsetCommitKey(GROUP, "foo", 0)
    assert decode_key(of_bar.key or b"") == OffsetCommitKey(GROUP, "bar", 1)
    assert decode_offset_commit_value(value_of(of_foo)) == OffsetCommitValue(
        offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=EPOCH_US // 1_000
    )
    assert len(h.log[0]) == 1  # one batch
    assert h.group().generation_id == 0
    assert h.group().protocol_type is None


def test_group_with_members_is_stored_with_one_append() -> None:
    """The leader's SyncGroup stores the group with all its members. A JoinGroup stores nothing.

    MM-35: storing a group with a member
    """
    h = harness()
    ids = h.stable_group(size=2)
    assert len(h.log[0]) == 1  # one batch
    (record,) = records_in_log(h)
    value = decode_group_metadata_value(value_of(record))
    assert value.generation == 1
    assert value.protocol == "range"
    assert value.leader == ids[0]
    assert [member.member_id for member in value.members] == ids
    assignments = [member.assignment for member in value.members]
    assert assignments == [b"for-" + member_id.encode() for member_id in ids]


@pytest.mark.parametrize(
    ("version", "group_version", "offset_version"),
    [
        ("0.9.0", 0, 1),
        ("0.10.2", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.2", 2, 3),
        ("2.3-IV0", 3, 3),
        ("3.9", 3, 3),
    ],
)
def test_values_are_written_in_the_version_of_inter_broker_protocol_version(
    version: str, group_version: int, offset_version: int
) -> None:
    """From version 2 on, a group's record has the time at which the group entered its state.

    From version 3 on, an offset's record has the leader epoch.

    MM-56: version of a commit's record by inter-broker protocol
    MM-58: version of a commit's record without an expiry
    MM-59: version of a group's record now
    MM-60: version of a commit's record now
    MM-30: when a group record has the time of its state
    """
    h = harness(version)
    (member_id,) = h.stable_group(size=1)
    h.commit(offset_commit({("foo", 0): 5}, member_id, generation_id=1, leader_epoch=2))
    of_group, of_offset = records_in_log(h)

    assert record_version(value_of(of_group)) == group_version
    timestamp_ms = decode_group_metadata_value(value_of(of_group)).current_state_timestamp_ms
    assert timestamp_ms == (EPOCH_US // 1_000 if group_version >= 2 else -1)

    assert record_version(value_of(of_offset)) == offset_version
    epoch = decode_offset_commit_value(value_of(of_offset)).leader_epoch
    assert epoch == (2 if offset_version == 3 else -1)

    other = h.failover()
    assert other.state() is GroupState.STABLE
    assert other.offset("foo", 0) == 5
    assert (other.group().current_state_timestamp_ms is None) == (group_version < 2)


@pytest.mark.parametrize("version", ["1.1", "2.1-IV0", "3.9"])
def test_commit_with_an_expiry_of_its_own_is_written_as_version_1(version: str) -> None:
    """A client can say for how long its offset shall be kept.

    Of the versions of an offset's record, only version 1 has a field for the end of this time.

    MM-54: commit with retention, old version: expiry is loaded
    MM-57: version of a commit's record with an expiry
    """
    h = harness(version)
    # Version 4 of OffsetCommit is the last version with the field retention_time_ms.
    h.commit(offset_commit({("foo", 0): 5}, retention_time_ms=1_000), version=4)
    (record,) = records_in_log(h)
    assert record_version(value_of(record)) == 1
    expires_ms = EPOCH_US // 1_000 + 1_000
    assert decode_offset_commit_value(value_of(record)).expire_timestamp_ms == expires_ms
    loaded = h.failover().group().offsets.get(TopicPartition("foo", 0))
    assert loaded is not None
    assert loaded.expire_timestamp_ms == expires_ms


def test_adding_a_group_keeps_the_existing_group_of_its_id() -> None:
    """A shard has the groups of one partition in memory.

    A caller that adds or creates a group under an existing id gets the existing group.

    MM-24: the first group under an id stays
    """
    shard = Shard(0)
    # The two groups differ in the time of their creation.
    first = Group("g", partition=0, state=GroupState.EMPTY, now_us=1)
    second = Group("g", partition=0, state=GroupState.EMPTY, now_us=2)
    assert shard.add(first) is first
    assert shard.add(second) is first
    assert shard.create_group("g", now_us=3) is first
    assert shard.groups == {"g": first}


def test_removing_a_group_keeps_a_later_group_with_the_same_id() -> None:
    """`remove` removes only the given group object, and returns True if the shard had it."""
    shard = Shard(0)
    group = shard.create_group("g", now_us=1)
    assert shard.remove(group)
    assert not shard.remove(group)
    later_group = shard.create_group("g", now_us=2)
    assert not shard.remove(group)
    assert shard.groups == {"g": later_group}


def test_stable_fetch_finds_the_commit_beside_one_with_too_much_metadata() -> None:
    """A partition with too large metadata gets no offset, not even a pending offset.

    MM-45: one of two with metadata too large, fetched stable
    """
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4))
    large = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="large"
    )
    fits = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=6, committed_metadata="fits"
    )
    topic = OffsetCommitRequestTopic(name="foo", partitions=(large, fits))
    assert h.commit(OffsetCommitRequest(group_id=GROUP, topics=(topic,))) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    refused = h.fetched("foo", 0, require_stable=True)
    assert refused.error_code is ErrorCode.NONE
    assert refused.committed_offset == -1
    assert refused.metadata == ""
    committed = h.fetched("foo", 1, require_stable=True)
    assert committed.error_code is ErrorCode.NONE
    assert committed.committed_offset == 6
    assert committed.metadata == "fits"
