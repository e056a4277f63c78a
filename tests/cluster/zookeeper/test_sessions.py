"""The deadlines of sessions at ZooKeeper's leader.

A client's session ends when the leader has heard nothing from the client for the session timeout,
here 6 s. The leader checks the deadlines only at its ticks, every 2 s. So a deadline is always at a
tick, and a packet of the client can only move it to a later tick. Ids such as ZK-10 name rules of
docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.zookeeper.sessions import SessionTracker
from protocol.messages.zookeeper import SessionId

TICK_US = 2_000_000
TIMEOUT_US = 6_000_000
"""The session timeout."""
SESSION = SessionId(7)


@pytest.mark.parametrize(
    ("heard_us", "deadline_us"),
    [(0, 8_000_000), (1, 8_000_000), (1_999_999, 8_000_000), (2_000_000, 10_000_000)],
)
def test_session_ends_at_a_tick_six_to_eight_seconds_after_its_last_packet(
    heard_us: int, deadline_us: int
) -> None:
    """The deadline is `(floor((lastHeard + timeout) / tick) + 1) * tick` (ZK-10)."""
    tracker = SessionTracker(TICK_US)
    tracker.add(SESSION, TIMEOUT_US, heard_us)

    assert tracker.next_deadline_us() == deadline_us
    assert tracker.expired(deadline_us - 1) == ()
    assert tracker.expired(deadline_us) == (SESSION,)
    assert tracker.next_deadline_us() is None  # `expired` has removed the session


@given(st.lists(st.integers(0, 20_000_000), min_size=1))
def test_deadline_never_decreases_and_is_always_a_whole_tick(heard_us: list[int]) -> None:
    """A follower may report an old packet late, which must not shorten the session.

    `heard_us` has the times of the packets, in the order in which the leader learns of the packets.
    """
    tracker = SessionTracker(TICK_US)
    tracker.add(SESSION, TIMEOUT_US, 0)
    last_deadline_us = 0
    for now_us in heard_us:
        tracker.touch(SESSION, now_us)
        (deadline_us,) = tracker.deadlines()
        assert deadline_us >= last_deadline_us
        assert deadline_us % TICK_US == 0
        last_deadline_us = deadline_us
    # The packet with the latest time decides when the session ends.
    latest_us = max(0, *heard_us)
    assert last_deadline_us == ((latest_us + TIMEOUT_US) // TICK_US + 1) * TICK_US


def test_ended_session_is_not_touched() -> None:
    """Expiry: the session is gone for good (ZK-15). A later packet does not bring it back."""
    tracker = SessionTracker(TICK_US)
    tracker.add(SESSION, TIMEOUT_US, 0)
    tracker.remove(SESSION)

    assert not tracker.touch(SESSION, now_us=1)
