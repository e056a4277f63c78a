"""A coordinator makes groups of the records that it loads.

A coordinator that becomes the owner of an offsets partition, that is, of a partition of
`__consumer_offsets`, first loads this partition: it reads all records, and makes groups of them.
`loaded(record, record)` returns a coordinator `h` that has loaded these records. `h` is a
CoordinatorHarness, so it has a clock that the test advances. All members here are static: they have
a `group.instance.id`.

The tests follow the tests of Kafka's Java coordinator, GroupMetadataManagerTest. A line such as
"JC-42: ..." says which case a test repeats (docs/kafka/BEHAVIOUR.md 10.5.2).
"""

import pytest

from coordinator.states import GroupState
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.records.batch import Record
from protocol.records.offsets import (
    GroupMetadataValue,
    MemberMetadataValue,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tests.support.builders.requests import GROUP, protocols, subscription
from tests.support.harness.coordinator_harness import CoordinatorHarness

SESSION_MS = 4_000
STATE_TIMESTAMP_MS = 77
"""Each stored group has been in its state since this time. Any number would do."""


def member(
    number: int, *, rebalance_timeout_ms: int = 9_000, session_timeout_ms: int = SESSION_MS
) -> MemberMetadataValue:
    """Return a static member in the form in which a group's record stores it."""
    return MemberMetadataValue(
        member_id=f"member-{number}",
        group_instance_id=f"instance-{number}",
        client_id=f"client-{number}",
        client_host=f"host-{number}",
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription(f"topic-{number}"),
        assignment=b"for-%d" % number,
    )


def record(*members: MemberMetadataValue, group_id: str = GROUP, generation: int = 1) -> Record:
    """Return the record of a consumer group. The first of `members` is the group's leader."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        current_state_timestamp_ms=STATE_TIMESTAMP_MS,
        members=members,
    )
    return Record(
        encode_group_metadata_key(group_id), encode_group_metadata_value(value), timestamp_ms=1
    )


def tombstone(group_id: str = GROUP) -> Record:
    """Return the record that deletes a group."""
    return Record(encode_group_metadata_key(group_id), None, timestamp_ms=1)


def loaded(*records: Record, max_size: int = 10) -> CoordinatorHarness:
    """Return a coordinator that has loaded these records. `max_size` is its group.max.size."""
    h = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=max_size), owned=()
    )
    for one_record in records:
        h.write_records(one_record)  # as a batch of its own
    assert h.load() is None
    return h


@pytest.mark.parametrize(("stored_ms", "expected_ms"), [(9_000, 9_000), (-1, SESSION_MS)])
def test_group_record_becomes_a_stable_group(stored_ms: int, expected_ms: int) -> None:
    """The loaded group equals the stored one, except for members without a rebalance timeout.

    Such a member is stored with -1, and gets its session timeout as its rebalance timeout.
    """
    members = [member(number, rebalance_timeout_ms=stored_ms) for number in (0, 1)]
    h = loaded(record(*members))
    group = h.group()
    assert group.state is GroupState.STABLE
    assert group.generation_id == 1
    assert group.leader_id == "member-0"
    assert group.protocol_type == "consumer"
    assert group.protocol_name == "range"
    assert group.current_state_timestamp_ms == STATE_TIMESTAMP_MS
    assert group.static_members == {"instance-0": "member-0", "instance-1": "member-1"}
    assert list(group.members) == ["member-0", "member-1"]

    for number, loaded_member in enumerate(group.members.values()):
        assert loaded_member.client_id == f"client-{number}"
        assert loaded_member.client_host == f"host-{number}"
        assert loaded_member.rebalance_timeout_ms == expected_ms
        assert loaded_member.session_timeout_ms == SESSION_MS
        assert loaded_member.supported_protocols == protocols(
            "range", metadata=subscription(f"topic-{number}")
        )
        assert loaded_member.assignment == b"for-%d" % number
        assert not loaded_member.is_new

    assert group.supported_protocols == {"range": 2}  # two members support it
    assert group.rebalance_timeout_ms == expected_ms


def test_group_that_is_loaded_over_its_limit_rebalances() -> None:
    """Both members stay until the rebalance completes. The answers to heartbeats tell them to join.

    JC-42: load of a group over group.max.size: rebalance, all still members
    """
    h = loaded(record(member(0), member(1)), max_size=1)
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert len(h.summary().members) == 2
    assert h.beat("member-0", generation_id=1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert "join-group" in h.timer_keys()  # the timer that ends the join phase


def test_group_that_is_loaded_at_its_limit_does_not_rebalance() -> None:
    """A group may have as many members as group.max.size says."""
    h = loaded(record(member(0), member(1)), max_size=2)
    assert h.state() is GroupState.STABLE


def test_each_member_of_a_loaded_group_has_its_own_session() -> None:
    """The sessions of all members begin at the load. Here they take 4 s and 8 s.

    JC-43: load of a Stable group: a session timer each
    """
    h = loaded(record(member(0), member(1, session_timeout_ms=2 * SESSION_MS)))
    assert h.timer_keys() == ["heartbeat-group-member-0", "heartbeat-group-member-1"]
    h.advance(SESSION_MS - 1)  # 1 ms before the end of the first session
    assert h.summary().members == ("member-0", "member-1")
    h.advance(1)
    assert h.summary().members == ("member-1",)
    h.advance(SESSION_MS)  # the end of the second session
    assert h.summary().members == ()


def test_as_many_tombstones_as_groups_leave_none() -> None:
    """Four groups have five records, but four tombstones (records that delete) are enough.

    The two records of group-0 have the same key, so one tombstone deletes both.

    JC-175: group records and as many tombstones leave no group
    """
    ids = [f"group-{n}" for n in range(4)]
    records = [record(member(n), group_id=group_id) for n, group_id in enumerate(ids)]
    records.append(record(member(9), group_id=ids[0], generation=2))
    assert len(loaded(*records).coordinator.groups()) == 4

    tombstones = [tombstone(group_id) for group_id in ids]
    assert loaded(*records, *tombstones).coordinator.groups() == ()


def test_group_that_is_written_after_its_tombstone_exists() -> None:
    """The last record with the group's key counts: the group of generation 2.

    An offset has a key of its own, so the group's tombstone does not delete it.
    """
    committed_offset = Record(
        encode_offset_commit_key(GROUP, TopicPartition("foo", 0)),
        encode_offset_commit_value(OffsetCommitValue(offset=5, commit_timestamp_ms=1)),
        timestamp_ms=1,
    )
    h = loaded(committed_offset, record(member(0)), tombstone(), record(member(1), generation=2))
    assert h.summary().members == ("member-1",)
    assert h.summary().generation == 2
    assert h.offset("foo", 0) == 5
