"""Loading an offsets partition: its records become groups, in chunks (BEHAVIOUR 5.4).

A broker that becomes the leader of an offsets partition (one of `__consumer_offsets`) loads it: the
broker reads the partition's groups into memory. The leader epoch counts the partition's leaders. A
coordinator ignores a load or an unload of an older epoch than it knows. A tombstone is a record
without a value, which deletes its key. A generation counts a group's rebalances.

`h` is a CoordinatorHarness: a coordinator with a log.

- `h.log` has a list of batches for each partition.
- `h.load(epoch=3)` loads partition 0 as the leader of epoch 3. It returns None, or the reason why
  the coordinator ignores the load.
- `h.offset("foo", 0)` returns the committed offset, or -1 if there is none.
- `h.failover()` returns another coordinator, which has loaded a copy of the log.
- `offset(1, 455)` is the record of the committed offset 455 of foo-1, `group(...)` that of a group.
- `loaded(batch, batch)` returns a harness that has loaded these batches of records.

[S] marks what Kafka's Scala coordinator does, [J] what its Java coordinator does. Ids such as MM-02
and FO-02 are cases in docs/kafka/BEHAVIOUR.md 10.
"""

import pytest

from coordinator.coordinator import LoadIgnored
from coordinator.states import GroupState
from coordinator.storage.load import LoadReport
from protocol.causes import IgnoredCause, RebalanceCause
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import TopicPartition
from protocol.records.batch import Record
from protocol.records.kafka_format import decode_batches, encode_batch
from protocol.records.offsets import (
    GroupMetadataValue,
    MemberMetadataValue,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    join_group,
    leave_group,
    offset_commit,
    subscription,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness


def offset(partition: int, value: int | None, *, group_id: str = GROUP) -> Record:
    """Return the record of a committed offset of topic foo; without a value, a tombstone."""
    encoded = (
        None
        if value is None
        else encode_offset_commit_value(OffsetCommitValue(offset=value, commit_timestamp_ms=1))
    )
    return Record(encode_offset_commit_key(group_id, TopicPartition("foo", partition)), encoded, 1)


def group_value(
    *members: str,
    generation: int = 15,
    metadata: bytes | None = None,
    instance: str | None = None,
    leader: str | None = None,
) -> GroupMetadataValue:
    """Return the stored value of a group: Stable if it has members, else Empty."""
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=leader or (members[0] if members else None),
        current_state_timestamp_ms=77,
        members=tuple(
            MemberMetadataValue(
                member_id=member_id,
                group_instance_id=instance if index == 0 else None,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=30_000,
                session_timeout_ms=10_000,
                subscription=subscription("foo") if metadata is None else metadata,
                assignment=b"a-" + member_id.encode(),
            )
            for index, member_id in enumerate(members)
        ),
    )


def group(value: GroupMetadataValue | None, *, group_id: str = GROUP) -> Record:
    """Return the record of a group; without a value, a tombstone."""
    encoded = None if value is None else encode_group_metadata_value(value)
    return Record(encode_group_metadata_key(group_id), encoded, 1)


# The first two bytes of a key are its version.
NEWER_KIND = Record(b"\x00\x07\x91\xa1x", b"\x00\x00", 1)
"""A record with key version 7, which this coordinator does not know."""


def loaded(
    *batches: tuple[Record, ...], batches_per_chunk: int = 1_000, max_size: int = 1_000
) -> CoordinatorHarness:
    """Return a coordinator that has loaded these batches.

    The default values are larger than any test needs: one chunk, and no limit of a group's size.
    """
    h = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=max_size), owned=()
    )
    for records in batches:
        h.write_records(*records)
    h.load(batches_per_chunk=batches_per_chunk)
    return h


def test_load_of_offsets_alone_gives_an_empty_group() -> None:
    """The group has generation 0 and no protocol type, like a group that only commits offsets.

    MM-02: load: offsets without a group's record
    """
    h = loaded((offset(0, 23), offset(1, 455)), (offset(2, 8992),))
    assert (h.state(), h.summary().generation) == (GroupState.EMPTY, 0)
    assert h.group().protocol_type is None
    assert [h.offset("foo", i) for i in range(3)] == [23, 455, 8992]


