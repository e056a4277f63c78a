"""Two things that a broker does later: answer an append with acks=all, and fire a timer.

`DelayedAppends.park` makes an append wait until the high watermark has reached an offset. A broker
calls `DelayedAppends.check` after each change of the partition. This call completes the appends
that need not wait any more. `KeyedTimers` sets and cancels timers by keys, such as the name of a
member.
"""

import pytest

from cluster.broker.replication.delayed_appends import DelayedAppends
from cluster.host.keyed_timers import KeyedTimers
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import ReplicaConfig
from partition_log.replica import Partition
from protocol.effects import CancelTimer, SetTimer
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.log import FetchPartition
from protocol.records.batch import Record
from tests.support.harness.virtual_hosts import HostLab

ME, FOLLOWER = BrokerId(0), BrokerId(1)
REPLICAS = (ME, FOLLOWER)
P0 = TopicPartition("orders", 0)


def leader() -> Partition:
    """Return the leader's replica of a partition with one follower, which is in the ISR."""
    partition = Partition(P0, ME, PartitionLog(P0, MemoryLogStorage()), ReplicaConfig())
    partition.make_leader(
        leader_epoch=0, partition_epoch=0, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    return partition


def append(partition: Partition) -> int:
    """Append a record, and return the high watermark at which it is committed."""
    acks_all = -1
    info = partition.append_records((Record(None, b"a"),), required_acks=acks_all, now_us=0)
    return info.next_offset


def follower_has(partition: Partition, offset: int) -> None:
    """Fetch from `offset` as the follower, which shows that it has all records below `offset`."""
    partition.fetch(
        FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=offset),
        replica_id=FOLLOWER,
        replica_epoch=-1,  # no epoch of the follower's broker, so the leader checks none
        max_bytes=1_000,
        now_us=0,
    )


def test_appends_complete_in_log_order_up_to_the_high_watermark() -> None:
    """One Fetch of the follower completes the first two appends, and not the third."""
    partition, appends = leader(), DelayedAppends()
    done: list[tuple[str, ErrorCode]] = []

    def park(name: str) -> None:
        appends.park(partition, append(partition), lambda error: done.append((name, error)))

    for name in ("a", "b", "c"):
        park(name)
    appends.check(partition)
    assert done == []  # the follower has no record yet
    follower_has(partition, 2)  # it has the records 0 and 1
    appends.check(partition)
    assert done == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]


def test_expired_append_is_not_completed_again() -> None:
    """A caller must not get a second outcome after REQUEST_TIMED_OUT.

    An append that has waited too long expires, but its record may still be committed afterwards.
    """
    partition, appends = leader(), DelayedAppends()
    done: list[ErrorCode] = []
    delayed = appends.park(partition, append(partition), done.append)
    appends.expire(delayed)
    follower_has(partition, 1)  # the record is committed now
    appends.check(partition)
    appends.expire(delayed)
    assert done == [ErrorCode.REQUEST_TIMED_OUT]


def test_loss_of_the_leadership_fails_every_waiting_append() -> None:
    """Whether the records survive depends on the new leader's log, so the callers get an error."""
    partition, appends = leader(), DelayedAppends()
    done: list[ErrorCode] = []
    for _ in range(2):
        appends.park(partition, append(partition), done.append)
    partition.make_follower(
        leader_id=FOLLOWER, leader_epoch=1, partition_epoch=1, replicas=REPLICAS, isr=REPLICAS
    )
    appends.check(partition)
    assert done == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_timer_with_the_same_key_replaces_the_pending_one() -> None:
    """A coordinator sets a member's timer again at each heartbeat, which extends its session."""
    lab = HostLab()
    fired: list[tuple[int, str]] = []
    timers = KeyedTimers(lab.host("a"), lambda key: fired.append((lab.loop.now_us(), key)))
    timers.apply([SetTimer(key="m", delay_us=100), SetTimer(key="n", delay_us=150)])
    lab.run_for(50)
    timers.apply([SetTimer(key="m", delay_us=200)])
    lab.run_for(1_000)
    assert fired == [(150, "n"), (250, "m")]  # m was set again at 50, for 200 us


def test_cancelled_timer_does_not_fire_and_may_be_set_again() -> None:
    """To cancel a timer that is not set, here "x", has no effect."""
    lab = HostLab()
    fired: list[str] = []
    timers = KeyedTimers(lab.host("a"), fired.append)
    timers.apply([SetTimer(key="m", delay_us=100), CancelTimer(key="m"), CancelTimer(key="x")])
    lab.run_for(1_000)
    assert fired == []
    timers.apply([SetTimer(key="m", delay_us=100)])
    lab.run_for(1_000)
    assert fired == ["m"]


def test_invariant_finds_an_append_that_waits_below_the_high_watermark() -> None:
    """A broker that forgets to call `check` when a high watermark moves is found."""
    partition, appends = leader(), DelayedAppends()
    appends.park(partition, append(partition), lambda error: None)
    appends.check_invariants()
    follower_has(partition, 1)  # moves the high watermark to 1
    with pytest.raises(InvariantViolation, match="an append below 1 has NONE, and waits"):
        appends.check_invariants()
    appends.check(partition)
    appends.check_invariants()


def test_invariant_finds_a_waiting_append_that_is_marked_as_done() -> None:
    """Planted bug: an append is marked as done, and still waits.

    Such an append cannot expire any more, so its request would never be answered.
    """
    partition, appends = leader(), DelayedAppends()
    delayed = appends.park(partition, append(partition), lambda error: None)
    delayed.is_done = True
    with pytest.raises(InvariantViolation, match="an append below 1 will not expire"):
        appends.check_invariants()
