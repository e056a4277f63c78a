"""Deadlines of sessions at the leader, rounded up to whole ticks.

A session expires if its client sends nothing until the deadline. Only the leader decides this (rule
ZK-10 of docs/kafka/ZOOKEEPER_CONSUMER.md). A tick is ZooKeeper's unit of time, 2 s by default.
Deadlines are at whole ticks, so that one check in each tick is enough.

Source: ZooKeeper `SessionTrackerImpl`.
"""

from collections.abc import Iterable

from protocol.messages.zookeeper import SessionId
from protocol.messages.zookeeper_quorum import ServerId


class SessionTracker:
    """Deadlines of the open sessions, and the server that each session's client is connected to.

    Times are in microseconds on the leader's clock.
    """

    def __init__(self, tick_us: int) -> None:
        self._tick_us = tick_us
        self._deadlines: dict[SessionId, int] = {}
        self._timeouts: dict[SessionId, int] = {}
        """The timeout of each open session, in microseconds."""
        self._servers: dict[SessionId, ServerId] = {}
        """The server of each session's client, as far as this leader knows the server."""

    def add(self, session_id: SessionId, timeout_us: int, now_us: int) -> None:
        """Track a session; its deadline is a full timeout from now."""
        self._timeouts[session_id] = timeout_us
        self.touch(session_id, now_us)

    def touch(self, session_id: SessionId, now_us: int) -> bool:
        """Postpone the deadline of a session whose client was active.

        The new deadline is the first whole tick after a full timeout from now. A deadline never
        moves back.
        Returns: False if the session is not tracked.
        """
        timeout_us = self._timeouts.get(session_id)
        if timeout_us is None:
            return False
        tick_us = self._tick_us
        deadline_us = ((now_us + timeout_us) // tick_us + 1) * tick_us
        if deadline_us > self._deadlines.get(session_id, 0):
            self._deadlines[session_id] = deadline_us
        return True

    def remove(self, session_id: SessionId) -> None:
        """Stop tracking a session that is over."""
        self._deadlines.pop(session_id, None)
        self._timeouts.pop(session_id, None)
        self._servers.pop(session_id, None)

    def move(self, session_id: SessionId, server_id: ServerId) -> None:
        """Record that a session's client is connected to `server_id` now."""
        self._servers[session_id] = server_id

    def has_moved(self, session_id: SessionId, server_id: ServerId) -> bool:
        """Return True if the session's client has moved from `server_id` to another server."""
        # A new leader does not know the servers of the sessions that are open already. Such a
        # session counts as not moved.
        return self._servers.get(session_id, server_id) != server_id

    def expired(self, now_us: int) -> tuple[SessionId, ...]:
        """Remove the sessions whose deadline has passed, and return them."""
        over = tuple(
            session_id
            for session_id, deadline_us in self._deadlines.items()
            if deadline_us <= now_us
        )
        for session_id in over:
            self.remove(session_id)
        return over

    def next_deadline_us(self) -> int | None:
        """Return the earliest deadline, or None if no session is open."""
        return min(self._deadlines.values(), default=None)

    def deadlines(self) -> Iterable[int]:
        """Return every deadline."""
        return self._deadlines.values()
