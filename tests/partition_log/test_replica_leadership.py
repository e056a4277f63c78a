"""How a replica becomes a leader or a follower, as the metadata say.

A, B and C are the brokers 0, 1 and 2. `replica()` is A's replica before it has learned of a leader.
`leader()` is A's replica as the leader, and `follower()` is B's replica as a follower of A. Leader
epoch and partition epoch are 1, and min.insync.replicas is 2. `log_of_epochs(0, 0, 2)` is a log of
three records: two of leader epoch 0, and one of epoch 2. `fetch_as(leading, B, offset=2)` is a
Fetch of B, whose log ends at offset 2.

The tests follow tests of Kafka's PartitionTest. They cite these by name, such as
testMakeLeaderUpdatesEpochCache.
"""

import pytest

from partition_log.invariants import check_partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import NO_BROKER, BrokerId, Offset
from protocol.trace import TraceKind
from tests.support.builders.partition_logs import (
    REPLICAS,
    A,
    B,
    C,
    fetch_as,
    follower,
    leader,
    log_of_epochs,
    records,
    replica,
)


def test_make_leader_begins_its_epoch_at_the_log_end() -> None:
    """The log knows a new epoch before its first append, so that followers can ask for it.

    Kafka: testMakeLeaderUpdatesEpochCache.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=5)
    assert leading.is_leader
    assert leading.leader_epoch_start_offset == 3
    assert leading.log.epochs.entries()[-1] == (5, 3)  # (leader epoch, its first offset)
    check_partition(leading)


def test_make_leader_keeps_its_own_last_high_watermark() -> None:
    """A new leader begins with the high watermark that it had as a follower.

    Only Fetches of followers raise the high watermark, and no follower has fetched here.
    """
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(1)
    leading = leader(partition_log=log)
    assert leading.high_watermark == 1
    assert leading.check_acknowledged(3) is None  # the last record is not committed yet


def test_make_leader_in_an_isr_of_one_commits_its_whole_log() -> None:
    """The leader is the only member of the ISR, so it need not wait for a follower's Fetch."""
    # min.insync.replicas is 1 here. Otherwise the ISR would be too small to commit anything.
    partition = replica(partition_log=log_of_epochs(0, 0, 0), min_insync_replicas=1)
    change = partition.make_leader(
        leader_epoch=1, partition_epoch=1, replicas=REPLICAS, isr=(A,), now_us=0
    )
    assert change.new_high_watermark == 3
    assert [event.kind for event in change.trace] == [
        TraceKind.BECAME_LEADER,
        TraceKind.HIGH_WATERMARK,
    ]


