"""Offsets expire by offsets.retention.minutes, and groups with them (BEHAVIOUR 4.11, 5.6).

The recorded scenarios `b-*` tell the same of real Kafka.
"""

from coordinator.states import GroupState
from protocol.config import BrokerConfig
from tests.support.builders.requests import (
    leave_group,
    offset_commit,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness

MINUTE_MS = 60_000
RETENTION_MS = 5 * MINUTE_MS
LONG_SESSION_MS = 1_800_000


def harness() -> CoordinatorHarness:
    return CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=5)
    )


def look(h: CoordinatorHarness) -> None:
    """Let the periodic task run now."""
    h.execute(h.coordinator.expire_offsets(h.now_us))


def groups(h: CoordinatorHarness) -> list[str]:
    return [summary.group_id for summary in h.coordinator.groups()]


def stable(h: CoordinatorHarness) -> str:
    (member_id,) = h.stable_group(1, session_timeout_ms=LONG_SESSION_MS)
    return member_id


def test_explicit_expiry_takes_one_offset_and_leaves_the_group() -> None:
    """+1 and +3, at +2.

    MM-47: explicit expiry of one of two
    """
    h = harness()
    for partition, minutes in ((0, 1), (1, 3)):
        body = offset_commit({("t", partition): 7}, retention_time_ms=minutes * MINUTE_MS)
        h.commit(body, version=4)
    h.advance(MINUTE_MS - 1)
    look(h)
    assert (h.offset("t", 0), h.offset("t", 1)) == (7, 7)
    h.advance(1)
    look(h)
    assert (h.offset("t", 0), h.offset("t", 1)) == (-1, 7)
    h.advance(MINUTE_MS)
    look(h)
    assert (h.offset("t", 0), h.offset("t", 1)) == (-1, 7)
    after = h.failover()
    assert (after.offset("t", 0), after.offset("t", 1)) == (-1, 7)


def test_empty_group_without_offsets_goes_with_one_tombstone() -> None:
    """At the first look, however young it is.

    MM-48: Empty group without offsets is tombstoned
    """
    h = harness()
    h.leave(leave_group(stable(h)))
    before = len(h.log[0])
    look(h)
    assert groups(h) == []
    (batch,) = h.log[0][before:]
    assert batch.last_offset_delta == 0
    assert groups(h.failover()) == []


def test_simple_group_keeps_each_offset_for_the_retention_after_its_commit() -> None:
    """The group goes with the last one, without a tombstone of its own.

    MM-50: expiry of a simple group's last offsets
    MM-52: expiry of a simple consumer's offset
    """
    h = harness()
    h.commit(offset_commit({("t", 0): 7}))
    h.advance(1_000)
    h.commit(offset_commit({("t", 1): 7}))
    h.advance(RETENTION_MS - 1_001)
    look(h)
    assert h.offset("t", 0) == 7
    h.advance(1)
    look(h)
    assert (h.offset("t", 0), h.offset("t", 1)) == (-1, 7)
    h.advance(1_000)
    before = len(h.log[0])
    look(h)
    assert groups(h) == []
    assert [batch.last_offset_delta for batch in h.log[0][before:]] == [0]


def test_emptied_group_keeps_its_offsets_for_the_retention_after_it_became_empty() -> None:
    """The time counts from the state, not from the commits.

    MM-51: explicit and implicit expiry of a consumer group
    """
    h = harness()
    member_id = stable(h)
    h.commit(offset_commit({("foo", 0): 7}, member_id, 1))
    h.advance(2 * RETENTION_MS)
    look(h)
    assert h.offset("foo", 0) == 7
    h.leave(leave_group(member_id))
    h.advance(RETENTION_MS - 1)
    look(h)
    assert h.offset("foo", 0) == 7
    h.advance(1)
    look(h)
    assert groups(h) == []
    assert groups(h.failover()) == []


def test_explicit_expiry_waits_until_the_group_is_empty() -> None:
    """Nothing expires while the group's members consume the topic.

    MM-51: explicit and implicit expiry of a consumer group
    """
    h = harness()
    member_id = stable(h)
    body = offset_commit({("foo", 0): 7}, member_id, 1, retention_time_ms=MINUTE_MS)
    h.commit(body, version=4)
    h.advance(2 * MINUTE_MS)
    look(h)
    assert h.offset("foo", 0) == 7
    h.leave(leave_group(member_id))
    look(h)
    assert groups(h) == []


def test_stable_consumers_lose_the_offsets_of_topics_that_they_left() -> None:
    """The commit's own time counts; what is subscribed stays.

    MM-53: expiry in a Stable group spares what it subscribes to
    """
    h = harness()
    member_id = stable(h)
    h.commit(offset_commit({("foo", 0): 7, ("bar", 0): 7}, member_id, 1))
    h.advance(RETENTION_MS - 1)
    look(h)
    assert h.offset("bar", 0) == 7
    h.advance(1)
    look(h)
    assert (h.offset("foo", 0), h.offset("bar", 0)) == (7, -1)
    assert h.state() is GroupState.STABLE


def test_group_of_an_old_record_counts_from_each_commit() -> None:
    """BEHAVIOUR 4.11: a record without the time of its state, as brokers before 2.1 wrote them."""
    h = harness()
    member_id = stable(h)
    h.advance(MINUTE_MS)
    h.commit(offset_commit({("t", 0): 7}, member_id, 1))
    h.leave(leave_group(member_id))
    h.group().current_state_timestamp_ms = None
    h.advance(RETENTION_MS - 1)
    look(h)
    assert h.offset("t", 0) == 7
    h.advance(1)
    look(h)
    assert groups(h) == []