def test_load_of_an_emptied_group_keeps_generation_and_type() -> None:
    """A group whose members all left is stored without members, protocol and leader.

    MM-03: load: offsets and an emptied group
    MM-27: load: subscribed topics of an Empty consumer group
    """
    h = loaded((offset(0, 23),), (group(group_value()),))
    loaded_group = h.group()
    assert (h.state(), loaded_group.generation_id) == (GroupState.EMPTY, 15)
    assert (loaded_group.protocol_type, loaded_group.protocol_name) == ("consumer", None)
    assert (loaded_group.leader_id, loaded_group.subscribed_topics) == (None, frozenset())
    assert (loaded_group.current_state_timestamp_ms, h.offset("foo", 0)) == (77, 23)


def test_load_of_a_group_with_members_restores_it_in_stable() -> None:
    """Of each member's protocols only the selected one is restored; its topics are parsed.

    MM-14: load: Stable group with offsets
    MM-25: load: static and dynamic members
    MM-26: load: subscribed topics of a Stable consumer group
    """
    h = loaded((group(group_value("m-1", "m-2", instance="i", leader="m-2")),), (offset(0, 5),))
    loaded_group = h.group()
    assert (h.state(), loaded_group.generation_id) == (GroupState.STABLE, 15)
    assert loaded_group.leader_id == "m-2"
    assert loaded_group.static_members == {"i": "m-1"}
    assert loaded_group.members["m-1"].protocol_names() == ("range",)
    assert loaded_group.members["m-2"].assignment == b"a-m-2"
    assert loaded_group.subscribed_topics == frozenset({"foo"})
    assert h.beat("m-1", generation_id=15) is ErrorCode.NONE
    (event,) = h.events(TraceKind.GROUP_LOADED)
    assert (event.group, event.partition, event.generation) == (GROUP, "__consumer_offsets-0", 15)
    assert event.detail == {"state": "Stable", "members": ["m-1", "m-2"], "offsets": 1}


def test_load_gives_every_member_a_full_session() -> None:
    """A failover must not expire members that could not send heartbeats during the failover.

    The session is 10 s. m-1 sends a heartbeat 1 ms before the session's end, m-2 sends none.
    """
    h = loaded((group(group_value("m-1", "m-2")),))
    h.advance(9_999)
    assert h.beat("m-1", generation_id=15) is ErrorCode.NONE
    h.advance(1)
    assert h.summary().members == ("m-1",)


def test_load_of_a_tombstone_removes_the_earlier_records_of_its_key() -> None:
    """The key is that of an offset or of a group. A deleted group may have offsets later.

    MM-13: load: tombstone of one partition
    MM-19: load: group and its tombstone
    MM-22: load: group, its tombstone, then offsets
    """
    h = loaded((offset(0, 1), offset(1, 2)), (offset(0, None),))
    assert (h.offset("foo", 0), h.offset("foo", 1)) == (-1, 2)

    assert loaded((group(group_value("m")),), (group(None),)).coordinator.groups() == ()
    h = loaded((group(group_value("m")),), (group(None),), (offset(0, 3),))
    assert (h.state(), h.summary().generation, h.offset("foo", 0)) == (GroupState.EMPTY, 0, 3)


def test_load_takes_the_last_write_of_each_key() -> None:
    """The rule holds for members and offsets, whether the writes are in one batch or in several.

    MM-23: load: later segments win
    """
    h = loaded(
        (offset(0, 1), offset(1, 1), group(group_value("old", generation=1))),
        (offset(0, 2), group(group_value("new", generation=2)), offset(0, 3)),
    )
    assert (h.summary().members, h.summary().generation) == (("new",), 2)
    assert [h.offset("foo", i) for i in range(2)] == [3, 1]


def test_load_treats_keys_of_version_0_and_1_as_one() -> None:
    """Both versions have the same fields, so a record of one replaces a record of the other."""
    # The same key with version 0 in its first two bytes.
    old = Record(b"\x00\x00" + (offset(0, 7).key or b"")[2:], offset(0, 7).value, 1)
    assert loaded((offset(0, 1),), (old,)).offset("foo", 0) == 7
    # The tombstone has key version 1. It deletes the only offset, so there is no group.
    assert loaded((old,), (offset(0, None),)).coordinator.groups() == ()


