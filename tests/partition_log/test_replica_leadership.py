"""How a replica becomes a leader or a follower, as the metadata say. After Kafka's PartitionTest.

A leader epoch counts a partition's leaders; each election increases it. The partition epoch counts
all changes of the partition's metadata. The high watermark is the offset below which all in-sync
replicas (the ISR) have the records.

- A, B and C are the brokers 0, 1 and 2.
- `replica` returns a replica without a leader, by default A's.
- `leader` makes A the leader, and `follower` makes B a follower of A, in leader epoch 1 and
  partition epoch 1.
- `log_of_epochs(0, 0, 2)` returns a log with one record per number: two of leader epoch 0, then one
  of epoch 2.
- `fetch_as(leading, B, offset=2)` fetches as broker B, whose log ends at offset 2.
- min.insync.replicas, the least number of in-sync replicas for a write, is 2.

Names such as testMakeLeaderUpdatesEpochCache are tests of Kafka's PartitionTest.
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
    """The epoch has an entry before its first append. Kafka: testMakeLeaderUpdatesEpochCache."""
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=5)
    assert leading.is_leader
    assert leading.leader_epoch_start_offset == 3
    assert leading.log.epochs.entries()[-1] == (5, 3)  # (leader epoch, its first offset)
    check_partition(leading)


def test_make_leader_keeps_its_own_last_high_watermark() -> None:
    """A new leader begins with the high watermark that it had as a follower.

    Only Fetches of followers advance it, and no follower has fetched here.
    """
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(1)
    leading = leader(partition_log=log)
    assert leading.high_watermark == 1
    assert leading.check_acknowledged(3) is None  # the append that ended at 3 still waits


def test_make_leader_in_an_isr_of_one_commits_its_whole_log() -> None:
    """The leader is the only member of the ISR, so it need not wait for a follower's Fetch."""
    # With an ISR smaller than min.insync.replicas the high watermark would not move.
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
    first = partition.make_leader(
        leader_epoch=3, partition_epoch=1, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    same = partition.make_leader(
        leader_epoch=3, partition_epoch=2, replicas=REPLICAS, isr=(A, B), now_us=0
    )
    assert first.is_new_leader_epoch
    assert [(e.kind, e.leader_epoch, e.offset) for e in first.trace] == [
        (TraceKind.BECAME_LEADER, 3, 1)
    ]
    assert not same.is_new_leader_epoch
    assert same.trace == ()
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


def test_make_leader_outside_its_replicas_is_misuse() -> None:
    """The controller never elects a broker that holds no replica."""
    with pytest.raises(SimulationError):
        leader(A, replicas=(B, C))


def test_make_follower_of_itself_is_misuse() -> None:
    """If the metadata name the broker itself as the leader, it must be made leader."""
    with pytest.raises(SimulationError):
        follower(B, leader_id=B)


def test_re_election_of_the_same_leader_begins_a_new_epoch_and_keeps_follower_offsets() -> None:
    """The leader's log did not change, so what it knows of its followers' logs is still true."""
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
    """No replica of the ISR is alive, so the controller names no leader (-1)."""
    partition = replica(B)
    change = partition.make_follower(
        leader_id=NO_BROKER, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=(A,)
    )
    assert change.is_new_leader_epoch
    assert [(event.kind, event.peer) for event in change.trace] == [(TraceKind.BECAME_FOLLOWER, "")]
    assert not partition.is_leader


def test_make_follower_traces_its_leader() -> None:
    """The trace shows which leader each replica follows."""
    change = replica(B).make_follower(
        leader_id=A, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    assert [(e.kind, e.peer, e.leader_epoch, e.partition) for e in change.trace] == [
        (TraceKind.BECAME_FOLLOWER, "broker-0", 2, "__consumer_offsets-3")
    ]


def test_restarted_leader_resumes_its_epoch_at_its_log_end() -> None:
    """A broker that restarts before the controller fences it goes on leading in the same epoch.

    The epoch cache keeps its one entry: epoch 1 begins at offset 0, and not again at 2.
    """
    log = log_of_epochs(1, 1)
    leading = leader(partition_log=log, leader_epoch=1)
    assert leading.leader_epoch_start_offset == 2
    assert leading.log.epochs.entries() == ((1, 0),)
    check_partition(leading)


def test_reassignment_changes_the_followers() -> None:
    """A removed replica must not hold the high watermark back. An added replica must be counted."""
    leading = leader(isr=(A, B))
    leading.make_leader(
        leader_epoch=1, partition_epoch=2, replicas=(A, B, BrokerId(7)), isr=(A, B), now_us=0
    )
    assert leading.follower_log_end_offset(BrokerId(7)) == Offset(-1)  # it has not fetched yet
    with pytest.raises(SimulationError):
        leading.follower_log_end_offset(C)
