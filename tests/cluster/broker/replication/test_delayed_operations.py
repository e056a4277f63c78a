"""Appends that wait for the high watermark, and timers that are named by keys.

The high watermark is the offset below which all in-sync replicas (the ISR) have the records. `park`
makes an append wait until the high watermark has reached an offset. `check` completes the appends
that need not wait any more. A broker calls `check` after each change of the partition.
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
    """Return a leader with one follower, which is in the ISR."""
    partition = Partition(P0, ME, PartitionLog(P0, MemoryLogStorage()), ReplicaConfig())
    partition.make_leader(
        leader_epoch=0, partition_epoch=0, replicas=REPLICAS, isr=REPLICAS, now_us=0
    )
    return partition


def append(partition: Partition) -> int:
    """Append a record, and return the offset that the high watermark must reach for it."""
    info = partition.append_records((Record(None, b"a"),), required_acks=-1, now_us=0)
    return info.next_offset


def follower_has(partition: Partition, offset: int) -> None:
    """Fetch as the follower, which shows the leader that it has all records before `offset`."""
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
    for name in ("a", "b", "c"):

        def completed(error: ErrorCode, name: str = name) -> None:
            done.append((name, error))

        appends.park(partition, append(partition), completed)
    appends.check(partition)
    assert done == []
    follower_has(partition, 2)  # it has the records 0 and 1
    appends.check(partition)
    assert done == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]


def test_expired_append_is_not_completed_again() -> None:
    """An append that has waited too long expires: its caller gets REQUEST_TIMED_OUT.

    The record may still be committed afterwards. The caller must not get a second outcome then.
    """
    partition, appends = leader(), DelayedAppends()
    done: list[ErrorCode] = []
    delayed = appends.park(partition, append(partition), done.append)
    appends.expire(delayed)
    follower_has(partition, 1)  # the record is committed now
    appends.check(partition)
    appends.expire(delayed)
    assert done == [ErrorCode.REQUEST_TIMED_OUT]


def test_lost_leadership_ends_every_delayed_operation() -> None:
    """The new leader's log decides whether the records survive, so the callers get an error."""
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
    """A heartbeat sets the timer of its member's session again, and so extends the session."""
    lab = HostLab()
    fired: list[tuple[int, str]] = []
    timers = KeyedTimers(lab.host("a"), lambda key: fired.append((lab.loop.now_us(), key)))
    timers.apply([SetTimer(key="m", delay_us=100), SetTimer(key="n", delay_us=150)])
    lab.run_for(50)
    timers.apply([SetTimer(key="m", delay_us=200)])
    lab.run_for(1_000)
    assert fired == [(150, "n"), (250, "m")]  # m was set again at 50, for 200 us


def test_cancelled_timer_does_not_fire_and_may_be_set_again() -> None:
    """The cancellation of a timer that is not set has no effect."""
    lab = HostLab()
    fired: list[str] = []
    timers = KeyedTimers(lab.host("a"), fired.append)
    # There is no timer with the key "x".
    timers.apply([SetTimer(key="m", delay_us=100), CancelTimer(key="m"), CancelTimer(key="x")])
    lab.run_for(1_000)
    assert fired == []
    timers.apply([SetTimer(key="m", delay_us=100)])
    lab.run_for(1_000)
    assert fired == ["m"]


def test_invariant_names_a_waiting_append_below_the_high_watermark() -> None:
    """When a high watermark moves, the broker must call `check`, which completes appends below it.

    The invariant finds a broker that has forgotten the call.
    """
    partition, appends = leader(), DelayedAppends()
    appends.park(partition, append(partition), lambda error: None)
    appends.check_invariants()
    follower_has(partition, 1)
    with pytest.raises(InvariantViolation, match="an append below 1 has NONE, and waits"):
        appends.check_invariants()
    appends.check(partition)
    appends.check_invariants()


def test_invariant_names_a_waiting_append_that_is_complete() -> None:
    """Planted bug: an append is marked as done, and still waits.

    Such an append cannot expire any more, so its request would never be answered.
    """
    partition, appends = leader(), DelayedAppends()
    delayed = appends.park(partition, append(partition), lambda error: None)
    delayed.is_done = True
    with pytest.raises(InvariantViolation, match="an append below 1 will not expire"):
        appends.check_invariants()