def test_load_restores_the_log_offset_of_each_committed_offset() -> None:
    """A commit that completes after the load must not bring back an older offset.

    The second batch begins at log offset 1 and has the last commits of both partitions, so the
    offset of both is 1.
    """
    h = loaded((offset(0, 1),), (offset(1, 2), offset(0, 3)))
    stored = h.group().offsets.committed()
    assert {str(tp): entry.appended_batch_offset for tp, entry in stored.items()} == {
        "foo-0": 1,
        "foo-1": 1,
    }


def test_load_ignores_records_of_unknown_kinds() -> None:
    """The records of a newer coordinator are counted, and the others are loaded.

    MM-68: key of an unknown version
    MM-69: load: unknown records among known ones
    """
    h = loaded(
        (NEWER_KIND, group(group_value("m")), offset(0, 5), NEWER_KIND),
        (NEWER_KIND,),
    )
    assert (h.state(), h.offset("foo", 0)) == (GroupState.STABLE, 5)
    assert h.coordinator.load_report(0) == LoadReport(error=None, unknown_records=3)


def test_load_reads_batches_in_kafkas_format() -> None:
    """The test replaces each batch by the same batch in Kafka's format.

    The log has a plain commit, a committed transaction and an aborted one; the aborted offset is
    not loaded. `__consumer_offsets` is open to writes of a Kafka client in this format.
    """
    h = CoordinatorHarness(owned=())
    h.write_records(offset(0, 23), group(group_value()))
    h.write_records(offset(1, 4), producer_id=7, is_transactional=True)
    h.write_marker(7, is_commit=True)
    h.write_records(offset(2, 5), producer_id=8, is_transactional=True)
    h.write_marker(8, is_commit=False)
    # Encode each batch in Kafka's format and read it back.
    h.log[0] = [kafkas for own in h.log[0] for kafkas in decode_batches(encode_batch(own))]
    # Only a batch in Kafka's format has a header in `kafka`.
    assert all(batch.kafka is not None for batch in h.log[0])
    h.load()
    assert [h.offset("foo", partition) for partition in range(3)] == [23, 4, -1]


def test_java_repeats_a_failed_load_only_in_a_newer_epoch() -> None:
    """A partition of [J] stays FAILED until a load in a newer epoch succeeds.

    The second record has no key, which makes a load fail.
    """
    java = JavaSwitches(failed_load_refuses=True)
    h = CoordinatorHarness(owned=(), java=java)
    h.write_records(offset(0, 5))
    h.write_records(Record(None, b"v", 1))
    h.load(epoch=3)
    assert "without key" in (h.coordinator.load_error(0) or "")
    assert (h.coordinator.is_owned(0), h.coordinator.is_loading(0)) == (False, False)
    assert h.commit(offset_commit({("foo", 0): 1})) == [ErrorCode.NOT_COORDINATOR]

    failed = LoadIgnored(reason=IgnoredCause.LOAD_FAILED, known_epoch=3)
    assert h.load(epoch=3) == failed
    h.log[0].pop()  # the record without a key
    assert h.load(epoch=4) is None
    assert (h.coordinator.load_error(0), h.offset("foo", 0)) == (None, 5)


def test_unload_forgets_that_a_load_failed() -> None:
    """An unload makes a FAILED partition of [J] CLOSED; the same epoch may load it again."""
    h = CoordinatorHarness(owned=(), java=JavaSwitches(failed_load_refuses=True))
    h.write_records(Record(None, b"v", 1))
    h.load(epoch=3)
    h.unload(epoch=3)
    h.log[0].clear()
    assert h.load(epoch=3) is None
    assert h.coordinator.is_owned(0)


