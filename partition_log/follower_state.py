"""FollowerState: the progress of one follower, as its leader knows it. Source: Kafka `Replica`.

A follower copies its leader's log by fetches. It is caught up if it has every record that the
leader's log had at some moment within the last `replica.lag.time.max.ms`. A follower that is not
caught up leaves the in-sync replicas (ISR). A leader epoch is the number of a partition's
leadership; each election increases it.
"""

from protocol.ids import Offset

# Far below every time of a clock. The difference from such a time still fits into an int64.
NEVER_US = -(2**62)
"""Stands for the time of an event that has not happened: the first fetch of a follower, or the
first moment at which it was caught up."""
UNKNOWN_OFFSET = Offset(-1)


class SharedFetchTime:
    """The time of a follower's last Fetch, shared by its states in many partitions.

    One Fetch of a follower names all its partitions, and mostly only one of them has a new record.
    In the other partitions the follower is at the log end, and only the Fetch's time is recorded.
    Writing the time to each FollowerState would be most of the cost of the Fetch. So the states of
    these partitions share one object with the time.
    Units: `time_us` is on the leader's clock.
    """

    __slots__ = ("time_us",)

    def __init__(self) -> None:
        self.time_us = NEVER_US


class FollowerState:
    """State of one follower on its leader.

    Units: times are microseconds on the leader's clock.
    Attributes, to read only:
    - `log_end_offset`: the follower's log end in its last fetch, -1 before its first fetch;
    - `broker_epoch`: the broker epoch in its last fetch, None before its first fetch.
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
        """If it is not None, its time is the time of this follower's last fetch, which was from the
        log end."""
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

        is_new_leader: this broker did not lead in the epoch before; what it knew of the follower
            is forgotten.
        is_in_isr: the follower is in the ISR, and so counts as caught up now.
        Source: Kafka Replica.resetReplicaState.
        """
        self.count_alone()
        # The new leader has got no fetch of its followers yet. Since members of the ISR count as
        # caught up now, they stay in the ISR for the full lag time.
        caught_up_us = now_us if is_in_isr else NEVER_US
        self._last_caught_up_time_us = caught_up_us
        # A leader that is elected again in the next epoch keeps the log end that the follower had:
        # no other leader can have truncated the follower's log meanwhile.
        if is_new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.broker_epoch = None
            self._last_fetch_time_us = NEVER_US
            self._last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        else:
            self._last_fetch_time_us = caught_up_us
            self._last_fetch_leader_log_end_offset = leader_end_offset

    def update_fetch_state(
        self, *, fetch_offset: Offset, leader_end_offset: Offset, broker_epoch: int, now_us: int
    ) -> None:
        """Record a fetch from `fetch_offset`, which is the follower's log end.

        Source: Kafka Replica.updateFetchStateOrThrow.
        """
        self.count_alone()
        if fetch_offset >= leader_end_offset:
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        elif fetch_offset >= self._last_fetch_leader_log_end_offset:
            # The follower now has every record that the leader's log had at the follower's previous
            # fetch. So it counts as caught up at the time of that fetch. Without this case, a
            # follower of a busy leader would always count as lagging, because the leader has newer
            # records at every fetch.
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
        """Record a fetch from the leader's log end, by a follower that was there already."""
        self.count_alone()
        self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        self._last_fetch_time_us = now_us

    def count_with(self, shared: SharedFetchTime) -> None:
        """Take the time of the last fetch from `shared`, until `count_alone` is called.

        While `shared` is set, the follower fetches only from the log end.
        """
        self.count_alone()
        self._shared = shared

    def count_alone(self) -> None:
        """Stop sharing a time. The last shared time stays as the time of the last fetch.

        Does nothing if no time is shared.
        """
        shared = self._shared
        if shared is not None:
            self._shared = None
            self._last_fetch_time_us = max(self._last_fetch_time_us, shared.time_us)
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, shared.time_us)

    def is_caught_up(self, *, leader_end_offset: Offset, now_us: int, lag_max_us: int) -> bool:
        """Return True if the follower is at the log end, or was caught up within `lag_max_us`."""
        caught_up_us = self._last_caught_up_time_us
        if self._shared is not None:
            caught_up_us = max(caught_up_us, self._shared.time_us)
        return self.log_end_offset == leader_end_offset or now_us - caught_up_us <= lag_max_us
