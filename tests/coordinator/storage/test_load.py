"""A broker that becomes a coordinator reads its groups from the log (BEHAVIOUR 5.4).

The state of a group is in one partition of the topic `__consumer_offsets`. The leader of this
partition is the group's coordinator. When a broker becomes leader, it loads the partition: it reads
the log, in chunks of several batches, and builds the groups and their committed offsets in memory.
When it is no longer leader, it unloads the partition: it forgets the groups.

A test writes a log by hand, and looks at the groups that a coordinator loads from this log.
`offset(1, 455)` is the record of a committed offset: 455, for partition 1 of the topic foo.
`group(...)` is the record of a group. Both functions can also make a tombstone, which is a record
without a value. `loaded(batch, batch)` returns a coordinator that has loaded a log with these
batches.

The coordinator comes in a CoordinatorHarness, called `h`, which has its log and its timers:

- `h.log[0]` is the list of batches of partition 0, the only partition that these tests use.
- `h.load(epoch=3)` lets the coordinator load the partition, as its leader in leader epoch 3. The
  result is None, or the reason why the coordinator ignores the load.
- `h.offset("foo", 0)` returns the committed offset of this partition, or -1 if there is none.
- `h.failover()` returns another coordinator, which has loaded a copy of the log.

Kafka has an older coordinator, in Scala, called [S] here, and a newer coordinator, in Java, called
[J]. Ids such as MM-02 and FO-02 are cases in docs/kafka/BEHAVIOUR.md 10.
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
    """Return the record of a committed offset of topic foo, or a tombstone without a `value`.

    The last argument of `Record` is a timestamp, which does not matter in these tests.
    """
    key = encode_offset_commit_key(group_id, TopicPartition("foo", partition))
    if value is None:
        return Record(key, None, 1)
    commit = OffsetCommitValue(offset=value, commit_timestamp_ms=1)
    return Record(key, encode_offset_commit_value(commit), 1)


def group_value(
    *members: str,
    generation: int = 15,
    metadata: bytes | None = None,
    instance: str | None = None,
    leader: str | None = None,
) -> GroupMetadataValue:
    """Return the stored value of a group, which is Stable if it has members, otherwise Empty.

    `metadata` is the subscription of each member, by default to the topic foo. `instance` is the
    instance id of the first member. The leader is by default the first member.
    """
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
    """Return the record of a group, or a tombstone if `value` is None."""
    encoded = None if value is None else encode_group_metadata_value(value)
    return Record(encode_group_metadata_key(group_id), encoded, 1)


NEWER_KIND = Record(b"\x00\x07\x91\xa1x", b"\x00\x00", 1)
"""A record with key version 7, which this coordinator does not know.