@pytest.mark.parametrize("java", [False, True])
def test_load_whose_leader_resigned_is_served_by_scala_and_refused_by_java(
    java: bool,
) -> None:
    """The log of a leader that resigns during the load reports -1 as its end (BEHAVIOUR 5.4).

    The load stops there. [S] then serves the groups that it has read so far (KAFKA-16030). [J]
    refuses requests.
    """
    h = CoordinatorHarness(owned=(), java=JavaSwitches(failed_load_refuses=java))
    h.write_records(offset(0, 5))
    h.coordinator.begin_load(0, leader_epoch=3, now_us=h.now_us)
    h.coordinator.load_batches(0, tuple(h.log[0]))
    h.execute(h.coordinator.finish_load(0, h.now_us, stopped="NOT_LEADER_OR_FOLLOWER"))
    assert h.coordinator.is_owned(0) is not java
    assert h.coordinator.load_error(0) == ("NOT_LEADER_OR_FOLLOWER" if java else None)
    if not java:
        assert h.offset("foo", 0) == 5


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (Record(encode_group_metadata_key("g"), b"\x00\x09\x90", 1), "group value version 9"),
        (
            Record(encode_offset_commit_key("g", TopicPartition("t", 0)), b"\x00\x09\x90", 1),
            "offset value version 9",
        ),
        (Record(None, b"v", 1), "without key"),
        (Record(b"\x00", b"v", 1), "without key"),
        (group(group_value("m", metadata=b"meta-c1")), "subscription"),
        (group(group_value("m", leader="gone")), "gone"),
    ],
    ids=["group value", "offset value", "no key", "short key", "subscription", "leader"],
)
def test_load_with_an_unreadable_record_serves_the_partition_without_groups(
    record: Record, error: str
) -> None:
    """[S] swallows the error, and discards all groups of the partition, also readable ones.

    So the answer to a fetch of a committed offset is -1, without an error (BEHAVIOUR 6.6 f).

    MM-29: group record of an unknown version
    """
    h = loaded((offset(0, 5),), (record,), (offset(1, 6),))
    assert error in (h.coordinator.load_error(0) or "")
    assert h.coordinator.is_owned(0)
    assert h.coordinator.groups() == ()
    assert h.offset("foo", 0) == -1


def test_load_of_an_empty_log_owns_the_partition() -> None:
    """The partition is served, without groups.

    MM-21: load: log that gives nothing to read ends
    """
    h = loaded()
    assert (h.coordinator.is_owned(0), h.coordinator.is_loading(0)) == (True, False)


def test_load_of_a_group_over_its_limit_rebalances() -> None:
    """The load keeps all members. At the end of the rebalance only the first to rejoin stay."""
    h = loaded((group(group_value("m-1", "m-2")),), max_size=1)
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert h.events(TraceKind.REBALANCE_STARTED)[0].cause is RebalanceCause.GROUP_TOO_LARGE


@pytest.mark.parametrize("batches_per_chunk", [1, 2, 7])
def test_load_in_chunks_creates_the_same_groups_as_a_load_at_once(batches_per_chunk: int) -> None:
    """The broker loads in chunks; where each chunk ends must not change the groups."""
    # Twenty commits of three partitions, by four groups; one of the groups also has a member.
    batches = [(offset(i % 3, i, group_id=f"g{i % 4}"),) for i in range(20)]
    batches.insert(5, (group(group_value("m"), group_id="g1"),))
    whole = loaded(*batches)
    in_chunks = loaded(*batches, batches_per_chunk=batches_per_chunk)
    assert in_chunks.coordinator.groups() == whole.coordinator.groups()
    for group_id in ("g0", "g1", "g2", "g3"):
        assert in_chunks.group(group_id).offsets.committed() == (
            whole.group(group_id).offsets.committed()
        )


def test_groups_are_visible_only_when_the_load_is_finished() -> None:
    """Until then requests get COORDINATOR_LOAD_IN_PROGRESS; no client sees half a group."""
    h = CoordinatorHarness(owned=())
    h.write_records(offset(0, 5))
    h.coordinator.begin_load(0, leader_epoch=3, now_us=h.now_us)
    h.coordinator.load_batches(0, tuple(h.log[0]))
    assert (h.coordinator.is_loading(0), h.coordinator.is_owned(0)) == (True, False)
    assert h.coordinator.groups() == ()
    assert h.commit(offset_commit({("foo", 0): 1})) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_load_restores_what_was_written() -> None:
    """A load of what a coordinator wrote gives the same groups and offsets.

    The groups are in every state that is stored, and one is in its first, unfinished rebalance.
    """
    h = CoordinatorHarness()
    ids = h.stable_group(size=3, group_id="stable")
    h.submit(join_group(instance="i", group_id="static"))
    h.advance(0)  # ends the join phase of "static"; its leader sends no SyncGroup
    h.commit(
        offset_commit({("foo", 0): 5, ("bar", 1): 6}, ids[0], generation_id=1, group_id="stable")
    )
    h.commit(offset_commit({("foo", 0): 7}, group_id="simple", metadata="m", leader_epoch=2))
    (gone,) = h.stable_group(size=1, group_id="emptied")
    h.leave(leave_group(gone, group_id="emptied"))

    other = h.failover()
    for group_id in ("stable", "simple", "emptied"):
        before, after = h.group(group_id), other.group(group_id)
        assert other.summary(group_id) == h.summary(group_id)
        assert after.offsets.committed() == before.offsets.committed()
        assert after.members == before.members
        assert after.leader_id == before.leader_id
        assert after.protocol_type == before.protocol_type
        assert after.protocol_name == before.protocol_name
    assert other.coordinator.group("static") is None  # its first generation was never stored