def test_make_leader_returns_whether_the_epoch_is_new() -> None:
    """A broker loads its groups if `is_new_leader_epoch` is True, and keeps them otherwise."""
    partition = replica(partition_log=log_of_epochs(0))
    election = partition.make_leader(
        leader_epoch=3, partition_epoch=1, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    isr_change = partition.make_leader(
        leader_epoch=3, partition_epoch=2, replicas=REPLICAS, isr=(A, B), now_us=0
    )
    assert election.is_new_leader_epoch
    assert [(event.kind, event.leader_epoch, event.offset) for event in election.trace] == [
        (TraceKind.BECAME_LEADER, 3, 1)
    ]
    assert not isr_change.is_new_leader_epoch
    assert isr_change.trace == ()
    assert partition.isr == (A, B)


def test_make_leader_with_an_older_partition_epoch_changes_nothing() -> None:
    """Delayed metadata is ignored. Kafka: testIgnoreLeaderPartitionStateChangeWithOlderEpoch."""
    leading = leader(leader_epoch=4, partition_epoch=9, isr=(A, B))
    change = leading.make_leader(
        leader_epoch=5, partition_epoch=8, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    assert change.stale
    # Nothing has changed, although the old metadata name leader epoch 5.
    assert (leading.leader_epoch, leading.partition_epoch, leading.isr) == (4, 9, (A, B))


def test_make_follower_with_an_older_partition_epoch_changes_nothing() -> None:
    """Delayed metadata is ignored. Kafka: testIgnoreFollowerPartitionStateChangeWithOlderEpoch."""
    leading = leader(leader_epoch=4, partition_epoch=9)
    change = leading.make_follower(
        leader_id=B, leader_epoch=5, partition_epoch=8, replicas=REPLICAS, isr=(B, C)
    )
    assert change.stale
    assert leading.is_leader


def test_make_leader_of_a_broker_without_a_replica_raises_an_exception() -> None:
    """The controller never elects a broker that has no replica of the partition."""
    with pytest.raises(SimulationError):
        leader(A, replicas=(B, C))


def test_make_follower_of_itself_raises_an_exception() -> None:
    """If the metadata name the broker itself as the leader, the broker must call `make_leader`."""
    with pytest.raises(SimulationError):
        follower(B, leader_id=B)


def test_re_election_of_the_same_leader_begins_a_new_epoch_and_keeps_follower_offsets() -> None:
    """The leader's knowledge about its followers is still true, because its log did not change."""
    leading = leader(partition_log=log_of_epochs(0, 0), isr=(A, B))
    fetch_as(leading, B, offset=2, last_fetched_epoch=0)
    leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=0)
    change = leading.make_leader(
        leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=(A, B), now_us=50
    )
    assert change.is_new_leader_epoch
    assert leading.leader_epoch_start_offset == 3
    assert leading.follower_log_end_offset(B) == 2
    assert leading.append_records(records("y"), required_acks=ACKS_ALL, now_us=50).leader_epoch == 2
    check_partition(leading)


def test_leader_after_following_forgets_the_offsets_of_its_followers() -> None:
    """While the broker was a follower, the other replicas may have truncated their logs."""
    leading = leader(isr=(A, B), min_insync_replicas=1)
    fetch_as(leading, B, offset=0)

    leading.make_follower(
        leader_id=B, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    assert leading.leader_epoch_start_offset == -1

    leading.make_leader(
        leader_epoch=3, partition_epoch=3, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    assert leading.follower_log_end_offset(B) == -1  # not known


def test_follower_refuses_appends_and_fetches() -> None:
    """Clients with outdated metadata must look up the leader again."""
    following = follower()
    refused = following.append_records(records("x"), required_acks=1, now_us=0)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert following.log_end_offset == 0
    # -1 is the replica id of a consumer.
    answer = fetch_as(following, -1, offset=0).data
    assert answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_id, answer.leader_epoch) == (A, 1)
    assert following.check_acknowledged(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert following.maybe_shrink_isr(0) is None


def test_make_follower_without_leader_leaves_the_partition_offline() -> None:
    """If no replica of the ISR is alive, the metadata have the leader -1."""
    partition = replica(B)
    change = partition.make_follower(
        leader_id=NO_BROKER, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=(A,)
    )
    assert change.is_new_leader_epoch
    assert [(event.kind, event.peer) for event in change.trace] == [(TraceKind.BECAME_FOLLOWER, "")]
    assert not partition.is_leader


def test_make_follower_traces_its_leader() -> None:
    """The trace, that is, the list of all recorded events, shows which leader a replica follows."""
    change = replica(B).make_follower(
        leader_id=A, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    (event,) = change.trace
    assert (event.kind, event.peer) == (TraceKind.BECAME_FOLLOWER, "broker-0")
    assert (event.leader_epoch, event.partition) == (2, "__consumer_offsets-3")


def test_restarted_leader_resumes_its_epoch_at_its_log_end() -> None:
    """A broker that restarts before it is fenced goes on leading in the same epoch.

    The log still knows that epoch 1 began at offset 0. The log must not note that the epoch begins
    at 2.
    """
    log = log_of_epochs(1, 1)
    leading = leader(partition_log=log, leader_epoch=1)
    assert leading.leader_epoch_start_offset == 2
    assert leading.log.epochs.entries() == ((1, 0),)  # (leader epoch, its first offset)
    check_partition(leading)


def test_reassignment_changes_the_followers() -> None:
    """The leader forgets a removed replica. It knows an added replica, whose log end is unknown."""
    leading = leader(isr=(A, B))
    added = BrokerId(7)  # in the place of C
    leading.make_leader(
        leader_epoch=1, partition_epoch=2, replicas=(A, B, added), isr=(A, B), now_us=0
    )
    assert leading.follower_log_end_offset(added) == Offset(-1)
    with pytest.raises(SimulationError):
        leading.follower_log_end_offset(C)