The first two bytes of a key are its version, and the version says what kind of record it is.
"""


def loaded(
    *batches: tuple[Record, ...], batches_per_chunk: int = 1_000, max_size: int = 1_000
) -> CoordinatorHarness:
    """Return a coordinator that has loaded these batches.

    By default all batches are in one chunk, and a group may have any number of members.
    """
    h = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=max_size), owned=()
    )
    for records in batches:
        h.write_records(*records)
    h.load(batches_per_chunk=batches_per_chunk)
    return h


def test_load_of_offsets_alone_gives_an_empty_group() -> None:
    """A client that commits offsets without joining a group leaves no record of the group itself.

    MM-02: load: offsets without a group's record
    """
    h = loaded((offset(0, 23), offset(1, 455)), (offset(2, 8992),))
    assert h.state() is GroupState.EMPTY
    assert h.summary().generation == 0
    assert h.group().protocol_type is None
    assert [h.offset("foo", i) for i in range(3)] == [23, 455, 8992]


def test_load_of_an_emptied_group_keeps_generation_and_type() -> None:
    """A group whose members all left is stored without members, protocol and leader.

    MM-03: load: offsets and an emptied group
    MM-27: load: subscribed topics of an Empty consumer group
    """
    h = loaded((offset(0, 23),), (group(group_value()),))
    loaded_group = h.group()
    assert h.state() is GroupState.EMPTY
    assert h.offset("foo", 0) == 23
    assert loaded_group.generation_id == 15
    assert loaded_group.protocol_type == "consumer"
    assert loaded_group.protocol_name is None
    assert loaded_group.leader_id is None
    assert loaded_group.subscribed_topics == frozenset()
    assert loaded_group.current_state_timestamp_ms == 77


def test_load_of_a_group_with_members_makes_it_stable_again() -> None:
    """The record of a group has everything that its members need to go on without a rebalance.

    Of the protocols that a member supports, the record has only the protocol that the group has
    selected. The topics of the group are read from the members' subscriptions.

    MM-14: load: Stable group with offsets
    MM-25: load: static and dynamic members
    MM-26: load: subscribed topics of a Stable consumer group
    """
    h = loaded((group(group_value("m-1", "m-2", instance="i", leader="m-2")),), (offset(0, 5),))
    loaded_group = h.group()
    assert h.state() is GroupState.STABLE
    assert loaded_group.generation_id == 15
    assert loaded_group.leader_id == "m-2"
    assert loaded_group.static_members == {"i": "m-1"}
    assert loaded_group.members["m-1"].protocol_names() == ("range",)
    assert loaded_group.members["m-2"].assignment == b"a-m-2"
    assert loaded_group.subscribed_topics == frozenset({"foo"})
    assert h.beat("m-1", generation_id=15) is ErrorCode.NONE
    # The load of the group is also in the trace.
    (event,) = h.events(TraceKind.GROUP_LOADED)
    assert event.group == GROUP
    assert event.partition == "__consumer_offsets-0"
    assert event.generation == 15
    assert event.detail == {"state": "Stable", "members": ["m-1", "m-2"], "offsets": 1}


def test_load_gives_every_member_a_full_session() -> None:
    """The sessions of all members begin at the load, because the members could not send heartbeats.

    Here a session lasts 10 s. m-1 sends a heartbeat 1 ms before the end of its session, and m-2
    sends no heartbeat.
    """
    h = loaded((group(group_value("m-1", "m-2")),))
    h.advance(9_999)
    assert h.beat("m-1", generation_id=15) is ErrorCode.NONE
    h.advance(1)
    assert h.summary().members == ("m-1",)


def test_load_of_a_tombstone_removes_the_earlier_records_of_its_key() -> None:
    """A tombstone of an offset deletes the offset. A tombstone of a group deletes the group.

    A group that was deleted may have offsets again later. Then it is a new group, without members.

    MM-13: load: tombstone of one partition
    MM-19: load: group and its tombstone
    MM-22: load: group, its tombstone, then offsets
    """
    h = loaded((offset(0, 1), offset(1, 2)), (offset(0, None),))
    assert h.offset("foo", 0) == -1
    assert h.offset("foo", 1) == 2

    h = loaded((group(group_value("m")),), (group(None),))
    assert h.coordinator.groups() == ()

    h = loaded((group(group_value("m")),), (group(None),), (offset(0, 3),))
    assert h.state() is GroupState.EMPTY
    assert h.summary().generation == 0
    assert h.offset("foo", 0) == 3


def test_load_takes_the_last_write_of_each_key() -> None:
    """The last write wins for groups and for offsets, in one batch and over several batches.

    MM-23: load: later segments win
    """
    h = loaded(
        (offset(0, 1), offset(1, 1), group(group_value("old", generation=1))),
        (offset(0, 2), group(group_value("new", generation=2)), offset(0, 3)),
    )
    assert h.summary().members == ("new",)
    assert h.summary().generation == 2
    assert h.offset("foo", 0) == 3
    assert h.offset("foo", 1) == 1


def test_load_treats_keys_of_version_0_and_1_as_one() -> None:
    """Both versions of an offset's key have the same fields, so they are the same key.

    A later record with version 0 replaces an earlier record with version 1, and the other way
    round.
    """
    version_1 = offset(0, 7)
    assert version_1.key is not None
    fields = version_1.key[2:]  # the first two bytes are the version
    version_0 = Record(b"\x00\x00" + fields, version_1.value, 1)
    assert loaded((offset(0, 1),), (version_0,)).offset("foo", 0) == 7
    # The tombstone has key version 1. It deletes the only offset, so there is no group.
    assert loaded((version_0,), (offset(0, None),)).coordinator.groups() == ()


def test_load_restores_the_log_offset_of_each_committed_offset() -> None:
    """With each commit, the coordinator keeps the log offset of the commit's batch.

    The coordinator needs the log offset because an append may complete after the load. If the
    commit of this append has a lower log offset than the loaded commit, the appended commit is
    older, and must not replace the loaded commit. Here the last commits of both partitions are in
    the second batch, which begins at log offset 1.
    """
    h = loaded((offset(0, 1),), (offset(1, 2), offset(0, 3)))
    committed = h.group().offsets.committed()
    log_offsets = {
        str(partition): commit.appended_batch_offset for partition, commit in committed.items()
    }
    assert log_offsets == {"foo-0": 1, "foo-1": 1}


def test_load_ignores_records_of_unknown_kinds() -> None:
    """Records that only a newer coordinator knows are counted, and all others are loaded.

    MM-68: key of an unknown version
    MM-69: load: unknown records among known ones
    """
    h = loaded(
        (NEWER_KIND, group(group_value("m")), offset(0, 5), NEWER_KIND),
        (NEWER_KIND,),
    )
    assert h.state() is GroupState.STABLE
    assert h.offset("foo", 0) == 5
    assert h.coordinator.load_report(0) == LoadReport(error=None, unknown_records=3)


def test_load_reads_batches_in_kafkas_format() -> None:
    """A real Kafka client may write to `__consumer_offsets`, and its batches have Kafka's format.

    The log has a plain commit, a commit in a transaction that is committed, and a commit in a
    transaction that is aborted. The aborted commit is not loaded. The test encodes each batch in
    Kafka's format and reads it back, so that the load gets batches in this format.
    """
    h = CoordinatorHarness(owned=())
    h.write_records(offset(0, 23), group(group_value()))
    h.write_records(offset(1, 4), producer_id=7, is_transactional=True)
    h.write_marker(7, is_commit=True)
    h.write_records(offset(2, 5), producer_id=8, is_transactional=True)
    h.write_marker(8, is_commit=False)
    h.log[0] = [
        kafka_batch for batch in h.log[0] for kafka_batch in decode_batches(encode_batch(batch))
    ]
    # `kafka` is the header of Kafka's format. Batches in our own format have None.
    assert all(batch.kafka is not None for batch in h.log[0])
    h.load()
    assert [h.offset("foo", partition) for partition in range(3)] == [23, 4, -1]


def test_java_repeats_a_failed_load_only_in_a_newer_epoch() -> None:
    """[J] does not serve a partition whose load has failed, until a load in a newer epoch succeeds.

    The second record has no key, which makes the load fail.
    """
    java = JavaSwitches(failed_load_refuses=True)
    h = CoordinatorHarness(owned=(), java=java)
    h.write_records(offset(0, 5))
    h.write_records(Record(None, b"v", 1))
    h.load(epoch=3)
    assert "without key" in (h.coordinator.load_error(0) or "")
    assert not h.coordinator.is_owned(0)
    assert not h.coordinator.is_loading(0)
    assert h.commit(offset_commit({("foo", 0): 1})) == [ErrorCode.NOT_COORDINATOR]

    ignored = h.load(epoch=3)
    assert ignored == LoadIgnored(reason=IgnoredCause.LOAD_FAILED, known_epoch=3)

    h.log[0].pop()  # the record without a key
    assert h.load(epoch=4) is None
    assert h.coordinator.load_error(0) is None
    assert h.offset("foo", 0) == 5


def test_unload_forgets_that_a_load_failed() -> None:
    """After an unload, [J] may load the partition again even in the same epoch."""
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
    """The broker loses the leadership while it loads, so it cannot read the log to its end.

    In Kafka, a broker that does not lead sees -1 as the end of the log (BEHAVIOUR 5.4). [S] then
    serves the groups that it has read so far (KAFKA-16030). [J] refuses requests.
    """
    h = CoordinatorHarness(owned=(), java=JavaSwitches(failed_load_refuses=java))
    h.write_records(offset(0, 5))
    h.coordinator.begin_load(0, leader_epoch=3, now_us=h.now_us)
    h.coordinator.load_batches(0, tuple(h.log[0]))
    h.execute(h.coordinator.finish_load(0, h.now_us, stopped="NOT_LEADER_OR_FOLLOWER"))
    assert h.coordinator.is_owned(0) == (not java)
    assert h.coordinator.load_error(0) == ("NOT_LEADER_OR_FOLLOWER" if java else None)
    if not java:
        assert h.offset("foo", 0) == 5


@pytest.mark.parametrize(
    ("record", "error"),
    [
        # The first two bytes of a value are its version. There is no version 9.
        (Record(encode_group_metadata_key("g"), b"\x00\x09\x90", 1), "group value version 9"),
        (
            Record(encode_offset_commit_key("g", TopicPartition("t", 0)), b"\x00\x09\x90", 1),
            "offset value version 9",
        ),
        (Record(None, b"v", 1), "without key"),
        (Record(b"\x00", b"v", 1), "without key"),  # too short for the two bytes of the version
        (group(group_value("m", metadata=b"meta-c1")), "subscription"),  # cannot be parsed
        (group(group_value("m", leader="gone")), "gone"),  # the leader is no member
    ],
    ids=["group value", "offset value", "no key", "short key", "subscription", "leader"],
)
def test_load_with_an_unreadable_record_serves_the_partition_without_groups(
    record: Record, error: str
) -> None:
    """[S] does not report the error to clients, and discards all groups, even the readable ones.

    So a client that fetches a committed offset gets no error, but the offset -1, which means that
    nothing has been committed (BEHAVIOUR 6.6 f).

    MM-29: group record of an unknown version
    """
    h = loaded((offset(0, 5),), (record,), (offset(1, 6),))
    assert error in (h.coordinator.load_error(0) or "")
    assert h.coordinator.is_owned(0)
    assert h.coordinator.groups() == ()
    assert h.offset("foo", 0) == -1


def test_load_of_an_empty_log_owns_the_partition() -> None:
    """The coordinator serves the partition, although it has no groups.

    MM-21: load: log that gives nothing to read ends
    """
    h = loaded()
    assert h.coordinator.is_owned(0)
    assert not h.coordinator.is_loading(0)


def test_load_of_a_group_over_its_limit_rebalances() -> None:
    """The stored group has more members than the limit allows, so it must rebalance.

    The load itself keeps all members. The members that rejoin first stay in the group, up to the
    limit.
    """
    h = loaded((group(group_value("m-1", "m-2")),), max_size=1)
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert h.events(TraceKind.REBALANCE_STARTED)[0].cause is RebalanceCause.GROUP_TOO_LARGE


@pytest.mark.parametrize("batches_per_chunk", [1, 2, 7])
def test_load_in_chunks_creates_the_same_groups_as_a_load_at_once(batches_per_chunk: int) -> None:
    """The groups must not depend on the places at which a chunk ends and the next chunk begins.

    The log has twenty commits of four groups, for three partitions. One group also has a member.
    """
    batches = [(offset(i % 3, i, group_id=f"g{i % 4}"),) for i in range(20)]
    batches.insert(5, (group(group_value("m"), group_id="g1"),))  # after five commits
    whole = loaded(*batches)
    in_chunks = loaded(*batches, batches_per_chunk=batches_per_chunk)
    assert in_chunks.coordinator.groups() == whole.coordinator.groups()
    for group_id in ("g0", "g1", "g2", "g3"):
        assert in_chunks.group(group_id).offsets.committed() == (
            whole.group(group_id).offsets.committed()
        )


def test_groups_are_visible_only_when_the_load_is_finished() -> None:
    """During the load requests get COORDINATOR_LOAD_IN_PROGRESS: no client may see half a group."""
    h = CoordinatorHarness(owned=())
    h.write_records(offset(0, 5))
    h.coordinator.begin_load(0, leader_epoch=3, now_us=h.now_us)
    h.coordinator.load_batches(0, tuple(h.log[0]))
    assert h.coordinator.is_loading(0)
    assert not h.coordinator.is_owned(0)
    assert h.coordinator.groups() == ()
    assert h.commit(offset_commit({("foo", 0): 1})) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_load_restores_what_was_written() -> None:
    """The coordinator `h` writes a log. `other` loads this log, and has the same groups.

    Group "stable" has three members. Group "simple" has only offsets. All members of group
    "emptied" have left. Group "static" has not finished its first rebalance, so nothing of this
    group is in the log yet.
    """
    h = CoordinatorHarness()
    ids = h.stable_group(size=3, group_id="stable")
    h.submit(join_group(instance="i", group_id="static"))
    h.advance(0)  # ends the join phase of "static"; its leader sends no SyncGroup
    h.commit(
        offset_commit({("foo", 0): 5, ("bar", 1): 6}, ids[0], generation_id=1, group_id="stable")
    )
    h.commit(offset_commit({("foo", 0): 7}, group_id="simple", metadata="m", leader_epoch=2))
    (only_member,) = h.stable_group(size=1, group_id="emptied")
    h.leave(leave_group(only_member, group_id="emptied"))

    other = h.failover()
    for group_id in ("stable", "simple", "emptied"):
        written, read = h.group(group_id), other.group(group_id)
        assert other.summary(group_id) == h.summary(group_id)
        assert read.offsets.committed() == written.offsets.committed()
        assert read.members == written.members
        assert read.leader_id == written.leader_id
        assert read.protocol_type == written.protocol_type
        assert read.protocol_name == written.protocol_name
    assert other.coordinator.group("static") is None


def test_load_in_the_middle_of_a_rebalance_brings_back_the_last_stored_generation() -> None:
    """A generation is stored at the end of its rebalance, so an unfinished generation is lost.

    Here the group is on its way from generation 1 to generation 2. After the failover it is in
    generation 1 again, and its next rebalance gets the number 2 (FO-02, FO-03).
    """
    h = CoordinatorHarness()
    ids = h.stable_group()
    for member_id in ids:
        h.submit(join_group(member_id))
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.summary().generation == 2

    other = h.failover()
    assert other.state() is GroupState.STABLE
    assert other.summary().generation == 1
    assert other.beat(ids[0], generation_id=2) is ErrorCode.ILLEGAL_GENERATION
    assert other.beat(ids[0], generation_id=1) is ErrorCode.NONE


# -- epochs --


def test_load_of_an_older_epoch_is_ignored() -> None:
    """Each new leader has a higher epoch. The coordinator remembers the newest epoch.

    MM-15: load of an older epoch is ignored
    """
    h = CoordinatorHarness(owned=())
    assert h.load(epoch=2) is None
    assert h.unload(epoch=2) is None
    assert h.load(epoch=1) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=2)
    assert not h.coordinator.is_owned(0)
    assert h.load(epoch=2) is None


def test_load_of_an_older_epoch_without_the_guard_is_carried_out() -> None:
    """Kafka ignores older epochs since KAFKA-10614. An experiment can switch this guard off.

    Without the guard the coordinator carries out each load and unload, as Kafka did before.
    """
    h = CoordinatorHarness(owned=(), guards=Guards(leader_epoch_guard=False))
    h.load(epoch=2)
    assert h.unload(epoch=1) is None
    assert h.load(epoch=0) is None
    assert h.coordinator.is_owned(0)


def test_load_of_an_owned_partition_only_updates_its_epoch() -> None:
    """A broker that is elected again has the groups already, so it does not read the log again.

    But the coordinator must remember the new epoch: after the load of epoch 5, an unload of epoch 4
    is ignored.
    """
    h = CoordinatorHarness(owned=())
    h.load(epoch=2)
    h.commit(offset_commit({("foo", 0): 1}))
    assert h.load(epoch=5) == LoadIgnored(reason=IgnoredCause.ALREADY_LOADED, known_epoch=5)
    assert h.offset("foo", 0) == 1
    assert h.unload(epoch=4) == LoadIgnored(reason=IgnoredCause.STALE_LEADER_EPOCH, known_epoch=5)


def test_load_of_a_partition_that_is_loading_is_ignored() -> None:
    """The second load is ignored, and the load in progress continues."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us)
    assert isinstance(h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us), LoadIgnored)
    h.execute(h.coordinator.finish_load(0, h.now_us))
    assert h.coordinator.is_owned(0)


def test_chunk_for_a_partition_that_is_not_loading_raises() -> None:
    """The broker runs its load tasks in order. So only a bug sends a chunk outside of a load."""
    h = CoordinatorHarness()
    with pytest.raises(SimulationError, match="not loading"):
        h.coordinator.load_batches(0, ())
    with pytest.raises(SimulationError, match="not loading"):
        h.coordinator.finish_load(0, h.now_us)


def test_successful_load_clears_the_error_of_a_failed_one() -> None:
    """`load_error` returns the error of the last load."""
    h = loaded((Record(None, b"v", 1),))  # in epoch 0
    assert h.coordinator.load_error(0) is not None
    h.unload(epoch=1)
    h.log[0].clear()
    h.load(epoch=2)
    assert h.coordinator.load_error(0) is None