def test_load_in_the_middle_of_a_rebalance_brings_back_the_last_stored_generation() -> None:
    """The join phase is not stored, so the group returns to generation 1 (FO-02, FO-03).

    The number 2 may be given to another rebalance later.
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    for member_id in ids:
        h.submit(join_group(member_id))
    assert (h.state(), h.summary().generation) == (GroupState.COMPLETING_REBALANCE, 2)
    other = h.failover()
    assert (other.state(), other.summary().generation) == (GroupState.STABLE, 1)
    assert other.beat(ids[0], generation_id=2) is ErrorCode.ILLEGAL_GENERATION
    assert other.beat(ids[0], generation_id=1) is ErrorCode.NONE


# -- epochs --


def test_load_of_an_older_epoch_is_ignored() -> None:
    """The coordinator keeps the newer epoch.

    MM-15: load of an older epoch is ignored
    """
    h = CoordinatorHarness(owned=())
    assert h.load(epoch=2) is None
    assert h.unload(epoch=2) is None
    assert h.load(epoch=1) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=2)
    assert not h.coordinator.is_owned(0)
    assert h.load(epoch=2) is None


def test_load_of_an_older_epoch_without_the_guard_is_carried_out() -> None:
    """Kafka has the check since KAFKA-10614; an experiment can switch it off.

    A guard is such a check. Without leader_epoch_guard, older epochs are not refused.
    """
    h = CoordinatorHarness(owned=(), guards=Guards(leader_epoch_guard=False))
    h.load(epoch=2)
    assert h.unload(epoch=1) is None
    assert h.load(epoch=0) is None
    assert h.coordinator.is_owned(0)


def test_load_of_an_owned_partition_only_updates_its_epoch() -> None:
    """The log is not read again, because the broker has the groups; only the epoch increases.

    The new epoch counts for unloads: an unload of epoch 4 is ignored after a load of epoch 5.
    """
    h = CoordinatorHarness(owned=())
    h.load(epoch=2)
    h.commit(offset_commit({("foo", 0): 1}))
    assert h.load(epoch=5) == LoadIgnored(reason=IgnoredCause.ALREADY_LOADED, known_epoch=5)
    assert h.offset("foo", 0) == 1
    assert h.unload(epoch=4) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=5)


def test_load_of_a_partition_that_is_loading_is_ignored() -> None:
    """The load in progress continues."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us)
    assert isinstance(h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us), LoadIgnored)
    h.execute(h.coordinator.finish_load(0, h.now_us))
    assert h.coordinator.is_owned(0)


def test_chunk_for_a_partition_that_is_not_loading_is_misuse() -> None:
    """The broker runs its load tasks one at a time, in order, so only a bug sends such a chunk."""
    h = CoordinatorHarness()
    with pytest.raises(SimulationError, match="not loading"):
        h.coordinator.load_batches(0, ())
    with pytest.raises(SimulationError, match="not loading"):
        h.coordinator.finish_load(0, h.now_us)


def test_successful_load_clears_the_error_of_a_failed_one() -> None:
    """`load_error` returns the error of the last load."""
    h = loaded((Record(None, b"v", 1),))
    assert h.coordinator.load_error(0) is not None
    h.unload(epoch=1)
    h.log[0].clear()
    h.load(epoch=2)
    assert h.coordinator.load_error(0) is None
