"""Records that groups write to the log, and the versions of these records.

`h` is a CoordinatorHarness: a coordinator with a log of one offsets partition (a partition of
`__consumer_offsets`, which stores groups and their committed offsets).

- `h.log` has a list of batches for each partition.
- `h.stable_group(n)` brings `n` members to Stable: all have an assignment.
- `h.failover()` returns another coordinator, which has loaded a copy of the log.
- A shard holds the groups of one offsets partition in memory.
- The setting `inter_broker_protocol_version` is the Kafka version that all brokers understand. It
  decides in which version a record is written.

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


def written(h: CoordinatorHarness) -> list[Record]:
    """Return the records in the log."""
    return [record for batch in h.log[0] for record in decode_records(batch.records)]


def value_of(record: Record) -> bytes:
    """Return the value of a record that is no tombstone."""
    assert record.value is not None
    return record.value


def test_group_of_an_old_record_has_no_state_timestamp() -> None:
    """An old record has no timestamp. When the group is stored again, Kafka writes it as -1."""
    group = Group("g", 0, GroupState.EMPTY, 1)
    group.current_state_timestamp_ms = None
    record = group_record(group, {}, 7, ValueVersions(group=3, offset=3))  # no assignments; at 7 ms
    value = decode_group_metadata_value(value_of(record))
    assert (value.current_state_timestamp_ms, record.timestamp_ms) == (-1, 7)


def test_simple_group_is_stored_as_its_offsets_alone() -> None:
    """A simple group (generation 0, no protocol type) has no record of its own.

    MM-33: record of a simple group
    """
    h = harness()
    h.commit(offset_commit({("foo", 0): 5, ("bar", 1): 6}, metadata="m", leader_epoch=2))
    (batch,) = h.log[0]
    first, second = decode_records(batch.records)
    assert decode_key(first.key or b"") == OffsetCommitKey(GROUP, "foo", 0)
    assert decode_key(second.key or b"") == OffsetCommitKey(GROUP, "bar", 1)
    assert decode_offset_commit_value(value_of(first)) == OffsetCommitValue(
        offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=EPOCH_US // 1_000
    )
    assert (h.group().generation_id, h.group().protocol_type) == (0, None)


def test_group_with_members_is_stored_with_one_append() -> None:
    """The leader's SyncGroup stores the group, with all members; a JoinGroup stores nothing.

    MM-35: storing a group with a member
    """
    h = harness()
    ids = h.stable_group(size=2)
    # Exactly one batch, with exactly one record.
    ((record,),) = (decode_records(batch.records) for batch in h.log[0])
    value = decode_group_metadata_value(value_of(record))
    assert (value.generation, value.protocol, value.leader) == (1, "range", ids[0])
    assert [member.member_id for member in value.members] == ids
    assert [member.assignment for member in value.members] == [b"for-" + i.encode() for i in ids]


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
    """A group's record has the time of its state from record version 2 on.

    MM-56: version of a commit's record by inter-broker protocol
    MM-58: version of a commit's record without an expiry
    MM-59: version of a group's record now
    MM-60: version of a commit's record now
    MM-30: when a group record has the time of its state
    """
    h = harness(version)
    (member_id,) = h.stable_group(size=1)
    h.commit(offset_commit({("foo", 0): 5}, member_id, generation_id=1, leader_epoch=2))
    stored, committed = written(h)

    assert record_version(value_of(stored)) == group_version
    timestamp_ms = decode_group_metadata_value(value_of(stored)).current_state_timestamp_ms
    assert timestamp_ms == (EPOCH_US // 1_000 if group_version >= 2 else -1)

    assert record_version(value_of(committed)) == offset_version
    # Version 3 of a commit's record is the first with a leader epoch.
    epoch = decode_offset_commit_value(value_of(committed)).leader_epoch
    assert epoch == (2 if offset_version == 3 else -1)

    after = h.failover()
    assert (after.state(), after.offset("foo", 0)) == (GroupState.STABLE, 5)
    assert (after.group().current_state_timestamp_ms is None) == (group_version < 2)


@pytest.mark.parametrize("version", ["1.1", "2.1-IV0", "3.9"])
def test_commit_with_an_expiry_of_its_own_is_written_as_version_1(version: str) -> None:
    """Newer versions of the record have no field for the expiry.

    MM-54: commit with retention, old version: expiry is loaded
    MM-57: version of a commit's record with an expiry
    """
    h = harness(version)
    h.commit(offset_commit({("foo", 0): 5}, retention_time_ms=1_000), version=4)
    (record,) = written(h)
    assert record_version(value_of(record)) == 1
    expires_ms = EPOCH_US // 1_000 + 1_000
    assert decode_offset_commit_value(value_of(record)).expire_timestamp_ms == expires_ms
    stored = h.failover().group().offsets.get(TopicPartition("foo", 0))
    assert stored is not None
    assert stored.expire_timestamp_ms == expires_ms


def test_adding_a_group_keeps_the_existing_group_of_its_id() -> None:
    """A caller that adds or creates a group under an existing id gets the existing group.

    MM-24: the first group under an id stays
    """
    shard = Shard(0)
    # The last argument is the time of the creation, which differs in each group.
    first = Group("g", 0, GroupState.EMPTY, 1)
    second = Group("g", 0, GroupState.EMPTY, 2)
    assert shard.add(first) is first
    assert shard.add(second) is first
    assert shard.create_group("g", 3) is first
    assert shard.groups == {"g": first}


def test_removing_a_group_keeps_a_successor_of_its_id() -> None:
    """`remove` compares the instance: a successor under the same id is another group."""
    shard = Shard(0)
    removed = shard.create_group("g", 1)
    assert shard.remove(removed)
    assert not shard.remove(removed)
    successor = shard.create_group("g", 2)
    assert not shard.remove(removed)
    assert shard.groups == {"g": successor}


def test_commit_with_one_metadata_too_large_shows_the_other_to_a_stable_fetch() -> None:
    """The refused partition has neither an offset nor a pending one, so its answer is -1.

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
    refused, stored = (h.fetched("foo", index, require_stable=True) for index in (0, 1))
    assert (refused.error_code, stored.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (refused.committed_offset, refused.metadata) == (-1, "")
    assert (stored.committed_offset, stored.metadata) == (6, "fits")
