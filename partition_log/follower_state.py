"""FollowerState: how far one follower has got, as far as its leader knows. Source: Kafka `Replica`.

A follower copies its leader's log by Fetches. It counts as caught up if, at some moment within the
last `replica.lag.time.max.ms`, it had every record that the leader had. A follower that is not
caught up must leave the ISR.
"""

from protocol.ids import Offset

# Far below every time of a clock, but the difference from such a time still fits into an int64.
NEVER_US = -(2**62)
"""Stands for the time of something that has not happened yet."""
UNKNOWN_OFFSET = Offset(-1)


class SharedFetchTime:
    """The time of a follower's last Fetch, shared by its states in many partitions.

    A follower's Fetch names all its partitions, and usually only one partition has a new record.
    For the other partitions, only the time of the Fetch must be noted. To write the time into the
    FollowerState of each partition would be most of the work for a Fetch. So these states share one
    object with the time, which is a time on the leader's clock. `FollowerState.count_with` begins
    the sharing, and `count_alone` ends it.
    """

    __slots__ = ("time_us",)

    def __init__(self) -> None:
        self.time_us = NEVER_US


class FollowerState:
    """What a leader knows about one follower. Times are microseconds on the leader's clock.

    Attributes, to read only:
    - `log_end_offset`: end of the follower's log at its last Fetch, -1 before its first Fetch;
    - `broker_epoch`: the broker epoch in its last Fetch, None before its first Fetch.
    """

    __slots__ = (
        "_last_caught_up_time_us",
        "_last_fetch_leader_log_end_offset",
        "_last_fetch_time_us",
        "_shared",
        "broker_epoch",
        "log_end_offset",
    )

    def __init__(self) -> None:
        self._shared: SharedFetchTime | None = None
        """The object with the time of the follower's last Fetch, while the follower only waits at
        the log end. Otherwise None."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None
        self._last_caught_up_time_us = NEVER_US
        self._last_fetch_time_us = NEVER_US
        self._last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        """The leader's log end at the follower's last fetch."""

    def reset(
        self, *, now_us: int, leader_end_offset: Offset, is_new_leader: bool, is_in_isr: bool
    ) -> None:
        """Begin a leader epoch.

        is_new_leader: True if this broker did not lead in the previous epoch. Then its knowledge
            about the follower is forgotten.
        is_in_isr: True if the follower is in the ISR.
        Source: Kafka Replica.resetReplicaState.
        """
        self.count_alone()
        # A new leader has not got any Fetch yet. Members of the ISR count as caught up now, so that
        # they have the full lag time before they must leave the ISR.
        caught_up_us = now_us if is_in_isr else NEVER_US
        self._last_caught_up_time_us = caught_up_us
        # If this broker led in the previous epoch, too, no other leader can have made the follower
        # truncate its log. So this leader still knows where the follower's log ends.
        if is_new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.broker_epoch = None
            self._last_fetch_time_us = NEVER_US
            self._last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        else:
            # As in Kafka, a member of the ISR counts as if it had fetched at this moment.
            self._last_fetch_time_us = caught_up_us
            self._last_fetch_leader_log_end_offset = leader_end_offset

    def update_fetch_state(
        self, *, fetch_offset: Offset, leader_end_offset: Offset, broker_epoch: int, now_us: int
    ) -> None:
        """Note a Fetch. `fetch_offset` is the end of the follower's log.

        Source: Kafka Replica.updateFetchStateOrThrow.
        """
        self.count_alone()
        if fetch_offset >= leader_end_offset:
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        elif fetch_offset >= self._last_fetch_leader_log_end_offset:
            # A busy leader has new records at every Fetch, so its followers are never at the end of
            # its log. But this follower now has all records that the leader had at the follower's
            # previous Fetch. So the follower counts as caught up at the time of the previous Fetch.
            self._last_caught_up_time_us = max(
                self._last_caught_up_time_us, self._last_fetch_time_us
            )
        self.log_end_offset = fetch_offset
        self._last_fetch_leader_log_end_offset = max(
            leader_end_offset, self._last_fetch_leader_log_end_offset
        )
        self._last_fetch_time_us = now_us
        self.broker_epoch = broker_epoch

    def fetched_at_end(self, now_us: int) -> None:
        """Note a Fetch from the leader's log end, by a follower that was at the log end already."""
        self.count_alone()
        self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        self._last_fetch_time_us = now_us

    def count_with(self, shared: SharedFetchTime) -> None:
        """Take the time of the last Fetch from `shared`, until `count_alone` is called.

        Meanwhile the follower must not fetch from another offset than the log end.
        """
        self.count_alone()
        self._shared = shared

    def count_alone(self) -> None:
        """Stop sharing a time. A shared time, if there is one, stays the time of the last Fetch."""
        shared = self._shared
        if shared is not None:
            self._shared = None
            self._last_fetch_time_us = max(self._last_fetch_time_us, shared.time_us)
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, shared.time_us)

    def is_caught_up(self, *, leader_end_offset: Offset, now_us: int, lag_max_us: int) -> bool:
        """Return True if the follower is at the log end, or was there in the last `lag_max_us`."""
        caught_up_us = self._last_caught_up_time_us
        if self._shared is not None:
            caught_up_us = max(caught_up_us, self._shared.time_us)
        return self.log_end_offset == leader_end_offset or now_us - caught_up_us <= lag_max_us
